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

	"github.com/go-tokenbucket/ratelimit/internal/starved"
	"github.com/go-tokenbucket/ratelimit/internal/test/teststore"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/fallback"
)

func TestAFailedCallIsAnsweredByTheSecondaryAtOnce(t *testing.T) {
	for name, c := range map[string]struct {
		has   time.Duration // 0: no deadline
		takes time.Duration
		fault teststore.Fault
	}{
		"an error":                      {0, 0, teststore.Broken},
		"a hung primary":                {0, 50 * time.Millisecond, teststore.Hung},
		"a hung primary and a deadline": {100 * time.Millisecond, 100 * time.Millisecond, teststore.Hung},
		// Less than the primary may take: its caller's fault.
		"a hung primary and a short deadline": {20 * time.Millisecond, 20 * time.Millisecond, teststore.Hung},
	} {
		run(t, name, fallback.Config{Slow: 50 * time.Millisecond, Replicas: 4}, func(t *testing.T, r *fallbackRig) {
			r.primary.Have(c.fault)
			begin := time.Now()
			ok, state, err := r.takeWithin(c.has, hourly(t, 40))
			if took := time.Since(begin); took != c.takes {
				t.Errorf("took %v, want %v", took, c.takes)
			}
			r.wantAway(false) // after one failure
			short := c.has > 0 && c.has < 50*time.Millisecond
			if short && (ok || !errors.Is(err, context.DeadlineExceeded)) || !short && (!ok || err != nil || !state.Degraded || state.Remaining != 9) {
				t.Errorf("%t, %+v, %v, want 9 of a quarter of 40 left", ok, state, err)
			}
			for range 4 {
				r.takeWithin(c.has, hourly(t, 40))
			}
			r.wantAway(!short)
		})
	}
}

func TestASlowPrimaryIsGivenUpAlthoughItAnswers(t *testing.T) {
	inBubble(t, fallback.Config{}, func(t *testing.T, r *fallbackRig) {
		for _, takes := range []time.Duration{49 * time.Millisecond, 50 * time.Millisecond} {
			r.primary.Have(after(takes))
			for range 5 {
				if ok, state, err := r.takeWithin(100*time.Millisecond, hourly(t, 20)); !ok || err != nil || state.Degraded {
					t.Errorf("%t, %+v, %v", ok, state, err)
				}
			}
			r.wantAway(takes == 50*time.Millisecond)
		}
	})
}

// after answers after that time.
func after(roundTrip time.Duration) teststore.Fault {
	return func(ctx context.Context, take func() error) error {
		select {
		case <-time.After(roundTrip):
			return take()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// ops are the calls of a fallback.
var ops = map[string]func(context.Context, *fallbackRig) error{
	"Take": func(ctx context.Context, r *fallbackRig) error {
		_, _, err := r.takeBy(ctx, hourly(r.t, 200))
		return err
	},
	"Inspect": func(ctx context.Context, r *fallbackRig) error {
		_, err := r.Inspect(ctx, "p", "k")
		return err
	},
	"Block": func(ctx context.Context, r *fallbackRig) error {
		_, err := r.Block(ctx, "p", "k", store.Block{})
		return err
	},
}

func TestWhatACallersContextEndsDoesNotCount(t *testing.T) {
	for name, op := range ops {
		run(t, name, fallback.Config{}, func(t *testing.T, r *fallbackRig) {
			r.primary.Have(teststore.Hung)
			var callers sync.WaitGroup
			for i := range 300 {
				callers.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
					defer cancel()
					want := context.DeadlineExceeded
					if i%2 == 0 {
						time.AfterFunc(5*time.Millisecond, cancel)
						want = context.Canceled
					}
					if err := op(ctx, r); !errors.Is(err, want) {
						t.Errorf("%v, want %v", err, want)
					}
				})
			}
			callers.Wait()
			if r.wantAway(false); r.changes != nil {
				t.Errorf("changes %q", r.changes)
			}
		})
	}
}

func TestInvalidCallsDoNotCount(t *testing.T) {
	inBubble(t, fallback.Config{}, func(t *testing.T, r *fallbackRig) {
		for range 10 {
			if _, err := r.Take(t.Context(), nil, nil); !errors.Is(err, store.ErrInvalidCall) {
				t.Error(err)
			}
		}
		r.wantAway(false)
	})
}

// What a call of a process without processor time meets says nothing about the primary, which may have carried it out.
func TestCallsOfAStarvedProcessDoNotGiveThePrimaryUp(t *testing.T) {
	for name, op := range ops {
		run(t, name+" of an overloaded process", fallback.Config{Failures: 1}, func(t *testing.T, r *fallbackRig) {
			r.primary.Have(func(context.Context, func() error) error {
				time.Sleep(time.Second)
				return fmt.Errorf("%w: %w", store.ErrOverloaded, context.DeadlineExceeded)
			})
			for range 5 {
				if err := op(t.Context(), r); !errors.Is(err, store.ErrOverloaded) {
					t.Errorf("%v, want ErrOverloaded and no stand-in", err)
				}
			}
			r.wantAway(false)
			r.primary.Have(teststore.Broken)
			if err := op(store.WithoutStandIn(t.Context()), r); !errors.Is(err, teststore.ErrBroken) {
				t.Errorf("%v, want ErrBroken", err)
			}
			r.wantAway(true)
		})
		t.Run(name+" that is slow", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(1000 * time.Hour) // other bubbles begin at the same time, and would be starved, too
				r := newRig(t, fallback.Config{Failures: 1})
				r.primary.Have(after(60 * time.Millisecond))
				slow := func() {
					ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
					defer cancel()
					if err := op(ctx, r); err != nil {
						t.Error(err)
					}
				}
				for range 5 {
					starved.Since(time.Now().Add(-30 * time.Millisecond)) // a goroutine that was ready did not run for so long
					slow()
				}
				r.wantAway(false)
				time.Sleep(time.Second)
				slow()
				r.wantAway(true) // for a slow answer of a process that lacks nothing
			})
		})
	}
}

func TestAPrimaryThatFailsIsNotAskedUntilItIsBack(t *testing.T) {
	for name, c := range map[string]struct {
		fault  teststore.Fault
		reason error
	}{"errors": {teststore.Broken, teststore.ErrBroken}, "slowness": {teststore.Hung, context.DeadlineExceeded}} {
		run(t, name, fallback.Config{Failures: 7}, func(t *testing.T, r *fallbackRig) {
			charge := hourly(t, 1000)
			r.take(charge)
			r.primary.Have(c.fault)
			for range 7 {
				if r.Away() != nil {
					t.Fatal("given up too soon")
				}
				r.take(charge)
			}
			if !errors.Is(r.Away(), c.reason) {
				t.Fatalf("away: %v, want %v", r.Away(), c.reason)
			}

			asked, begin := r.primary.Calls.Load(), time.Now()
			for range 100 {
				if ok, state := r.take(charge); !ok || !state.Degraded {
					t.Fatalf("%t, %+v", ok, state)
				}
			}
			if took := time.Since(begin); took != 0 || r.primary.Calls.Load() != asked {
				t.Errorf("100 calls took %v and reached the primary %d times", took, r.primary.Calls.Load()-asked)
			}

			time.Sleep(10 * time.Second)
			if probes := r.primary.Calls.Load() - asked; probes < 40 || probes > 60 {
				t.Errorf("%d probes in 10 s", probes)
			}
			r.comeBack()
			if _, state := r.take(charge); state.Degraded {
				t.Error("the secondary answers although the primary is back")
			}
			want := []string{fmt.Sprint("true ", c.reason), "false <nil>"}
			if !slices.Equal(r.changes, want) {
				t.Errorf("changes %q, want %q", r.changes, want)
			}
		})
	}
}

func TestACallWithoutStandInFailsAndChargesNothing(t *testing.T) {
	inBubble(t, fallback.Config{}, func(t *testing.T, r *fallbackRig) {
		charge := hourly(t, 3)
		only := func(want error) {
			t.Helper()
			ctx := store.WithoutStandIn(t.Context())
			if ok, err := r.Take(ctx, []store.Charge{charge}, make([]store.State, 1)); ok != (want == nil) || !errors.Is(err, want) {
				t.Errorf("%t, %v, want %v", ok, err, want)
			}
		}
		only(nil)
		r.primary.Have(teststore.Broken)
		only(teststore.ErrBroken)
		if r.Away() != nil {
			t.Fatal("given up after one failure")
		}
		for range 4 {
			only(teststore.ErrBroken)
		}
		only(store.ErrAway)
		only(teststore.ErrBroken) // as the reason
		r.wantCount(charge, 3)    // of the secondary, which was not charged for what failed
		r.comeBack()
		charge.Cost = 0
		only(nil)
	})
}

func TestABlipIsOverSoon(t *testing.T) {
	inBubble(t, fallback.Config{}, func(t *testing.T, r *fallbackRig) {
		var begin time.Time
		back := func() time.Duration {
			r.fail(teststore.Broken)
			begin = time.Now()
			r.comeBack()
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

func TestAPrimaryOfWhichAFifthFailsIsGivenUp(t *testing.T) {
	for _, c := range []struct {
		one     int
		instant bool // the others are answered without a server
		away    bool
	}{{8, false, false}, {5, false, true}, {3, false, true}, {8, true, true}} {
		inBubble(t, fallback.Config{}, func(t *testing.T, r *fallbackRig) {
			charge := hourly(t, 10_000)
			for i := range 200 {
				if i%c.one == 0 {
					r.primary.Have(teststore.Broken)
				} else if c.instant {
					r.primary.Mend()
				} else {
					r.primary.Have(teststore.Nearby)
				}
				r.take(charge)
			}
			if away := r.Away() != nil; away != c.away {
				t.Errorf("one in %d fails, the others are instant %t: given up %t, want %t", c.one, c.instant, away, c.away)
			}
		})
	}
}

func TestFailuresLongAgoDoNotCount(t *testing.T) {
	inBubble(t, fallback.Config{}, func(t *testing.T, r *fallbackRig) {
		charge := hourly(t, 10_000)
		for range 20 {
			r.primary.Have(teststore.Broken)
			r.take(charge)
			time.Sleep(1100 * time.Millisecond)
			r.primary.Mend()
			r.take(charge)
		}
		if r.Away() != nil {
			t.Error("given up for a failure a second")
		}
		r.primary.Have(teststore.Broken)
		for range 5 {
			time.Sleep(time.Minute)
			r.take(charge)
		}
		if r.Away() == nil {
			t.Error("not given up, although no call succeeds")
		}
	})
}

func TestCallsOfBeforeTheReturnDoNotCountAfterIt(t *testing.T) {
	inBubble(t, fallback.Config{}, func(t *testing.T, r *fallbackRig) {
		c := hourly(t, 100_000)
		r.primary.Have(teststore.Hung)
		var callers sync.WaitGroup
		for range 19 { // for 95 ms, of which those fail that were first
			callers.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				defer cancel()
				states := make([]store.State, 1)
				if ok, err := r.Take(ctx, []store.Charge{c}, states); !ok || err != nil || !states[0].Degraded {
					t.Errorf("%t, %+v, %v", ok, states[0], err)
				}
			})
			time.Sleep(5 * time.Millisecond)
		}
		r.primary.Have(teststore.Nearby)
		callers.Wait()
		time.Sleep(time.Second)
		synctest.Wait()
		if want := []string{"true context deadline exceeded", "false <nil>"}; !slices.Equal(r.changes, want) {
			t.Errorf("changes %q, want %q", r.changes, want)
		}
	})
}

// A connection may notice a deadline a little before the context does.
func TestADeadlineThatOnlyThePrimaryNoticedDoesNotCount(t *testing.T) {
	inBubble(t, fallback.Config{}, func(t *testing.T, r *fallbackRig) {
		errTimeout := errors.New("i/o timeout")
		r.primary.Have(func(context.Context, func() error) error {
			time.Sleep(10 * time.Millisecond)
			return errTimeout
		})
		c := hourly(t, 10)
		for range 10 {
			ctx := unnoticed{t.Context(), time.Now().Add(10 * time.Millisecond)}
			if ok, err := r.Take(ctx, []store.Charge{c}, make([]store.State, 1)); ok || !errors.Is(err, errTimeout) {
				t.Errorf("%t, %v", ok, err)
			}
		}
		r.wantAway(false)
	})
}

// unnoticed is a context that has a deadline and does not end.
type unnoticed struct {
	context.Context
	at time.Time
}

func (c unnoticed) Deadline() (time.Time, bool) { return c.at, true }
