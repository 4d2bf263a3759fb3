package conformance

import (
	"net/http"
	"net/textproto"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/cors"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/headers"
	"github.com/go-tokenbucket/ratelimit/skip"
)

const origin = "https://app.example"

func newCORS() *cors.Cors {
	return cors.New(cors.Options{AllowedOrigins: []string{origin}, ExposedHeaders: headers.Exposed})
}

// readable reports whether a browser shows a script the header of a response to it, by the rules of Fetch.
func readable(h http.Header, name string) bool {
	if h.Get("Access-Control-Allow-Origin") != origin {
		return false
	}
	safe := []string{"Cache-Control", "Content-Language", "Content-Length", "Content-Type", "Expires", "Last-Modified", "Pragma"}
	for _, list := range h.Values("Access-Control-Expose-Headers") {
		for exposed := range strings.SplitSeq(list, ",") {
			safe = append(safe, textproto.CanonicalMIMEHeaderKey(strings.TrimSpace(exposed)))
		}
	}
	return slices.Contains(safe, http.CanonicalHeaderKey(name))
}

// For the browser itself, and no business of a script's.
var browsersOwn = []string{"Vary", "X-Content-Type-Options"}

func fromPage(r *http.Request) { r.Header.Set("Origin", origin) }

func preflight(r *http.Request) {
	fromPage(r)
	r.Method = http.MethodOptions
	r.Header.Set("Access-Control-Request-Method", http.MethodGet)
}

func TestAPageCanReadTheHeadersOfEachDialect(t *testing.T) {
	t.Parallel()
	for _, d := range dialects {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			l := newLimiter(t, ratelimit.Config{
				Policies: []ratelimit.Policy{everybody(ratelimit.Every(time.Hour).WithBurst(1))},
				Headers: func(h http.Header, decision *ratelimit.Decision) {
					waited := *decision
					waited.Waited = time.Second
					d.write(h, &waited)
				},
			})
			url := serve(t, newCORS().Handler(l.Handler(okHandler)))
			bare := send(t, serve(t, newCORS().Handler(okHandler)), fromPage)
			for _, status := range []int{http.StatusOK, http.StatusTooManyRequests} {
				a := send(t, url, fromPage)
				if a.StatusCode != status {
					t.Fatalf("status %d, want %d", a.StatusCode, status)
				}
				for name := range a.Header {
					if _, has := bare.Header[name]; !has && !readable(a.Header, name) && !slices.Contains(browsersOwn, name) {
						t.Errorf("%d: a page cannot read %s", status, name)
					}
				}
				if status == http.StatusTooManyRequests && !readable(a.Header, "Retry-After") {
					t.Error("a page cannot read Retry-After")
				}
			}
		})
	}
}

func TestAPreflightIsAnsweredAndCostsNothing(t *testing.T) {
	t.Parallel()
	api := everybody(ratelimit.Every(time.Hour).WithBurst(2))
	for name, tt := range map[string]struct {
		skip func(*http.Request) bool
		wrap func(*ratelimit.Limiter) http.Handler
	}{
		"CORS outside": {nil, func(l *ratelimit.Limiter) http.Handler { return newCORS().Handler(l.Handler(okHandler)) }},
		"CORS inside":  {skip.Preflights(), func(l *ratelimit.Limiter) http.Handler { return l.Handler(newCORS().Handler(okHandler)) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLimiter(t, ratelimit.Config{Policies: []ratelimit.Policy{api}, Skip: tt.skip})
			url := serve(t, tt.wrap(l))
			for _, left := range []int64{2, 1, 0} {
				a := send(t, url, preflight)
				if a.StatusCode != http.StatusNoContent || a.Header.Get("Access-Control-Allow-Origin") != origin || a.Header.Get("Access-Control-Allow-Methods") == "" {
					t.Errorf("%d left: the preflight is answered %d, %v", left, a.StatusCode, a.Header)
				}
				if r, err := l.Peek(t.Context(), api, "static:everybody"); err != nil || r.Remaining != left {
					t.Fatalf("%d left after a preflight, want %d; error %v", r.Remaining, left, err)
				}
				if left == 0 {
					break
				}
				if a := send(t, url, fromPage); a.StatusCode != http.StatusOK {
					t.Errorf("%d left: status %d", left, a.StatusCode)
				}
			}
			// These are no preflights.
			for _, change := range [][]func(*http.Request){
				{method(http.MethodOptions)},
				{method(http.MethodOptions), fromPage},
				{with("Access-Control-Request-Method", http.MethodGet), fromPage},
			} {
				wantDenial(t, send(t, url, change...))
			}
		})
	}
}

// Why rs/cors belongs outside: a page cannot tell a refusal from a network that is down.
func TestInsideOfTheLimiterCORSDoesNotReachADenial(t *testing.T) {
	t.Parallel()
	l := newLimiter(t, ratelimit.Config{Policies: []ratelimit.Policy{never()}})
	a := send(t, serve(t, l.Handler(newCORS().Handler(okHandler))), fromPage)
	if a.StatusCode != http.StatusTooManyRequests || readable(a.Header, "Content-Type") {
		t.Errorf("status %d, %v", a.StatusCode, a.Header)
	}
}
