package memstore_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/testsize"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
)

// setBlock blocks the bucket of c for d, or unblocks it if d is 0.
func setBlock(t testing.TB, s store.Store, c store.Charge, d time.Duration) {
	t.Helper()
	if degraded, err := store.SetBlock(t.Context(), s, c.Policy, c.Key, store.Block{For: d}); err != nil || degraded {
		t.Fatal(degraded, err)
	}
}

func look(t testing.TB, s store.Store, c store.Charge) store.State {
	t.Helper()
	c.Cost = 0
	return take(t, s, c)
}

func TestBlockedBucketsAreSweptWhenTheirBlockHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := ratelimit.Must(memstore.New(memstore.Config{}))
		defer s.Close()
		for i := range 1000 { // more than a sweep takes at once, which is of a shard
			setBlock(t, s, charge(t, fmt.Sprint("k", i), 0), time.Duration(1+i%2)*time.Minute)
		}
		count := func(after time.Duration, want int) {
			t.Helper()
			time.Sleep(after)
			if got := s.Len(); got != want {
				t.Errorf("%d buckets, want %d", got, want)
			}
		}
		count(59*time.Second, 1000)
		count(3*time.Second, 500)
		setBlock(t, s, charge(t, "k1", 0), 0)
		count(2*time.Second, 499)
		count(55*time.Second, 499)
		count(3*time.Second, 0)
	})
}

// Whatever is charged, blocked, reset and forgotten, the tables of a shard agree, and no block is lost or left over.
func TestTables(t *testing.T) {
	for name, most := range map[string]int{"full": 20, "with room": 100} {
		t.Run(name, func(t *testing.T) {
			n := newNow()
			s := ratelimit.Must(memstore.New(memstore.Config{MaxKeys: most, Clock: n.clock}))
			defer s.Close()
			r := rand.New(rand.NewPCG(17, 0))
			until := make(map[string]time.Time)
			lost, blocked := 0, 0
			one := func(k int, cost int64) store.Charge { // the policy is a part of the key
				c := charge(t, fmt.Sprintf("p%dk%d", k%3, k), cost)
				c.Policy = c.Key[:2]
				return c
			}
			remember := func(key string) {
				delete(until, key)
				if b, _ := s.Inspect(t.Context(), key[:2], key); b.Blocked > 0 {
					until[key] = n.clock().Add(b.Blocked)
				}
			}
			for step := range testsize.Of(3_000, 20_000) {
				if r.IntN(4) == 0 {
					c := one(r.IntN(60), 0)
					setBlock(t, s, c, max(0, time.Duration(r.Int64N(int64(20*time.Second)))-5*time.Second))
					remember(c.Key)
				}
				charges := make([]store.Charge, 1+r.IntN(3))
				for i, k := range r.Perm(60)[:len(charges)] {
					c := one(k, 1+r.Int64N(60))
					switch r.IntN(8) {
					case 0, 1, 2:
						c.Lock = time.Duration(r.Int64N(int64(20 * time.Second)))
					case 3:
						c.Cost = 0
					case 4:
						c.Cost = -c.Cost
					case 5:
						c.Limit = policy(t, "", 1+r.Int64N(300), time.Minute, 100)("").Limit
						if r.IntN(4) == 0 {
							c.Limit = policy(t, "", 1, time.Microsecond, 1)("").Limit
						}
					case 6:
						c.Cost, c.Owed, c.Shadow = c.Cost*r.Int64N(4), true, r.IntN(2) == 0
					case 7:
						if r.IntN(10) == 0 {
							c.Cost = store.Reset
						} else if len(charges) == 1 {
							c.Settles = true
						}
					}
					charges[i] = c
				}
				states := make([]store.State, len(charges))
				if _, err := s.Take(t.Context(), charges, states); err != nil {
					t.Fatal(err)
				}
				if fault := s.Check(); fault != "" || s.Len() > most {
					t.Fatalf("step %d: %s, %d buckets", step, fault, s.Len())
				}
				for i, state := range states {
					k := charges[i].Key
					if state.Blocked {
						blocked++
					}
					if !state.Blocked && until[k].After(n.clock()) && charges[i].Cost >= 0 {
						lost++
					}
					remember(k)
				}
				if r.IntN(10) == 0 {
					n.advance(time.Duration(r.Int64N(int64(5 * time.Second))))
				}
				if r.IntN(50) == 0 {
					s.Sweep()
				}
			}
			if blocked < 200 || lost > 0 && most > 60 {
				t.Errorf("%d buckets were blocked, and %d were forgotten", blocked, lost)
			}
		})
	}
}

// A client can make up keys. It does not push out what is blocked, however little of it is spent.
func TestMintedKeysForgetNoBlockedBucket(t *testing.T) {
	const most, shut = 600, 200
	slow, fast := policy(t, "p", 10, 24*time.Hour, 10), policy(t, "p", 100, time.Second, 10)
	for name, c := range map[string]struct{ victim, minted func(any) store.Charge }{
		"of the same limit":        {slow, slow},
		"of one that fills faster": {fast, slow},
		"of one that fills slower": {slow, fast},
		"of another policy":        {policy(t, "q", 10, time.Hour, 10), slow},
	} {
		t.Run(name, func(t *testing.T) {
			s := openFull(t, most)
			for i := range shut {
				setBlock(t, s, c.victim(i), time.Minute)
			}
			for i := range 2 * most {
				m := c.minted(fmt.Sprint("minted", i))
				m.Cost = 10
				take(t, s, m)
			}
			for i := range shut {
				if state := take(t, s, c.victim(i)); state.Allowed || state.RetryAfter != time.Minute {
					t.Fatalf("%d: %+v", i, state)
				}
			}
			if s.Len() != most {
				t.Errorf("%d buckets, want %d", s.Len(), most)
			}
		})
	}
}

func TestOfBlockedBucketsTheNextToEndMakesRoom(t *testing.T) {
	s := openFull(t, 4)
	of := policy(t, "p", 1, time.Minute, 10)
	for key, d := range map[string]time.Duration{"a": 4 * time.Hour, "b": time.Hour, "c": 3 * time.Hour, "d": 2 * time.Hour} {
		setBlock(t, s, of(key), d)
	}
	setBlock(t, s, of("d"), 5*time.Hour)
	setBlock(t, s, of("c"), time.Minute)
	kept := func(want string) {
		t.Helper()
		got := ""
		for _, key := range []string{"a", "b", "c", "d", "x", "y"} {
			if b, err := s.Inspect(t.Context(), "p", key); err != nil {
				t.Fatal(err)
			} else if b != (store.Bucket{}) {
				got += key
			}
		}
		if got != want {
			t.Errorf("%s are kept, want %s", got, want)
		}
	}
	take(t, s, of("x"))
	kept("abdx")
	take(t, s, of("y")) // x is the only one that is not blocked
	kept("abdy")
	setBlock(t, s, of("y"), 2*time.Hour)
	take(t, s, of("x"))
	kept("adxy")
}

// Without the sweep, blocks that have ended end when room is needed.
func TestEndedBlocksMakeRoomAsOtherBuckets(t *testing.T) {
	const most = 1000 // more than are unblocked at once
	n := newNow()
	s := openAt(t, n, most)
	of := policy(t, "p", 1, time.Hour, 10)
	for i := range 10 {
		spent := of(fmt.Sprint("spent", i))
		spent.Cost = 10
		take(t, s, spent)
		setBlock(t, s, spent, time.Second)
	}
	for i := range most - 10 {
		setBlock(t, s, of(i), time.Minute)
	}
	n.advance(time.Minute)
	mint(t, s, of, 0, most-10)
	for i := range 10 {
		if state := look(t, s, of(fmt.Sprint("spent", i))); state.Remaining != 0 {
			t.Errorf("%+v of a bucket that is spent, while others were full", state)
		}
	}
	if fault := s.Check(); fault != "" {
		t.Error(fault)
	}
}
