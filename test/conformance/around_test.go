package conformance

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-chi/chi/v5/middleware"
	"github.com/gorilla/handlers"

	"github.com/go-tokenbucket/ratelimit"
)

type wrapper = func(http.Handler) http.Handler

// around are middlewares that others wrap around ours, or into it.
var around = map[string]wrapper{
	"chi's Compress":            middleware.Compress(5, "text/plain", "application/problem+json"),
	"chi's Compress of text":    middleware.Compress(5),
	"chi's Recoverer":           middleware.Recoverer,
	"chi's Throttle":            func(h http.Handler) http.Handler { return middleware.Throttle(1)(h) }, // a slot for each h
	"chi's Timeout":             middleware.Timeout(time.Minute),
	"gorilla's CompressHandler": handlers.CompressHandler,
	"gorilla's LoggingHandler":  func(h http.Handler) http.Handler { return handlers.LoggingHandler(io.Discard, h) },
	"http.TimeoutHandler":       func(h http.Handler) http.Handler { return http.TimeoutHandler(h, time.Minute, "late") },
	"http.MaxBytesHandler":      func(h http.Handler) http.Handler { return http.MaxBytesHandler(h, 1) },
}

// text returns the body as the client reads it in the end.
func (a answer) text(t *testing.T) string {
	t.Helper()
	switch encoding := a.Header.Values("Content-Encoding"); {
	case len(encoding) == 0 || a.body == "":
		return a.body
	case !slices.Equal(encoding, []string{"gzip"}):
		t.Fatalf("Content-Encoding is %q", encoding)
	}
	r, err := gzip.NewReader(strings.NewReader(a.body))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// wantContentLength checks that Content-Length, if there is one, is that of the body.
func wantContentLength(t *testing.T, a answer) {
	t.Helper()
	if length := a.Header.Get("Content-Length"); length != "" && length != strconv.Itoa(len(a.body)) {
		t.Errorf("Content-Length %s, and %d bytes", length, len(a.body))
	}
}

func TestMiddlewaresOfOthersAroundOursAndInsideOfIt(t *testing.T) {
	t.Parallel()
	for name, wrap := range around {
		for _, outside := range []bool{true, false} {
			for _, encoding := range []string{"identity", "gzip"} {
				t.Run(fmt.Sprintf("%s, outside %v, %s", name, outside, encoding), func(t *testing.T) {
					t.Parallel()
					l := newLimiter(t, ratelimit.Config{Policies: []ratelimit.Policy{everybody(ratelimit.Every(time.Hour))}})
					h := l.Handler(wrap(okHandler))
					if outside {
						h = wrap(l.Handler(okHandler))
					}
					url, accept := serve(t, h), with("Accept-Encoding", encoding)

					a := send(t, url, accept)
					wantContentLength(t, a)
					if a.StatusCode != http.StatusOK || a.text(t) != "ok" || a.Header.Get("Retry-After") != "" {
						t.Errorf("allowed: status %d, body %q, %v", a.StatusCode, a.body, a.Header)
					}
					if got := a.Header.Values("X-Ratelimit-Remaining"); !slices.Equal(got, []string{"0"}) {
						t.Errorf("allowed: X-RateLimit-Remaining is %q", got)
					}

					a = send(t, url, accept)
					wantDenial(t, a)
					wantContentLength(t, a)
					var problem struct{ Status int }
					if err := json.Unmarshal([]byte(a.text(t)), &problem); err != nil || problem.Status != http.StatusTooManyRequests {
						t.Errorf("denied: body %q, %v, error %v", a.body, a.Header, err)
					}

					a = send(t, url, accept, method(http.MethodHead))
					wantDenial(t, a)
					if a.body != "" {
						t.Errorf("HEAD: body %q", a.body)
					}
				})
			}
		}
	}
}

func TestALogOfOthersHasTheStatusAndSizeOfADenial(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	l := newLimiter(t, ratelimit.Config{Policies: []ratelimit.Policy{never()}})
	w := httptest.NewRecorder()
	handlers.LoggingHandler(&log, l.Handler(okHandler)).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	if want := fmt.Sprintf(" 429 %d\n", w.Body.Len()); !strings.HasSuffix(log.String(), want) {
		t.Errorf("the log is %q, want one that ends in %q", log.String(), want)
	}
}

// A deadline around us that comes before a turn would is a refusal at once, and not a 503 or 504 in the end.
func TestATimeoutOfOthersKeepsNobodyWaiting(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"chi's Timeout", "http.TimeoutHandler"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := everybody(ratelimit.Every(time.Hour))
			p.MaxWait = 2 * time.Hour
			l := newLimiter(t, ratelimit.Config{Policies: []ratelimit.Policy{p}})
			url := serve(t, around[name](l.Handler(okHandler)))
			if a := send(t, url); a.StatusCode != http.StatusOK {
				t.Errorf("the first: status %d", a.StatusCode)
			}
			wantDenial(t, send(t, url))
		})
	}
}

// silent keeps chi's Recoverer from printing the stack.
type silent struct{}

func (silent) Write(int, int, http.Header, time.Duration, any) {}
func (silent) Panic(any, []byte)                               {}

func TestAPanicPassesThroughUsToARecoverer(t *testing.T) {
	t.Parallel()
	l := newLimiter(t, ratelimit.Config{Policies: []ratelimit.Policy{everybody(ratelimit.Every(time.Hour))}})
	h := middleware.Recoverer(l.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("a bug") })))
	url := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, middleware.WithLogEntry(r, silent{}))
	}))
	a := send(t, url)
	if got := a.Header.Values("X-Ratelimit-Remaining"); a.StatusCode != http.StatusInternalServerError || !slices.Equal(got, []string{"0"}) {
		t.Errorf("status %d, X-RateLimit-Remaining %q", a.StatusCode, got)
	}
	wantDenial(t, send(t, url))
}
