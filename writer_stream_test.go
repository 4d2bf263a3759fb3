package ratelimit_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/headers"
)

// A stream that is never told that its client has left never ends.
func TestAStreamEndsWhenItsClientHasLeft(t *testing.T) {
	plain, settling := perIP("plain", ratelimit.PerHour(9)), settled("settling", ratelimit.PerHour(9), asCharged)
	for name, limited := range map[string]func(*ratelimit.Limiter, http.Handler) http.Handler{
		"Settle": func(l *ratelimit.Limiter, h http.Handler) http.Handler { return l.Limit(settling)(h) },
		"MergeHeaders": func(l *ratelimit.Limiter, h http.Handler) http.Handler {
			return l.Limit(plain)(headers.Merge(h))
		},
		"Settle in MergeHeaders": func(l *ratelimit.Limiter, h http.Handler) http.Handler {
			return l.Limit(plain)(headers.Merge(l.Limit(settling)(h)))
		},
	} {
		for _, http2 := range []bool{false, true} {
			t.Run(name+map[bool]string{true: " over HTTP/2"}[http2], func(t *testing.T) {
				ended := make(chan error, 1)
				server := httptest.NewUnstartedServer(limited(newLimiter(t, ratelimit.Config{}), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					stream := http.NewResponseController(w)
					_, _ = io.WriteString(w, "data\n")
					err := stream.Flush()
					<-r.Context().Done() // the client has left, which the connection may take a moment to know
					for begin := time.Now(); err == nil && time.Since(begin) < 2*time.Second; err = stream.Flush() {
						_, _ = io.WriteString(w, "more\n")
					}
					ended <- err
				})))
				if server.EnableHTTP2 = http2; http2 {
					server.StartTLS()
				} else {
					server.Start()
				}
				defer server.Close()
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				r, err := http.NewRequestWithContext(ctx, "GET", server.URL, nil)
				if err != nil {
					t.Fatal(err)
				}
				response, err := server.Client().Do(r)
				if err != nil {
					t.Fatal(err)
				}
				defer response.Body.Close()
				leave()
				if err := <-ended; err == nil {
					t.Error("no flush failed")
				}
			})
		}
	}
}
