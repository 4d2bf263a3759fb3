package redisstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/redistest"
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
	writes := func() int { return commandCalls(t, client, "hset") + commandCalls(t, client, "pexpire") }
	before, reads := writes(), commandCalls(t, client, "hmget")
	c.Limit = limit(t, 1, time.Hour, 10)
	for range 10 {
		take(t, s, c)
	}
	if n := writes() - before; n != 2 {
		t.Errorf("%d writes by 10 denials, want an HSET and a PEXPIRE", n)
	}
	if n := commandCalls(t, client, "hmget") - reads; n != 11 {
		t.Errorf("%d reads by 10 denials, want one each, and the unit once", n)
	}
}

// Also where the call is refused by a bucket in another place, before it has taken anything.
func TestACallOverSeveralSlotsPutsItsBucketsUnderTheirLimits(t *testing.T) {
	r := ring(t)
	quick, slow := limit(t, 10, time.Second, 10), limit(t, 1000, time.Hour, 1000)
	s := redisstore.New(r, redisstore.Config{Prefix: prefix(), MaxDenials: -1})
	refusing := charge(t, "refusing")
	refusing.Limit = limit(t, 1, time.Hour, 1)
	take(t, s, refusing)
	for i := range 20 { // some of them in the other place, and from the second call on in turn
		for name, change := range map[string]func(*store.Charge){
			"charge": func(*store.Charge) {},
			"refund": func(c *store.Charge) { c.Cost = -1 },
			"owed":   func(c *store.Charge) { c.Owed = true },
			"shadow": func(c *store.Charge) { c.Shadow = true },
			"peek":   func(c *store.Charge) { c.Cost = 0 },
			"reset":  func(c *store.Charge) { c.Cost = store.Reset },
		} {
			c := store.Charge{Policy: "p", Key: fmt.Sprint(name, i), Limit: quick, Cost: 10}
			take(t, s, c)
			c.Limit, c.Cost = slow, 1
			change(&c)
			if ok, err := tryFor(10*time.Second, s, c, refusing); ok || err != nil {
				t.Fatalf("ok %t, error %v, want a refusal", ok, err)
			}
			want := slow
			if c.Cost == 0 || c.Cost == store.Reset {
				want = quick
			}
			if b, err := s.Inspect(t.Context(), c.Policy, c.Key); err != nil || b.Limit != want && b != (store.Bucket{}) {
				t.Errorf("%s %d: %+v, %v, want it under %+v", name, i, b, err, want)
			}
		}
	}
}
