package ratetest

import (
	"net/http"
	"strconv"
	"testing"

	"github.com/go-tokenbucket/ratelimit"
)

// Address is the key of the requests that Get makes.
const Address = "ip:192.0.2.1"

// Settled is PerIP with a Settle.
func Settled(name string, limit ratelimit.Limit, settle func(*http.Request, ratelimit.Response) int64) ratelimit.Policy {
	p := PerIP(name, limit)
	p.Settle = settle
	return p
}

// Costs is a Settle of a fixed cost.
func Costs(n int64) func(*http.Request, ratelimit.Response) int64 {
	return func(*http.Request, ratelimit.Response) int64 { return n }
}

// Answering is a handler that answers with the status that the query names.
var Answering = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	status, _ := strconv.Atoi(r.URL.RawQuery)
	w.WriteHeader(status)
})

// Query changes the query.
func Query(q string) func(*http.Request) { return func(r *http.Request) { r.URL.RawQuery = q } }

// Remaining returns what is left in the bucket of Address.
func Remaining(t *testing.T, l *ratelimit.Limiter, p ratelimit.Policy) int64 {
	t.Helper()
	r, err := l.Peek(t.Context(), p, Address)
	if err != nil {
		t.Fatal(err)
	}
	return r.Remaining
}

// Hourly returns a policy under which requests cost nothing.
func Hourly(name string, n int64) ratelimit.Policy {
	p := PerIP(name, ratelimit.PerHour(n))
	p.Cost = func(*http.Request) int64 { return 0 }
	return p
}

// ShowsNames answers with the policies that decided about the request, and their limits, for NamesOf.
var ShowsNames = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	d, ok := ratelimit.FromContext(r.Context())
	if !ok { // no policy applied
		return
	}
	for i := range d.Results {
		w.Header().Add("Policies", d.Results[i].Policy+" "+d.Results[i].Limit.String())
	}
})

// NamesOf returns what ShowsNames inside of h answers.
func NamesOf(h http.Handler) []string { return Get(h).Header()["Policies"] }
