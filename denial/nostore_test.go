package denial_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/denial"
	"github.com/go-tokenbucket/ratelimit/store"
)

// outranks reports whether a cache obeys a header rather than Cache-Control.
func outranks(name string) bool {
	name = strings.ToLower(name)
	return slices.Contains([]string{"x-accel-expires", "surrogate-control", "edge-control", "expires"}, name) || strings.HasSuffix(name, "cache-control")
}

// refusals are all ways in which this package refuses a request, by name and status.
func refusals(t *testing.T) map[string]http.Handler {
	all := map[string]http.Handler{
		"Denial alone":            denial.Handler{},
		"Denial alone, for gRPC":  denial.Handler{GRPC: true},
		"ServeError alone":        http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { denial.Handler{}.ServeError(w, r, nil) }),
		"ServeError without key":  http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { denial.Handler{}.ServeError(w, r, ratelimit.ErrNoKey) }),
		"Denial inside a limiter": newLimiter(t, ratelimit.Config{}).Limit(perIP("api", ratelimit.PerHour(1e9)))(denial.Handler{}),
	}
	own := newLimiter(t, ratelimit.Config{Store: denying(time.Second), Deny: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(418) })})
	all["a Deny of one's own"] = own.Limit(perIP("api", ratelimit.PerHour(1)))(okHandler)
	own = newLimiter(t, ratelimit.Config{Error: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(418) }})
	all["an Error of one's own"] = own.Limit(ratelimit.Policy{Name: "api", Key: noKey, Limit: ratelimit.PerHour(1)})(okHandler)
	for status, h := range answers(t, denial.Handler{}, time.Second) {
		all[http.StatusText(status)] = h
	}
	queued := storeFunc(func(_ []store.Charge, states []store.State) bool {
		states[0] = store.State{Allowed: true, Wait: time.Minute}
		return true
	})
	waits := newLimiter(t, ratelimit.Config{Store: queued}).Limit(waiting(perIP("api", ratelimit.PerHour(1)), time.Hour))(okHandler)
	all["a client that left"] = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancel(r.Context())
		cancel()
		waits.ServeHTTP(forsaken{w}, r.WithContext(ctx))
	})
	return all
}

// A forsaken response has no client any more.
type forsaken struct{ http.ResponseWriter }

func (forsaken) CloseNotify() <-chan bool {
	gone := make(chan bool)
	close(gone)
	return gone
}

// A cache must not store any answer that refuses a request, whatever a middleware outside has set.
func TestNothingOutranksNoStore(t *testing.T) {
	names := []string{
		"X-Accel-Expires", "Surrogate-Control", "Edge-Control", "Akamai-Cache-Control", "Expires", "Cache-Control",
		"CDN-Cache-Control", "Cloudflare-CDN-Cache-Control", "Netlify-CDN-Cache-Control", "Vercel-CDN-Cache-Control", "X-LiteSpeed-Cache-Control",
		// These stay.
		"X-Accel-Buffering", "X-Expires-Not", "Cache-Control-X", "Control", "Set-Cookie", "Vary", "Access-Control-Allow-Origin",
		"Strict-Transport-Security", "X-Total", "Alt-Svc", "S", "L",
	}
	variants := map[string]func(string) string{
		"as it is":  func(name string) string { return name },
		"canonical": http.CanonicalHeaderKey,
		"lower":     strings.ToLower,
		"upper":     strings.ToUpper,
		"mixed": func(name string) string {
			return strings.ToLower(name[:len(name)/2]) + strings.ToUpper(name[len(name)/2:])
		},
		"longer":   func(name string) string { return "a-" + name },
		"prefixed": func(name string) string { return "S" + name },
	}
	for name, h := range refusals(t) {
		for variant, of := range variants {
			w := httptest.NewRecorder()
			for _, header := range names {
				w.Header()[of(header)] = []string{"public, max-age=3600"}
			}
			h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
			if w.Code < 400 {
				t.Fatalf("%s: status %d", name, w.Code)
			}
			if got := w.Header()["Cache-Control"]; !slices.Equal(got, []string{"no-store"}) {
				t.Errorf("%s: Cache-Control is %q", name, got)
			}
			for _, header := range names {
				if header = of(header); header == "Cache-Control" {
					continue
				}
				if _, stays := w.Header()[header]; stays == outranks(header) {
					t.Errorf("%s, %s: %s stays: %t", name, variant, header, stays)
				}
			}
		}
	}
}
