package fallback_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/teststore"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/fallback"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
	"github.com/go-tokenbucket/ratelimit/store/storetest"
)

var quiet = slog.New(slog.DiscardHandler)

// A duo is a fallback on a faulty Store.
type duo struct {
	*fallback.Store
	t       *testing.T
	primary *teststore.Faulty
	changes []string // what OnChange was told
}

func newDuo(t *testing.T, cfg fallback.Config) *duo { return newDuoWith(t, nil, cfg) }

func newDuoWith(t *testing.T, secondary store.Store, cfg fallback.Config) *duo {
	memory := memstore.New(memstore.Config{})
	d := &duo{t: t, primary: &teststore.Faulty{Store: memory}}
	cfg.Logger = quiet
	cfg.OnChange = func(away bool, reason error) { d.changes = append(d.changes, fmt.Sprint(away, " ", reason)) }
	d.Store = fallback.New(d.primary, secondary, cfg)
	t.Cleanup(func() {
		d.Close()
		memory.Close()
	})
	return d
}

func openFallback(t testing.TB, s store.Store, cfg fallback.Config) *fallback.Store {
	cfg.Logger = quiet
	f := fallback.New(s, nil, cfg)
	t.Cleanup(func() { f.Close() })
	return f
}

func (d *duo) take(c store.Charge) (bool, store.State) {
	d.t.Helper()
	states := make([]store.State, 1)
	ok, err := d.Take(d.t.Context(), []store.Charge{c}, states)
	if err != nil {
		d.t.Fatal(err)
	}
	return ok, states[0]
}

// count makes calls of c until one is refused, and returns how many were allowed.
func (d *duo) count(c store.Charge) (n int) {
	d.t.Helper()
	for ; n < 10_000; n++ {
		if ok, _ := d.take(c); !ok {
			return n
		}
	}
	d.t.Fatal("never refused")
	return n
}

// fail has the primary given up, by calls of a bucket that nothing else uses.
func (d *duo) fail(f teststore.Fault) {
	d.t.Helper()
	d.primary.Have(f)
	for i := 0; d.Away() == nil; i++ {
		if i == 100 {
			d.t.Fatal("the primary is not given up")
		}
		d.take(store.Charge{Policy: "other", Key: fmt.Sprint(i), Limit: teststore.Limit(d.t, 1, time.Hour, 100), Cost: 1})
	}
}

// comeBack mends the primary and waits until it is asked again.
func (d *duo) comeBack() {
	d.t.Helper()
	d.primary.Mend()
	begin := time.Now()
	for d.Away() != nil {
		time.Sleep(time.Millisecond)
		if time.Since(begin) > time.Second {
			d.t.Fatal("the primary is well for a second and not asked")
		}
	}
	synctest.Wait()
}

func (d *duo) peekPrimary(c store.Charge) store.State {
	d.t.Helper()
	c.Cost, c.MaxWait = 0, 0
	states := make([]store.State, 1)
	if _, err := d.primary.Store.Take(d.t.Context(), []store.Charge{c}, states); err != nil {
		d.t.Fatal(err)
	}
	return states[0]
}

// undegraded hides that a stand-in answered.
type undegraded struct{ store.Store }

func (s undegraded) Take(ctx context.Context, charges []store.Charge, states []store.State) (bool, error) {
	ok, err := s.Store.Take(ctx, charges, states)
	for i := range states {
		states[i].Degraded = false
	}
	return ok, err
}

func (s undegraded) Inspect(ctx context.Context, policy, key string) (store.Bucket, error) {
	b, err := store.Inspect(ctx, s.Store, policy, key)
	b.Degraded = false
	return b, err
}

func TestFallbackContract(t *testing.T) {
	quiet := fallback.Config{Logger: slog.New(slog.DiscardHandler)}
	t.Run("the primary answers", func(t *testing.T) {
		storetest.Run(t, func(t *testing.T, clock func() time.Time) store.Store {
			f := fallback.New(teststore.OpenMemory(t, clock), nil, quiet)
			t.Cleanup(func() { f.Close() })
			return f
		})
	})
	t.Run("the secondary answers", func(t *testing.T) {
		storetest.Run(t, func(t *testing.T, clock func() time.Time) store.Store {
			away := new(teststore.Faulty)
			away.Have(teststore.Broken)
			cfg := quiet
			cfg.Failures = 1
			f := fallback.New(away, teststore.OpenMemory(t, clock), cfg)
			t.Cleanup(func() { f.Close() })
			first := store.Charge{Policy: "first", Key: "k", Limit: teststore.Limit(t, 1, time.Second, 1)}
			if _, err := f.Take(t.Context(), []store.Charge{first}, make([]store.State, 1)); err != nil || f.Away() == nil {
				t.Fatal(err, f.Away())
			}
			return undegraded{f}
		})
	})
}

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
		if n := d.count(charge); n != 2 {
			t.Errorf("%d in the secondary, want 2: it was charged for what failed", n)
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

func TestAReplicaHasItsShareWhileThePrimaryIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDuo(t, fallback.Config{Replicas: 4})
		d.fail(teststore.Broken)
		c := store.Charge{Policy: "p", Key: "k", Limit: teststore.Limit(t, 20, time.Second, 40), Cost: 1}
		if n := d.count(c); n != 10 {
			t.Errorf("%d at once, want a quarter of 40", n)
		}
		time.Sleep(2 * time.Second)
		if n := d.count(c); n != 10 {
			t.Errorf("%d after 2 s, want a quarter of 20 a second", n)
		}
		_, state := d.take(c)
		if want := (store.State{RetryAfter: 200 * time.Millisecond, ResetAfter: 2 * time.Second, Degraded: true}); state != want {
			t.Errorf("%+v, want %+v", state, want)
		}

		// One request's cost is always possible.
		c = store.Charge{Policy: "p", Key: "large", Limit: c.Limit, Cost: 40}
		if n := d.count(c); n != 1 {
			t.Errorf("%d of the whole burst, want 1", n)
		}
		c.Cost = 41
		if _, state := d.take(c); state.RetryAfter != store.Never {
			t.Errorf("more than the burst: %+v", state)
		}
		c = store.Charge{Policy: "p", Key: "one", Limit: teststore.Limit(t, 1, time.Minute, 1), Cost: 1}
		if n := d.count(c); n != 1 {
			t.Errorf("%d of a burst of 1, want 1", n)
		}
	})
}

func TestAFailedCallIsAnsweredByAShare(t *testing.T) {
	d := newDuo(t, fallback.Config{Replicas: 4})
	d.primary.Have(teststore.Broken)
	if _, state := d.take(store.Charge{Policy: "p", Key: "k", Limit: teststore.Limit(t, 1, time.Hour, 40), Cost: 1}); state.Remaining != 9 {
		t.Errorf("%+v, want 9 of a quarter of 40 left", state)
	}
}

func TestABucketThatWasSpentIsSpentWhileThePrimaryIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for replicas, left := range map[int]int{1: 3, 4: 0} {
			d := newDuo(t, fallback.Config{Replicas: replicas})
			c := store.Charge{Policy: "p", Key: "k", Limit: teststore.Limit(t, 1, time.Second, 8), Cost: 1}
			for range 8 {
				d.take(c)
			}
			d.fail(teststore.Broken)
			if ok, _ := d.take(c); ok {
				t.Error("an empty bucket came out with tokens")
			}
			time.Sleep(3 * time.Second)
			if n := d.count(c); n != left {
				t.Errorf("%d replicas: %d after 3 s, want %d", replicas, n, left)
			}
		}
		d := newDuo(t, fallback.Config{})
		c := store.Charge{Policy: "p", Key: "k", Limit: teststore.Limit(t, 1, time.Second, 10), Cost: 7}
		d.take(c)
		time.Sleep(2 * time.Second)
		d.fail(teststore.Broken)
		if c.Cost = 1; d.count(c) != 5 {
			t.Error("want the 3 that were left and 2 that have come")
		}
	})
}

func TestWhatWasSpentMeanwhileIsChargedToThePrimaryThatIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDuo(t, fallback.Config{})
		c := store.Charge{Policy: "p", Key: "k", Limit: teststore.Limit(t, 10, 100*time.Hour, 10), Cost: 1}
		refilled := store.Charge{Policy: "p", Key: "refilled", Limit: teststore.Limit(t, 1, time.Second, 10), Cost: 10}
		d.fail(teststore.Broken)
		for range 4 {
			d.take(c)
		}
		d.take(refilled)
		time.Sleep(6 * time.Second)
		d.comeBack()
		if got := d.peekPrimary(c).Remaining; got != 6 {
			t.Errorf("%d of 10 left in the primary, want 6", got)
		}
		if got := d.peekPrimary(refilled).Remaining; got < 5 || got > 7 {
			t.Errorf("%d of 10 left in the primary 6 s after 10 were taken, want 6", got)
		}

		// Into debt, where others have taken what there was.
		d.fail(teststore.Broken)
		for range 6 {
			d.take(c)
		}
		others := c
		others.Cost = 5
		if ok, err := d.primary.Store.Take(t.Context(), []store.Charge{others}, make([]store.State, 1)); !ok || err != nil {
			t.Fatal(ok, err)
		}
		d.comeBack()
		others.Cost = 1
		states := make([]store.State, 1)
		if _, err := d.primary.Store.Take(t.Context(), []store.Charge{others}, states); err != nil {
			t.Fatal(err)
		}
		// 1 left, 6 charged: 5 and one more have to come, at ten hours each.
		if after := states[0].RetryAfter.Round(time.Minute); after != 60*time.Hour {
			t.Errorf("retry after %v, want 60 h", after)
		}
	})
}

// The second outage begins before the primary has answered a call of the bucket again: what is known of it is
// what it said when it was charged for the first.
func TestOutagesThatFollowOneAnotherAreChargedEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDuo(t, fallback.Config{})
		c := store.Charge{Policy: "p", Key: "k", Limit: teststore.Limit(t, 10, time.Second, 10), Cost: 1}
		begin := time.Now()
		admitted := d.count(c)
		for range 2 {
			d.fail(teststore.Broken)
			for range 20 {
				time.Sleep(100 * time.Millisecond)
				admitted += d.count(c)
			}
			d.comeBack()
		}
		admitted += d.count(c)
		if most := 11 + int(10*time.Since(begin).Seconds()); admitted > most || admitted < most-3 {
			t.Errorf("%d admitted, want about %d", admitted, most)
		}
	})
}

// Those who wait have reserved what comes meanwhile.
func TestADebtRemainsWhileThePrimaryIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDuo(t, fallback.Config{})
		c := store.Charge{Policy: "p", Key: "k", Limit: teststore.Limit(t, 1, time.Second, 2), Cost: 1, MaxWait: time.Minute}
		for range 12 {
			d.take(c)
		}
		d.fail(teststore.Broken)
		for turn := 11; turn < 15; turn++ {
			if _, state := d.take(c); !state.Degraded || state.Wait != time.Duration(turn)*time.Second {
				t.Errorf("%+v, want a wait of %d s behind the %d before", state, turn, turn-1)
			}
		}
		c.MaxWait = 0
		if _, state := d.take(c); state.Allowed || state.RetryAfter != 15*time.Second {
			t.Errorf("%+v, want it refused for 15 s", state)
		}
		d.comeBack()
		if _, state := d.take(c); state.Allowed || state.Degraded || state.RetryAfter.Round(time.Second) != 15*time.Second {
			t.Errorf("%+v, want it refused for 15 s by the primary", state)
		}
		// And again, now that the secondary's bucket is in debt by itself.
		d.fail(teststore.Broken)
		if _, state := d.take(c); state.Allowed || !state.Degraded || state.RetryAfter.Round(time.Second) != 15*time.Second {
			t.Errorf("%+v, want it refused for 15 s", state)
		}
	})
}

// Calls that the primary failed, and that are answered by the secondary, come between.
func TestABucketThatIsBroughtDownWhileOthersAreAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		secondary := &between{Store: teststore.OpenMemory(t, nil)}
		primary := &teststore.Faulty{Store: teststore.OpenMemory(t, nil)}
		f := fallback.New(primary, secondary, fallback.Config{Failures: 1, Logger: slog.New(slog.DiscardHandler)})
		defer f.Close()
		c := store.Charge{Policy: "p", Key: "k", Limit: teststore.Limit(t, 1, time.Hour, 100), Cost: 100}
		states := make([]store.State, 1)
		take := func(c store.Charge) bool {
			t.Helper()
			ok, err := f.Take(t.Context(), []store.Charge{c}, states)
			if err != nil {
				t.Fatal(err)
			}
			return ok
		}
		take(c)
		primary.Have(teststore.Broken)
		take(store.Charge{Policy: "other", Key: "k", Limit: c.Limit, Cost: 1})
		c.Cost = 1
		secondary.other = []store.Charge{c}
		if take(c) {
			t.Errorf("%+v: an empty bucket came out with tokens", states[0])
		}
	})
}

// between is a Store that is charged by another after its next peek.
type between struct {
	store.Store
	other []store.Charge
}

func (s *between) Take(ctx context.Context, charges []store.Charge, states []store.State) (bool, error) {
	ok, err := s.Store.Take(ctx, charges, states)
	if other := s.other; other != nil && charges[0].Cost == 0 {
		s.other = nil
		_, _ = s.Store.Take(ctx, other, make([]store.State, 1))
	}
	return ok, err
}

func TestRefundsToTheSecondaryAreDeducted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDuo(t, fallback.Config{})
		c := store.Charge{Policy: "p", Key: "k", Limit: teststore.Limit(t, 1, 100*time.Hour, 10), Cost: 5}
		d.take(c)
		d.fail(teststore.Broken)
		d.take(c)
		c.Cost = -3
		d.take(c)
		d.comeBack()
		if got := d.peekPrimary(c).Remaining; got != 3 {
			t.Errorf("%d left, want 10 - 5 - 5 + 3", got)
		}
	})
}

// The primary carries it out, but its reply is lost, when the secondary answers already.
func TestARefundThatFailsInThePrimaryIsNotMadeTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDuo(t, fallback.Config{})
		c := store.Charge{Policy: "p", Key: "k", Limit: teststore.Limit(t, 1, 100*time.Hour, 10), Cost: 10}
		d.take(c)
		away := make(chan struct{})
		d.primary.Have(func(ctx context.Context, take func() error) error {
			<-away
			return teststore.LostReply(ctx, take)
		})
		var refund sync.WaitGroup
		refund.Go(func() {
			back := c
			back.Cost = -4
			if ok, state := d.take(back); !ok || !state.Degraded {
				t.Errorf("%t, %+v", ok, state)
			}
		})
		synctest.Wait()
		d.fail(teststore.Broken)
		if c.Cost = 1; d.count(c) != 0 {
			t.Error("an empty bucket came out with tokens")
		}
		close(away)
		refund.Wait()
		if n := d.count(c); n != 0 {
			t.Errorf("%d allowed by the secondary, want none", n)
		}
		d.comeBack()
		if n := d.count(c); n != 4 {
			t.Errorf("%d allowed by the primary, want 4", n)
		}
	})
}

func TestACallsChargesAreNotWrittenTo(t *testing.T) {
	for _, replicas := range []int{1, 4} {
		synctest.Test(t, func(t *testing.T) {
			d := newDuo(t, fallback.Config{Replicas: replicas})
			d.primary.Have(teststore.Broken)
			for range 10 { // before the primary is given up, and after
				want := store.Charge{Policy: "p", Key: "k", Limit: teststore.Limit(t, 1, time.Hour, 10), Cost: -3}
				charges := []store.Charge{want}
				if ok, err := d.Take(t.Context(), charges, make([]store.State, 1)); !ok || err != nil || charges[0] != want {
					t.Fatalf("%t, %v, %+v", ok, err, charges[0])
				}
			}
		})
	}
}

func TestCallsWhoseRepliesAreLostAreChargedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDuo(t, fallback.Config{Failures: 3})
		c := store.Charge{Policy: "p", Key: "k", Limit: teststore.Limit(t, 1, 100*time.Hour, 10), Cost: 1}
		d.primary.Have(teststore.LostReply)
		for range 5 { // three of which reach the primary
			d.take(c)
		}
		time.Sleep(10 * time.Second) // with probes that are carried out, too
		d.comeBack()
		if got := d.peekPrimary(c).Remaining; got != 5 {
			t.Errorf("%d of 10 left, want 5", got)
		}
	})
}

func TestCallsOfSeveralBucketsFallBackAsAWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDuo(t, fallback.Config{})
		short := store.Charge{Policy: "short", Key: "k", Limit: teststore.Limit(t, 1, time.Hour, 2), Cost: 1}
		long := store.Charge{Policy: "long", Key: "k", Limit: teststore.Limit(t, 1, time.Hour, 10), Cost: 1}
		shadow := store.Charge{Policy: "shadow", Key: "k", Limit: teststore.Limit(t, 1, time.Hour, 1), Cost: 1, Shadow: true}
		d.fail(teststore.Broken)
		states := make([]store.State, 3)
		for i := range 5 {
			if ok, err := d.Take(t.Context(), []store.Charge{short, long, shadow}, states); ok != (i < 2) || err != nil {
				t.Fatal(i, ok, err)
			}
		}
		if _, err := d.Take(t.Context(), []store.Charge{{Policy: "p", Key: "k"}}, states); !errors.Is(err, store.ErrInvalidCall) {
			t.Error(err)
		}
		d.comeBack()
		for _, c := range []struct {
			charge store.Charge
			left   int64
			full   time.Duration
		}{{short, 0, 2 * time.Hour}, {long, 8, 2 * time.Hour}, {shadow, 0, time.Hour}} {
			got := d.peekPrimary(c.charge)
			if got.Remaining != c.left || got.ResetAfter.Round(time.Minute) != c.full {
				t.Errorf("%s: %+v in the primary, want %d left", c.charge.Policy, got, c.left)
			}
		}
	})
}

// A charge for an outage that fails may have been carried out, and one bucket that is broken by itself must
// not keep the primary away.
func TestABrokenBucketDoesNotKeepThePrimaryAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDuo(t, fallback.Config{})
		d.fail(teststore.Broken)
		c := store.Charge{Policy: "p", Limit: teststore.Limit(t, 1, 100*time.Hour, 10), Cost: 1}
		for i := range 10 {
			c.Key = fmt.Sprint(i)
			d.take(c)
		}
		memory := d.primary.Store
		d.primary.Store = onBucket{memory, "3", teststore.ErrBroken}
		d.comeBack()
		d.primary.Store = memory
		for i, left := range []int64{9, 9, 9, 10, 9, 9, 9, 9, 9, 9} {
			c.Key = fmt.Sprint(i)
			if got := d.peekPrimary(c).Remaining; got != left {
				t.Errorf("key %d: %d left, want %d", i, got, left)
			}
		}
	})
}

// onBucket fails calls of one key.
type onBucket struct {
	store.Store
	key string
	err error
}

func (s onBucket) Take(ctx context.Context, charges []store.Charge, states []store.State) (bool, error) {
	for _, c := range charges {
		if c.Key == s.key {
			return false, s.err
		}
	}
	return s.Store.Take(ctx, charges, states)
}

func TestPanicsBehindAFallbackDoNotEndTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDuo(t, fallback.Config{})
		d.fail(teststore.Broken)
		d.primary.Have(func(context.Context, func() error) error { panic("in a probe") })
		time.Sleep(time.Second)
		d.comeBack()
	})
	synctest.Test(t, func(t *testing.T) {
		primary := &teststore.Faulty{Store: memstore.New(memstore.Config{})}
		primary.Have(teststore.Broken)
		f := fallback.New(primary, nil, fallback.Config{
			Failures: 1,
			OnChange: func(bool, error) { panic("in OnChange") },
			Logger:   slog.New(slog.DiscardHandler),
		})
		defer f.Close()
		func() {
			defer func() { _ = recover() }() // as net/http does
			_, _ = f.Take(t.Context(), []store.Charge{{Policy: "p", Key: "k", Limit: teststore.Limit(t, 1, time.Hour, 1)}}, make([]store.State, 1))
		}()
		if f.Away() == nil {
			t.Error("not given up")
		}
		primary.Mend()
		time.Sleep(time.Second)
		if f.Away() != nil {
			t.Error("not back")
		}
	})
}

func TestMoreKeysThanMaxKeysAreAnsweredAndNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDuo(t, fallback.Config{MaxKeys: 8})
		d.fail(teststore.Broken)
		c := store.Charge{Policy: "p", Limit: teststore.Limit(t, 1, 100*time.Hour, 1), Cost: 1}
		for i := range 100 {
			c.Key = fmt.Sprint(i)
			if ok, _ := d.take(c); !ok {
				t.Fatal("refused for want of room")
			}
			if ok, _ := d.take(c); ok {
				t.Fatal("allowed twice")
			}
		}
		d.comeBack()
		charged := 0
		for i := range 100 {
			c.Key = fmt.Sprint(i)
			if d.peekPrimary(c).Remaining == 0 {
				charged++
			}
		}
		if charged != 8 {
			t.Errorf("%d were charged to the primary, want 8", charged)
		}
	})
}

func TestBucketsThatHaveRefilledNeedNoRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDuo(t, fallback.Config{MaxKeys: 8})
		d.fail(teststore.Broken)
		c := store.Charge{Policy: "p", Limit: teststore.Limit(t, 1, 2*time.Second, 1), Cost: 1}
		for i := range 100 {
			time.Sleep(time.Second) // two of them are spent at a time
			c.Key = fmt.Sprint(i)
			d.take(c)
		}
		d.comeBack()
		if d.peekPrimary(c).Remaining != 0 {
			t.Error("the last was not charged")
		}
	})
}

// Callers come and go while the primary does. Whatever is allowed, by whom, is in the end charged to the
// primary or was refilled: no more than burst + rate × time, and what was let through for failed calls.
func TestOutagesUnderLoadAllowNoMoreThanTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDuo(t, fallback.Config{})
		const rate, burst, callers = 100, 50, 20
		c := store.Charge{Policy: "p", Key: "k", Limit: teststore.Limit(t, rate, time.Second, burst), Cost: 1}
		var allowed atomic.Int64
		stop := make(chan struct{})
		var running sync.WaitGroup
		for i := range callers {
			running.Go(func() {
				for {
					select {
					case <-stop:
						return
					case <-time.After(time.Duration(50+i) * time.Millisecond):
						if ok, _ := d.take(c); ok {
							allowed.Add(1)
						}
					}
				}
			})
		}
		begin := time.Now()
		outages := 10
		for range outages {
			d.primary.Have(teststore.Broken)
			time.Sleep(700 * time.Millisecond)
			d.primary.Mend()
			time.Sleep(1300 * time.Millisecond)
		}
		close(stop)
		running.Wait()
		ideal := burst + rate*time.Since(begin).Seconds()
		extra := float64(outages * 5) // the failed calls that gave it up
		if got := float64(allowed.Load()); got > ideal+extra || got < 0.9*ideal {
			t.Errorf("%.0f allowed, want about %.0f and no more than %.0f", got, ideal, ideal+extra)
		}
		if len(d.changes) != 2*outages {
			t.Errorf("changes %q", d.changes)
		}
	})
}

func TestTheLogSaysWhatHappened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text strings.Builder
		primary := &teststore.Faulty{Store: memstore.New(memstore.Config{})}
		f := fallback.New(primary, nil, fallback.Config{Logger: slog.New(slog.NewTextHandler(&text, nil))})
		defer f.Close()
		primary.Have(teststore.Broken)
		charges := []store.Charge{{Policy: "p", Key: "k", Limit: teststore.Limit(t, 1, time.Hour, 100), Cost: 1}}
		for range 100 {
			if ok, err := f.Take(t.Context(), charges, make([]store.State, 1)); !ok || err != nil {
				t.Fatal(ok, err)
			}
		}
		primary.Mend()
		time.Sleep(time.Second)
		synctest.Wait()
		for _, want := range []string{
			`level=ERROR msg="fallback: the primary failed or was slow" error=broken`,
			`level=WARN msg="fallback: the primary is unavailable, and the secondary answers" error=broken`,
			`level=INFO msg="fallback: the primary is back" after=12.5ms`,
		} {
			if strings.Count(text.String(), want) != 1 {
				t.Errorf("want once %q in\n%s", want, text.String())
			}
		}
	})
}

func TestFallbackRefusesNonsense(t *testing.T) {
	memory := memstore.New(memstore.Config{})
	for want, open := range map[string]func(){
		"primary is nil":     func() { fallback.New(nil, memory, fallback.Config{}) },
		"Config.Replicas -1": func() { fallback.New(memory, memory, fallback.Config{Replicas: -1}) },
		"Config.Replicas 2 and Config.ReplicasFunc: must not both be set": func() {
			fallback.New(memory, memory, fallback.Config{Replicas: 2, ReplicasFunc: func() int { return 2 }})
		},
		"Config.Slow -1":    func() { fallback.New(memory, memory, fallback.Config{Slow: -1}) },
		"Config.Failures":   func() { fallback.New(memory, memory, fallback.Config{Failures: -1}) },
		"Config.ProbeEvery": func() { fallback.New(memory, memory, fallback.Config{ProbeEvery: -1}) },
		"Config.MaxKeys":    func() { fallback.New(memory, memory, fallback.Config{MaxKeys: -1}) },
	} {
		func() {
			defer func() {
				if p := recover(); p == nil || !strings.Contains(fmt.Sprint(p), want) {
					t.Errorf("panic %v, want %q", p, want)
				}
			}()
			open()
		}()
	}
}
