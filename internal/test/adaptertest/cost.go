package adaptertest

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/ratetest"
	"github.com/go-tokenbucket/ratelimit/internal/test/rounds"
)

// bound is how much more an adapter may cost than the middleware of net/http, in nanoseconds a request.
const bound = 200

// Cost measures what an adapter costs. make returns a function that serves one request without a network. The request is
// GET /items/5 on the route "/items/{id}", whose handler does nothing. The adapter's Handler is around it, or nothing if the
// limiter is nil. For frameworks that make an http.Handler, use [Requests].
//
// Cost runs rounds of the framework bare and with the adapter, and of a ServeMux bare and with the middleware, in turn. It
// reports the median of each in ns, their allocations, and as difference-ns the median of
//
//	(with the adapter - framework bare) - (with the middleware - ServeMux bare)
//
// A busy machine makes all of these longer. So quiet-difference-ns is the same difference of first percentiles, and
// adapter-adds-ns and middleware-adds-ns are its two parts, which make cost prints. Cost fails if that difference is above
// 200 in a benchmark of at least 100 rounds.
func Cost(b *testing.B, make func(*ratelimit.Limiter) func()) {
	limiter := func() *ratelimit.Limiter {
		l := ratelimit.Must(ratelimit.New(ratelimit.Config{Policies: []ratelimit.Policy{{
			Name:  "api",
			Key:   ratelimit.RemoteIP(),
			Limit: ratelimit.PerHour(1_000_000_000),
		}}}))
		b.Cleanup(func() { l.Close() })
		return l
	}
	serves := []func(){make(nil), make(limiter()), serveMuxOf(nil), serveMuxOf(limiter())}
	took := rounds.Measure(b, 200, rounds.Wall, serves...)
	differences := rounds.Minus(rounds.Minus(took[1], took[0]), rounds.Minus(took[3], took[2]))
	var summary strings.Builder
	report := func(n float64, unit string) {
		b.ReportMetric(n, unit)
		fmt.Fprintf(&summary, " %.0f %s", n, unit)
	}
	for i, name := range []string{"framework", "adapter", "net/http", "middleware"} {
		report(rounds.Quantile(took[i], 0.5), name+"-ns")
		report(testing.AllocsPerRun(100, serves[i]), name+"-allocs")
	}
	report(rounds.Quantile(differences, 0.5), "difference-ns")
	var quiet [4]float64
	for i := range quiet {
		quiet[i] = rounds.Quantile(took[i], 0.01)
	}
	report(quiet[1]-quiet[0], "adapter-adds-ns")
	report(quiet[3]-quiet[2], "middleware-adds-ns")
	difference := (quiet[1] - quiet[0]) - (quiet[3] - quiet[2])
	report(difference, "quiet-difference-ns")
	if difference > bound && len(differences) >= 100 {
		b.Errorf("the adapter costs %.0f ns more than the middleware of net/http, want at most %d:%s", difference, bound, &summary)
	}
}

// serveMuxOf is what [Cost] compares with.
func serveMuxOf(l *ratelimit.Limiter) func() {
	var h http.Handler = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	if l != nil {
		h = l.Handler(h)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /items/{id}", h)
	return Requests(mux)
}

// Requests returns a function that serves a request for [Cost] by h.
func Requests(h http.Handler) func() {
	r := httptest.NewRequest(http.MethodGet, "/items/5", nil)
	w := ratetest.NewDiscard()
	return func() {
		clear(w.Header())
		h.ServeHTTP(w, r)
	}
}
