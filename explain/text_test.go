package explain_test

import (
	"flag"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/explain"
	"github.com/go-tokenbucket/ratelimit/internal/test/ratetest"
	"github.com/go-tokenbucket/ratelimit/jwtkey"
	"github.com/go-tokenbucket/ratelimit/store"
)

var update = flag.Bool("update", false, "write the golden files")

func checkGolden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name+".txt")
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	checkLines(t, got)
}

// checkLines checks that a terminal shows text as it is.
func checkLines(t *testing.T, text string) {
	t.Helper()
	if !utf8.ValidString(text) {
		t.Errorf("not UTF-8: %q", text)
	}
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if strings.ContainsFunc(line, func(c rune) bool { return !strconv.IsPrint(c) }) {
			t.Errorf("not printable: %q", line)
		}
	}
}

// Behind two proxies, a member with a policy for its address and one for itself, and a guest, whose token has expired. Both
// have sent a forged entry.
func TestStringOfClientsBehindProxies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // whose clock stands at 2000-01-01
		members := ratelimit.Must(jwtkey.New(ratetest.HS256Config()))
		sub, address := members.Claim("sub"), ratelimit.ClientIP(ratelimit.IPConfig{
			TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
		})
		for name, tt := range map[string]struct {
			token string
			keys  []ratelimit.KeyFunc
		}{
			"member": {ratetest.HS256(ratetest.Valid(`"sub": "5", "iss": "https://issuer.example"`)), []ratelimit.KeyFunc{address, sub}},
			"guest":  {ratetest.HS256(`{"exp": 900000000, "sub": "5"}`), []ratelimit.KeyFunc{ratelimit.FirstOf(sub, address)}},
		} {
			r := ratetest.RequestWith("Authorization", "Bearer "+tt.token, "X-Forwarded-For", "198.51.100.1, 203.0.113.9", "X-Forwarded-For", "10.0.0.2", "Forwarded", "for=198.51.100.1")
			r.RemoteAddr = "10.0.0.7:51234"
			e := &explain.Explanation{
				At: time.Now(), Method: "GET", Host: "api.example.com", Path: "/items/7", Peer: r.RemoteAddr, Route: "GET /items/{id}",
				Limiters: []explain.Limiter{{Mounted: "Handler", Met: true, Allowed: true}},
				Header:   http.Header{"X-Ratelimit-Limit": {"10"}, "X-Ratelimit-Remaining": {"7"}, "X-Ratelimit-Reset": {"946684803"}},
			}
			for i, key := range tt.keys {
				found := ratetest.Found(t, key, r)
				e.Limiters[0].Policies = append(e.Limiters[0].Policies, explain.Policy{
					Name: []string{"api", "members"}[i], Outcome: explain.Allowed, Key: found.Key, Found: found,
					Limit: "60/1m burst 10", LimitWhy: "Policy.Limit", Cost: 1,
					Before: &store.State{Allowed: true, Remaining: 8, ResetAfter: 1500 * time.Millisecond},
					After:  &store.State{Allowed: true, Remaining: 7, ResetAfter: 2500 * time.Millisecond},
				})
			}
			checkGolden(t, name, e.String())
			if strings.Contains(e.String(), tt.token) {
				t.Errorf("%s: the token is shown", name)
			}
		}
	})
}

func TestStringOfARefusal(t *testing.T) {
	e := &explain.Explanation{
		At: time.Date(2026, 11, 22, 19, 0, 0, 0, time.UTC), Method: "POST", Host: "api.example.com", Path: "/login", Peer: "192.0.2.1:1234",
		Unknown: []string{
			"Middleware github.com/example/auth.(*Layer).Require-fm is not run, so there is no identity of it in the context: give Explain a request that has it.",
			"login may apply: it is mounted where Explain cannot see.",
		},
		Status: 429, Degraded: true,
		Limiters: []explain.Limiter{
			{Mounted: "Handler", Met: true, Skipped: true, Allowed: true},
			{Mounted: "Limit", Pattern: "POST /login", Met: true, Policies: []explain.Policy{
				{
					Name: "login", Outcome: explain.Denied, Key: "ip:192.0.2.1", Limit: "5/15m", LimitWhy: "LimitFunc", Cost: 1, FailClosed: true,
					Before: &store.State{Allowed: true, Blocked: true, RetryAfter: 10 * time.Minute, ResetAfter: 15 * time.Minute},
					After:  &store.State{Blocked: true, RetryAfter: 10 * time.Minute, ResetAfter: 15 * time.Minute},
				},
				{
					Name: "burst", Outcome: explain.WouldDeny, Key: "static:all", Limit: "1/1s", Cost: 5, Shadow: true, Hidden: true,
					Before: &store.State{Allowed: true, Remaining: 1},
					After:  &store.State{Remaining: 1, RetryAfter: store.Never, Degraded: true},
				},
				{
					Name: "queue", Outcome: explain.NotCharged, Key: "static:queue", Limit: "1/1s", Cost: 2,
					Before: &store.State{Allowed: true, ResetAfter: 1001 * time.Microsecond},
					After:  &store.State{RetryAfter: 1001 * time.Microsecond, Wait: time.Second, ResetAfter: time.Second},
				},
				{
					Name: "plan", Outcome: explain.NotCharged, Key: "static:queue", Limit: "100 per month Europe/Berlin", Cost: 2,
					Before: &store.State{Allowed: true, Remaining: 100, ResetAfter: 100 * time.Hour},
					After:  &store.State{Allowed: true, Remaining: 98, ResetAfter: 100 * time.Hour},
				},
				{
					Name: "exports", Outcome: explain.NotCharged, Key: "static:queue", Limit: "3 at once", Cost: 1,
					Before: &store.State{Allowed: true, Remaining: 2, ResetAfter: time.Second},
					After:  &store.State{Allowed: true, Blocked: true, RetryAfter: time.Hour, ResetAfter: time.Hour},
				},
				{Name: "members", Outcome: explain.NoKey, Optional: true, Found: &explain.Step{
					By: "main.memberOf", Err: "ratelimit: no key: " + strings.Repeat("the directory knows nobody of that name, ", 5),
				}},
			}},
			{Mounted: "Limit", Routes: []string{"GET /a", "GET /b"}, Err: "the store failed: timeout\nagain", Policies: []explain.Policy{
				{Name: "a", Outcome: explain.Failed, Limit: "1/1s", LimitWhy: "Policy.Limit"},
			}},
		},
		Header: http.Header{"Retry-After": {"600"}, "Cache-Control": {"no-store"}, "Ratelimit-Policy": {strings.Repeat(`"login";q=5;w=900, `, 10)}},
	}
	checkGolden(t, "refusal", e.String())
}

func TestStringOfARequestThatNobodyLimits(t *testing.T) {
	checkGolden(t, "unlimited", (&explain.Explanation{Method: "GET", Path: "/"}).String())
	checkGolden(t, "panics", (&explain.Explanation{
		Method: "GET", Path: "/", Limiters: []explain.Limiter{{Mounted: "Handler", Met: true, Err: "panic: odd: the server would abort the request"}},
	}).String())
}

// FuzzString puts a text everywhere.
func FuzzString(f *testing.F) {
	f.Add("\x1b]0;title\x07", 3)
	f.Add(strings.Repeat("界", 300), 30)
	f.Add("\u202e\xff\n a", 1)
	f.Add(strings.Repeat("x", 1000), 2)
	f.Fuzz(func(t *testing.T, s string, depth int) {
		step := &explain.Step{By: s, Key: s, Err: s, Notes: []string{s, s}}
		for range min(depth, 50) {
			step = &explain.Step{By: s, Key: s, Notes: []string{s}, Tried: []*explain.Step{step, {By: s, Err: s}}}
		}
		e := &explain.Explanation{
			Method: s, Host: s, Path: s, Peer: s, Route: s, Unknown: []string{s}, Header: http.Header{s: {s}}, Status: depth,
			Limiters: []explain.Limiter{{Mounted: s, Pattern: s, Err: s, Policies: []explain.Policy{
				{Name: s, Outcome: s, Why: s, Key: s, Found: step, Limit: s, LimitWhy: s, Before: &store.State{}},
			}}},
		}
		checkLines(t, e.String())
	})
}
