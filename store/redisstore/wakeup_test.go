package redisstore_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

// Callers that have time wait for their answers alone at first. They still leave soon after their contexts end.
func TestCallersThatWaitInTheQueueLeaveWhenTheirContextIsCancelled(t *testing.T) {
	w := &wire{send: hangs(1_000_000)}
	onWire(t, w, redisstore.Config{MaxInFlight: 1}, func(t *testing.T, s *redisstore.Store) {
		first := beginFor(t, 10*time.Second, s, "first")
		for _, after := range []time.Duration{0, time.Millisecond, 30 * time.Millisecond, time.Second} {
			for _, limit := range []time.Duration{0, time.Minute} {
				ctx, cancel := context.WithCancel(t.Context())
				if limit > 0 {
					ctx, cancel = context.WithTimeout(ctx, limit)
				}
				a := begin(ctx, s, charge(t, "a"))
				time.Sleep(after)
				cancel()
				<-a.done
				if most := after + 40*time.Millisecond; !errors.Is(a.err, context.Canceled) || a.took > most {
					t.Errorf("cancelled after %v: error %v after %v, want within %v", after, a.err, a.took, most)
				}
			}
		}
		<-first.done
		if stats := redisStats(t, s); stats.Errors["canceled"] != 8 || stats.Errors["timeout"] != 1 {
			t.Errorf("%v are counted, want 8 that were canceled and one timeout", stats.Errors)
		}
		if n := w.charged(); n != 1 {
			t.Errorf("%d charges were sent, want that of the first only", n)
		}
		time.Sleep(time.Second)
		w.idle(t, s)
	})
}

// A call is reused while the lane may still have it in mind to wake its caller.
func TestAnswersThatTakeLongReachTheirCallers(t *testing.T) {
	w := new(wire)
	took := time.Duration(0)
	w.send = func(ctx context.Context, _ int) error {
		select {
		case <-time.After(took):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	onWire(t, w, redisstore.Config{MaxInFlight: 1}, func(t *testing.T, s *redisstore.Store) {
		for i := range 200 {
			took = time.Duration(i%9) * 5 * time.Millisecond
			first := beginFor(t, time.Minute, s, "first")
			var all []*attempt
			for range 5 {
				all = append(all, beginFor(t, time.Minute, s, "a"))
			}
			first.want(t, "the first", true, took)
			for _, a := range all {
				a.want(t, "one behind it", true, 2*took)
			}
			synctest.Wait()
		}
		took = 0
		w.idle(t, s)
	})
}
