package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"runtime"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/store"
)

func init() {
	register(nearby, "middleware RemoteIP", middlewares(byPeer))
	register(nearby, "middleware ClientIP", middlewares(byForwardedFor))
}

// A scene is the way in which the middleware finds the client of a request.
type scene int

const (
	byPeer         scene = iota // the address of the TCP peer
	byForwardedFor              // the address in X-Forwarded-For, behind one proxy
)

func (s scene) String() string { return [...]string{"RemoteIP", "ClientIP behind one proxy"}[s] }

// A middleware limits requests by address, with a limit that allows all, and sets X-RateLimit headers.
type middleware struct {
	name string
	wrap func(scene, http.Handler) http.Handler
}

// middlewareCompetitors are registered by their files.
var middlewareCompetitors []middleware

var generous = ratelimit.PerHour(1_000_000_000)

var ourMiddleware = middleware{
	name: "the whole middleware on memstore",
	wrap: func(s scene, next http.Handler) http.Handler {
		key := ratelimit.RemoteIP()
		if s == byForwardedFor {
			key = ratelimit.ClientIP(ratelimit.IPConfig{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}})
		}
		// Never closed: an idle store has nothing to sweep.
		return limited(nil, key, next)
	},
}

// limited returns next behind a limiter on s. If s is nil, the limiter has a new memory store.
func limited(s store.Store, key ratelimit.KeyFunc, next http.Handler) http.Handler {
	limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{
		Store:    s,
		Policies: []ratelimit.Policy{{Name: "bench", Key: key, Limit: generous}},
	}))
	return limiter.Handler(next)
}

var bareHandler = middleware{
	name: "the bare handler",
	wrap: func(_ scene, next http.Handler) http.Handler { return next },
}

// middlewares compares the cost of a request in a middleware, with a handler that does almost nothing. The handlers
// are called directly, because a server and a network would cost more than all of them.
func middlewares(s scene) func(context.Context, plan) (findings, error) {
	return func(ctx context.Context, p plan) (findings, error) {
		var subjects []*subject
		for _, m := range append([]middleware{ourMiddleware, bareHandler, floor, floorWithContext}, middlewareCompetitors...) {
			h := m.wrap(s, http.HandlerFunc(greet))
			if w := httptest.NewRecorder(); len(subjects) != 1 { // the bare handler
				h.ServeHTTP(w, requestOf(s, 0, 0))
				if w.Header().Get("X-RateLimit-Remaining") == "" {
					return findings{}, fmt.Errorf("%s: no X-RateLimit-Remaining in %v: it does not do its work", m.name, w.Header())
				}
			}
			subjects = append(subjects, newSubject(m.name, [2]float64{1, 1}, func(id int) worker {
				return server(h, s, id)
			}))
		}
		if err := measureParallel(ctx, p, subjects...); err != nil {
			return findings{}, err
		}
		ours, bare, floors := subjects[0], subjects[1], subjects[2:4]
		rows := []row{{what: fmt.Sprintf("%s, %v, against %s: time", ours.name, s, bare.name), ours: ours.ns, theirs: bare.ns, unit: nanoseconds}}
		for _, theirs := range subjects[4:] {
			what := fmt.Sprintf("%s, %v, against %s: ", ours.name, s, theirs.name)
			rows = append(rows,
				row{what + "time", ours.ns, theirs.ns, nanoseconds, atMostTimes(0.5)},
				row{what + "allocations above the bare handler", ours.allocs.minus(bare.allocs), theirs.allocs.minus(bare.allocs), count, atMost(4, count)},
			)
			for _, floor := range floors {
				what := fmt.Sprintf("%s, %v, against %s: time", floor.name, s, theirs.name)
				rows = append(rows, row{what: what, ours: floor.ns, theirs: theirs.ns, unit: nanoseconds})
			}
		}
		return findings{rows: rows}, nil
	}
}

// greet is the handler that is limited.
func greet(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain") // an allocation that few handlers avoid
	w.Write(greeting)
}

var greeting = []byte("hello\n")

// server returns a worker that serves requests of several clients in turn. No other worker has these clients.
func server(h http.Handler, s scene, id int) worker {
	requests := make([]*http.Request, 16)
	for i := range requests {
		requests[i] = requestOf(s, id, i)
	}
	// Values that each request writes must not share a cache line with those of another goroutine, as they do not in
	// a server. Each write would then wait for that line. So the map is allocated in the middle of many others.
	own := new(struct {
		_ [128]byte
		response
		next int
		_    [128]byte
	})
	var headers [64]http.Header
	for i := range headers {
		headers[i] = make(http.Header)
	}
	own.header = headers[len(headers)/2]
	return func(n int) (allowed int) {
		for range n {
			clear(own.header)
			own.status = http.StatusOK
			h.ServeHTTP(&own.response, requests[own.next])
			own.next = (own.next + 1) % len(requests)
			if own.status == http.StatusOK {
				allowed++
			}
		}
		runtime.KeepAlive(headers)
		return allowed
	}
}

// requestOf returns a request of a client of a worker, as the scene needs it.
func requestOf(s scene, worker, client int) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	address := fmt.Sprintf("192.0.%d.%d", 2+worker, 1+client)
	r.RemoteAddr = address + ":34567"
	if s == byForwardedFor {
		r.RemoteAddr = "10.0.0.1:34567"
		r.Header.Set("X-Forwarded-For", address)
	}
	return r
}

// A response is a http.ResponseWriter without a cost.
type response struct {
	header http.Header
	status int
}

func (w *response) Header() http.Header         { return w.header }
func (w *response) WriteHeader(status int)      { w.status = status }
func (w *response) Write(b []byte) (int, error) { return len(b), nil }
