package code_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/headers"
	"github.com/go-tokenbucket/ratelimit/internal/test/ratetest"
)

var (
	// ofTheGuide are the policies of the headers that the guide shows.
	ofTheGuide = []ratelimit.Policy{
		ratetest.PerIP("login", ratelimit.PerMinute(20).WithBurst(5)),
		{Name: "candidate", Key: ratelimit.RemoteIP(), Limit: ratelimit.PerMinute(20).WithBurst(1), Shadow: true},
	}
	formats = map[string]ratelimit.HeaderFunc{
		"XRateLimit":           ratelimit.XRateLimit,
		"headers.DeltaSeconds": headers.DeltaSeconds,
		"headers.IETF":         headers.IETF,
		"headers.Spring":       headers.Spring,
		"headers.Shadows":      headers.Shadows,
		"headers.None":         headers.None,
	}
)

// rateLines returns the headers of a response that report limits, in lower case.
func rateLines(h http.Header) (lines []string) {
	for _, name := range headers.Exposed {
		if value := h.Get(name); value != "" {
			lines = append(lines, strings.ToLower(name)+": "+value)
		}
	}
	return lines
}

// The tables of the guide show what responses have: the second of five requests, and one that is denied.
func TestTheHeadersThatTheGuideShows(t *testing.T) {
	var guide strings.Builder
	for _, line := range readDocument(t, "docs/headers.md").lines {
		guide.WriteString(line + "\n")
	}
	for name, format := range formats {
		synctest.Test(t, func(t *testing.T) { // it is 2000-01-01 00:00:00 UTC
			limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{Headers: format, Policies: ofTheGuide}))
			defer limiter.Close()
			h := limiter.Handler(ratetest.OK)
			ratetest.Get(h)
			allowed := rateLines(ratetest.Get(h).Header())
			for range 3 {
				ratetest.Get(h)
			}
			denied := rateLines(ratetest.Get(h).Header())
			if len(allowed) == 0 != (name == "headers.None") || len(denied) == 0 {
				t.Errorf("%s: %q, %q", name, allowed, denied)
			}
			row := ""
			for line := range strings.Lines(guide.String()) {
				if strings.HasPrefix(line, "| `"+name+"`") {
					row += strings.ToLower(line)
				}
			}
			for _, line := range append(allowed, denied...) {
				if !strings.Contains(row, "`"+strings.ToLower(line)+"`") {
					t.Errorf("%s: the guide does not show %s", name, line)
				}
			}
		})
	}
}

func TestTwoFormatsAtOnce(t *testing.T) {
	policies := ofTheGuide

	limiter, err := ratelimit.New(ratelimit.Config{
		Policies: policies,
		Headers:  headers.Join(headers.IETF, ratelimit.XRateLimit),
	})

	if err != nil {
		t.Fatal(err)
	}
	defer limiter.Close()
	h := ratetest.Get(limiter.Handler(ratetest.OK)).Header()
	if h.Get("X-RateLimit-Limit") != "5" || h.Get("RateLimit-Policy") != `"login";q=5;w=15` {
		t.Error(h)
	}
}

// quotaLeft writes a header of your own.
func quotaLeft(h http.Header, d *ratelimit.Decision) {
	if r := d.Tightest(); r != nil { // nil if only shadows applied
		h.Set("X-Quota-Left", strconv.FormatInt(r.Remaining, 10))
	}
}

func TestAFormatOfYourOwn(t *testing.T) {
	limiter := ratetest.NewLimiter(t, ratelimit.Config{Policies: ofTheGuide, Headers: quotaLeft})
	if got := ratetest.Get(limiter.Handler(ratetest.OK)).Header().Get("X-Quota-Left"); got != "4" {
		t.Errorf("%q is left", got)
	}
	limiter = ratetest.NewLimiter(t, ratelimit.Config{Policies: ofTheGuide[1:], Headers: quotaLeft})
	if got := ratetest.Get(limiter.Handler(ratetest.OK)).Header().Get("X-Quota-Left"); got != "" {
		t.Errorf("%q is left of a shadow", got)
	}
}

// retryAfter returns how long to wait before the same request is sent again. It reports false if waiting does not help.
func retryAfter(response *http.Response) (time.Duration, bool) {
	if response.StatusCode != http.StatusTooManyRequests && response.StatusCode != http.StatusServiceUnavailable {
		return 0, false
	}
	seconds, err := strconv.Atoi(response.Header.Get("Retry-After"))
	return time.Duration(seconds) * time.Second, err == nil
}

func TestAClientThatObeysRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{}))
		defer limiter.Close()
		h := limiter.Limit(ofTheGuide...)(ratetest.OK)
		for range 20 {
			response := ratetest.Get(h).Result()
			if wait, ok := retryAfter(response); ok {
				time.Sleep(wait)
				response = ratetest.Get(h).Result()
			}
			if response.StatusCode != 200 {
				t.Fatalf("%d after waiting", response.StatusCode)
			}
		}

		dear := ratetest.PerIP("dear", ratelimit.PerMinute(20).WithBurst(5))
		dear.Cost = func(*http.Request) int64 { return 6 }
		response := ratetest.Get(limiter.Limit(dear)(ratetest.OK)).Result()
		if wait, ok := retryAfter(response); ok || response.StatusCode != 429 {
			t.Errorf("%d: wait for %v", response.StatusCode, wait)
		}
	})
}

func TestStackedLimitersAndAServerBehindAProxy(t *testing.T) {
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-RateLimit-Limit", "100")
		w.Header().Set("X-RateLimit-Remaining", "2")
		w.Header().Set("X-RateLimit-Reset", "0")
		fmt.Fprintln(w, "hello")
	}))
	defer upstream.Close()
	target, err := url.Parse(upstream.URL)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	limiter := ratetest.NewLimiter(t, ratelimit.Config{Policies: []ratelimit.Policy{ratetest.PerIP("api", ratelimit.PerMinute(60))}})
	login := ratetest.PerIP("login", ratelimit.PerMinute(5))
	loginHandler := ratetest.OK

	r := chi.NewRouter()
	r.Use(limiter.Handler)
	r.With(limiter.Limit(login)).Handle("/login", loginHandler)
	r.Handle("/legacy/*", headers.Merge(proxy)) // a server that sends rate limit headers itself

	for path, want := range map[string]string{"/login": "5 4", "/legacy/": "100 2"} {
		w := httptest.NewRecorder()
		r.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		got := w.Header().Values("X-RateLimit-Limit")
		left := w.Header().Values("X-RateLimit-Remaining")
		if text := strings.Join(append(got, left...), " "); text != want {
			t.Errorf("%s: %s, want %s", path, text, want)
		}
	}
}
