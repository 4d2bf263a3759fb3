package ratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/ratetest"
	"github.com/go-tokenbucket/ratelimit/internal/virtualtime"
	"github.com/go-tokenbucket/ratelimit/store"
)

// running is a handler that runs for a time.
func running(d time.Duration) http.Handler {
	return http.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(d) })
}

// asks returns how many calls the Store got that ask for slots.
func asks(q *queue) (n int) {
	q.Store.Lock()
	defer q.Store.Unlock()
	for _, charges := range q.Store.Calls {
		if charges[0].Cost > 0 {
			n++
		}
	}
	return n
}

// arriveFor sends a request of a user.
func arriveFor(h http.Handler, t *testing.T, user string) *ratetest.Arrival {
	return arrive(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Set("X-User", user)
		h.ServeHTTP(w, r)
	}), t.Context())
}

func TestRequestsWaitForSlotsInOrderOfArrival(t *testing.T) {
	p := waiting(atOnce("exports", 2), 10*time.Second)
	inBubble(t, ratelimit.Config{}, func(t *testing.T, q *queue) {
		h := q.Limit(p)(running(time.Second))
		var came []*ratetest.Arrival
		for range 6 {
			came = append(came, arrive(h, t.Context()))
		}
		for i, a := range came {
			a.Want(t, 200, time.Duration(i/2+1)*time.Second)
		}
		if waited := q.Last().Waited; waited != 2*time.Second {
			t.Errorf("the last one has waited for %v, want 2s", waited)
		}
		// Six that get a slot, one that is refused at each time, and the first one that waits, ten times a second.
		if n := asks(q); n > 6+3+20+1 {
			t.Errorf("%d calls of the Store", n)
		}
		if free(t, q.Limiter, p, address) != 2 {
			t.Error("slots are not free")
		}
	})
}

// A slot that another replica released is found within 100 ms, and by one call at a time.
func TestOnlyTheFirstThatWaitsAsksTheStore(t *testing.T) {
	p := waiting(atOnce("exports", 1), time.Minute)
	inBubble(t, ratelimit.Config{}, func(t *testing.T, q *queue) {
		limit, _ := store.NewConcurrency(1)
		other := store.Charge{Policy: "exports", Key: address, Limit: limit, Cost: 1}
		change := func(cost int64) {
			other.Cost = cost
			if _, err := q.Store.Store.Take(t.Context(), []store.Charge{other}, make([]store.State, 1)); err != nil {
				t.Error(err)
			}
		}
		change(1)
		h := q.Limit(p)(okHandler)
		var came []*ratetest.Arrival
		for range 50 {
			came = append(came, arrive(h, t.Context()))
		}
		time.Sleep(9950 * time.Millisecond)
		if n := asks(q); n < 90 || n > 101 {
			t.Errorf("%d calls of the Store within 10 s, want about 100", n)
		}
		last := q.Store.Calls[len(q.Store.Calls)-1][0]
		if last.Waited != 9900*time.Millisecond || last.MaxWait != p.MaxWait-last.Waited {
			t.Errorf("Waited %v, MaxWait %v", last.Waited, last.MaxWait)
		}
		came[1].Leave()
		change(-1)
		for i, a := range came {
			if i == 1 {
				a.Want(t, 499, 9950*time.Millisecond)
			} else {
				a.Want(t, 200, 10*time.Second)
			}
		}
	})
}

func TestAWaitForASlotEnds(t *testing.T) {
	inBubble(t, ratelimit.Config{MaxWaiting: 6}, func(t *testing.T, q *queue) {
		jobs := ratelimit.Policy{Name: "jobs", Limit: ratelimit.Concurrency(1), MaxWait: time.Second}
		release, err := q.Acquire(t.Context(), jobs, "a")
		if err != nil {
			t.Fatal(err)
		}
		type outcome struct {
			err  error
			took time.Duration
		}
		acquire := func(ctx context.Context, p ratelimit.Policy) chan outcome {
			done, begin := make(chan outcome, 1), time.Now()
			go func() {
				release, err := q.Acquire(ctx, p, "a")
				defer release()
				done <- outcome{err, time.Since(begin)}
			}()
			synctest.Wait()
			return done
		}
		ctx, cancel := context.WithCancel(t.Context())
		short, stop := context.WithTimeout(t.Context(), 250*time.Millisecond)
		defer stop()
		first, second, third, full := acquire(t.Context(), jobs), acquire(ctx, jobs), acquire(short, jobs), acquire(t.Context(), jobs)
		var denied *ratelimit.WaitError
		if o := <-full; !errors.As(o.err, &denied) || o.took != 0 || denied.RetryAfter != time.Second {
			t.Errorf("without a place: %+v", o)
		}
		time.Sleep(130 * time.Millisecond)
		cancel()
		if o := <-second; !errors.Is(o.err, context.Canceled) || o.took != 130*time.Millisecond {
			t.Errorf("cancelled: %+v", o)
		}
		if o := <-third; o.err == nil || o.took != 250*time.Millisecond {
			t.Errorf("with a deadline: %+v", o)
		}
		if o := <-first; !errors.As(o.err, &denied) || o.took != time.Second || q.Last().Waited != time.Second {
			t.Errorf("after MaxWait: %+v, event %+v", o, q.Last())
		}
		last := acquire(t.Context(), jobs)
		time.Sleep(50 * time.Millisecond)
		release() // which lets the next one go on at once
		if o := <-last; o.err != nil || o.took != 50*time.Millisecond {
			t.Errorf("after the release: %+v", o)
		}
		if synctest.Wait(); free(t, q.Limiter, jobs, "a") != 1 {
			t.Error("the slot is not free")
		}
	})
}

// A key that has no slot left does not hold up others that share a policy with it, and a call holds nothing while it waits for
// a slot.
func TestCallsThatWaitForSlotsHoldNothing(t *testing.T) {
	user := waiting(ratelimit.Policy{Name: "user", Key: ratelimit.Header("X-User"), Limit: ratelimit.Concurrency(1)}, time.Minute)
	all := waiting(ratelimit.Policy{Name: "all", Key: ratelimit.Static("all"), Limit: ratelimit.Concurrency(3)}, time.Minute)
	rate := ratelimit.Policy{Name: "rate", Key: ratelimit.Static("all"), Limit: ratelimit.PerHour(100)}
	inBubble(t, ratelimit.Config{}, func(t *testing.T, q *queue) {
		h := q.Limit(user, all, rate)(running(time.Second))
		first, second, other := arriveFor(h, t, "a"), arriveFor(h, t, "a"), arriveFor(h, t, "b")
		if n := free(t, q.Limiter, rate, "static:all"); n != 98 {
			t.Errorf("%d tokens are left while one of three waits, want 98", n)
		}
		if n := free(t, q.Limiter, all, "static:all"); n != 1 {
			t.Errorf("%d slots are free while one of three waits, want 1", n)
		}
		third, fourth := arriveFor(h, t, "c"), arriveFor(h, t, "d")
		first.Want(t, 200, time.Second)
		other.Want(t, 200, time.Second)
		third.Want(t, 200, time.Second)
		second.Want(t, 200, 2*time.Second)
		fourth.Want(t, 200, 2*time.Second)
		if n := free(t, q.Limiter, rate, "static:all"); n != 95 {
			t.Errorf("%d tokens are left, want 95", n)
		}
	})
}

// Nor do requests of the key that have not yet asked for a slot, because others of the key came before them.
func TestRequestsBehindOthersOfTheirKeyHoldUpNoOtherKey(t *testing.T) {
	user := waiting(ratelimit.Policy{Name: "user", Key: ratelimit.Header("X-User"), Limit: ratelimit.Concurrency(1)}, 5*time.Second)
	all := waiting(ratelimit.Policy{Name: "all", Key: ratelimit.Static("all"), Limit: ratelimit.Concurrency(3)}, 10*time.Second)
	for _, policies := range [][]ratelimit.Policy{{user, all}, {all, user}} {
		inBubble(t, ratelimit.Config{}, func(t *testing.T, q *queue) {
			h := q.Limit(policies...)(running(2 * time.Second))
			var came []*ratetest.Arrival
			for range 4 {
				came = append(came, arriveFor(h, t, "a"))
			}
			b, c, d := arriveFor(h, t, "b"), arriveFor(h, t, "c"), arriveFor(h, t, "d")
			for i, a := range came[:3] { // in their order
				a.Want(t, 200, time.Duration(i+1)*2*time.Second)
			}
			came[3].Want(t, 429, 5*time.Second)
			if body := came[3].Body.String(); !strings.Contains(body, `["user"]`) {
				t.Errorf("%s, want a denial of user alone", body)
			}
			b.Want(t, 200, 2*time.Second)
			c.Want(t, 200, 2*time.Second)
			d.Want(t, 200, 4*time.Second) // after a, b or c
		})
	}
}

// A request without a place to wait does not take the slot that another one waits for.
func TestRequestsWithoutAPlaceDoNotPassThoseThatWait(t *testing.T) {
	p := waiting(atOnce("exports", 2), time.Minute)
	inBubble(t, ratelimit.Config{MaxWaiting: 2}, func(t *testing.T, q *queue) {
		limit, _ := store.NewConcurrency(2)
		other := []store.Charge{{Policy: "exports", Key: address, Limit: limit, Cost: 1}}
		change := func(cost int64) {
			other[0].Cost = cost
			if _, err := q.Store.Store.Take(t.Context(), other, make([]store.State, 1)); err != nil {
				t.Error(err)
			}
		}
		h := q.Limit(p)(running(time.Second))
		change(2)
		first := arrive(h, t.Context())
		change(-1) // by another replica, so that the first finds it in 100 ms
		second := arrive(h, t.Context())
		second.Want(t, 429, 0)
		if _, err := q.Acquire(t.Context(), ratelimit.Policy{Name: "exports", Limit: ratelimit.Concurrency(2)}, address); err == nil {
			t.Error("a call that does not wait passed one that waits")
		}
		change(-1)
		first.Want(t, 200, 1100*time.Millisecond)
		third := arrive(h, t.Context())
		third.Want(t, 200, time.Second)
		if free(t, q.Limiter, p, address) != 2 {
			t.Error("slots are not free")
		}
	})
}

// A request that waits for tokens holds its slot, unless the limiter of the rate is around that of the slots.
func TestAWaitForTokensAroundTheSlotsHoldsNone(t *testing.T) {
	user := waiting(ratelimit.Policy{Name: "user", Key: ratelimit.Header("X-User"), Limit: ratelimit.PerMinute(60).WithBurst(1)}, time.Minute)
	all := ratelimit.Policy{Name: "all", Key: ratelimit.Static("all"), Limit: ratelimit.Concurrency(2)}
	inBubble(t, ratelimit.Config{}, func(t *testing.T, q *queue) {
		for _, tt := range []struct {
			h    http.Handler
			user string
			want int
		}{
			{q.Limit(user, all)(okHandler), "a", 429},
			{q.Limit(user)(q.Limit(all)(okHandler)), "b", 200},
		} {
			var came []*ratetest.Arrival
			for range 3 {
				came = append(came, arriveFor(tt.h, t, tt.user))
			}
			arriveFor(tt.h, t, "other of "+tt.user).Want(t, tt.want, 0)
			for i, a := range came {
				a.Want(t, 200, time.Duration(i)*time.Second)
			}
		}
	})
}

// A request that lacks the slots of two keys leaves none idle that are released meanwhile.
func TestARequestThatLacksTwoSlotsLeavesNoneIdle(t *testing.T) {
	user := waiting(ratelimit.Policy{Name: "user", Key: ratelimit.Header("X-User"), Limit: ratelimit.Concurrency(1)}, time.Hour)
	all := waiting(ratelimit.Policy{Name: "all", Key: ratelimit.Static("all"), Limit: ratelimit.Concurrency(2)}, time.Hour)
	for _, policies := range [][]ratelimit.Policy{{user, all}, {all, user}} {
		inBubble(t, ratelimit.Config{}, func(t *testing.T, q *queue) {
			long, short := q.Limit(policies...)(running(10*time.Second)), q.Limit(policies...)(running(7*time.Millisecond))
			arriveFor(long, t, "a")
			begin := time.Now()
			var served atomic.Int64
			for _, of := range []string{"b", "c", "d"} {
				go func() {
					for time.Since(begin) < 7*time.Second {
						get(short, with("X-User", of))
						served.Add(1)
					}
				}()
			}
			time.Sleep(3 * time.Millisecond)
			go get(long, with("X-User", "a"))
			if time.Sleep(7 * time.Second); served.Load() < 990 {
				t.Errorf("%d requests of 7 ms within 7 s, want 1000", served.Load())
			}
			time.Sleep(time.Minute)
		})
	}
}

// A request waits in virtual time, too.
func TestAWaitForASlotInVirtualTimeEnds(t *testing.T) {
	p := waiting(atOnce("exports", 1), time.Minute)
	l := quiet(t)
	var slept time.Duration
	var sleeps int
	h := l.Limit(p)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		again := get(l.Limit(p)(okHandler), func(r *http.Request) {
			*r = *r.WithContext(virtualtime.With(r.Context(), func(d time.Duration) { slept, sleeps = slept+d, sleeps+1 }))
		})
		fmt.Fprint(w, again.Code)
	}))
	if got := get(h).Body.String(); got != "429" {
		t.Errorf("%s, want 429 of the second", got)
	}
	if slept != p.MaxWait || sleeps > 610 {
		t.Errorf("%d sleeps of %v together, want about 600 of %v", sleeps, slept, p.MaxWait)
	}
}
