package ratelimit_test

import (
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit"
)

// A request that is settled in another period than it was charged in gives nothing back to it, and owes it what it cost more.
func TestARequestIsSettledInItsPeriodOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		quota := ratelimit.Quota(100, ratelimit.Hour)
		p := settled("quota", quota, asCharged)
		p.Cost = func(*http.Request) int64 { return 10 }
		limiter := newLimiter(t, ratelimit.Config{})
		h := limiter.Limit(p)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			cost, _ := strconv.ParseInt(r.URL.Query().Get("cost"), 10, 64)
			lasts, _ := time.ParseDuration(r.URL.Query().Get("lasts"))
			time.Sleep(lasts)
			ratelimit.SetCost(r.Context(), "quota", cost)
		}))
		request := func(cost int, lasts time.Duration) {
			get(h, func(r *http.Request) { r.URL.RawQuery = "cost=" + strconv.Itoa(cost) + "&lasts=" + lasts.String() })
		}
		left := func(want int64) {
			t.Helper()
			result, err := limiter.Peek(t.Context(), ratelimit.Policy{Name: "quota", Limit: quota}, "ip:192.0.2.1")
			if err != nil || result.Remaining != want {
				t.Errorf("%d left, error %v, want %d", result.Remaining, err, want)
			}
		}
		request(1, 0)
		left(99)
		go request(1, 20*time.Minute)
		go request(1, 59*time.Minute)
		go request(1, 61*time.Minute)
		go request(30, 62*time.Minute)
		time.Sleep(19 * time.Minute)
		left(59)
		time.Sleep(40*time.Minute + 30*time.Second)
		left(77) // the first two were settled
		time.Sleep(time.Minute)
		request(50, 0)
		left(50)
		time.Sleep(time.Minute)
		left(50) // no refund for the hour before
		time.Sleep(time.Minute)
		left(30) // it owes the 20 tokens more that it cost
		request(1, 0)
		left(29)
	})
}
