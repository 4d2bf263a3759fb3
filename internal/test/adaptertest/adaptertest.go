// Package adaptertest checks an adapter of a web framework from the outside: by real clients, over TCP, with the same
// list of behaviours for every framework. See [Run] and [Cost].
//
// The test of an adapter describes the framework once, as a [Framework]. The list then describes apps, see [App], and
// the framework builds them. Handlers of the list are written against [Context], which the framework implements once.
// Whatever can be done only in the framework's own words is a native value, of type any: middleware, and the ways in
// which a handler can fail.
package adaptertest

import (
	"maps"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit"
)

// A Framework is a web framework with its adapter.
type Framework struct {
	// Serve builds an app with the framework, serves it on loopback until the test ends, and returns its
	// URL, such as "http://127.0.0.1:1234". Frameworks that make an http.Handler use [ServeHTTP]. It calls
	// t.Fatal for what the framework does not have.
	Serve func(t testing.TB, app App) string

	// Path translates a path such as "/items/{id}" into the framework's words. All paths of an App are
	// translated already. Default: unchanged. See [Colon].
	Path func(path string) string

	// Recovery is native middleware that answers 500 after a panic.
	Recovery any

	// Gzip is native middleware that compresses responses to clients that accept gzip.
	Gzip any

	// Logger returns native middleware that calls log after the rest of the chain has returned.
	Logger func(log func(Context)) any

	// Ways are ways to answer a login that only this framework has, such as a returned error. The list
	// has those that can be written with a Context.
	Ways []Way

	// Patterns replaces expected patterns. The keys are "HEAD of GET", "404", "405" and "made-up method",
	// which are all "unmatched" by default.
	Patterns map[string]string

	// Pooled are functions on top of goroutines that the server keeps for later connections. They are no leak.
	Pooled []string

	// Lacks has a reason for each check that the framework makes impossible, by the name of the check. The
	// check still runs. If it passes, the list fails: the lack is not one any more.
	Lacks map[string]string

	// NotRun is like Lacks, for checks that would end the process or hang.
	NotRun map[string]string
}

// A Way is a way to answer a login.
type Way struct {
	Name string

	// Fail is a native handler that answers a failed login with Status. A Status of 0 means that the
	// connection is closed without a response. Nil: this Way has only a Succeed.
	Fail   any
	Status int

	// Succeed is a native handler that answers a successful login, with a status from 200 to 399. Nil: this
	// Way has only a Fail.
	Succeed any

	// Outside and Inside are native middleware around the limiter and within it, the outermost first.
	Outside, Inside []any
}

// An App is an application that the list describes. Its layers, the outermost first, are Outside, the adapter's Handler and
// Inside. Within these are the groups of the route with their limits, the limits of the route, and the handler.
type App struct {
	// Limiter is given to New of the adapter. Nil: build the same app without the adapter.
	Limiter *ratelimit.Limiter

	// Handler mounts the adapter's Handler for all routes, as users of the framework mount middleware.
	Handler bool

	// Errors is Config.Errors of the adapter. The framework's error handling then answers an error with its
	// status and the text "framework 429", where 429 is the status.
	Errors bool

	// OnError, if not nil, is called by that error handling before it answers.
	OnError func(c Context, status int, err error)

	Outside, Inside []any   // native middleware, the outermost first
	Routes          []Route // the paths are translated already
}

// A Route is a route of an App. Different routes may be in the same groups.
type Route struct {
	Method string
	Groups []Group // the outermost first
	Path   string  // below the prefixes of the groups

	// Policies are given to the adapter's Limit. Empty: no limit on the route.
	Policies []ratelimit.Policy

	// Handler is the handler, or Native, if it is set.
	Handler func(Context) error
	Native  any
}

// A Group is a group of routes, in the framework's words. Groups of the same Prefix are one.
type Group struct {
	Prefix   string
	Policies []ratelimit.Policy // given to the adapter's Limit. Empty: no limit on the group
	Mount    bool               // a sub-router or app that is mounted, instead of a group. Serve calls t.Fatal if there are none
}

// Run runs the list for a framework. Each check is a subtest.
func Run(t *testing.T, f Framework) {
	checks := list(f)
	for _, lacks := range []map[string]string{f.Lacks, f.NotRun} {
		for name := range lacks {
			if !slices.ContainsFunc(checks, func(c check) bool { return c.name == name }) {
				t.Errorf("Lacks or NotRun has %q: there is no check of that name", name)
			}
		}
	}
	for _, c := range checks {
		t.Run(c.name, func(t *testing.T) {
			if reason := f.NotRun[c.name]; reason != "" {
				t.Logf("not run: %s", reason)
			} else {
				c.try(t, f)
			}
		})
	}
	for _, name := range slices.Sorted(maps.Keys(f.Lacks)) {
		t.Logf("impossible: %s: %s", name, f.Lacks[name])
	}
	for _, name := range slices.Sorted(maps.Keys(f.NotRun)) {
		t.Logf("impossible: %s: %s", name, f.NotRun[name])
	}
}

// A check is an entry of the list.
type check struct {
	name string
	run  func(*env)
}

// try runs a check. If the framework lacks it, it must fail.
func (c check) try(t testing.TB, f Framework) {
	t.Helper()
	reason, lacks := f.Lacks[c.name]
	if !lacks {
		c.run(newEnv(t, f, 10*time.Second))
		return
	}
	p := &probe{TB: t}
	p.do(func() { c.run(newEnv(p, f, 2*time.Second)) })
	if len(p.complaints) == 0 {
		t.Errorf("the check passes: the lack is not one any more (%s)", reason)
		return
	}
	t.Logf("impossible: %s\nseen: %s", reason, p.complaints[0])
}

// list returns the checks, for a framework.
func list(f Framework) []check {
	return slices.Concat(denials, logins(f), contexts, patterns(f), stacked, streams, panics, departures, errorHandling, refusals, upgrades, keys, slots)
}

// An env is what a check has.
type env struct {
	testing.TB
	f       Framework
	timeout time.Duration // of a request
	http1   *http.Client
	http2   *http.Client
}

func newEnv(t testing.TB, f Framework, timeout time.Duration) *env {
	e := &env{TB: t, f: f, timeout: timeout}
	e.http1, e.http2 = e.client(false), e.client(true)
	return e
}

func (e *env) path(path string) string {
	if e.f.Path == nil {
		return path
	}
	return e.f.Path(path)
}

// serve serves an app with translated paths.
func (e *env) serve(app App) (url string) {
	e.Helper()
	if slices.Contains(slices.Concat(app.Outside, app.Inside), nil) {
		e.Fatal("the framework has no such middleware")
	}
	app.Routes = slices.Clone(app.Routes)
	for i := range app.Routes {
		r := &app.Routes[i]
		r.Path = e.path(r.Path)
		r.Groups = slices.Clone(r.Groups)
		for j := range r.Groups {
			r.Groups[j].Prefix = e.path(r.Groups[j].Prefix)
		}
	}
	return e.f.Serve(e.TB, app)
}
