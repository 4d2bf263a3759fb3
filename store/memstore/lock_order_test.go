package memstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit/store"
)

// chargesOn returns charges on that many shards of s, in the order of the shards, and two more on the first of them.
func chargesOn(t *testing.T, s *Store, shards int) (charges []store.Charge, on []int) {
	t.Helper()
	limit, err := store.NewLimit(1, time.Hour, 1000)
	if err != nil {
		t.Fatal(err)
	}
	step := len(s.shards) / shards
	for want := 0; len(on) < shards; want += step {
		for i := 0; len(charges) < len(on)+1; i++ {
			c := store.Charge{Policy: "p", Key: fmt.Sprint("k", i), Limit: limit, Cost: 1}
			if s.shardOf(c) == want {
				charges = append(charges, c)
			}
		}
		on = append(on, want)
	}
	for i := 0; len(charges) < shards+2; i++ {
		c := store.Charge{Policy: "p", Key: fmt.Sprint("again", i), Limit: limit, Cost: 1}
		if s.shardOf(c) == on[0] {
			charges = append(charges, c)
		}
	}
	return charges, on
}

func (s *Store) shardOf(c store.Charge) int { return int(hash(s.seed, c.Policy, c.Key) >> s.shift) }

// held reports whether somebody holds the lock of a shard.
func (s *Store) held(n int) bool {
	if s.shards[n].mu.TryLock() {
		s.shards[n].mu.Unlock()
		return false
	}
	return true
}

// Otherwise two calls could each hold what the other waits for. While the test holds one shard, a call has locked all
// shards before that one, and none after it.
func TestShardsAreLockedInOneOrder(t *testing.T) {
	const bound = 10 * time.Second // of what takes microseconds
	r := rand.New(rand.NewPCG(13, 0))
	s, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	charges, on := chargesOn(t, s, 8)
	for range 5 {
		r.Shuffle(len(charges), func(i, j int) { charges[i], charges[j] = charges[j], charges[i] })
		for at, n := range on {
			s.shards[n].mu.Lock()
			done := make(chan error, 1)
			go func() {
				_, err := s.Take(context.Background(), charges, make([]store.State, len(charges)))
				done <- err
			}()
			before := func() []int { return slices.DeleteFunc(slices.Clone(on[:at]), s.held) }
			for begin := time.Now(); len(before()) > 0 && time.Since(begin) < bound; {
				time.Sleep(time.Microsecond)
			}
			if free := before(); len(free) > 0 {
				t.Errorf("a call that waits for shard %d has not locked shards %v", n, free)
			}
			for _, later := range on[at+1:] {
				if s.held(later) {
					t.Errorf("a call that waits for shard %d has locked shard %d", n, later)
				}
			}
			s.shards[n].mu.Unlock()
			select {
			case err := <-done:
				if err != nil {
					t.Error(err)
				}
			case <-time.After(bound):
				t.Fatal("a call waits for what it holds")
			}
			if t.Failed() {
				return
			}
			if still := slices.DeleteFunc(slices.Clone(on), func(n int) bool { return !s.held(n) }); len(still) > 0 {
				t.Fatalf("shards %v are locked after the call", still)
			}
		}
	}
}
