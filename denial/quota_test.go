package denial_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/denial"
)

// Each form says when the period ends, in the time zone of the quota. The clock of a bubble begins at the year 2000 in UTC.
func TestDenialOfAQuotaSaysWhenItIsRenewed(t *testing.T) {
	hidden := perIP("plan", ratelimit.Quota(1, ratelimit.Month))
	hidden.Hidden = true
	shadow := perIP("shadow", ratelimit.Quota(1, ratelimit.Week))
	shadow.Shadow = true
	minute := perIP("minute", ratelimit.PerMinute(1))
	for name, tt := range map[string]struct {
		policies []ratelimit.Policy
		want     string
	}{
		"month": {[]ratelimit.Policy{perIP("plan", ratelimit.Quota(1, ratelimit.Month))}, "Try again in 31 days, from 2000-02-01T00:00:00Z on."},
		"day, in the west": {[]ratelimit.Policy{perIP("plan", ratelimit.Quota(1, ratelimit.Day).In("America/New_York"))},
			"Try again in 5 hours, from 2000-01-01T00:00:00-05:00 on."},
		"hour, half an hour ahead": {[]ratelimit.Policy{perIP("plan", ratelimit.Quota(1, ratelimit.Hour).In("Asia/Kolkata"))},
			"Try again in 30 minutes, from 2000-01-01T06:00:00+05:30 on."},
		"a rate that denies longer": {[]ratelimit.Policy{perIP("plan", ratelimit.Quota(1, ratelimit.Hour)), perIP("day", ratelimit.PerDay(1))}, "Try again in 24 hours."},
		"a rate that denies too": {[]ratelimit.Policy{minute, perIP("plan", ratelimit.Quota(1, ratelimit.Hour))},
			"Try again in 60 minutes, from 2000-01-01T01:00:00Z on."},
		"a hidden quota":      {[]ratelimit.Policy{hidden}, "Try again in 31 days."},
		"a quota in a shadow": {[]ratelimit.Policy{shadow, minute}, "Try again in 60 seconds."},
		"a quota of nothing": {[]ratelimit.Policy{{Name: "plan", Key: ratelimit.RemoteIP(), LimitFunc: func(*http.Request) ratelimit.Limit { return ratelimit.Quota(0, ratelimit.Month) }}},
			"This request asks for more than its limit ever allows."},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := newLimiter(t, ratelimit.Config{Deny: denial.Handler{GRPC: true}})
			defer l.Close()
			h := l.Limit(tt.policies...)(okHandler)
			get(h)
			for form, change := range forms {
				w := get(h, change...)
				if _, detail := words(t, w); detail != tt.want {
					t.Errorf("%s, %s: %q, want %q", name, form, detail, tt.want)
				}
			}
		})
	}
}

// A lock that is longer than the period is what the client waits for.
func TestDenialOfALockedQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := perIP("plan", ratelimit.Quota(1, ratelimit.Hour))
		p.LockFor = 90 * time.Minute
		l := newLimiter(t, ratelimit.Config{})
		defer l.Close()
		h := l.Limit(p)(okHandler)
		get(h)
		if _, detail := words(t, get(h)); detail != "Try again in 90 minutes." {
			t.Error(detail)
		}
	})
}
