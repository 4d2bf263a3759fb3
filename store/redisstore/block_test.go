package redisstore_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/redistest"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

// block blocks the bucket of a key of policy p, or unblocks it if d is 0.
func block(t *testing.T, s store.Blocker, key string, d time.Duration) {
	t.Helper()
	if degraded, err := s.Block(t.Context(), "p", key, store.Block{For: d, Reason: "alice: " + key}); err != nil || degraded {
		t.Fatal(degraded, err)
	}
}

func TestInspectOfABlockedBucketByTheServersClock(t *testing.T) {
	server := redistest.Start(t)
	s := ratelimit.Must(redisstore.New(server.Client(), redisstore.Config{}))
	c := charge(t, "k")
	c.Cost = 100
	take(t, s, c)
	block(t, s, "k", time.Hour)
	inspect := func(least, most time.Duration, locked bool, reason string) {
		t.Helper()
		b, err := s.Inspect(t.Context(), "p", "k")
		if err != nil || b.Limit != c.Limit || b.Blocked < least || b.Blocked > most || b.Locked != locked || b.Reason != reason {
			t.Errorf("%+v, %v, want blocked for %v to %v, by a lock: %t, for %q", b, err, least, most, locked, reason)
		}
		if b.BlockedSince < 0 || b.BlockedSince > time.Minute || (b.BlockedSince > 0) != (b.Blocked > 0) {
			t.Errorf("%+v", b)
		}
	}
	inspect(59*time.Minute, time.Hour, false, "alice: k")
	block(t, s, "k", 0)
	inspect(0, 0, false, "")
	c.Cost, c.Lock, c.Owed = 1, time.Minute, true
	take(t, s, c)
	inspect(59*time.Second, time.Minute, true, "")

	key := "ratelimit:{k}:p"
	for _, bad := range []string{"", "x", "1.5", "9007199254740993"} {
		server.Do("HSET", key, "blocked_until", bad)
		if b, err := s.Inspect(t.Context(), "p", "k"); err == nil {
			t.Errorf("%q: %+v, want an error", bad, b)
		}
	}
}

// A bucket that is full has nothing but its block.
func TestABlockOfAnUnknownBucket(t *testing.T) {
	server := redistest.Start(t)
	s := ratelimit.Must(redisstore.New(server.Client(), redisstore.Config{}))
	block(t, s, "k", time.Hour)
	if b, err := s.Inspect(t.Context(), "p", "k"); err != nil || b.Blocked < time.Hour-time.Minute || b.Limit != (store.Limit{}) || b.Reason != "alice: k" {
		t.Errorf("%+v, %v", b, err)
	}
	if ok, states := takeStates(t, s, charge(t, "k")); ok || !states[0].Blocked {
		t.Errorf("%t, %+v", ok, states)
	}
	block(t, s, "k", 0)
	if n := server.Client().Exists(t.Context(), "ratelimit:{k}:p").Val(); n != 0 {
		t.Error("the unblocked bucket is still there")
	}
	if ok, states := takeStates(t, s, charge(t, "k")); !ok || states[0].Remaining != 99 {
		t.Errorf("%t, %+v, want the denial forgotten", ok, states)
	}
}

// A call over several slots whose other bucket refuses gives back what it took, and with that ends the lock that it
// made. A blocked bucket refuses such a call, and none is charged.
func TestBlocksOverSeveralSlots(t *testing.T) {
	client := redistest.SharedCluster(t, 3).Client()
	s := ratelimit.Must(redisstore.New(client, redisstore.Config{
		Prefix: prefix(), CrossSlot: redisstore.CrossSlotNever, MaxDenials: -1, Logger: quiet,
	}))
	defer s.Close()
	last, other := charge(t, "last"), charge(t, "other")
	last.Limit, last.Lock = limit(t, 1, time.Hour, 1), time.Hour
	last.Cost, other.Cost = 1, 100
	take(t, s, other)
	other.Cost = 90
	for _, name := range []string{"at once", "in turn"} {
		ok, states := takeStates(t, s, last, other)
		if ok || states[0].Blocked || !states[0].Allowed || states[0].Remaining != 1 {
			t.Errorf("%s: %t, %+v", name, ok, states)
		}
		if b, err := s.Inspect(t.Context(), last.Policy, last.Key); err != nil || b.Blocked != 0 {
			t.Errorf("%s: %+v, %v, want no lock", name, b, err)
		}
	}

	full := charge(t, "full")
	block(t, s, "full", time.Hour)
	for _, name := range []string{"in turn", "at once"} {
		if name == "at once" {
			redisstore.ForgetRefusals(s)
		}
		before := redisStats(t, s).Calls
		ok, states := takeStates(t, s, last, full)
		if sent := redisStats(t, s).Calls - before; name == "in turn" && sent != 2 {
			t.Errorf("%s: %d calls, want 2 that look", name, sent)
		}
		if ok || !states[1].Blocked || states[1].Allowed || states[0].Blocked || states[0].Remaining != 1 {
			t.Errorf("%s: %t, %+v", name, ok, states)
		}
	}
	redisstore.ForgetRefusals(s)

	// The locks of an allowed call are made, also where no bucket can refuse them.
	owed := full
	owed.Key, owed.Cost, owed.Owed, owed.Lock = "owed", 100, true, time.Minute
	ok, states := takeStates(t, s, last, owed)
	for i, least := range []time.Duration{time.Hour, time.Minute} {
		if !ok || !states[i].Blocked || states[i].RetryAfter > least || states[i].RetryAfter < least*9/10 {
			t.Errorf("%t, %+v, want it blocked for %v", ok, states[i], least)
		}
	}
}

// losesReply returns a hook that loses the reply to the n-th script call.
func losesReply(n int32) hook {
	var calls atomic.Int32
	return func(ctx context.Context, cmd redis.Cmder, send redis.ProcessHook) error {
		err := send(ctx, cmd)
		if callsScript(cmd) && calls.Add(1) == n {
			err = context.DeadlineExceeded
			cmd.SetErr(err)
		}
		return err
	}
}

// A call of a blocked bucket is sent twice. Whichever reply is lost, it is charged at most once, also if the bucket is
// unblocked between the two.
func TestACallOfABlockedBucketIsChargedAtMostOnce(t *testing.T) {
	server := redistest.Start(t)
	for _, lose := range []int32{0, 1, 2} {
		for _, unblocked := range []bool{false, true} {
			server.Do("FLUSHALL")
			client := server.Client()
			c := charge(t, "k")
			plain := ratelimit.Must(redisstore.New(server.Client(), redisstore.Config{}))
			take(t, plain, c) // which loads take_one.lua
			block(t, plain, "k", time.Hour)
			client.AddHook(losesReply(lose))
			if unblocked { // after each command
				client.AddHook(hook(func(ctx context.Context, cmd redis.Cmder, send redis.ProcessHook) error {
					err := send(ctx, cmd)
					if callsScript(cmd) {
						block(t, plain, "k", 0)
					}
					return err
				}))
			}
			ok, err := tryFor(patient, ratelimit.Must(redisstore.New(client, redisstore.Config{})), c)
			if want := unblocked && lose == 0; ok != want || (err != nil) != (lose > 0) {
				t.Errorf("reply %d lost, unblocked %t: %t, %v", lose, unblocked, ok, err)
			}
			most := int64(99)
			if unblocked && lose != 1 {
				most = 98
			}
			block(t, plain, "k", 0)
			wantLeft(t, plain, most, c)
		}
	}
}

// Calls of one batch, some of which lock and some of whose buckets are blocked, are answered each for itself.
func TestBlocksInABatch(t *testing.T) {
	server := redistest.Start(t)
	s := ratelimit.Must(redisstore.New(server.Client(), redisstore.Config{MaxInFlight: 1, MaxDenials: -1}))
	defer s.Close()
	few := charge(t, "few")
	few.Limit, few.Lock = limit(t, 1, time.Hour, 3), time.Hour
	shut, open := charge(t, "shut"), charge(t, "open")
	block(t, s, "shut", time.Minute)

	server.Pause()
	var wait sync.WaitGroup
	type result struct {
		ok    bool
		state store.State
	}
	var mu sync.Mutex
	results := make(map[string][]result)
	call := func(c store.Charge) {
		wait.Go(func() {
			ok, states := takeStates(t, s, c)
			mu.Lock()
			defer mu.Unlock()
			results[c.Key] = append(results[c.Key], result{ok, states[0]})
		})
	}
	call(charge(t, "first"))
	until(t, "in flight", func() bool { return redisStats(t, s).InFlight > 0 })
	for range 5 {
		call(few)
		call(shut)
		call(open)
	}
	until(t, "queued", func() bool { return redisStats(t, s).Queued == 15 })
	server.Resume()
	wait.Wait()
	allowed, blocked := make(map[string]int), make(map[string]int)
	for key, all := range results {
		for _, r := range all {
			if r.ok {
				allowed[key]++
			}
			if r.state.Blocked {
				blocked[key]++
			}
			if key == "few" && r.state.Blocked == (r.state.Remaining > 0) {
				t.Errorf("%s: %+v", key, r)
			}
		}
	}
	if allowed["few"] != 3 || blocked["few"] != 3 || allowed["shut"] != 0 || blocked["shut"] != 5 || allowed["open"] != 5 || blocked["open"] != 0 {
		t.Errorf("allowed %v, blocked %v: %+v", allowed, blocked, results)
	}
}
