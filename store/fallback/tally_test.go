package fallback_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/test/teststore"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/fallback"
)

func TestACallThatFailedBeforeDoesNotKeepAPrimaryThatIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, f := range map[string]teststore.Fault{"hung": teststore.Hung, "broken": teststore.Broken} {
			d := newDuo(t, fallback.Config{})
			c := store.Charge{Policy: "p", Key: "k", Limit: teststore.Limit(t, 1, time.Hour, 100_000), Cost: 1}
			d.primary.Have(teststore.Broken)
			d.take(c)
			d.primary.Have(teststore.Nearby)
			for range 5000 {
				d.take(c)
			}
			d.primary.Have(f)
			begin := time.Now()
			for d.Away() == nil && time.Since(begin) < time.Minute {
				d.take(c)
				time.Sleep(time.Millisecond)
			}
			if took := time.Since(begin); took > 300*time.Millisecond {
				t.Errorf("%s: given up after %v", name, took)
			}
		}
	})
}

// Calls that share a batch, or a server of several, fail together.
func TestAFewFailuresInARowAreNoOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDuo(t, fallback.Config{})
		c := store.Charge{Policy: "p", Key: "k", Limit: teststore.Limit(t, 1, time.Hour, 100_000), Cost: 1}
		for range 20 {
			d.primary.Have(teststore.Broken)
			for range 4 {
				d.take(c)
			}
			d.primary.Have(teststore.Nearby)
			for range 500 {
				d.take(c)
			}
			d.primary.Have(teststore.Broken)
			for range 20 {
				d.take(c)
			}
			d.primary.Have(teststore.Nearby)
			for range 500 {
				d.take(c)
			}
			time.Sleep(100 * time.Millisecond)
		}
		if d.Away() != nil {
			t.Error("given up")
		}
	})
}

func TestCallsOfBeforeTheReturnDoNotCountAfterIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDuo(t, fallback.Config{})
		c := store.Charge{Policy: "p", Key: "k", Limit: teststore.Limit(t, 1, time.Hour, 100_000), Cost: 1}
		d.primary.Have(teststore.Hung)
		var callers sync.WaitGroup
		for range 19 { // for 95 ms, of which those fail that were first
			callers.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				defer cancel()
				states := make([]store.State, 1)
				if ok, err := d.Take(ctx, []store.Charge{c}, states); !ok || err != nil || !states[0].Degraded {
					t.Errorf("%t, %+v, %v", ok, states[0], err)
				}
			})
			time.Sleep(5 * time.Millisecond)
		}
		d.primary.Have(teststore.Nearby)
		callers.Wait()
		time.Sleep(time.Second)
		synctest.Wait()
		if want := []string{"true context deadline exceeded", "false <nil>"}; !slices.Equal(d.changes, want) {
			t.Errorf("changes %q, want %q", d.changes, want)
		}
	})
}

// A connection may notice a deadline a little before the context does.
func TestADeadlineThatOnlyThePrimaryNoticedDoesNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDuo(t, fallback.Config{})
		errTimeout := errors.New("i/o timeout")
		d.primary.Have(func(context.Context, func() error) error {
			time.Sleep(10 * time.Millisecond)
			return errTimeout
		})
		c := store.Charge{Policy: "p", Key: "k", Limit: teststore.Limit(t, 1, time.Hour, 10), Cost: 1}
		for range 10 {
			ctx := unnoticed{t.Context(), time.Now().Add(10 * time.Millisecond)}
			if ok, err := d.Take(ctx, []store.Charge{c}, make([]store.State, 1)); ok || !errors.Is(err, errTimeout) {
				t.Errorf("%t, %v", ok, err)
			}
		}
		if d.Away() != nil {
			t.Errorf("given up: %v", d.Away())
		}
	})
}

// unnoticed is a context that has a deadline and does not end.
type unnoticed struct {
	context.Context
	at time.Time
}

func (c unnoticed) Deadline() (time.Time, bool) { return c.at, true }

func TestTheFailuresOfAnOutageDoNotCountAfterIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDuo(t, fallback.Config{})
		c := store.Charge{Policy: "p", Key: "k", Limit: teststore.Limit(t, 1, time.Hour, 100), Cost: 1}
		for range 3 {
			d.primary.Have(teststore.Hung)
			var callers sync.WaitGroup
			for range 9 {
				callers.Go(func() { d.take(c) })
			}
			callers.Wait()
			if d.Away() == nil {
				t.Error("not given up")
			}
			d.comeBack()
			d.primary.Have(teststore.Broken)
			d.take(c)
			if d.Away() != nil {
				t.Error("given up after one failure")
			}
			d.primary.Mend()
			time.Sleep(2 * time.Second)
			d.take(c)
		}
	})
}

// At least a fifth, from the first failure on.
func TestAFifthOfCallsThatFailIsTooMuch(t *testing.T) {
	for well, givenUp := range map[int]bool{19: true, 20: true, 21: false} {
		synctest.Test(t, func(t *testing.T) {
			d := newDuo(t, fallback.Config{Failures: 5})
			c := store.Charge{Policy: "p", Key: "k", Limit: teststore.Limit(t, 1, time.Hour, 100_000), Cost: 1}
			d.primary.Have(teststore.Broken)
			d.take(c)
			d.primary.Have(teststore.Nearby)
			for range well {
				d.take(c)
			}
			d.primary.Have(teststore.Broken)
			for range 4 {
				d.take(c)
			}
			if away := d.Away() != nil; away != givenUp {
				t.Errorf("given up after 5 of %d calls: %t, want %t", 5+well, away, givenUp)
			}
			d.primary.Mend()
		})
	}
}
