package fallback_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/teststore"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/denialcache"
	"github.com/go-tokenbucket/ratelimit/store/fallback"
	"github.com/go-tokenbucket/ratelimit/store/lease"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
)

func TestAResetInThePrimaryReachesTheNextOutage(t *testing.T) {
	for name, spend := range map[string]func(t *testing.T, d *duo){
		"what was known": func(t *testing.T, d *duo) { d.take(teststore.Months(t, 600)) },
		"what the secondary has left": func(t *testing.T, d *duo) {
			d.fail(teststore.Broken)
			d.take(teststore.Months(t, 600))
			d.comeBack()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDuo(t, fallback.Config{})
				spend(t, d)
				if ok, state := d.take(teststore.ResetOf(t, teststore.Months(t, 0))); !ok || state.Degraded || state.Remaining != 10 {
					t.Fatalf("%t, %+v", ok, state)
				}
				if left := d.peekPrimary(teststore.Months(t, 0)).Remaining; left != 600 {
					t.Errorf("%d left in the primary, want 600", left)
				}
				d.fail(teststore.Broken)
				if n := d.count(teststore.Months(t, 1)); n != 600 {
					t.Errorf("%d allowed in the outage, want 600", n)
				}
				d.comeBack()
				if left := d.peekPrimary(teststore.Months(t, 0)).Remaining; left != 0 {
					t.Errorf("%d left in the primary after the outage, want 0", left)
				}
			})
		})
	}
}

func TestAResetInAnOutageResetsThePrimaryBeforeItIsCharged(t *testing.T) {
	eachReplicas(t, func(t *testing.T, d *duo, replicas int64) {
		d.take(teststore.Months(t, 590))
		d.fail(teststore.Broken)
		if n := d.count(teststore.Months(t, 1)); n != int(10/replicas) {
			t.Errorf("%d allowed of 10 that are left", n)
		}
		if ok, state := d.take(teststore.ResetOf(t, teststore.Months(t, 0))); !ok || !state.Degraded {
			t.Fatalf("%t, %+v", ok, state)
		}
		if n := d.count(teststore.Months(t, 1)); n != int(600/replicas) {
			t.Errorf("%d replicas: %d allowed after the reset", replicas, n)
		}
		d.comeBack()
		d.wantMissing(teststore.Months(t, 0), time.Duration(600/replicas))
	})
}

func TestAResetInAnOutageIsKeptThoughNothingIsSpent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDuo(t, fallback.Config{MaxKeys: 2})
		d.take(teststore.Months(t, 600))
		d.fail(teststore.Broken)
		d.take(teststore.ResetOf(t, teststore.Months(t, 0)))
		one := teststore.Months(t, 1)
		for i := range 10 { // for which there is no room without forgetting others
			one.Key = fmt.Sprint("other", i)
			d.take(one)
		}
		d.comeBack()
		d.wantMissing(teststore.Months(t, 0), 0)
		if b, err := d.Inspect(t.Context(), "p", "k"); err != nil || b != (store.Bucket{}) {
			t.Errorf("%+v, %v, want none", b, err)
		}
	})
}

func TestAResetThatFailsInThePrimaryIsAnError(t *testing.T) {
	for name, f := range map[string]teststore.Fault{"broken": teststore.Broken, "a lost reply": teststore.LostReply, "hung": teststore.Hung} {
		synctest.Test(t, func(t *testing.T) {
			d := newDuo(t, fallback.Config{})
			d.take(teststore.Months(t, 600))
			d.primary.Have(f)
			reset := []store.Charge{teststore.ResetOf(t, teststore.Months(t, 0))}
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
		d := newDuo(t, fallback.Config{})
		primary := &teststore.Intercepted{Store: d.primary.Store}
		d.primary.Store = primary
		d.take(teststore.Months(t, 600))
		d.fail(teststore.Broken)
		d.take(teststore.ResetOf(t, teststore.Months(t, 0)))
		d.take(teststore.Months(t, 7))
		primary.Intercept(func(asked store.Charge) error {
			if asked.Policy == "p" && asked.Key == "k" {
				return teststore.ErrBroken
			}
			return nil
		})
		d.primary.Mend()
		time.Sleep(time.Second)
		if d.Away() == nil {
			t.Fatal("the primary is asked, though it fails what is due")
		}
		primary.Intercept(func(store.Charge) error { return nil })
		d.comeBack()
		d.wantMissing(teststore.Months(t, 0), 7)
	})
}

// While the primary is being charged for an outage that has ended, a Reset waits for that, and what is not yet charged
// never is.
func TestAResetComesAfterWhatIsBeingChargedForAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDuo(t, fallback.Config{})
		c := teststore.Months(t, 500)
		held := make(chan struct{})
		primary := &teststore.Intercepted{Store: d.primary.Store}
		d.primary.Store = primary
		var charging atomic.Bool
		primary.Intercept(func(asked store.Charge) error {
			if asked.Key == c.Key && asked.Owed && charging.CompareAndSwap(false, true) {
				<-held
			}
			return nil
		})
		d.fail(teststore.Broken)
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
			_, err := d.Take(t.Context(), []store.Charge{teststore.ResetOf(t, c)}, make([]store.State, 1))
			done <- err
		}()
		synctest.Wait()
		if len(done) > 0 {
			t.Error("did not wait")
		}
		limited, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if ok, err := d.Take(limited, []store.Charge{teststore.ResetOf(t, c)}, make([]store.State, 1)); ok || !errors.Is(err, context.DeadlineExceeded) {
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
		d := newDuo(t, fallback.Config{Replicas: 4})
		c := teststore.Months(t, 1)
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
		d.fail(teststore.Broken)
		d.take(teststore.Months(t, 9))
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
		d := newDuo(t, fallback.Config{})
		for range 100 {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			short, end := context.WithTimeout(t.Context(), time.Millisecond)
			d.primary.Have(teststore.Hung)
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
		d.primary.Have(teststore.Broken)
		for i := range 5 {
			if _, err := d.Inspect(store.WithoutStandIn(t.Context()), "p", "k"); !errors.Is(err, teststore.ErrBroken) {
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
	f := fallback.New(plain, memory, fallback.Config{Logger: quiet, Failures: 1})
	defer f.Close()
	lease := lease.New(plain, lease.Config{})
	defer lease.Close()
	for name, s := range map[string]store.Inspector{
		"CacheDenials": denialcache.New(plain, denialcache.Config{}),
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
