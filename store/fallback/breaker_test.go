package fallback_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/test/teststore"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/fallback"
)

func TestAFailedCallIsAnsweredByTheSecondaryAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limited, cancel := context.WithTimeout(t.Context(), 70*time.Millisecond)
		defer cancel()
		for _, c := range []struct {
			name  string
			ctx   context.Context
			fault teststore.Fault
			takes time.Duration
		}{
			{"an error", t.Context(), teststore.Broken, 0},
			{"a hung primary", t.Context(), teststore.Hung, 50 * time.Millisecond},
			{"a hung primary and a deadline", limited, teststore.Hung, 20 * time.Millisecond},
		} {
			d := newDuo(t, fallback.Config{Slow: 50 * time.Millisecond})
			d.primary.Have(c.fault)
			charges := []store.Charge{{Policy: "p", Key: "k", Limit: teststore.Limit(t, 1, time.Hour, 5), Cost: 1}}
			states, begin := make([]store.State, 1), time.Now()
			ok, err := d.Take(c.ctx, charges, states)
			if c.ctx == limited {
				// What is left of the deadline is less than the primary may take: its caller's fault.
				if ok || !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%s: %t, %v", c.name, ok, err)
				}
			} else if !ok || err != nil || !states[0].Degraded || states[0].Remaining != 4 {
				t.Errorf("%s: %t, %+v, %v, want 4 left", c.name, ok, states[0], err)
			}
			if took := time.Since(begin); took != c.takes {
				t.Errorf("%s: took %v, want %v", c.name, took, c.takes)
			}
			if d.Away() != nil {
				t.Errorf("%s: given up after one failure", c.name)
			}
		}
	})
}

func TestAHungPrimaryHasAsLongAsItsCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDuo(t, fallback.Config{})
		d.primary.Have(teststore.Hung)
		charges := []store.Charge{{Policy: "p", Key: "k", Limit: teststore.Limit(t, 1, time.Hour, 5), Cost: 1}}
		for range 5 {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			begin := time.Now()
			if ok, err := d.Take(ctx, charges, make([]store.State, 1)); !ok || err != nil || time.Since(begin) != 100*time.Millisecond {
				t.Errorf("%t, %v after %v", ok, err, time.Since(begin))
			}
			cancel()
		}
		if d.Away() == nil {
			t.Error("not given up")
		}
	})
}

func TestASlowPrimaryIsGivenUpAlthoughItAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDuo(t, fallback.Config{})
		charge := store.Charge{Policy: "p", Key: "k", Limit: teststore.Limit(t, 1, time.Hour, 20), Cost: 1}
		takes := func(took time.Duration) {
			d.primary.Have(func(_ context.Context, take func() error) error {
				time.Sleep(took)
				return take()
			})
			for range 5 {
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				states := make([]store.State, 1)
				if ok, err := d.Take(ctx, []store.Charge{charge}, states); !ok || err != nil || states[0].Degraded {
					t.Errorf("%t, %+v, %v", ok, states[0], err)
				}
				cancel()
			}
		}
		if takes(49 * time.Millisecond); d.Away() != nil {
			t.Errorf("given up: %v", d.Away())
		}
		if takes(50 * time.Millisecond); d.Away() == nil {
			t.Error("not given up")
		}
	})
}

// A call that this process had no time for says nothing about the primary, which may have carried it out.
func TestWantOfProcessorTimeDoesNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDuo(t, fallback.Config{Failures: 1})
		charge := store.Charge{Policy: "p", Key: "k", Limit: teststore.Limit(t, 1, time.Hour, 20), Cost: 1}
		d.primary.Have(func(context.Context, func() error) error {
			time.Sleep(time.Second)
			return fmt.Errorf("%w: %w", store.ErrOverloaded, context.DeadlineExceeded)
		})
		for range 100 {
			if ok, err := d.Take(t.Context(), []store.Charge{charge}, make([]store.State, 1)); ok || !errors.Is(err, store.ErrOverloaded) {
				t.Errorf("%t, %v, want ErrOverloaded and no stand-in", ok, err)
			}
		}
		if d.Away() != nil {
			t.Errorf("given up: %v", d.Away())
		}
	})
}

func TestAPrimaryThatFailsIsNotAskedUntilItIsBack(t *testing.T) {
	for name, c := range map[string]struct {
		fault  teststore.Fault
		reason error
	}{"errors": {teststore.Broken, teststore.ErrBroken}, "slowness": {teststore.Hung, context.DeadlineExceeded}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDuo(t, fallback.Config{Failures: 7})
				charge := store.Charge{Policy: "p", Key: "k", Limit: teststore.Limit(t, 1, time.Hour, 1000), Cost: 1}
				d.take(charge)
				d.primary.Have(c.fault)
				for range 7 {
					if d.Away() != nil {
						t.Fatal("given up too soon")
					}
					d.take(charge)
				}
				if !errors.Is(d.Away(), c.reason) {
					t.Fatalf("away: %v, want %v", d.Away(), c.reason)
				}

				asked, begin := d.primary.Calls.Load(), time.Now()
				for range 100 {
					if ok, state := d.take(charge); !ok || !state.Degraded {
						t.Fatalf("%t, %+v", ok, state)
					}
				}
				if took := time.Since(begin); took != 0 || d.primary.Calls.Load() != asked {
					t.Errorf("100 calls took %v and reached the primary %d times", took, d.primary.Calls.Load()-asked)
				}

				time.Sleep(10 * time.Second)
				if probes := d.primary.Calls.Load() - asked; probes < 40 || probes > 60 {
					t.Errorf("%d probes in 10 s", probes)
				}
				d.comeBack()
				if _, state := d.take(charge); state.Degraded {
					t.Error("the secondary answers although the primary is back")
				}
				want := []string{fmt.Sprint("true ", c.reason), "false <nil>"}
				if !slices.Equal(d.changes, want) {
					t.Errorf("changes %q, want %q", d.changes, want)
				}
			})
		})
	}
}

func TestACallWithoutStandInFailsAndChargesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDuo(t, fallback.Config{})
		charge := store.Charge{Policy: "p", Key: "k", Limit: teststore.Limit(t, 1, time.Hour, 3), Cost: 1}
		only := func(want error) {
			t.Helper()
			ctx := store.WithoutStandIn(t.Context())
			if ok, err := d.Take(ctx, []store.Charge{charge}, make([]store.State, 1)); ok != (want == nil) || !errors.Is(err, want) {
				t.Errorf("%t, %v, want %v", ok, err, want)
			}
		}
		only(nil)
		d.primary.Have(teststore.Broken)
		only(teststore.ErrBroken)
		if d.Away() != nil {
			t.Fatal("given up after one failure")
		}
		for range 4 {
			only(teststore.ErrBroken)
		}
		only(store.ErrAway)
		only(teststore.ErrBroken) // as the reason
		if n := d.count(charge); n != 3 {
			t.Errorf("%d in the secondary, want 3: it was charged for what failed", n)
		}
		d.comeBack()
		charge.Cost = 0
		only(nil)
	})
}

func TestABlipIsOverSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDuo(t, fallback.Config{})
		var begin time.Time
		back := func() time.Duration {
			d.fail(teststore.Broken)
			begin = time.Now()
			d.comeBack()
			return time.Since(begin)
		}
		if took := back(); took > 13*time.Millisecond {
			t.Errorf("back after %v", took)
		}
		// One that comes again and again is no blip.
		for range 10 {
			back()
		}
		if took := back(); took < 190*time.Millisecond {
			t.Errorf("back after %v, although it was away ten times within a second each", took)
		}
	})
}

func TestWhatACallersContextEndsDoesNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDuo(t, fallback.Config{})
		d.primary.Have(teststore.Hung)
		charges := []store.Charge{{Policy: "p", Key: "k", Limit: teststore.Limit(t, 1, time.Hour, 5), Cost: 1}}
		var callers sync.WaitGroup
		for i := range 1000 {
			callers.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
				defer cancel()
				want := context.DeadlineExceeded
				if i%2 == 0 {
					time.AfterFunc(5*time.Millisecond, cancel)
					want = context.Canceled
				}
				if ok, err := d.Take(ctx, charges, make([]store.State, 1)); ok || !errors.Is(err, want) {
					t.Errorf("%t, %v, want %v", ok, err, want)
				}
			})
		}
		callers.Wait()
		if _, err := d.Take(t.Context(), nil, nil); !errors.Is(err, store.ErrInvalidCall) {
			t.Error(err)
		}
		if d.Away() != nil || d.changes != nil {
			t.Errorf("given up: %v", d.Away())
		}
	})
}

func TestAPrimaryOfWhichAFifthFailsIsGivenUp(t *testing.T) {
	for _, c := range []struct {
		one     int
		instant bool // the others are answered without a server
		away    bool
	}{{8, false, false}, {5, false, true}, {3, false, true}, {8, true, true}} {
		synctest.Test(t, func(t *testing.T) {
			d := newDuo(t, fallback.Config{})
			charge := store.Charge{Policy: "p", Key: "k", Limit: teststore.Limit(t, 1, time.Hour, 10_000), Cost: 1}
			for i := range 200 {
				if i%c.one == 0 {
					d.primary.Have(teststore.Broken)
				} else if c.instant {
					d.primary.Mend()
				} else {
					d.primary.Have(teststore.Nearby)
				}
				d.take(charge)
			}
			if away := d.Away() != nil; away != c.away {
				t.Errorf("one in %d fails, the others are instant %t: given up %t, want %t", c.one, c.instant, away, c.away)
			}
		})
	}
}

func TestFailuresLongAgoDoNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDuo(t, fallback.Config{})
		charge := store.Charge{Policy: "p", Key: "k", Limit: teststore.Limit(t, 1, time.Hour, 10_000), Cost: 1}
		for range 20 {
			d.primary.Have(teststore.Broken)
			d.take(charge)
			time.Sleep(1100 * time.Millisecond)
			d.primary.Mend()
			d.take(charge)
		}
		if d.Away() != nil {
			t.Error("given up for a failure a second")
		}
		d.primary.Have(teststore.Broken)
		for range 5 {
			time.Sleep(time.Minute)
			d.take(charge)
		}
		if d.Away() == nil {
			t.Error("not given up, although no call succeeds")
		}
	})
}
