package adaptertest

import (
	"net/http"

	"go.uber.org/goleak"

	"github.com/go-tokenbucket/ratelimit"
)

var panics = []check{
	{"panic without Recovery", func(e *env) { e.testPanic(nil, nil, "boom") }},
	{"panic with Recovery outside", func(e *env) { e.testPanic([]any{e.f.Recovery}, nil, "boom") }},
	{"panic with Recovery inside", func(e *env) { e.testPanic(nil, []any{e.f.Recovery}, "boom") }},
	{"panic with http.ErrAbortHandler", func(e *env) { e.testPanic(nil, nil, http.ErrAbortHandler) }},
}

// A panic is answered as without a limiter, is settled once, and leaves no goroutine.
func (e *env) testPanic(outside, inside []any, value any) {
	policy, responses := recorder("api")
	app := App{
		Outside: outside,
		Inside:  inside,
		Routes:  []Route{{Method: "POST", Path: "/", Handler: func(Context) error { panic(value) }}},
	}
	bare := e.serve(app)
	app.Limiter = e.limiter(ratelimit.Config{Policies: []ratelimit.Policy{policy}})
	app.Handler = true
	limited := e.serve(app)
	e.send("POST", bare)
	known := []goleak.Option{goleak.IgnoreCurrent()}
	for _, f := range e.f.Pooled {
		known = append(known, goleak.IgnoreTopFunction(f))
	}
	want := e.send("POST", bare)
	got := e.send("POST", limited)
	if got.status != want.status || got.body != want.body {
		e.Errorf("got status %d, body %q; without a limiter status %d, body %q", got.status, got.body, want.status, want.body)
	}
	r := e.settled(responses)
	if recovered := inside != nil; r.Panicked == recovered {
		e.Errorf("settled for %+v", r)
	} else if recovered && r.Status != 500 {
		e.Errorf("settled for %+v, want the status of Recovery", r)
	}
	e.http1.CloseIdleConnections()
	if err := goleak.Find(known...); err != nil {
		e.Error(err)
	}
	if len(responses) > 0 {
		e.Error("settled twice")
	}
}
