package redisstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/test/redistest"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

// A bucket that was spent under a quick limit does not become full under a slow one when the TTL of the quick one ends.
func TestABucketWhoseLimitIsChangedKeepsItsKeyUntilItIsFull(t *testing.T) {
	client := redistest.Start(t).Client()
	quick, slow := limit(t, 10, time.Second, 10), limit(t, 1000, time.Hour, 1000)
	for name, clock := range map[string]func() time.Time{"server's clock": nil, "callers' clock": time.Now} {
		for _, denials := range []int{0, -1} {
			own := prefix()
			s := redisstore.New(client, redisstore.Config{Prefix: own, Clock: clock, MaxDenials: denials})
			for debt := range int64(3) {
				c := store.Charge{Policy: "p", Key: fmt.Sprint("k", debt), Limit: quick, Cost: 10}
				take(t, s, c)
				if debt > 0 {
					take(t, s, store.Charge{Policy: "p", Key: c.Key, Limit: quick, Cost: 1000 * debt, Owed: true})
				}
				c.Cost = 1
				take(t, s, c) // a denial that may be remembered
				c.Limit, c.Cost = slow, 500
				before := time.Now()
				state := take(t, s, c)
				if state.Allowed || state.ResetAfter < time.Hour/2 {
					t.Fatalf("%s: %+v, want it denied", name, state)
				}
				key := own + ":{" + c.Key + "}:p"
				if ttl := client.PTTL(t.Context(), key).Val(); ttl < state.ResetAfter-time.Since(before) {
					t.Errorf("%s, debt %d: the TTL is %v, and the bucket full after %v only", name, debt, ttl, state.ResetAfter)
				}
				if b, err := s.Inspect(t.Context(), c.Policy, c.Key); err != nil || b.Limit != slow {
					t.Errorf("%s: %+v, %v, want it under %+v", name, b, err, slow)
				}
			}
		}
	}
}

// A denial under the same limit has nothing to write, and a denial under another one writes once.
func TestADenialUnderAnotherLimitWritesOnce(t *testing.T) {
	client := redistest.Start(t).Client()
	s := redisstore.New(client, asking)
	c := store.Charge{Policy: "p", Key: "k", Limit: limit(t, 10, time.Minute, 10), Cost: 10}
	take(t, s, c)
	writes := func() int { return commandCalls(t, client, "hset", "pexpire") }
	before, reads := writes(), commandCalls(t, client, "hmget")
	c.Limit = limit(t, 1, time.Hour, 10)
	for range 10 {
		take(t, s, c)
	}
	if n := writes() - before; n != 2 {
		t.Errorf("%d writes by 10 denials, want an HSET and a PEXPIRE", n)
	}
	if n := commandCalls(t, client, "hmget") - reads; n != 11 {
		t.Errorf("%d reads by 10 denials, want one each, and one more of the script that does not answer", n)
	}
}

// A charge under a quick limit does not make a key expire before the bucket is full under a slow one. Otherwise a client
// whose limit swings would find a full bucket again and again.
func TestNoChargeShortensATTL(t *testing.T) {
	client := redistest.Start(t).Client()
	quick, slow := limit(t, 5, time.Second, 5), limit(t, 1000, 24*time.Hour, 1000)
	s := redisstore.New(client, redisstore.Config{MaxDenials: -1})
	c := store.Charge{Policy: "p", Key: "k", Limit: slow, Cost: 900}
	take(t, s, c)
	ttl := func() time.Duration { return client.PTTL(t.Context(), "ratelimit:{k}:p").Val() }
	before := ttl()
	c.Limit, c.Cost = quick, 1
	take(t, s, c)
	take(t, s, c)
	take(t, s, owes(c, 20))
	c.Cost = -2
	take(t, s, c)
	block(t, s, "k", time.Second)
	block(t, s, "k", 0)
	take(t, s, c)
	if after := ttl(); after < before-10*time.Second {
		t.Errorf("the TTL is %v, and was %v", after, before)
	}
}
