package fallback_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/teststore"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/fallback"
)

// errUnsent is of a call that did not reach the primary.
var errUnsent = fmt.Errorf("dial: %w", store.ErrNotCharged)

// One shard of a primary stays down for long. What it is owed is tried again and again, and keeps neither the primary
// away nor the charges of others waiting.
func TestAShardThatStaysDownHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all, shard atomic.Bool // are down
		primary := &teststore.Intercepted{Store: teststore.OpenMemory(t, nil)}
		primary.Intercept(func(c store.Charge) error {
			time.Sleep(50 * time.Microsecond) // a round trip
			if all.Load() || shard.Load() && strings.HasPrefix(c.Key, "down") {
				return errUnsent
			}
			return nil
		})
		f := openFallback(t, primary, fallback.Config{})
		shard.Store(true)
		for i := range 1000 { // a part of all calls, so that the primary is not given up
			c := teststore.Months(t, 1)
			c.Key = fmt.Sprint("down", i)
			teststore.Must(t, f, c)
			c.Key = "up"
			c.Cost = 0
			for range 10 {
				teststore.Must(t, f, c)
			}
			time.Sleep(10 * time.Millisecond)
		}
		all.Store(true)
		for f.Away() == nil {
			teststore.Must(t, f, teststore.Months(t, 1))
		}
		for range 10 {
			teststore.Must(t, f, teststore.Months(t, 1))
		}
		all.Store(false)
		time.Sleep(5 * time.Second)
		if err := f.Away(); err != nil {
			t.Errorf("away for as long as one shard is down: %v", err)
		}
		if left := teststore.Must(t, primary.Store, teststore.Months(t, 0))[0].Remaining; left > 590 {
			t.Errorf("%d left of 600: another shard was not charged", left)
		}
		shard.Store(false)
		time.Sleep(5 * time.Second)
		c := teststore.Months(t, 0)
		c.Key = "down7"
		if left := teststore.Must(t, primary.Store, c)[0].Remaining; left != 599 {
			t.Errorf("%d left of 600 in the shard that is up again", left)
		}
	})
}

// On return a bucket is reset, and then charged for what was allowed after the Reset.
func TestAChargeAfterAResetIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var down, fails atomic.Bool
		primary := &teststore.Intercepted{Store: teststore.OpenMemory(t, nil)}
		primary.Intercept(func(c store.Charge) error {
			if down.Load() || c.Owed && c.Key == "k" && fails.Swap(false) {
				return errUnsent
			}
			return nil
		})
		f := openFallback(t, primary, fallback.Config{})
		down.Store(true)
		for f.Away() == nil {
			teststore.Must(t, f, teststore.Months(t, 0))
		}
		teststore.Must(t, f, teststore.ResetOf(t, teststore.Months(t, 0)))
		teststore.Must(t, f, teststore.Months(t, 7))
		fails.Store(true)
		down.Store(false)
		time.Sleep(5 * time.Second)
		if left := teststore.Must(t, primary.Store, teststore.Months(t, 0))[0].Remaining; left != 593 {
			t.Errorf("%d left of 600, want 593", left)
		}
	})
}

// A Reset that waits for a charge is also one of what that charge was for.
func TestAResetForgetsWhatWasBeingCharged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var down atomic.Bool
		charging, goOn := make(chan struct{}, 1), make(chan struct{})
		primary := &teststore.Intercepted{Store: teststore.OpenMemory(t, nil)}
		primary.Intercept(func(c store.Charge) error {
			if c.Owed && !down.Load() {
				select {
				case charging <- struct{}{}:
					<-goOn
					return errUnsent
				default:
				}
			}
			if down.Load() {
				return errUnsent
			}
			return nil
		})
		f := openFallback(t, primary, fallback.Config{})
		down.Store(true)
		teststore.Must(t, f, teststore.Months(t, 3)) // by the secondary
		down.Store(false)
		time.Sleep(time.Second) // it is being charged
		reset := make(chan struct{})
		go func() {
			defer close(reset)
			teststore.Must(t, f, teststore.ResetOf(t, teststore.Months(t, 0)))
		}()
		synctest.Wait()
		close(goOn)
		<-reset
		time.Sleep(5 * time.Second)
		if left := teststore.Must(t, primary.Store, teststore.Months(t, 0))[0].Remaining; left != 600 {
			t.Errorf("%d left of 600 after a Reset", left)
		}
	})
}
