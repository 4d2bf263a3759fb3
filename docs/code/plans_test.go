package code_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/ratetest"
)

type planKey struct{}

func planOf(ctx context.Context) string {
	plan, _ := ctx.Value(planKey{}).(string)
	return plan
}

// in returns a change of a request whose caller has a plan.
func in(plan string) func(*http.Request) {
	return func(r *http.Request) { *r = *r.WithContext(context.WithValue(r.Context(), planKey{}, plan)) }
}

func TestAPlan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // it is 2000-01-01 00:00:00 UTC
		limiter := ratetest.NewLimiter(t, ratelimit.Config{})
		defer limiter.Close()
		key, next := ratelimit.RemoteIP(), ratetest.OK

		plan := ratelimit.Policy{
			Name:  "plan",
			Key:   key,
			Limit: ratelimit.Quota(100_000, ratelimit.Month).In("Europe/Berlin"),
		}
		rate := ratelimit.Policy{Name: "rate", Key: key, Limit: ratelimit.PerSecond(10)}
		handler := limiter.Limit(rate, plan)(next)

		for range 12 {
			ratetest.Get(handler)
		}
		r, err := limiter.Peek(t.Context(), plan, "ip:192.0.2.1")
		if err != nil || r.Remaining != 99_990 || r.ResetAfter != 31*24*time.Hour-time.Hour {
			t.Errorf("the rate denied two: %+v, %v", r, err)
		}

		if _, err := limiter.Take(t.Context(), plan, "ip:192.0.2.1", 99_990); err != nil {
			t.Fatal(err)
		}
		time.Sleep(12 * time.Hour)
		w := ratetest.Get(handler)
		guide := strings.Join(readDocument(t, "docs/plans.md").lines, "\n")
		for _, line := range []string{
			"HTTP/1.1 429 Too Many Requests", "Retry-After: " + w.Header().Get("Retry-After"), "X-Ratelimit-Limit: " + w.Header().Get("X-Ratelimit-Limit"),
			"X-Ratelimit-Remaining: " + w.Header().Get("X-Ratelimit-Remaining"), "X-Ratelimit-Reset: " + w.Header().Get("X-Ratelimit-Reset"), strings.TrimSpace(w.Body.String()),
		} {
			if w.Code != 429 || !strings.Contains(guide, "\n"+line+"\n") {
				t.Errorf("docs/plans.md lacks the line %s", line)
			}
		}
	})
}

func TestPlansOfMembers(t *testing.T) {
	limiter := ratetest.Quiet(t)
	members := ratelimit.RemoteIP()

	plan := ratelimit.Policy{
		Name:  "plan",
		Key:   members,
		Limit: ratelimit.Quota(1_000, ratelimit.Month), // of customers without a plan
		LimitFunc: func(r *http.Request) ratelimit.Limit {
			switch planOf(r.Context()) { // that your authentication has put there
			case "pro":
				return ratelimit.Quota(100_000, ratelimit.Month)
			case "enterprise":
				return ratelimit.Unlimited
			}
			return ratelimit.Limit{} // Policy.Limit
		},
	}

	h := limiter.Limit(plan)(ratetest.OK)
	for _, c := range []struct{ plan, remaining string }{{"", "999"}, {"", "998"}, {"pro", "99997"}, {"enterprise", ""}, {"pro", "99996"}} {
		if w := ratetest.Get(h, in(c.plan)); w.Code != 200 || w.Header().Get("X-RateLimit-Remaining") != c.remaining { // an upgrade keeps what was used
			t.Errorf("plan %q: status %d, %v, want %s", c.plan, w.Code, w.Header(), c.remaining)
		}
	}
}

// The guide's table of what a changed limit does to a bucket.
func TestAQuotaThatChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := ratetest.NewLimiter(t, ratelimit.Config{})
		defer limiter.Close()
		p := ratelimit.Policy{Name: "plan"}
		take := func(limit ratelimit.Limit, cost int64) ratelimit.Result {
			t.Helper()
			p.Limit = limit
			r, err := limiter.Take(t.Context(), p, "member:5", cost)
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		month := take(ratelimit.Quota(1000, ratelimit.Month), 800).ResetAfter
		if r := take(ratelimit.Quota(5000, ratelimit.Month), 1); r.Remaining != 4199 {
			t.Errorf("raised: %+v", r)
		}
		if r := take(ratelimit.Quota(500, ratelimit.Month), 1); r.Allowed || r.RetryAfter != month {
			t.Errorf("lowered: %+v", r)
		}
		if r := take(ratelimit.Quota(1000, ratelimit.Month).In("Europe/Berlin"), 1); r.ResetAfter != month {
			t.Errorf("another time zone: %+v", r)
		}
		if r := take(ratelimit.Quota(1000, ratelimit.Day), 1); r.Remaining != 197 || r.ResetAfter != 24*time.Hour {
			t.Errorf("a shorter period: %+v", r)
		}
		if r := take(ratelimit.PerHour(10), 1); r.Remaining != 9 {
			t.Errorf("a rate: %+v", r)
		}
		if r := take(ratelimit.Quota(1000, ratelimit.Month), 1); r.Remaining != 999 {
			t.Errorf("a quota again: %+v", r)
		}
	})
}
