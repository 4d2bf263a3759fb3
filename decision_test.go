package ratelimit_test

import (
	"math"
	"net/http"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/headers"
	"github.com/go-tokenbucket/ratelimit/store"
)

func TestTheTightestPolicyPaysForTheFewestFurtherRequests(t *testing.T) {
	type bucket struct {
		cost, remaining int64
		resets          time.Duration
	}
	for _, tt := range []struct {
		name    string
		buckets []bucket
		want    int
	}{
		{"of equal costs the one with fewer tokens", []bucket{{1, 40, 0}, {1, 39, 0}}, 1},
		{"a higher cost uses up more tokens", []bucket{{1, 39, 0}, {20, 80, 0}}, 1},
		{"in either order", []bucket{{20, 80, 0}, {1, 39, 0}}, 0},
		{"a part of a cost pays for nothing", []bucket{{1, 1, 0}, {20, 19, 0}}, 1},
		{"no cost is always paid for", []bucket{{0, 0, 0}, {1, 1000, 0}}, 1},
		{"a refund, too", []bucket{{-5, 0, 0}, {1, 1000, 0}}, 1},
		{"of as many requests the one with fewer tokens", []bucket{{20, 85, 0}, {10, 45, 0}}, 1},
		{"of as many tokens the one that is full later", []bucket{{1, 4, time.Second}, {1, 4, time.Minute}}, 1},
		{"of the same the first", []bucket{{1, 4, time.Second}, {1, 4, time.Second}}, 0},
		{"the greatest numbers", []bucket{{1, math.MaxInt64, 0}, {math.MaxInt64, math.MaxInt64, 0}}, 1},
		{"a debt pays for nothing", []bucket{{20, 19, 0}, {20, -500, 0}}, 1},
		{"of no cost the one with fewer tokens", []bucket{{0, 4, 0}, {0, 3, 0}}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := ratelimit.Decision{Allowed: true}
			for _, b := range tt.buckets {
				d.Results = append(d.Results, ratelimit.Result{
					Policy: "p", Limit: ratelimit.PerHour(100), Cost: b.cost,
					State: store.State{Allowed: true, Remaining: b.remaining, ResetAfter: b.resets},
				})
			}
			if got := d.Tightest(); got != &d.Results[tt.want] {
				t.Errorf("got %+v", got)
			}
			// IETF shows one of those that have the same name, and the same one.
			h := make(http.Header)
			headers.IETF(h, &d)
			alone := make(http.Header)
			headers.IETF(alone, &ratelimit.Decision{Allowed: true, Results: d.Results[tt.want : tt.want+1]})
			if h.Get("RateLimit") != alone.Get("RateLimit") {
				t.Errorf("RateLimit is %s, want %s", h.Get("RateLimit"), alone.Get("RateLimit"))
			}
		})
	}
}

// Also of a Store that does not say when to retry.
func TestOfADeniedRequestTheTightestPolicyIsOneThatDenied(t *testing.T) {
	d := ratelimit.Decision{Results: []ratelimit.Result{
		{Policy: "allowed", Cost: 1, State: store.State{Allowed: true, ResetAfter: time.Hour}},
		{Policy: "denied", Cost: 1, State: store.State{Remaining: 5}},
	}}
	if got := d.Tightest(); got != &d.Results[1] {
		t.Errorf("got %+v", got)
	}
}

// Of 40 an hour at a cost of 1 and 100 an hour at a cost of 20, the second allows four more requests after the
// first one, and its numbers are shown.
func TestTheHeadersAreOfThePolicyThatEndsFirst(t *testing.T) {
	cheap, dear := perIP("cheap", ratelimit.PerHour(40)), perIP("dear", ratelimit.PerHour(100))
	dear.Cost = func(*http.Request) int64 { return 20 }
	for name, policies := range map[string][]ratelimit.Policy{"cheap first": {cheap, dear}, "dear first": {dear, cheap}} {
		for mount, wrap := range map[string]func(*ratelimit.Limiter) http.Handler{
			"together": func(l *ratelimit.Limiter) http.Handler { return l.Limit(policies...)(okHandler) },
			"stacked": func(l *ratelimit.Limiter) http.Handler {
				return l.Limit(policies[0])(l.Limit(policies[1])(okHandler))
			},
		} {
			h := wrap(newLimiter(t, ratelimit.Config{}))
			for i, want := range []string{"80", "60", "40", "20", "0", "0"} {
				w := get(h)
				status := 200
				if i == 5 {
					status = 429
				}
				if limit, remaining := w.Header().Get("X-RateLimit-Limit"), w.Header().Get("X-RateLimit-Remaining"); w.Code != status || limit != "100" || remaining != want {
					t.Errorf("%s, %s: request %d: %d, %s of %s remaining, want %s of 100", name, mount, i+1, w.Code, remaining, limit, want)
				}
			}
		}
	}
}

// A block has an end that the tokens do not know, and the tokens may come later.
func TestUntilOfABlockedBucket(t *testing.T) {
	r := ratelimit.Result{Limit: ratelimit.Every(time.Hour).WithBurst(4), Cost: 2}
	r.Blocked, r.RetryAfter, r.ResetAfter = true, 3*time.Hour, 4*time.Hour
	for name, tt := range map[string]struct {
		retryAfter time.Duration
		want       [4]time.Duration // for 1 to 4 tokens
	}{
		"the block ends in 10 minutes": {10 * time.Minute, [4]time.Duration{time.Hour, 2 * time.Hour, 3 * time.Hour, 4 * time.Hour}},
		"in 150 minutes":               {150 * time.Minute, [4]time.Duration{150 * time.Minute, 150 * time.Minute, 3 * time.Hour, 4 * time.Hour}},
		"when it is full":              {4 * time.Hour, [4]time.Duration{4 * time.Hour, 4 * time.Hour, 4 * time.Hour, 4 * time.Hour}},
		"not known":                    {ratelimit.Never, [4]time.Duration{4 * time.Hour, 4 * time.Hour, 4 * time.Hour, 4 * time.Hour}},
	} {
		r.RetryAfter = tt.retryAfter
		for i, want := range tt.want {
			if got := r.Until(int64(i + 1)); got != want {
				t.Errorf("%s: %d tokens come in %v, want %v", name, i+1, got, want)
			}
		}
	}
	r.Limit, r.RetryAfter, r.ResetAfter = ratelimit.Limit{}, time.Minute, time.Minute // as Peek returns it without a limit
	if got := r.Until(1); got != time.Minute {
		t.Errorf("without a limit: %v, want the rest of the block", got)
	}
}
