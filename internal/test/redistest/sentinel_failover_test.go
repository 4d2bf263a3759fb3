package redistest

import "testing"

func TestSentinelFailover(t *testing.T) {
	t.Parallel()
	s := StartSentinelWithReplica(t)
	client := s.Client()
	if err := client.Set(t.Context(), "key", "before", 0).Err(); err != nil {
		t.Fatal(err)
	}
	waitUntil(t, "the replica has the key", func() bool { return s.Replica.Do("DBSIZE") == int64(1) })
	s.Master.Kill()
	s.WaitFailover()
	if got := s.Replica.Do("GET", "key"); got != "before" {
		t.Errorf("key after the failover = %v, want before", got)
	}
	if err := s.Client().Set(t.Context(), "key", "after", 0).Err(); err != nil {
		t.Error(err)
	}
	waitUntil(t, "a client from before the failover uses the new master", func() bool {
		return client.Get(t.Context(), "key").Val() == "after"
	})
}
