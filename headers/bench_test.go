package headers_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/headers"
)

// BenchmarkDialects is the whole middleware on memory, with each dialect and for the rest alike.
func BenchmarkDialects(b *testing.B) {
	for _, dialect := range []struct {
		name    string
		headers ratelimit.HeaderFunc
	}{
		{"NoHeaders", headers.None},
		{"XRateLimit", ratelimit.XRateLimit},
		{"XRateLimitDelta", headers.DeltaSeconds},
		{"IETF", headers.IETF},
		{"Spring", headers.Spring},
	} {
		b.Run(dialect.name, func(b *testing.B) {
			l := ratelimit.Must(ratelimit.New(ratelimit.Config{
				Policies: []ratelimit.Policy{perIP("api", ratelimit.PerHour(1_000_000_000))},
				Headers:  dialect.headers,
			}))
			defer l.Close()
			benchmarkHandler(b, l.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
		})
	}
}

// BenchmarkStacked is a limiter inside of another, whose headers stand there already.
func BenchmarkStacked(b *testing.B) {
	l := ratelimit.Must(ratelimit.New(ratelimit.Config{
		Policies: []ratelimit.Policy{perIP("api", ratelimit.PerHour(1_000_000_000))},
	}))
	defer l.Close()
	inner := l.Limit(perIP("search", ratelimit.PerHour(1_000_000_000)))
	benchmarkHandler(b, l.Handler(inner(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))))
}

func benchmarkHandler(b *testing.B, h http.Handler) {
	r := httptest.NewRequest("GET", "/", nil)
	w := headerWriter{}
	b.ReportAllocs()
	for b.Loop() {
		clear(w)
		h.ServeHTTP(w, r)
	}
}

// A headerWriter is a response of which only the header is looked at.
type headerWriter http.Header

func (w headerWriter) Header() http.Header         { return http.Header(w) }
func (w headerWriter) Write(b []byte) (int, error) { return len(b), nil }
func (w headerWriter) WriteHeader(int)             {}
