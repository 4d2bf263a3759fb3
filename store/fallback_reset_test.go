package store_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
)

func (s *faulty) Inspect(ctx context.Context, policy, key string) (b store.Bucket, err error) {
	s.calls.Add(1)
	inspect := func() error {
		b, err = store.Inspect(ctx, s.Store, policy, key)
		return err
	}
	if f := s.fault.Load(); f != nil {
		return b, (*f)(ctx, inspect)
	}
	err = inspect()
	return b, err
}

// intercepted is a Store each of whose calls is first put to before, if that is set, and fails by its error.
type intercepted struct {
	store.Store
	before atomic.Pointer[func(store.Charge) error]
}

func (s *intercepted) intercept(before func(store.Charge) error) { s.before.Store(&before) }

func (s *intercepted) Take(ctx context.Context, charges []store.Charge, states []store.State) (bool, error) {
	if before := s.before.Load(); before != nil {
		if err := (*before)(charges[0]); err != nil {
			return false, err
		}
	}
	return s.Store.Take(ctx, charges, states)
}

// resetOf returns a charge that removes c's bucket, by a limit that is not that of c.
func resetOf(t testing.TB, c store.Charge) store.Charge {
	return store.Charge{Policy: c.Policy, Key: c.Key, Limit: limit(t, 1, time.Second, 10), Cost: store.Reset}
}

// months takes some tokens of a bucket that takes years to refill.
func months(t testing.TB, cost int64) store.Charge {
	return store.Charge{Policy: "p", Key: "k", Limit: limit(t, 1, 100*time.Hour, 600), Cost: cost}
}

func TestAResetInThePrimaryReachesTheNextOutage(t *testing.T) {
	for name, spend := range map[string]func(t *testing.T, d *duo){
		"what was known": func(t *testing.T, d *duo) { d.take(months(t, 600)) },
		"what the secondary has left": func(t *testing.T, d *duo) {
			d.fail(broken)
			d.take(months(t, 600))
			d.comeBack()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDuo(t, store.FallbackConfig{})
				spend(t, d)
				if ok, state := d.take(resetOf(t, months(t, 0))); !ok || state.Degraded || state.Remaining != 10 {
					t.Fatalf("%t, %+v", ok, state)
				}
				if left := d.peekPrimary(months(t, 0)).Remaining; left != 600 {
					t.Errorf("%d left in the primary, want 600", left)
				}
				d.fail(broken)
				if n := d.count(months(t, 1)); n != 600 {
					t.Errorf("%d allowed in the outage, want 600", n)
				}
				d.comeBack()
				if left := d.peekPrimary(months(t, 0)).Remaining; left != 0 {
					t.Errorf("%d left in the primary after the outage, want 0", left)
				}
			})
		})
	}
}

func TestAResetInAnOutageResetsThePrimaryBeforeItIsCharged(t *testing.T) {
	eachReplicas(t, func(t *testing.T, d *duo, replicas int64) {
		d.take(months(t, 590))
		d.fail(broken)
		if n := d.count(months(t, 1)); n != int(10/replicas) {
			t.Errorf("%d allowed of 10 that are left", n)
		}
		if ok, state := d.take(resetOf(t, months(t, 0))); !ok || !state.Degraded {
			t.Fatalf("%t, %+v", ok, state)
		}
		if n := d.count(months(t, 1)); n != int(600/replicas) {
			t.Errorf("%d replicas: %d allowed after the reset", replicas, n)
		}
		d.comeBack()
		d.wantMissing(months(t, 0), time.Duration(600/replicas))
	})
}

func TestAResetInAnOutageIsKeptThoughNothingIsSpent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDuo(t, store.FallbackConfig{MaxKeys: 2})
		d.take(months(t, 600))
		d.fail(broken)
		d.take(resetOf(t, months(t, 0)))
		one := months(t, 1)
		for i := range 10 { // for which there is no room without forgetting others
			one.Key = fmt.Sprint("other", i)
			d.take(one)
		}
		d.comeBack()
		d.wantMissing(months(t, 0), 0)
		if b, err := d.Inspect(t.Context(), "p", "k"); err != nil || b != (store.Bucket{}) {
			t.Errorf("%+v, %v, want none", b, err)
		}
	})
}

func TestAResetThatFailsInThePrimaryIsAnError(t *testing.T) {
	for name, f := range map[string]fault{"broken": broken, "a lost reply": lostReply, "hung": hung} {
		synctest.Test(t, func(t *testing.T) {
			d := newDuo(t, store.FallbackConfig{})
			d.take(months(t, 600))
			d.primary.have(f)
			reset := []store.Charge{resetOf(t, months(t, 0))}
			ok, err := d.Take(t.Context(), reset, make([]store.State, 1))
			if ok || err == nil || d.Away() != nil {
				t.Errorf("%s: %t, %v, away: %v", name, ok, err, d.Away())
			}
			d.fail(f)
			ok, err = d.Take(store.WithoutStandIn(t.Context()), reset, make([]store.State, 1))
			if ok || !errors.Is(err, store.ErrAway) {
				t.Errorf("%s: %t, %v, want ErrAway", name, ok, err)
			}
		})
	}
}

// A reset that the primary refuses as it comes back is tried again as long as the outage goes on, with what was spent
// since.
func TestAResetIsRepeatedUntilTheOutageEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDuo(t, store.FallbackConfig{})
		primary := &intercepted{Store: d.primary.Store}
		d.primary.Store = primary
		d.take(months(t, 600))
		d.fail(broken)
		d.take(resetOf(t, months(t, 0)))
		d.take(months(t, 7))
		primary.intercept(func(asked store.Charge) error {
			if asked.Policy == "p" && asked.Key == "k" {
				return errBroken
			}
			return nil
		})
		d.primary.mend()
		time.Sleep(time.Second)
		if d.Away() == nil {
			t.Fatal("the primary is asked, though it fails what is due")
		}
		primary.intercept(func(store.Charge) error { return nil })
		d.comeBack()
		d.wantMissing(months(t, 0), 7)
	})
}

// While the primary is being charged for an outage that has ended, a Reset waits for that, and what is not yet charged
// never is.
func TestAResetComesAfterWhatIsBeingChargedForAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDuo(t, store.FallbackConfig{})
		c := months(t, 500)
		held := make(chan struct{})
		primary := &intercepted{Store: d.primary.Store}
		d.primary.Store = primary
		var charging atomic.Bool
		primary.intercept(func(asked store.Charge) error {
			if asked.Key == c.Key && asked.Owed && charging.CompareAndSwap(false, true) {
				<-held
			}
			return nil
		})
		d.fail(broken)
		// What is spent as the outage ends is charged when it has ended.
		late := lookup{t.Context(), func() {
			if d.Away() != nil {
				d.comeBack()
			}
		}}
		if ok, err := d.Take(late, []store.Charge{c}, make([]store.State, 1)); !ok || err != nil {
			t.Fatal(ok, err)
		}
		synctest.Wait()
		if !charging.Load() {
			t.Fatal("nothing is being charged")
		}
		done := make(chan error, 1)
		go func() {
			_, err := d.Take(t.Context(), []store.Charge{resetOf(t, c)}, make([]store.State, 1))
			done <- err
		}()
		synctest.Wait()
		if len(done) > 0 {
			t.Error("did not wait")
		}
		limited, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if ok, err := d.Take(limited, []store.Charge{resetOf(t, c)}, make([]store.State, 1)); ok || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%t, %v, want the deadline", ok, err)
		}
		close(held)
		if err := <-done; err != nil {
			t.Error(err)
		}
		synctest.Wait()
		d.wantMissing(c, 0)
	})
}

func TestInspectByTheSecondaryInAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDuo(t, store.FallbackConfig{Replicas: 4})
		c := months(t, 1)
		d.take(c)
		inspect := func(ctx context.Context) store.Bucket {
			t.Helper()
			b, err := d.Inspect(ctx, c.Policy, c.Key)
			if err != nil {
				t.Fatal(err)
			}
			return b
		}
		if b := inspect(t.Context()); b.Degraded || b.Limit != c.Limit || b.State(c.Limit).Remaining != 599 {
			t.Errorf("%+v", b)
		}
		d.fail(broken)
		d.take(months(t, 9))
		b := inspect(t.Context())
		if s := b.State(b.Limit); !b.Degraded || !s.Degraded || !b.Used() || b.Limit == c.Limit || s.Remaining != 149-9 {
			t.Errorf("%+v, %+v", b, s)
		}
		if _, err := d.Inspect(store.WithoutStandIn(t.Context()), c.Policy, c.Key); !errors.Is(err, store.ErrAway) {
			t.Errorf("%v, want ErrAway", err)
		}
		d.comeBack()
		if b := inspect(t.Context()); b.Degraded || b.State(c.Limit).Remaining != 590 {
			t.Errorf("%+v", b)
		}
	})
}

func TestInspectsThatFailGiveThePrimaryUpAndThoseOfCallersThatLeaveDoNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDuo(t, store.FallbackConfig{})
		for range 100 {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			short, end := context.WithTimeout(t.Context(), time.Millisecond)
			d.primary.have(hung)
			for _, ctx := range []context.Context{ctx, short} {
				if _, err := d.Inspect(ctx, "p", "k"); !errors.Is(err, ctx.Err()) {
					t.Fatal(err)
				}
			}
			end()
		}
		if d.Away() != nil {
			t.Fatal("given up for callers that left")
		}
		d.primary.have(broken)
		for i := range 5 {
			if _, err := d.Inspect(store.WithoutStandIn(t.Context()), "p", "k"); !errors.Is(err, errBroken) {
				t.Errorf("%d: %v", i, err)
			}
		}
		if b, err := d.Inspect(t.Context(), "p", "k"); d.Away() == nil || err != nil || !b.Degraded {
			t.Errorf("%+v, %v, away: %v", b, err, d.Away())
		}
		d.comeBack()
	})
}

func TestDecoratorsOfAStoreThatIsNoInspectorSaySo(t *testing.T) {
	memory := memstore.New(memstore.Config{})
	defer memory.Close()
	plain := struct{ store.Store }{memory}
	f := store.Fallback(plain, memory, store.FallbackConfig{Logger: quiet, Failures: 1})
	defer f.Close()
	lease := store.Lease(plain, store.LeaseConfig{})
	defer lease.Close()
	for name, s := range map[string]store.Inspector{
		"CacheDenials": store.CacheDenials(plain, store.DenialConfig{}),
		"Lease":        lease,
		"Fallback":     f,
	} {
		if _, err := s.Inspect(t.Context(), "p", "k"); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%s: %v, want ErrUnsupported", name, err)
		}
	}
	if f.Away() != nil {
		t.Error("given up for what it cannot do")
	}
}
