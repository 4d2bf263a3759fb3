package admin_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/admin"
	"github.com/go-tokenbucket/ratelimit/internal/test/ratetest"
)

// The clock of a bubble begins on a Saturday, the first of January 2000.
func TestBucketsOfQuotas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		month := ratelimit.Policy{Name: "month", Key: ratelimit.RemoteIP(), Limit: ratelimit.Quota(100_000, ratelimit.Month).In("Europe/Berlin")}
		day := ratelimit.Policy{Name: "day", Limit: ratelimit.Quota(2, ratelimit.Day)}
		week := ratelimit.Policy{Name: "week", Limit: ratelimit.Quota(7, ratelimit.Week).In("America/New_York")}
		hour := ratelimit.Policy{Name: "hour", Limit: ratelimit.Quota(3, ratelimit.Hour).In("Asia/Kolkata")}
		s := newSite(t, admin.Config{Policies: []ratelimit.Policy{day, week, hour}}, ratelimit.Config{Store: ratetest.NewStore(), Policies: []ratelimit.Policy{month}})
		s.use("192.0.2.1", 3)
		ctx := context.Background()
		s.limiter.Take(ctx, day, "ip:192.0.2.1", 2)
		s.limiter.Block(ctx, hour, "ip:192.0.2.1", 90*time.Minute, "")
		same(t, s.object("key.json?key=ip:192.0.2.1"), map[string]any{
			"buckets.0.policy": "month", "buckets.0.state": "ready", "buckets.0.limit": "100000 per month Europe/Berlin", "buckets.0.burst": 100_000, "buckets.0.tokens": 99_997, "buckets.0.per_second": 0,
			"buckets.0.next_in_seconds": 0, "buckets.0.full_in_seconds": 31*24*60*60 - 60*60, "buckets.0.period_ends": "2000-02-01T00:00:00+01:00",
			"buckets.1.state": "empty", "buckets.1.tokens": 0, "buckets.1.next_in_seconds": 24 * 60 * 60, "buckets.1.period_ends": "2000-01-02T00:00:00Z",
			"buckets.2.state": "full", "buckets.2.tokens": 7, "buckets.2.full_in_seconds": 0, "buckets.2.period_ends": "2000-01-03T00:00:00-05:00",
			"buckets.3.state": "blocked", "buckets.3.next_in_seconds": 90 * 60, "buckets.3.period_ends": nil,
		})
		page := s.get("key?key=ip:192.0.2.1", asBrowser)
		checkPage(t, page)
		s.want(page, 200, "100,000 per month in Europe/Berlin", "Used 3 of 100,000 this month", "The month ends 1 Feb 00:00 CET.", `aria-valuenow="3"`,
			"Used 2 of 2 today", `width="100.00"`, "The next request is allowed from 2 Jan 00:00 UTC on.", "Used 0 of 7 this week", `width="0.00"`, "The week ends 3 Jan 00:00 EST.", "No request is allowed for 90 min.")
		if text := page.Body.String(); strings.Contains(text, "Inf") || strings.Contains(text, "NaN") || strings.Contains(text, " tokens<") {
			t.Errorf("a rate, where none is: %s", text)
		}
		s.want(s.get("", asBrowser), 200, "100,000 per month in Europe/Berlin")
		s.want(s.get("top?policy=month", asBrowser), 200, "100000 per month Europe/Berlin")

		s.want(s.post("key/refund", form("ip:192.0.2.1", "policy", "month", "n", "2")), 303)
		s.want(s.post("key/refund", form("ip:192.0.2.1", "policy", "day", "n", "3"), asBrowser), 400, "holds at most 2 tokens")
		s.want(s.get("key?key=ip:192.0.2.1", asBrowser), 200, "Used 1 of 100,000 this month")
		time.Sleep(24 * time.Hour)
		same(t, s.object("key.json?key=ip:192.0.2.1"), map[string]any{
			"buckets.0.tokens": 99_999, "buckets.1.state": "full", "buckets.1.tokens": 2, "buckets.1.period_ends": "2000-01-03T00:00:00Z", "buckets.3.state": "full",
		})
		s.want(s.get("key?key=ip:192.0.2.1", asBrowser), 200, "Used 0 of 2 today", "The day ends 3 Jan 00:00 UTC.")
	})
}
