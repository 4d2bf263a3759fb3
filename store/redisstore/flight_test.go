package redisstore_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

// hangs is a server that never answers the first n commands, and all others at once.
func hangs(first int) func(context.Context, int) error {
	return func(ctx context.Context, n int) error {
		if n > first {
			return nil
		}
		<-ctx.Done()
		return ctx.Err()
	}
}

// Of what is under way, the first is the call of a lone caller, and the others are batches.
func TestFlightsAreHandedOverWhenACallerHasRunOutOfTime(t *testing.T) {
	for _, flights := range []int{1, 2, 4} {
		t.Run(fmt.Sprint(flights), func(t *testing.T) {
			w := &wire{send: hangs(flights)}
			onWire(t, w, redisstore.Config{MaxInFlight: flights}, func(t *testing.T, s *redisstore.Store) {
				var holding []*attempt
				for i := range flights {
					holding = append(holding, beginFor(t, time.Minute, s, fmt.Sprint("long", i)))
				}
				first := beginFor(t, 100*time.Millisecond, s, "a")
				time.Sleep(20 * time.Millisecond)
				second := beginFor(t, 100*time.Millisecond, s, "b")
				first.want(t, "the first behind them", false, 100*time.Millisecond)
				second.want(t, "the second", true, 80*time.Millisecond)
				beginFor(t, 100*time.Millisecond, s, "c").want(t, "one that comes after", true, 0)
				if n, overdue := redisstore.Flights(s); n != 0 || overdue != flights {
					t.Errorf("%d flights and %d overdue, want 0 and %d", n, overdue, flights)
				}
				if charges := w.charged(); charges != flights+2 {
					t.Errorf("%d charges were sent, want %d: not that of the first, which has left", charges, flights+2)
				}
				for _, o := range holding {
					o.want(t, "one that has long", false, time.Minute)
				}
				time.Sleep(time.Second) // the client has longer than its callers
				w.idle(t, s)
			})
		})
	}
}

// What is sent for callers that wait for ever ends by the client's timeouts only.
func TestFlightsOfCallersWithoutADeadlineAreHandedOver(t *testing.T) {
	w := new(wire)
	onWire(t, w, redisstore.Config{}, func(t *testing.T, s *redisstore.Store) {
		release := make(chan struct{})
		w.send = func(_ context.Context, n int) error {
			if n <= 2 {
				<-release
			}
			return nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		alone, batch := begin(context.Background(), s, charge(t, "alone")), begin(ctx, s, charge(t, "batch"))
		beginFor(t, 100*time.Millisecond, s, "a").want(t, "the first behind them", false, 100*time.Millisecond)
		beginFor(t, 100*time.Millisecond, s, "b").want(t, "the second", true, 0)
		close(release)
		alone.want(t, "a lone one", true, 100*time.Millisecond)
		batch.want(t, "a batch", true, 100*time.Millisecond)
		w.idle(t, s)
	})
}

// The others of the batch get their answer when it comes.
func TestABatchGoesOnForThoseWhoHaveLonger(t *testing.T) {
	slow := func(ctx context.Context, n int) error {
		wait := time.Second
		if n == 1 {
			wait = 10 * time.Millisecond // until they have gathered
		}
		select {
		case <-time.After(wait):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	for _, shortFirst := range []bool{true, false} {
		t.Run(fmt.Sprint("short first: ", shortFirst), func(t *testing.T) {
			w := &wire{send: slow}
			onWire(t, w, redisstore.Config{MaxInFlight: 1}, func(t *testing.T, s *redisstore.Store) {
				beginFor(t, time.Minute, s, "first")
				var short, long *attempt
				if shortFirst {
					short = beginFor(t, 100*time.Millisecond, s, "k")
				}
				long = beginFor(t, 10*time.Second, s, "k")
				if !shortFirst {
					short = beginFor(t, 100*time.Millisecond, s, "k")
				}
				short.want(t, "short", false, 100*time.Millisecond)
				if n, overdue := redisstore.Flights(s); n != 0 || overdue != 1 {
					t.Errorf("%d flights and %d overdue, want 0 and 1", n, overdue)
				}
				long.want(t, "long", true, 1010*time.Millisecond)
				w.idle(t, s)
			})
		})
	}
}

// They may outlast their deadlines where this process lacks processor time, and the answer come meanwhile.
func TestTheClientHasLongerThanItsCallers(t *testing.T) {
	w := new(wire)
	onWire(t, w, redisstore.Config{MaxInFlight: 1}, func(t *testing.T, s *redisstore.Store) {
		begin := time.Now()
		var ended time.Duration
		w.send = func(ctx context.Context, n int) error {
			if n == 1 {
				time.Sleep(10 * time.Millisecond) // until they have gathered
				return nil
			}
			<-ctx.Done()
			ended = time.Since(begin)
			return ctx.Err()
		}
		beginFor(t, time.Minute, s, "first")
		short, long := beginFor(t, 100*time.Millisecond, s, "a"), beginFor(t, 300*time.Millisecond, s, "b")
		short.want(t, "short", false, 100*time.Millisecond)
		long.want(t, "long", false, 300*time.Millisecond)
		time.Sleep(time.Second)
		synctest.Wait()
		if ended != 400*time.Millisecond {
			t.Errorf("the command was ended after %v, want 400ms", ended)
		}
		w.idle(t, s)
	})
}

// A server that hangs must not collect connections without end: the client has 10 of them here.
func TestNoMoreThanHalfOfTheConnectionsAreOverdue(t *testing.T) {
	w := &wire{send: hangs(1_000_000)}
	onWire(t, w, redisstore.Config{}, func(t *testing.T, s *redisstore.Store) {
		var all []*attempt
		for i := range 300 {
			d := 100 * time.Millisecond
			if i%2 == 0 {
				d = time.Minute
			}
			all = append(all, beginFor(t, d, s, fmt.Sprint(i)))
			time.Sleep(10 * time.Millisecond)
		}
		if n, overdue := redisstore.Flights(s); n != 2 || overdue != 5 || w.atOnce() != 7 {
			t.Errorf("%d flights and %d overdue, and %d commands at once, want 2, 5 and 7", n, overdue, w.atOnce())
		}
		for _, o := range all {
			<-o.done
		}
		time.Sleep(time.Second)
		w.idle(t, s)
	})
}

// Callers run out of time there, too, but it is the queue that takes it.
func TestNoFlightOfABusyServerIsHandedOver(t *testing.T) {
	w := &wire{send: func(context.Context, int) error { time.Sleep(30 * time.Millisecond); return nil }}
	onWire(t, w, redisstore.Config{MaxBatch: 1}, func(t *testing.T, s *redisstore.Store) {
		var all []*attempt
		for i := range 50 {
			all = append(all, beginFor(t, 100*time.Millisecond, s, fmt.Sprint(i)))
		}
		answered := 0
		for _, o := range all {
			if <-o.done; o.ok {
				answered++
			}
		}
		if answered != 6 || w.atOnce() != 2 {
			t.Errorf("%d were answered, %d commands at once, want 6 and 2", answered, w.atOnce())
		}
		time.Sleep(time.Second)
		w.idle(t, s)
	})
}

func TestCloseWaitsForAFlightUntilItsCallersHaveLeft(t *testing.T) {
	for _, tt := range []struct {
		name string
		long time.Duration
		when time.Duration // of Close
		took time.Duration
	}{
		{"it is handed over before", time.Second, 200 * time.Millisecond, 800 * time.Millisecond},
		{"it is handed over meanwhile", time.Second, 50 * time.Millisecond, 950 * time.Millisecond},
		{"nobody hands it over", 100 * time.Millisecond, 40 * time.Millisecond, 60 * time.Millisecond},
		{"all have left", 100 * time.Millisecond, 150 * time.Millisecond, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := &wire{deaf: true}
			onWire(t, w, redisstore.Config{MaxInFlight: 1}, func(t *testing.T, s *redisstore.Store) {
				first, release := make(chan struct{}), make(chan struct{})
				w.send = func(_ context.Context, n int) error {
					if n == 1 {
						<-first
					} else {
						<-release
					}
					return nil
				}
				before := beginFor(t, time.Minute, s, "first")
				all := []*attempt{beginFor(t, 100*time.Millisecond, s, "short"), beginFor(t, tt.long, s, "long")}
				close(first)
				before.want(t, "the first", true, 0)
				time.Sleep(tt.when)
				start := time.Now()
				s.Close()
				if took := time.Since(start); took != tt.took {
					t.Errorf("Close took %v, want %v", took, tt.took)
				}
				for _, a := range all {
					<-a.done
				}
				close(release)
				synctest.Wait()
				if flights, overdue := redisstore.Flights(s); flights != 0 || overdue != 0 {
					t.Errorf("%d flights and %d overdue ones in the end", flights, overdue)
				}
			})
		})
	}
}

// At the bound, a flight counts although nobody waits for it.
func TestCloseWaitsForNoFlightThatAllHaveLeft(t *testing.T) {
	w := &wire{deaf: true}
	onWire(t, w, redisstore.Config{}, func(t *testing.T, s *redisstore.Store) {
		release := make(chan struct{})
		w.send = func(context.Context, int) error { <-release; return nil }
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		begin(ctx, s, charge(t, "lone")) // no deadline, so that it is in a batch
		for i := range 20 {
			beginFor(t, 100*time.Millisecond, s, fmt.Sprint(i)).want(t, "a short one", false, 100*time.Millisecond)
		}
		if n, overdue := redisstore.Flights(s); n != 2 || overdue != 5 {
			t.Errorf("%d flights and %d overdue, want 2 and 5", n, overdue)
		}
		closed := make(chan struct{})
		go func() {
			defer close(closed)
			s.Close()
		}()
		synctest.Wait()
		select {
		case <-closed:
			t.Error("Close did not wait for the caller without a deadline")
		default:
		}
		if n, _ := redisstore.Flights(s); n != 0 {
			t.Errorf("%d flights count although nobody waits for them", n)
		}
		close(release)
		<-closed
	})
}

func TestACallOverSeveralSlotsHandsFlightsOver(t *testing.T) {
	w := new(wire)
	onWire(t, w, redisstore.Config{MaxInFlight: 1, Logger: quiet}, func(t *testing.T, s *redisstore.Store) {
		hung := 0
		w.send = func(ctx context.Context, n int) error {
			switch n {
			case 1:
				return redisError("CROSSSLOT Keys in request don't hash to the same slot")
			case hung:
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}
		both := []store.Charge{charge(t, "a"), charge(t, "b")}
		if ok, err := try(s, both...); !ok || err != nil {
			t.Fatalf("ok %t, error %v", ok, err)
		}
		hung = w.sent + 1
		long := beginFor(t, time.Minute, s, "long")
		begin := time.Now()
		if ok, err := try(s, both...); ok || err == nil || time.Since(begin) != 100*time.Millisecond {
			t.Errorf("ok %t, error %v after %v, behind a flight that hangs", ok, err, time.Since(begin))
		}
		synctest.Wait()
		if n, overdue := redisstore.Flights(s); n != 0 || overdue != 1 {
			t.Errorf("%d flights and %d overdue, want 0 and 1", n, overdue)
		}
		long.want(t, "the one that hangs", false, time.Minute)
		time.Sleep(time.Second)
		w.idle(t, s)
	})
}
