// Package ratetest has what the tests of several packages use: limiters, requests, stores that fail, tokens.
package ratetest

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit"
)

// NewLimiter returns a Limiter with enough time for a machine that is busy.
func NewLimiter(t *testing.T, cfg ratelimit.Config) *ratelimit.Limiter {
	t.Helper()
	if cfg.Timeout == 0 {
		cfg.Timeout = 5 * time.Second
	}
	l, err := ratelimit.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// OK answers 200.
var OK = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok") })

// Get serves a request, as change makes it.
func Get(h http.Handler, change ...func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest("GET", "/", nil)
	for _, c := range change {
		c(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// From changes the address of the TCP peer.
func From(addr string) func(*http.Request) {
	return func(r *http.Request) { r.RemoteAddr = addr + ":1234" }
}

// Method changes the method.
func Method(m string) func(*http.Request) { return func(r *http.Request) { r.Method = m } }

// With adds a header.
func With(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Add(name, value) }
}

// WantStatuses serves a request for each status and compares.
func WantStatuses(t *testing.T, h http.Handler, want []int, change ...func(*http.Request)) {
	t.Helper()
	var got []int
	for range want {
		got = append(got, Get(h, change...).Code)
	}
	if !slices.Equal(got, want) {
		t.Fatalf("statuses %v, want %v", got, want)
	}
}

// PerIP is a policy by the address of the TCP peer.
func PerIP(name string, limit ratelimit.Limit) ratelimit.Policy {
	return ratelimit.Policy{Name: name, Key: ratelimit.RemoteIP(), Limit: limit}
}

// Quiet returns a Limiter in memory that logs nothing.
func Quiet(t *testing.T) *ratelimit.Limiter {
	t.Helper()
	return NewLimiter(t, ratelimit.Config{Logger: slog.New(slog.DiscardHandler)})
}

// Logged returns a Limiter and what it logs.
func Logged(t *testing.T) (*ratelimit.Limiter, *bytes.Buffer) {
	var text bytes.Buffer
	return NewLimiter(t, ratelimit.Config{Logger: slog.New(slog.NewTextHandler(&text, nil))}), &text
}

// NewDiscard returns a response that nobody reads.
func NewDiscard() http.ResponseWriter { return discard{make(http.Header)} }

type discard struct{ header http.Header }

func (d discard) Header() http.Header       { return d.header }
func (discard) WriteHeader(int)             {}
func (discard) Write(p []byte) (int, error) { return len(p), nil }

// Hello answers "hello".
var Hello = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") })

// Print serves a request with header lines, of a name and a value each, and prints the answer's status.
func Print(h http.Handler, method, path string, header ...string) {
	r := httptest.NewRequest(method, path, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	fmt.Println(method, path, w.Code)
}

// Preflight makes a request a CORS preflight.
var Preflight = []func(*http.Request){
	Method("OPTIONS"), With("Origin", "https://a.example"), With("Access-Control-Request-Method", "POST"),
}

// A RoundTripper is an http.RoundTripper.
type RoundTripper func(*http.Request) (*http.Response, error)

// RoundTrip calls f.
func (f RoundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Served returns what h answers to a copy of r: a router leaves in a request what another must not find.
func Served(h http.Handler, r *http.Request) string {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r.Clone(r.Context()))
	return w.Body.String()
}

// Waiting returns p with a MaxWait.
func Waiting(p ratelimit.Policy, maxWait time.Duration) ratelimit.Policy {
	p.MaxWait = maxWait
	return p
}

// OnRoute returns a handler that serves /items/5 by h, on the route of that.
func OnRoute(h http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/items/{id}", h)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.URL.Path = "/items/5"
		mux.ServeHTTP(w, r)
	})
}
