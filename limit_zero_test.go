package ratelimit_test

import (
	"bytes"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/headers"
	"github.com/go-tokenbucket/ratelimit/store"
)

// chosen returns a policy whose LimitFunc returns limit.
func chosen(name string, limit ratelimit.Limit) ratelimit.Policy {
	p := perIP(name, ratelimit.PerHour(5))
	p.LimitFunc = func(*http.Request) ratelimit.Limit { return limit }
	return p
}

func TestARateOf0DeniesWithoutTheStore(t *testing.T) {
	for _, zero := range []ratelimit.Limit{
		ratelimit.PerDay(0), ratelimit.PerDay(0).WithBurst(5), {Burst: 5}, {Burst: -5}, {Per: -time.Second},
	} {
		l := newLimiter(t, ratelimit.Config{Store: storeFunc(func([]store.Charge, []store.State) bool {
			t.Errorf("%v: the store was asked", zero)
			return true
		})})
		p := chosen("quota", zero)
		p.Cost = func(*http.Request) int64 { return 3 }
		p.Settle = ratelimit.FailedLogins
		d, err := l.Decide(requestWith(), perIP("first", ratelimit.PerHour(1)), p, perIP("last", ratelimit.PerHour(1)))
		if err != nil || d.Allowed || len(d.Results) != 1 || d.RetryAfter() != ratelimit.Never {
			t.Fatalf("%v: got %+v, error %v", zero, d, err)
		}
		want := ratelimit.Result{Policy: "quota", Key: "ip:192.0.2.1", Limit: zero, Cost: 3, State: store.State{RetryAfter: ratelimit.Never}}
		if d.Results[0] != want {
			t.Errorf("got %+v; want %+v", d.Results[0], want)
		}
		w := get(l.Limit(p)(okHandler))
		if w.Code != 429 || w.Header()["Retry-After"] != nil || w.Header().Get("X-Ratelimit-Limit") != "0" || w.Header().Get("X-Ratelimit-Remaining") != "0" {
			t.Errorf("%v: %d %v", zero, w.Code, w.Header())
		}
		checkText(t, w.Body.String(), `"violated-policies":["quota"]`)
	}
}

func TestHeadersOfARateOf0(t *testing.T) {
	for _, tt := range []struct {
		limit                     ratelimit.Limit
		quotaPolicy, serviceLimit string
	}{
		{ratelimit.PerMinute(0), `"q";q=0;w=60`, `"q";r=0`},
		{ratelimit.PerMinute(0).WithBurst(7), `"q";q=0;w=60`, `"q";r=0`},
		{ratelimit.Limit{Per: 1, Burst: 1}, `"q";q=0;w=1`, `"q";r=0`},
		{ratelimit.Limit{Burst: 1}, `"q";q=0;w=1`, `"q";r=0`},
		{ratelimit.Limit{Per: -time.Hour}, `"q";q=0;w=1`, `"q";r=0`},
	} {
		l := newLimiter(t, ratelimit.Config{Headers: headers.Join(headers.DeltaSeconds, headers.IETF)})
		wantHeaders := func(w http.Header, want map[string]string) {
			t.Helper()
			for name, value := range want {
				if got := w.Values(name); len(got) != 1 || got[0] != value {
					t.Errorf("%v: %s is %q; want %q", tt.limit, name, got, value)
				}
			}
		}
		w := get(l.Limit(chosen("q", tt.limit))(okHandler))
		wantHeaders(w.Header(), map[string]string{
			"X-RateLimit-Limit": "0", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "0",
			"RateLimit-Policy": tt.quotaPolicy, "RateLimit": tt.serviceLimit,
		})

		l = newLimiter(t, ratelimit.Config{Headers: headers.Join(headers.Spring, headers.Shadows)})
		w = get(l.Limit(chosen("q", tt.limit))(okHandler))
		wantHeaders(w.Header(), map[string]string{
			"X-RateLimit-Remaining": "0", "X-RateLimit-Replenish-Rate": "0", "X-RateLimit-Burst-Capacity": "0", "X-RateLimit-Requested-Tokens": "1",
		})
		shadow := chosen("q", tt.limit)
		shadow.Shadow = true
		w = get(l.Limit(shadow)(okHandler))
		wantHeaders(w.Header(), map[string]string{"X-RateLimit-Shadow": tt.serviceLimit})
		if w.Code != 200 || w.Header()["X-Ratelimit-Remaining"] != nil {
			t.Errorf("in shadow: %d %v", w.Code, w.Header())
		}

		w = get(l.Limit(perIP("outer", ratelimit.PerHour(3)))(l.Limit(chosen("q", tt.limit))(okHandler)))
		if w.Code != 429 || w.Header()["Retry-After"] != nil {
			t.Errorf("inside of another: %d %v", w.Code, w.Header())
		}
	}
}

// The results of all policies stand in their order, wherever those in shadow have a rate of 0.
func TestARateOf0InShadowHasItsPlaceAmongTheOthers(t *testing.T) {
	for _, names := range []string{"z", "az", "za", "zab", "azb", "abz", "zazb", "zzazzbzz", "azzb"} {
		l := quiet(t)
		var policies []ratelimit.Policy
		for i, c := range names {
			p := perIP(string(c)+string(rune('0'+i)), ratelimit.PerHour(5))
			if c == 'z' {
				p = chosen(p.Name, ratelimit.PerDay(0))
				p.Shadow = true
			}
			policies = append(policies, p)
		}
		var inner *ratelimit.Decision
		h := l.Limit(perIP("outer", ratelimit.PerHour(9)))(l.Limit(policies...)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			inner, _ = ratelimit.FromContext(r.Context())
		})))
		if w := get(h); w.Code != 200 {
			t.Fatalf("%s: %d", names, w.Code)
		}
		if len(inner.Results) != 1+len(names) || inner.Results[0].Policy != "outer" {
			t.Fatalf("%s: %+v", names, inner.Results)
		}
		for i, r := range inner.Results[1:] {
			if r.Policy != policies[i].Name || r.Allowed == policies[i].Shadow || r.Shadow != policies[i].Shadow {
				t.Errorf("%s: result %d is %+v", names, i, r)
			}
		}
	}
}

func TestAMalformedTierFallsBackToTheLimitOfThePolicy(t *testing.T) {
	for _, tier := range []ratelimit.Limit{{Rate: -1}, ratelimit.Every(30 * 24 * time.Hour).WithBurst(10_000), ratelimit.PerSecond(-5), {Rate: 5}} {
		var text bytes.Buffer
		l := newLimiter(t, ratelimit.Config{Logger: slog.New(slog.NewTextHandler(&text, nil))})
		p := chosen("api", tier)
		p.Limit = ratelimit.PerHour(2)
		wantStatuses(t, l.Limit(p)(okHandler), []int{200, 200, 429, 429})
		checkText(t, text.String(), "LimitFunc returned", "Policy.Limit applies instead, 2/1h")
		if n := strings.Count(text.String(), "\n"); n != 1 {
			t.Errorf("%d lines:\n%s", n, &text)
		}
	}
}

func TestAStaticLimitOf0IsRefused(t *testing.T) {
	if _, err := ratelimit.New(ratelimit.Config{Policies: []ratelimit.Policy{perIP("api", ratelimit.PerDay(0))}}); err == nil {
		t.Error("got no error")
	}
	if _, err := quiet(t).Take(t.Context(), ratelimit.Policy{Name: "api", Limit: ratelimit.PerDay(0)}, "member:5", 1); err == nil {
		t.Error("Take: got no error")
	}
}
