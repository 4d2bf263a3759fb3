package headers_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/headers"
	"github.com/go-tokenbucket/ratelimit/store"
)

// Nobody knows when a slot becomes free. So no format has a time for it, except for the Retry-After of a denial.
func TestFormatsOfAConcurrencyLimit(t *testing.T) {
	rate := result("rate", ratelimit.PerMinute(20).WithBurst(5), store.State{Allowed: true, Remaining: 4, ResetAfter: 3 * time.Second})
	empty := result("rate", ratelimit.PerMinute(20).WithBurst(5), store.State{RetryAfter: 3 * time.Second, ResetAfter: 15 * time.Second})
	for name, c := range map[string]struct {
		limit                    ratelimit.Limit
		state                    store.State
		beside                   []ratelimit.Result
		policy, current          string
		xLimit, remaining, reset string // of DeltaSeconds
	}{
		"free slots":     {ratelimit.Concurrency(3), store.State{Allowed: true, Remaining: 2, ResetAfter: time.Second}, nil, `"exports";q=3;qu="concurrent-requests"`, `"exports";r=2`, "3", "2", ""},
		"the last slot":  {ratelimit.Concurrency(3), store.State{Allowed: true, ResetAfter: time.Second}, nil, `"exports";q=3;qu="concurrent-requests"`, `"exports";r=0`, "3", "0", ""},
		"none":           {ratelimit.Concurrency(3), store.State{RetryAfter: time.Second, ResetAfter: time.Second}, nil, `"exports";q=3;qu="concurrent-requests"`, `"exports";r=0;t=1`, "3", "0", ""},
		"a block":        {ratelimit.Concurrency(3), store.State{RetryAfter: time.Hour, ResetAfter: time.Hour, Blocked: true}, nil, `"exports";q=3;qu="concurrent-requests"`, `"exports";r=0;t=3600`, "3", "0", ""},
		"a limit of 0":   {ratelimit.Concurrency(0), store.State{RetryAfter: ratelimit.Never}, nil, `"exports";q=0;qu="concurrent-requests"`, `"exports";r=0`, "0", "0", ""},
		"beside a rate":  {ratelimit.Concurrency(3), store.State{Allowed: true, Remaining: 2, ResetAfter: time.Second}, []ratelimit.Result{rate}, `"exports";q=3;qu="concurrent-requests", "rate";q=5;w=15`, `"exports";r=2, "rate";r=4;t=12`, "5", "4", "3"},
		"a rate denies":  {ratelimit.Concurrency(3), store.State{Allowed: true, ResetAfter: time.Second}, []ratelimit.Result{empty}, `"exports";q=3;qu="concurrent-requests", "rate";q=5;w=15`, `"exports";r=0, "rate";r=0;t=3`, "5", "0", "15"},
		"a slot is none": {ratelimit.Concurrency(3), store.State{RetryAfter: time.Second, ResetAfter: time.Second}, []ratelimit.Result{rate}, `"exports";q=3;qu="concurrent-requests", "rate";q=5;w=15`, `"exports";r=0;t=1, "rate";r=4;t=1`, "3", "0", ""},
	} {
		t.Run(name, func(t *testing.T) {
			d := &ratelimit.Decision{Allowed: true, At: evening, Results: append([]ratelimit.Result{result("exports", c.limit, c.state)}, c.beside...)}
			for _, r := range d.Results {
				d.Allowed = d.Allowed && r.Allowed
			}
			h := http.Header{}
			headers.IETF(h, d)
			wantLines(t, h, map[string]string{"Ratelimit-Policy": c.policy, "Ratelimit": c.current})
			h = http.Header{"X-Ratelimit-Reset": {"1"}} // of a limiter outside
			headers.DeltaSeconds(h, d)
			want := map[string]string{"X-Ratelimit-Limit": c.xLimit, "X-Ratelimit-Remaining": c.remaining}
			if c.reset != "" {
				want["X-Ratelimit-Reset"] = c.reset
			}
			wantLines(t, h, want)
		})
	}
	h := http.Header{}
	headers.Spring(h, &ratelimit.Decision{Allowed: true, Results: []ratelimit.Result{
		result("exports", ratelimit.Concurrency(3), store.State{Allowed: true, Remaining: 2, ResetAfter: time.Second}),
	}})
	wantLines(t, h, map[string]string{
		"X-Ratelimit-Remaining": "2", "X-Ratelimit-Replenish-Rate": "0", "X-Ratelimit-Burst-Capacity": "3", "X-Ratelimit-Requested-Tokens": "1",
	})
}
