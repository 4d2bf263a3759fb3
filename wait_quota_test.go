package ratelimit_test

import (
	"errors"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/ratetest"
	"github.com/go-tokenbucket/ratelimit/store"
)

// Nobody reserves the tokens of a period that has not begun. So those who wait for it ask again when it begins.
func TestRequestsWaitForTheNextPeriodOfAQuota(t *testing.T) {
	p := waiting(perIP("api", ratelimit.Quota(2, ratelimit.Hour)), 20*time.Minute)
	rate := waiting(perIP("rate", ratelimit.PerMinute(3)), 20*time.Minute)
	inBubble(t, ratelimit.Config{}, func(t *testing.T, q *queue) { // begins at a full hour
		h := q.Limit(p, rate)(okHandler)
		arrive(h, t.Context()).Want(t, 200, 0)
		arrive(h, t.Context()).Want(t, 200, 0)
		arrive(h, t.Context()).Want(t, 429, 0) // the next period begins too late
		time.Sleep(50 * time.Minute)
		left, shut, ctx := arrive(h, t.Context()), arrive(h, t.Context()), t.Context()
		first, second, third := arrive(h, ctx), arrive(h, ctx), arrive(h, ctx)
		time.Sleep(5 * time.Minute)
		left.Leave()
		<-left.Done
		if e := q.Last(); e.Allowed || e.Err == nil || e.Waited != 5*time.Minute {
			t.Errorf("who left: %+v", e)
		}
		if b, err := q.Peek(t.Context(), rate, q.Last().Results[0].Key); err != nil || b.Remaining != 3 {
			t.Errorf("who waits holds tokens of another policy: %+v, %v", b, err)
		}
		allowed, denied := 0, 0
		for _, a := range []*ratetest.Arrival{shut, first, second, third} {
			<-a.Done
			switch {
			case a.Code == 200 && a.Took == 10*time.Minute:
				allowed++
			case a.Code == 429 && a.Took == 10*time.Minute: // the period after it begins too late
				denied++
			}
		}
		if allowed != 2 || denied != 2 {
			t.Errorf("%d allowed and %d denied when the period begins, want 2 and 2", allowed, denied)
		}
		if e := q.Last(); e.Waited != 10*time.Minute || e.Took != 0 {
			t.Errorf("the last event: %+v", e)
		}
	})
}

func TestWaitWaitsForTheNextPeriod(t *testing.T) {
	p := ratelimit.Policy{Name: "jobs", Limit: ratelimit.Quota(2, ratelimit.Day)}
	inBubble(t, ratelimit.Config{}, func(t *testing.T, q *queue) {
		begin := time.Now()
		for range 5 { // two a day
			if r, err := q.Wait(t.Context(), p, "k", 1); err != nil || !r.Allowed {
				t.Fatalf("%+v, %v", r, err)
			}
		}
		if took := time.Since(begin); took != 48*time.Hour {
			t.Errorf("the fifth had to wait for %v", took)
		}
		var late *ratelimit.WaitError
		if _, err := q.Wait(t.Context(), p, "k", 3); !errors.As(err, &late) || late.RetryAfter != ratelimit.Never {
			t.Errorf("above the quota: %v", err)
		}
		p.MaxWait = time.Hour
		if _, err := q.Wait(t.Context(), p, "k", 2); !errors.As(err, &late) || late.RetryAfter != 24*time.Hour {
			t.Errorf("the period ends later than MaxWait: %v", err)
		}
	})
}

func TestAFailureAfterAWaitForThePeriodSaysHowLongItWaited(t *testing.T) {
	p := waiting(perIP("api", ratelimit.Quota(1, ratelimit.Hour)), time.Hour)
	inBubble(t, ratelimit.Config{}, func(t *testing.T, q *queue) {
		h := q.Limit(p)(okHandler)
		arrive(h, t.Context()).Want(t, 200, 0)
		second := arrive(h, t.Context())
		q.Store.Lock()
		q.Store.Fault = func([]store.Charge) error { return errors.New("away") }
		q.Store.Unlock()
		second.Want(t, 200, time.Hour) // let through
		if e := q.Last(); e.Err == nil || e.Waited != time.Hour || e.Took != 0 {
			t.Errorf("its event: %+v", e)
		}
	})
}

// Otherwise a quota that was lowered would still be that of all requests that waited for its next period.
func TestRequestsThatWaitedForTheNextPeriodAreUnderTheLimitInForce(t *testing.T) {
	p := waiting(perIP("api", ratelimit.Quota(5, ratelimit.Hour)), time.Hour)
	inBubble(t, ratelimit.Config{Policies: []ratelimit.Policy{p}}, func(t *testing.T, q *queue) {
		h := q.Handler(okHandler)
		var all []*ratetest.Arrival
		for range 10 {
			all = append(all, arrive(h, t.Context()))
		}
		time.Sleep(time.Minute)
		p.Limit = ratelimit.Quota(1, ratelimit.Hour)
		if err := q.Reload(p); err != nil {
			t.Fatal(err)
		}
		allowed := 0
		for _, a := range all {
			<-a.Done
			if a.Code == 200 {
				allowed++
			}
		}
		if r := q.Last().Results[0]; allowed != 6 || r.Limit.Rate != 1 {
			t.Errorf("%d allowed, the last under %v; want 5 at once, and 1 in the next period", allowed, r.Limit)
		}
	})
}
