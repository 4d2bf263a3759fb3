package headers_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/headers"
)

func hidden(p ratelimit.Policy) ratelimit.Policy {
	p.Hidden = true
	return p
}

// everyFormat writes all headers that there are.
var everyFormat = headers.Join(headers.IETF, headers.Shadows, ratelimit.XRateLimit, headers.Spring, headers.DeltaSeconds)

// zero returns p with a rate of 0.
func zero(p ratelimit.Policy) ratelimit.Policy {
	p.LimitFunc = func(*http.Request) ratelimit.Limit { return ratelimit.PerDay(0) }
	return p
}

func wantTold(t *testing.T, w *httptest.ResponseRecorder, status int, want map[string]string) {
	t.Helper()
	if got := limits(t, w.Header()); w.Code != status || !maps.Equal(got, want) {
		t.Errorf("%d %q\nwant %d %q", w.Code, got, status, want)
	}
	if text := fmt.Sprint(w.Header(), w.Body); strings.Contains(text, "secret") {
		t.Errorf("a hidden policy is in the response: %s", text)
	}
}

func TestWhereOnlyHiddenPoliciesApplyThereAreNoRateLimitHeaders(t *testing.T) {
	secret := hidden(perIP("secret", ratelimit.PerMinute(20).WithBurst(1)))
	shadow := hidden(perIP("secret-candidate", ratelimit.PerMinute(20).WithBurst(1)))
	shadow.Shadow = true
	for name, mount := range map[string]func(*ratelimit.Limiter) http.Handler{
		"together": func(l *ratelimit.Limiter) http.Handler { return l.Limit(secret, shadow)(nothing) },
		"stacked":  func(l *ratelimit.Limiter) http.Handler { return l.Limit(shadow)(l.Limit(secret)(nothing)) },
		"by a rate of 0": func(l *ratelimit.Limiter) http.Handler {
			none := hidden(zero(perIP("secret-none", ratelimit.PerHour(5))))
			none.Shadow = true
			return l.Limit(none, secret)(nothing)
		},
		"Admit": func(l *ratelimit.Limiter) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				l.Admit(w, r, ratelimit.Charge{Policy: secret, Key: "all"}, ratelimit.Charge{Policy: shadow, Key: "all"})
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := mount(frozen(t, everyFormat))
			wantTold(t, get(h), 200, map[string]string{})
			wantTold(t, get(h), 429, map[string]string{"Retry-After": "3"})
		})
	}
}

// The hidden policy is the tighter one, and denies the second request.
func TestHeadersAreOfThePoliciesThatAreNotHidden(t *testing.T) {
	limit := ratelimit.PerMinute(20)
	mine, secret := perIP("mine", limit.WithBurst(5)), hidden(perIP("secret", limit.WithBurst(1)))
	namesake := secret
	namesake.Name, namesake.Key = mine.Name, ratelimit.Static("all")
	allowed := map[string]string{
		"X-Ratelimit-Limit": "5", "X-Ratelimit-Remaining": "4", "X-Ratelimit-Reset": "3",
		"Ratelimit-Policy": `"mine";q=5;w=15`, "Ratelimit": `"mine";r=4;t=12`,
	}
	charged := map[string]string{
		"X-Ratelimit-Limit": "5", "X-Ratelimit-Remaining": "3", "X-Ratelimit-Reset": "6",
		"Ratelimit-Policy": `"mine";q=5;w=15`, "Ratelimit": `"mine";r=3;t=3`, "Retry-After": "3",
	}
	spared := maps.Clone(charged)
	spared["X-Ratelimit-Remaining"], spared["X-Ratelimit-Reset"], spared["Ratelimit"] = "4", "3", `"mine";r=4;t=3`
	for name, tt := range map[string]struct {
		mount  func(l *ratelimit.Limiter) http.Handler
		denied map[string]string
	}{
		"together":           {func(l *ratelimit.Limiter) http.Handler { return l.Limit(secret, mine)(nothing) }, spared},
		"in the other order": {func(l *ratelimit.Limiter) http.Handler { return l.Limit(mine, secret)(nothing) }, spared},
		"outside": {func(l *ratelimit.Limiter) http.Handler { return l.Limit(secret)(l.Limit(mine)(nothing)) },
			map[string]string{"Retry-After": "3"}},
		"inside":                      {func(l *ratelimit.Limiter) http.Handler { return l.Limit(mine)(l.Limit(secret)(nothing)) }, charged},
		"inside and of the same name": {func(l *ratelimit.Limiter) http.Handler { return l.Limit(mine)(l.Limit(namesake)(nothing)) }, charged},
	} {
		t.Run(name, func(t *testing.T) {
			h := tt.mount(frozen(t, both))
			wantTold(t, get(h), 200, allowed)
			wantTold(t, get(h), 429, tt.denied)
		})
	}
}

func TestADenialNamesThePoliciesThatAreNotHidden(t *testing.T) {
	secret := hidden(perIP("secret", ratelimit.PerMinute(2).WithBurst(1)))
	for _, tt := range []struct {
		name  string
		other ratelimit.Policy
		retry string
		want  []string
	}{
		{"one that allowed", perIP("mine", ratelimit.PerHour(9)), "30", nil},
		{"one that denied", perIP("mine", ratelimit.PerMinute(1)), "60", []string{"mine"}},
		{"one that denied for less long", perIP("mine", ratelimit.PerMinute(20).WithBurst(1)), "30", []string{"mine"}},
		{"one that is hidden, too", hidden(perIP("secret2", ratelimit.PerMinute(1))), "60", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := frozen(t, everyFormat)
			h := l.Limit(secret, tt.other)(nothing)
			get(h)
			w := get(h)
			var body struct {
				Violated []string `json:"violated-policies"`
			}
			if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil || w.Code != 429 || !slices.Equal(body.Violated, tt.want) {
				t.Errorf("%d %s, error %v; want %q", w.Code, w.Body, err, tt.want)
			}
			if tt.want == nil && strings.Contains(w.Body.String(), "violated") {
				t.Errorf("%s", w.Body)
			}
			if got := w.Header().Get("Retry-After"); got != tt.retry {
				t.Errorf("Retry-After %s, want %s", got, tt.retry)
			}
			for _, accept := range []string{"application/json", "text/plain", "text/html"} {
				if w := get(h, with("Accept", accept)); w.Code != 429 || strings.Contains(fmt.Sprint(w.Header(), w.Body), "secret") {
					t.Errorf("%s: %d %v %s", accept, w.Code, w.Header(), w.Body)
				}
			}
		})
	}
}

// What stands there of others is as it was.
func TestHeadersOfOthersAreMergedWithNoneOfAHiddenPolicy(t *testing.T) {
	theirs := map[string]string{"X-RateLimit-Limit": "100", "X-RateLimit-Remaining": "50", "X-RateLimit-Reset": "7", "RateLimit": `"edge";r=50;t=2`}
	want := make(map[string]string)
	for name, value := range theirs {
		want[http.CanonicalHeaderKey(name)] = value
	}
	secret := hidden(perIP("secret", ratelimit.PerMinute(20).WithBurst(5)))
	l := frozen(t, everyFormat)
	inner := l.Limit(hidden(perIP("secret2", ratelimit.PerMinute(20).WithBurst(5))))
	for name, h := range map[string]http.Handler{
		"outside":          setting(theirs, l.Limit(secret)(nothing)),
		"outside of two":   setting(theirs, l.Limit(secret)(inner(nothing))),
		"by Merge":         l.Limit(secret)(headers.Merge(setting(theirs, nothing))),
		"by a proxy":       l.Limit(secret)(proxyTo(t, setting(theirs, nothing))),
		"inside, as it is": l.Limit(secret)(setting(theirs, nothing)),
	} {
		t.Run(name, func(t *testing.T) { wantTold(t, get(h), 200, want) })
	}
}

func TestAHeaderFuncIsNotCalledWhereOnlyHiddenPoliciesApply(t *testing.T) {
	called := 0
	l := frozen(t, func(http.Header, *ratelimit.Decision) { called++ })
	h := l.Limit(hidden(perIP("secret", ratelimit.PerHour(1))))(nothing)
	for range 2 {
		get(h)
	}
	if called != 0 {
		t.Errorf("called %d times", called)
	}
}
