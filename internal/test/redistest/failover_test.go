package redistest

import (
	"fmt"
	"slices"
	"testing"
)

func TestClusterFailover(t *testing.T) {
	t.Parallel()
	const masters = 3
	c := StartClusterWithReplicas(t, masters)
	if got := len(c.Replicas); got != masters {
		t.Fatalf("the cluster has %d replicas, want %d", got, masters)
	}
	var addrs []string
	for _, node := range slices.Concat(c.Nodes, c.Replicas) {
		addrs = append(addrs, node.Addr())
	}
	if got := c.Addrs(); !slices.Equal(got, addrs) {
		t.Errorf("addresses = %v, want %v", got, addrs)
	}

	client := c.Client()
	var keys [masters]string // one on each master
	for i := 0; slices.Contains(keys[:], ""); i++ {
		key := fmt.Sprint("key", i)
		keys[c.Owner(c.Slot(key))] = key
	}
	for _, key := range keys {
		if err := client.Set(t.Context(), key, "before", 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	const killed = 0
	waitUntil(t, "the replica has the key", func() bool { return c.Replicas[killed].Do("DBSIZE") == int64(1) })
	c.Nodes[killed].Kill()
	c.WaitFailover(killed)
	// A client looks for new masters once a minute by default.
	client = c.Client()
	for _, key := range keys {
		if got, err := client.Get(t.Context(), key).Result(); got != "before" || err != nil {
			t.Errorf("%s after the failover = %q, %v, want before", key, got, err)
		}
		if err := client.Set(t.Context(), key, "after", 0).Err(); err != nil {
			t.Errorf("set %s after the failover: %v", key, err)
		}
	}
	endsTest := endOf(t, func(tb testing.TB) {
		view := &Cluster{Nodes: c.Nodes, Replicas: c.Replicas, tb: tb}
		view.Owner(c.Slot(keys[killed]))
	})
	if endsTest != "fatal" {
		t.Errorf("end of the test that asks for the owner of a lost slot = %q, want fatal", endsTest)
	}

	c.Nodes[killed].Restart()
	waitUntil(t, "the restarted master is a replica", func() bool {
		return c.Nodes[killed].Do("ROLE").([]any)[0] == "slave"
	})
	c.Nodes[killed].waitInSync()
}

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
