package adaptertest

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/ratetest"
)

// bound is how much more an adapter may cost than the middleware of net/http, in nanoseconds a request.
const bound = 200

// Cost measures what an adapter costs. make returns a function that serves one request of the framework, without a
// network: GET /items/5 on the route "/items/{id}", with a handler that does nothing. The adapter's Handler is around it,
// or nothing if the limiter is nil. For frameworks that make an http.Handler, use [Requests].
//
// Cost runs rounds of the framework bare and with the adapter, and of a ServeMux bare and with the middleware, in turn. It
// reports the median of each in ns, their allocations, and the median of
//
//	(with the adapter - framework bare) - (with the middleware - ServeMux bare)
//
// It fails if that is above 200 ns in a benchmark of at least 100 rounds. It takes at least a second in all.
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
	const each = 200 // requests in a round
	serves := []func(){make(nil), make(limiter()), serveMuxOf(nil), serveMuxOf(limiter())}
	var took [4][]float64
	var differences []float64
	for i := 0; b.Loop(); i++ {
		var round [4]float64
		for j := range serves {
			which := (i + j) % len(serves)
			serve := serves[which]
			begin := time.Now()
			for range each {
				serve()
			}
			round[which] = float64(time.Since(begin)) / each
			took[which] = append(took[which], round[which])
		}
		differences = append(differences, (round[1]-round[0])-(round[3]-round[2]))
	}
	for i, name := range []string{"framework", "adapter", "net/http", "middleware"} {
		b.ReportMetric(median(took[i]), name+"-ns")
		b.ReportMetric(testing.AllocsPerRun(100, serves[i]), name+"-allocs")
	}
	difference := median(differences)
	b.ReportMetric(difference, "difference-ns")
	b.ReportMetric(0, "ns/op")
	if difference > bound && len(differences) >= 100 {
		b.Errorf("the adapter costs %.0f ns more than the middleware of net/http, want at most %d", difference, bound)
	}
}

func median(of []float64) float64 {
	slices.Sort(of)
	return of[len(of)/2]
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
