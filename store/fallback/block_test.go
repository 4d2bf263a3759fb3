package fallback_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/teststore"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/fallback"
)

// blockOf returns a charge that blocks c's bucket, by a limit that is not that of c.
func blockOf(c store.Charge, d time.Duration) store.Charge {
	return store.Charge{Policy: c.Policy, Key: c.Key, Limit: store.Limit{Unit: 1, Refill: 1 << 52, Capacity: 1 << 52}, Block: d}
}

func (d *duo) block(c store.Charge, length time.Duration) {
	d.t.Helper()
	if ok, state := d.take(blockOf(c, length)); !ok || state.Blocked != (length > 0) || state.RetryAfter != max(0, length) {
		d.t.Fatalf("%t, %+v", ok, state)
	}
}

// wantDenied checks that c is denied by a block that lasts until then.
func (d *duo) wantDenied(c store.Charge, until time.Time) {
	d.t.Helper()
	for range 2 {
		if ok, state := d.take(c); ok || !state.Blocked || state.RetryAfter != time.Until(until) {
			d.t.Errorf("%t, %+v, want it blocked for %v", ok, state, time.Until(until))
		}
	}
}

// wantSpent checks how many tokens the primary's bucket of c misses, but for what has refilled in minutes.
func (d *duo) wantSpent(c store.Charge, want int64) {
	d.t.Helper()
	if missing := int64((d.peekPrimary(c).ResetAfter + 50*time.Hour) / (100 * time.Hour)); missing != want {
		d.t.Errorf("%s misses %d in the primary, want %d", c.Key, missing, want)
	}
}

// wantBlocked checks until when the primary's bucket of c is blocked, zero for not at all, with some milliseconds for the
// way to it.
func (d *duo) wantBlocked(c store.Charge, until time.Time, lock bool) {
	d.t.Helper()
	primary := d.primary.Store
	if i, ok := primary.(*teststore.Intercepted); ok {
		primary = i.Store
	}
	b, err := store.Inspect(d.t.Context(), primary, c.Policy, c.Key)
	if err != nil {
		d.t.Fatal(err)
	}
	want := max(0, time.Until(until))
	if b.Blocked < want-time.Millisecond || b.Blocked > want+time.Millisecond || b.Locked != lock {
		d.t.Errorf("the primary has it blocked for %v, by a lock: %t; want %v, %t", b.Blocked, b.Locked, want, lock)
	}
}

func TestABlockBeforeAnOutageIsInForceInIt(t *testing.T) {
	for name, block := range map[string]func(d *duo, c store.Charge){
		"made here": func(d *duo, c store.Charge) { d.block(c, time.Minute) },
		"met by a denial": func(d *duo, c store.Charge) {
			teststore.Must(d.t, d.primary.Store, blockOf(c, time.Minute))
			d.take(c)
		},
		"met by a look": func(d *duo, c store.Charge) {
			teststore.Must(d.t, d.primary.Store, blockOf(c, time.Minute))
			c.Cost = 0
			d.take(c)
		},
		"met by an inspection": func(d *duo, c store.Charge) {
			teststore.Must(d.t, d.primary.Store, blockOf(c, time.Minute))
			if _, err := d.Inspect(d.t.Context(), c.Policy, c.Key); err != nil {
				d.t.Error(err)
			}
		},
		"made longer": func(d *duo, c store.Charge) {
			d.block(c, 10*time.Second)
			d.take(c)
			teststore.Must(d.t, d.primary.Store, blockOf(c, time.Minute))
			d.take(c)
		},
		"made shorter": func(d *duo, c store.Charge) {
			d.block(c, time.Hour)
			d.block(c, time.Minute)
		},
		"after single failures": func(d *duo, c store.Charge) {
			d.block(c, 2*time.Minute)
			d.primary.Have(teststore.Refused)
			d.take(c)
			d.primary.Mend()
			d.block(c, time.Minute)
		},
	} {
		t.Run(name, func(t *testing.T) {
			eachReplicas(t, func(t *testing.T, d *duo, replicas int64) {
				c := teststore.Months(t, 1)
				d.take(teststore.Months(t, 100))
				block(d, c)
				until := time.Now().Add(time.Minute)
				d.fail(teststore.Broken)
				if b, err := d.Inspect(t.Context(), c.Policy, c.Key); err != nil || b.Blocked != time.Until(until) || !b.Degraded {
					t.Errorf("%+v, %v", b, err)
				}
				d.wantDenied(c, until)
				time.Sleep(time.Until(until) - time.Microsecond)
				d.wantDenied(c, until)
				time.Sleep(time.Microsecond)
				if n := d.count(c); n != int(500/replicas) {
					t.Errorf("%d replicas: %d allowed after the block", replicas, n)
				}
				d.comeBack()
				d.wantSpent(c, 100+500/replicas)
				d.wantBlocked(c, time.Time{}, false)
			})
		})
	}
}

// A replica that has not met a block does not know of it in an outage.
func TestABlockThatWasNotMetIsNotInForceInAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDuo(t, fallback.Config{})
		c := teststore.Months(t, 1)
		teststore.Must(t, d.primary.Store, blockOf(c, time.Hour))
		until := time.Now().Add(time.Hour)
		d.fail(teststore.Broken)
		if n := d.count(c); n != 600 {
			t.Errorf("%d allowed", n)
		}
		d.comeBack()
		d.wantSpent(c, 600)
		d.wantBlocked(c, until, false)
	})
}

func TestABlockInAnOutageGoesToThePrimaryAfterIt(t *testing.T) {
	for name, before := range map[string]func(d *duo, c store.Charge){
		"a bucket that is not blocked": func(*duo, store.Charge) {},
		"a bucket that is blocked":     func(d *duo, c store.Charge) { d.block(c, time.Minute) },
		"in place of a longer block":   func(d *duo, c store.Charge) { d.block(c, 24*time.Hour) },
	} {
		t.Run(name, func(t *testing.T) {
			eachReplicas(t, func(t *testing.T, d *duo, replicas int64) {
				c := teststore.Months(t, 1)
				d.take(teststore.Months(t, 100))
				d.fail(teststore.Broken)
				for range 7 {
					d.take(c)
				}
				other := c
				other.Key = "unknown"
				d.comeBack()
				before(d, c)
				d.fail(teststore.Broken)
				until := time.Now().Add(2 * time.Minute)
				d.block(c, 2*time.Minute)
				d.block(other, 2*time.Minute)
				d.wantDenied(c, until)
				d.wantDenied(other, until)
				if ok, state := d.take(owed(c, 3)); !ok || !state.Blocked {
					t.Errorf("owed: %t, %+v", ok, state)
				}
				time.Sleep(10 * time.Second)
				d.wantDenied(c, until)
				d.comeBack()
				d.wantBlocked(c, until, false)
				d.wantBlocked(other, until, false)
				d.wantSpent(c, 110)
				d.wantSpent(other, 0)
				if ok, state := d.take(c); ok || state.Degraded || !state.Blocked {
					t.Errorf("%t, %+v", ok, state)
				}
				// And the next outage begins with it.
				d.fail(teststore.Broken)
				if ok, state := d.take(other); ok || !state.Degraded || !state.Blocked {
					t.Errorf("%t, %+v", ok, state)
				}
				time.Sleep(3 * time.Minute)
				if n := d.count(c); n != int(500/replicas-10) { // it was lowered by all of the outages
					t.Errorf("%d replicas: %d allowed after the block", replicas, n)
				}
			})
		})
	}
}

func TestABlockThatEndsInTheOutageInWhichItReplacedALongerOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDuo(t, fallback.Config{})
		c := teststore.Months(t, 1)
		d.block(c, time.Hour)
		d.fail(teststore.Broken)
		d.block(c, time.Minute)
		time.Sleep(time.Minute)
		if ok, _ := d.take(c); !ok {
			t.Error("denied after the shorter block")
		}
		d.comeBack()
		d.wantBlocked(c, time.Time{}, false)
	})
}

func TestAnUnblockInAnOutageGoesToThePrimaryAfterIt(t *testing.T) {
	for name, block := range map[string]func(d *duo, c store.Charge){
		"of a block that is known": func(d *duo, c store.Charge) {
			d.block(c, time.Hour)
			d.fail(teststore.Broken)
		},
		"of one that is in force": func(d *duo, c store.Charge) {
			d.block(c, time.Hour)
			d.fail(teststore.Broken)
			d.take(c)
		},
		"of one that is not known": func(d *duo, c store.Charge) {
			teststore.Must(d.t, d.primary.Store, blockOf(c, time.Hour))
			d.fail(teststore.Broken)
		},
		"of one that was made in it": func(d *duo, c store.Charge) {
			d.fail(teststore.Broken)
			d.block(c, time.Hour)
		},
	} {
		t.Run(name, func(t *testing.T) {
			eachReplicas(t, func(t *testing.T, d *duo, replicas int64) {
				c := teststore.Months(t, 1)
				d.take(teststore.Months(t, 100))
				block(d, c)
				if ok, state := d.take(blockOf(c, -1)); !ok || state.Blocked || !state.Degraded {
					t.Fatalf("%t, %+v", ok, state)
				}
				if n := d.count(c); n != int(500/replicas) {
					t.Errorf("%d replicas: %d allowed", replicas, n)
				}
				d.comeBack()
				d.wantBlocked(c, time.Time{}, false)
				d.wantSpent(c, 100+500/replicas)
				d.fail(teststore.Broken)
				if _, state := d.take(c); state.Blocked {
					t.Error("blocked in the next outage")
				}
			})
		})
	}
}

// A block that others end is known to have ended with the next answer, also if it was in force in the secondary.
func TestABlockThatEndsElsewhereIsNotInForceInTheNextOutage(t *testing.T) {
	for name, met := range map[string]bool{"in force in the secondary": true, "never in force there": false} {
		for how, end := range map[string]store.Charge{"unblocked": blockOf(teststore.Months(t, 0), -1), "reset": teststore.ResetOf(t, teststore.Months(t, 0))} {
			t.Run(name+", "+how, func(t *testing.T) {
				eachReplicas(t, func(t *testing.T, d *duo, replicas int64) {
					c := teststore.Months(t, 1)
					d.block(c, time.Hour)
					if met {
						d.fail(teststore.Broken)
						d.take(c)
						d.comeBack()
					}
					teststore.Must(t, d.primary.Store, end)
					if ok, _ := d.take(c); !ok {
						t.Fatal("denied")
					}
					d.fail(teststore.Broken)
					if n := d.count(c); n != int(599/replicas) {
						t.Errorf("%d replicas: %d allowed", replicas, n)
					}
				})
			})
		}
	}
}

func TestALockInAnOutage(t *testing.T) {
	locking := func(t *testing.T, cost int64) store.Charge {
		c := teststore.Months(t, cost)
		c.Block = time.Hour
		return c
	}
	for name, test := range map[string]func(t *testing.T, d *duo, replicas int64){
		"goes to the primary if it is empty": func(t *testing.T, d *duo, replicas int64) {
			d.fail(teststore.Broken)
			until := time.Now().Add(time.Hour)
			if n := d.count(locking(t, 1)); n != int(600/replicas) {
				t.Errorf("%d allowed", n)
			}
			d.wantDenied(locking(t, 1), until.Add(max(0, time.Duration(replicas)*100*time.Hour-time.Hour)))
			time.Sleep(time.Minute)
			d.comeBack()
			d.wantSpent(teststore.Months(t, 0), 600/replicas)
			if replicas > 1 {
				until = time.Time{}
			}
			d.wantBlocked(teststore.Months(t, 0), until, replicas == 1)
		},
		"ends with a refund": func(t *testing.T, d *duo, replicas int64) {
			d.fail(teststore.Broken)
			d.count(locking(t, 1))
			if ok, state := d.take(teststore.Months(t, -1)); !ok || state.Blocked {
				t.Errorf("%t, %+v", ok, state)
			}
			if n := d.count(teststore.Months(t, 1)); n != 1 {
				t.Errorf("%d allowed after the refund", n)
			}
			d.comeBack()
			d.wantSpent(teststore.Months(t, 0), 600/replicas)
			d.wantBlocked(teststore.Months(t, 0), time.Time{}, false)
		},
		"is a block if the bucket was unblocked before": func(t *testing.T, d *duo, replicas int64) {
			d.block(teststore.Months(t, 0), 24*time.Hour)
			d.fail(teststore.Broken)
			d.take(blockOf(teststore.Months(t, 0), -1))
			until := time.Now().Add(time.Hour)
			d.count(locking(t, 1))
			d.comeBack()
			d.wantBlocked(teststore.Months(t, 0), until, false)
		},
		"is no longer one if a refund ends that": func(t *testing.T, d *duo, replicas int64) {
			d.block(teststore.Months(t, 0), 24*time.Hour)
			d.fail(teststore.Broken)
			d.take(blockOf(teststore.Months(t, 0), -1))
			d.count(locking(t, 1))
			d.take(teststore.Months(t, -1))
			d.comeBack()
			d.wantBlocked(teststore.Months(t, 0), time.Time{}, false)
		},
		"of a single call that failed is left to the primary": func(t *testing.T, d *duo, replicas int64) {
			d.primary.Have(teststore.LostReply)
			d.take(locking(t, 600/replicas))
			d.primary.Mend()
			if replicas == 1 {
				d.wantBlocked(teststore.Months(t, 0), time.Now().Add(time.Hour), true)
			}
			teststore.Must(t, d.primary.Store, teststore.ResetOf(t, teststore.Months(t, 0)))
			d.fail(teststore.Broken)
			if ok, state := d.take(teststore.Months(t, 0)); !ok || state.Blocked {
				t.Errorf("%t, %+v", ok, state)
			}
		},
	} {
		t.Run(name, func(t *testing.T) { eachReplicas(t, test) })
	}
}

func TestAResetInAnOutageEndsABlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDuo(t, fallback.Config{})
		c := teststore.Months(t, 1)
		d.block(c, time.Hour)
		d.fail(teststore.Broken)
		d.take(teststore.ResetOf(t, c))
		if n := d.count(c); n != 600 {
			t.Errorf("%d allowed", n)
		}
		other := c
		other.Key = "other"
		d.block(other, time.Hour)
		d.take(teststore.ResetOf(t, other))
		last := c
		last.Key = "last"
		d.take(teststore.ResetOf(t, last))
		until := time.Now().Add(time.Hour)
		d.block(last, time.Hour)
		d.comeBack()
		d.wantBlocked(c, time.Time{}, false)
		d.wantBlocked(other, time.Time{}, false)
		d.wantBlocked(last, until, false)
	})
}

// The refill of a blocked bucket and of one that is not are the same.
func TestWhatRefillsInAnOutageIsNotChargedForABlockedBucket(t *testing.T) {
	for _, blocks := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			d := newDuo(t, fallback.Config{})
			c := store.Charge{Policy: "p", Key: "k", Limit: teststore.Limit(t, 1, time.Second, 10), Cost: 1}
			d.fail(teststore.Broken)
			for range 30 {
				d.take(c)
				time.Sleep(time.Second)
			}
			if blocks {
				d.block(c, time.Hour)
			}
			d.comeBack()
			b, err := store.Inspect(t.Context(), d.primary.Store, "p", "k")
			b.Blocked = 0
			if left := b.State(c.Limit).Remaining; err != nil || left < 9 {
				t.Errorf("blocked %t: %d left", blocks, left)
			}
		})
	}
}

func TestReplicasAndABlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 3)
		c := teststore.Months(t, 1)
		one := func(n int, c store.Charge) (bool, store.State) {
			t.Helper()
			states := make([]store.State, 1)
			ok, err := f.stores[n].Take(t.Context(), []store.Charge{c}, states)
			if err != nil {
				t.Fatal(err)
			}
			return ok, states[0]
		}
		one(0, blockOf(c, time.Hour))
		one(1, c) // meets it
		f.primary.Have(teststore.Broken)
		f.away()
		for n, want := range []bool{false, false, true} {
			if ok, state := one(n, c); ok != want || state.Blocked == want {
				t.Errorf("replica %d: %t, %+v", n, ok, state)
			}
		}
		one(1, blockOf(c, 2*time.Hour))
		until := time.Now().Add(2 * time.Hour)
		f.primary.Mend()
		time.Sleep(time.Second)
		for n := range 3 {
			if ok, state := one(n, c); ok || !state.Blocked || state.Degraded || state.RetryAfter != time.Until(until).Round(time.Microsecond) {
				t.Errorf("replica %d: %t, %+v", n, ok, state)
			}
		}
	})
}

func TestABlockThatFailsInThePrimaryIsAnError(t *testing.T) {
	for name, f := range map[string]teststore.Fault{"broken": teststore.Broken, "refused": teststore.Refused, "hung": teststore.Hung} {
		synctest.Test(t, func(t *testing.T) {
			d := newDuo(t, fallback.Config{})
			for _, length := range []time.Duration{time.Hour, -1} {
				d.primary.Have(f)
				block := []store.Charge{blockOf(teststore.Months(t, 0), length)}
				if ok, err := d.Take(t.Context(), block, make([]store.State, 1)); ok || err == nil || d.Away() != nil {
					t.Errorf("%s: %t, %v, away: %v", name, ok, err, d.Away())
				}
				d.primary.Mend()
				time.Sleep(2 * time.Second)
			}
			d.fail(f)
			if ok, err := d.Take(store.WithoutStandIn(t.Context()), []store.Charge{blockOf(teststore.Months(t, 0), time.Hour)}, make([]store.State, 1)); ok || !errors.Is(err, store.ErrAway) {
				t.Errorf("%s: %t, %v, want ErrAway", name, ok, err)
			}
		})
	}
}

// A block that the primary fails as it comes back is sent again, and what was spent is charged once.
func TestABlockIsRepeatedAfterAnOutage(t *testing.T) {
	for name, c := range map[string]struct {
		fails error
		ends  bool // the outage, meanwhile
	}{"while the outage lasts": {teststore.ErrBroken, false}, "until it was sent": {fmt.Errorf("no connection: %w", store.ErrNotCharged), true}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDuo(t, fallback.Config{})
				primary := &teststore.Intercepted{Store: d.primary.Store}
				d.primary.Store = primary
				d.take(teststore.Months(t, 100))
				d.fail(teststore.Broken)
				d.take(teststore.ResetOf(t, teststore.Months(t, 0)))
				d.take(teststore.Months(t, 7))
				d.block(teststore.Months(t, 0), time.Hour)
				until := time.Now().Add(time.Hour)
				primary.Intercept(func(asked store.Charge) error {
					if asked.Block != 0 {
						return c.fails
					}
					return nil
				})
				d.primary.Mend()
				time.Sleep(3 * time.Second)
				if ended := d.Away() == nil; ended != c.ends {
					t.Errorf("the outage has ended: %t", ended)
				}
				primary.Intercept(func(store.Charge) error { return nil })
				d.comeBack()
				time.Sleep(time.Second)
				d.wantBlocked(teststore.Months(t, 0), until, false)
				d.wantSpent(teststore.Months(t, 0), 7)
			})
		})
	}
}

// A block that is made while an earlier one is on its way to the primary comes last.
func TestABlockWhileAnEarlierOneIsSent(t *testing.T) {
	for name, fails := range map[string]error{"that arrives": nil, "that fails": fmt.Errorf("no connection: %w", store.ErrNotCharged)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDuo(t, fallback.Config{})
				primary := &teststore.Intercepted{Store: d.primary.Store}
				d.primary.Store = primary
				d.fail(teststore.Broken)
				d.block(teststore.Months(t, 0), time.Hour)
				var until time.Time
				primary.Intercept(func(asked store.Charge) error {
					if asked.Block == 0 || !until.IsZero() {
						return nil
					}
					until = time.Now().Add(2 * time.Hour)
					d.block(teststore.Months(t, 0), 2*time.Hour)
					return fails
				})
				d.comeBack()
				time.Sleep(time.Second)
				d.wantBlocked(teststore.Months(t, 0), until, false)
			})
		})
	}
}

// A due block gives way to a later block.
func TestABlockAfterAnOutageTakesThePlaceOfOneThatIsDue(t *testing.T) {
	for name, fails := range map[string]bool{"and is made": false, "and fails": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDuo(t, fallback.Config{})
				primary := &teststore.Intercepted{Store: d.primary.Store}
				d.primary.Store = primary
				d.fail(teststore.Broken)
				d.take(teststore.Months(t, 7))
				d.block(teststore.Months(t, 0), time.Hour)
				until := time.Now().Add(time.Hour)
				held := fmt.Errorf("no connection: %w", store.ErrNotCharged)
				primary.Intercept(func(asked store.Charge) error {
					if asked.Block > time.Minute {
						return held
					}
					return nil
				})
				d.comeBack()
				if fails {
					primary.Intercept(func(asked store.Charge) error {
						if asked.Block != 0 {
							return held
						}
						return nil
					})
				} else {
					until = time.Now().Add(time.Minute)
				}
				ok, err := d.Take(t.Context(), []store.Charge{blockOf(teststore.Months(t, 0), time.Minute)}, make([]store.State, 1))
				if ok == fails || (err != nil) != fails {
					t.Fatal(ok, err)
				}
				primary.Intercept(func(store.Charge) error { return nil })
				time.Sleep(5 * time.Second)
				d.wantBlocked(teststore.Months(t, 0), until, false)
				d.wantSpent(teststore.Months(t, 0), 7)
			})
		})
	}
}

func TestABlockInAnOutageIsKeptThoughThereIsNoRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDuo(t, fallback.Config{MaxKeys: 2})
		d.fail(teststore.Broken)
		until := time.Now().Add(time.Hour)
		d.block(teststore.Months(t, 0), time.Hour)
		one := teststore.Months(t, 1)
		for i := range 10 {
			one.Key = fmt.Sprint("other", i)
			d.take(one)
		}
		second := teststore.Months(t, 1)
		second.Key = "second"
		d.block(second, time.Hour)
		d.comeBack()
		d.wantBlocked(teststore.Months(t, 0), until, false)
		d.wantBlocked(second, until, false)
	})
}

func TestLocksInAnOutageDoNotMakeTheLedgerForgetABlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDuo(t, fallback.Config{MaxKeys: 64})
		d.fail(teststore.Broken)
		until := time.Now().Add(time.Hour)
		d.block(teststore.Months(t, 0), time.Hour)
		for i := range 2000 {
			lock := teststore.Months(t, 600)
			lock.Key, lock.Block = fmt.Sprint("lock", i), time.Hour
			d.take(lock)
		}
		d.comeBack()
		d.wantBlocked(teststore.Months(t, 0), until, false)
	})
}

// Clients can make locks, but not blocks.
func TestLocksDoNotMakeAReplicaForgetBlocks(t *testing.T) {
	t.Run("many locks", func(t *testing.T) { testLocksAndBlocks(t, 100, 5000) })
	t.Run("many blocks", func(t *testing.T) { testLocksAndBlocks(t, 4096, 500) })
}

func testLocksAndBlocks(t *testing.T, blocks, locks int) {
	synctest.Test(t, func(t *testing.T) {
		// So much room that of no hash there are more buckets than places, or an empty one would be forgotten.
		d := newDuo(t, fallback.Config{MaxKeys: 1 << 20})
		c := teststore.Months(t, 600)
		name := func(kind string, i int) store.Charge {
			c.Key = fmt.Sprint(kind, i)
			return c
		}
		before := blocks
		if locks > 4096 {
			before /= 2
		}
		for i := range before {
			d.block(name("block", i), time.Minute)
		}
		for i := range locks {
			lock := name("lock", i)
			lock.Block = time.Hour
			d.take(lock)
		}
		for i := before; i < blocks; i++ { // which take the places of locks
			d.block(name("block", i), time.Minute)
		}
		d.fail(teststore.Broken)
		for i := range blocks {
			if ok, state := d.take(name("block", i)); ok || !state.Blocked {
				t.Fatalf("block %d: %t, %+v", i, ok, state)
			}
		}
		known := 0
		for i := range locks {
			lock := name("lock", i)
			lock.Cost = 1
			if ok, state := d.take(lock); ok {
				t.Fatalf("lock %d: allowed by an empty bucket", i)
			} else if state.Blocked {
				known++
			}
		}
		if known != 4096-blocks {
			t.Errorf("%d locks are remembered", known)
		}
	})
}
