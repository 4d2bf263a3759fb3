package headers_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/headers"
	"github.com/go-tokenbucket/ratelimit/store"
)

// Half past six in the evening of November 26th, in Berlin.
var evening = time.Date(2026, 11, 26, 17, 30, 0, 0, time.UTC)

func TestIETFOfAQuota(t *testing.T) {
	berlin := ratelimit.Quota(100_000, ratelimit.Month).In("Europe/Berlin")
	toDecember := time.Date(2026, 11, 30, 23, 0, 0, 0, time.UTC).Sub(evening)
	left := func(n int64, reset time.Duration) store.State {
		return store.State{Allowed: true, Remaining: n, ResetAfter: reset}
	}
	none := store.State{RetryAfter: toDecember, ResetAfter: toDecember}
	blocked := store.State{RetryAfter: 90 * 24 * time.Hour, ResetAfter: 90 * 24 * time.Hour, Blocked: true}
	degraded := left(120_000, toDecember)
	degraded.Degraded = true
	never := store.State{RetryAfter: ratelimit.Never}
	for name, c := range map[string]struct {
		at              time.Time
		limit           ratelimit.Limit
		state           store.State
		policy, current string
	}{
		"November":                               {evening, berlin, left(7, toDecember), `"plan";q=100000;w=2592000`, `"plan";r=7;t=365400`},
		"October, with an hour more in Berlin":   {evening.AddDate(0, -1, 0), berlin, left(7, 5*24*time.Hour+5*time.Hour+30*time.Minute), `"plan";q=100000;w=2682000`, `"plan";r=7;t=451800`},
		"February of a leap year":                {time.Date(2028, 2, 10, 0, 0, 0, 0, time.UTC), ratelimit.Quota(5, ratelimit.Month), left(1, 20*24*time.Hour), `"plan";q=5;w=2505600`, `"plan";r=1;t=1728000`},
		"a week":                                 {evening, ratelimit.Quota(5, ratelimit.Week), left(5, 78*time.Hour+30*time.Minute), `"plan";q=5;w=604800`, `"plan";r=5;t=282600`},
		"a day of 23 hours":                      {time.Date(2026, 3, 29, 12, 0, 0, 0, time.UTC), ratelimit.Quota(5, ratelimit.Day).In("Europe/Berlin"), left(5, 10*time.Hour), `"plan";q=5;w=82800`, `"plan";r=5;t=36000`},
		"an hour, and a store with another time": {evening, ratelimit.Quota(5, ratelimit.Hour), left(5, 31*time.Minute), `"plan";q=5;w=3600`, `"plan";r=5;t=1860`},
		"the store's month has just begun":       {time.Date(2026, 11, 30, 22, 59, 58, 0, time.UTC), berlin, left(99_999, 31*24*time.Hour), `"plan";q=100000;w=2678400`, `"plan";r=99999;t=2678400`},
		"nothing left":                           {evening, berlin, left(0, toDecember), `"plan";q=100000;w=2592000`, `"plan";r=0;t=365400`},
		"a denial":                               {evening, berlin, none, `"plan";q=100000;w=2592000`, `"plan";r=0;t=365400`},
		"a block beyond the month":               {evening, berlin, blocked, `"plan";q=100000;w=2592000`, `"plan";r=0;t=7776000`},
		"a stand-in has no more left than all":   {evening, berlin, degraded, `"plan";q=100000;w=2592000`, `"plan";r=100000;t=365400`},
		"a quota of 0, early in a month":         {time.Date(2026, 11, 1, 0, 10, 0, 0, time.UTC), ratelimit.Quota(0, ratelimit.Month), never, `"plan";q=0;w=2592000`, `"plan";r=0`},
		"a zone that is none does not harm":      {evening, ratelimit.Quota(5, ratelimit.Month).In("Berlin"), left(5, time.Hour), `"plan";q=5;w=0`, `"plan";r=5;t=3600`},
	} {
		t.Run(name, func(t *testing.T) {
			h := http.Header{}
			headers.IETF(h, &ratelimit.Decision{Allowed: c.state.Allowed, At: c.at, Results: []ratelimit.Result{result("plan", c.limit, c.state)}})
			wantLines(t, h, map[string]string{"Ratelimit-Policy": c.policy, "Ratelimit": c.current})
		})
	}
}

// A quota and a rate that denies: no t is longer than Retry-After.
func TestIETFOfAQuotaBesideARate(t *testing.T) {
	h := http.Header{}
	headers.IETF(h, &ratelimit.Decision{At: evening, Results: []ratelimit.Result{
		result("plan", ratelimit.Quota(100, ratelimit.Day), store.State{Allowed: true, Remaining: 60, ResetAfter: 6*time.Hour + 30*time.Minute}),
		result("rate", ratelimit.PerMinute(20).WithBurst(5), store.State{RetryAfter: 3 * time.Second, ResetAfter: 15 * time.Second}),
	}})
	wantLines(t, h, map[string]string{"Ratelimit-Policy": `"plan";q=100;w=86400, "rate";q=5;w=15`, "Ratelimit": `"plan";r=60;t=3, "rate";r=0;t=3`})
}

// Nothing refills within a period.
func TestOtherFormatsOfAQuota(t *testing.T) {
	d := &ratelimit.Decision{Allowed: true, At: evening, Results: []ratelimit.Result{
		result("plan", ratelimit.Quota(100, ratelimit.Hour).In("Europe/Berlin"), store.State{Allowed: true, Remaining: 60, ResetAfter: 30*time.Minute - time.Microsecond}),
	}}
	h := http.Header{}
	headers.Spring(h, d)
	wantLines(t, h, map[string]string{
		"X-Ratelimit-Remaining": "60", "X-Ratelimit-Replenish-Rate": "0", "X-Ratelimit-Burst-Capacity": "100", "X-Ratelimit-Requested-Tokens": "1",
	})
	h = http.Header{}
	headers.DeltaSeconds(h, d)
	wantLines(t, h, map[string]string{"X-Ratelimit-Limit": "100", "X-Ratelimit-Remaining": "60", "X-Ratelimit-Reset": "1800"})
}
