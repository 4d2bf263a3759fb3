package ratelimit

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/go-tokenbucket/ratelimit/explain"
	"github.com/go-tokenbucket/ratelimit/internal/deadline"
	"github.com/go-tokenbucket/ratelimit/internal/dryroute"
	"github.com/go-tokenbucket/ratelimit/internal/dryrun"
	"github.com/go-tokenbucket/ratelimit/internal/logtext"
	"github.com/go-tokenbucket/ratelimit/internal/overlay"
	"github.com/go-tokenbucket/ratelimit/internal/waitslots"
)

// Explain returns what this Limiter would do with r, and why: which calls of Handler and Limit it would meet, the key,
// limit, bucket and verdict of each policy, and the answer. No token is taken and nothing is written.
//
// r is a request as it arrives at the server, before any router or [http.StripPrefix]. Explain does not change it or read
// its body. It looks for its places in the handler of the server in r's context ([http.ServerContextKey]). Otherwise it
// uses the one handler that [Limiter.Handler] has returned, or without one the policies of Handler.
//
// It calls Skip, Key, LimitFunc, Cost and Headers, and Deny or Error if they would answer. If one of these charges a
// Limiter itself, that is a charge. Explain runs no handler and no middleware of others. Explanation.Unknown lists what
// could not be followed. See https://github.com/go-tokenbucket/ratelimit/blob/main/docs/explain.md.
//
// The result is experimental, as package explain is.
func (l *Limiter) Explain(r *http.Request) *explain.Explanation {
	waited := new(atomic.Int64)
	ctx, trace, end := dryrun.Begin(freshContext{r.Context(), waited}, r)
	defer end()
	run := &dryRun{of: l, trace: trace, waited: waited, waiting: l.waiting.Clone(), seen: make(map[*place]bool)}
	now := time.Now()
	run.store = overlay.New(l.store, now)
	arrived := run.arrived(ctx, r)
	run.e = explain.Explanation{
		At:     now,
		Method: logtext.Show(r.Method, 64),
		Host:   logtext.Show(r.Host, maxExplained),
		Path:   logtext.Show(arrived.URL.Path, maxExplained),
		Peer:   logtext.Show(r.RemoteAddr, maxExplained),
	}
	if dryrun.Of(r.Context()) != nil || dryrun.Inside((*Limiter).Explain) { // such as by a Deny, which would be called again
		run.unknown("a function that an explanation calls has called Explain: it would be called again without end, so nothing is explained here")
		run.finish(false, nil)
		return &run.e
	}
	handlers, mounts := l.places.inUse()
	server, _ := r.Context().Value(http.ServerContextKey).(*http.Server)
	switch {
	case server != nil && answersItself(server, arrived):
		handlers, mounts = nil, nil
	case server != nil && run.serve(cmp.Or[http.Handler](server.Handler, http.DefaultServeMux), arrived):
	case len(handlers) == 1:
		run.serve(handlers[0], arrived)
	case len(handlers) > 1:
		run.unknown("Handler is mounted %d times, and Explain cannot see which one this request meets: "+remedy, len(handlers))
		fallthrough
	case len(l.places.list.policies()) > 0:
		run.serve(l.wrap(&l.places.list, probe), arrived)
	}
	run.finish(len(handlers) > 0, mounts)
	return &run.e
}

// answersItself reports whether server answers r without its handler.
func answersItself(server *http.Server, r *http.Request) bool {
	return r.Method == http.MethodOptions && r.RequestURI == "*" && !server.DisableGeneralOptionsHandler
}

// maxExplained bounds a text of a request or of an error in an explanation, in bytes.
const maxExplained = 1024

// remedy is what to do if Explain does not see the way of a request.
const remedy = "put an *http.Server with the program's router as Handler into the context of the request, under http.ServerContextKey"

// A freshContext has the values of another context, except for those that a router and a limiter have put there. So a
// handler can explain the request that it serves. Its deadline comes nearer while the request waits in virtual time.
type freshContext struct {
	context.Context
	waited *atomic.Int64 // in nanoseconds; a function of the program may ask for the deadline at any time
}

func (c freshContext) Deadline() (time.Time, bool) {
	at, limited := c.Context.Deadline()
	return at.Add(-time.Duration(c.waited.Load())), limited
}

func (c freshContext) Value(key any) any {
	switch key {
	case chi.RouteCtxKey, decisionKey{}, foreignKey{}, settlementKey{}:
		return nil
	}
	return c.Context.Value(key)
}

// String returns the names of the chain of contexts, without their values.
func (c freshContext) String() string { return deadline.Name(c.Context) + ".Fresh" }

// A dryRun is a request on its way through a Limiter that explains it. The request meets the places of the Limiter. At
// each of them another Limiter decides, with the same configuration and an overlay of the buckets. One goroutine uses it.
type dryRun struct {
	of      *Limiter
	trace   *dryrun.Run
	store   *overlay.Store // writes nothing to the Store of the Limiter
	waited  *atomic.Int64  // so far, in nanoseconds
	waiting *waitslots.Slots
	e       explain.Explanation
	out     *dryrun.Recorder

	met      []*dryPlace     // places that the request has met, the outermost first
	seen     map[*place]bool // places of which is known whether they are on the way of the request
	reached  bool            // the request goes on to a handler
	end      dryroute.End    // that handler
	panicked bool
}

func (run *dryRun) unknown(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(run.e.Unknown, text) {
		run.e.Unknown = append(run.e.Unknown, text)
	}
}

// arrived returns r as a server would pass it to its handler.
func (run *dryRun) arrived(ctx context.Context, r *http.Request) *http.Request {
	c := r.Clone(ctx)
	arrived := (&http.Request{ // without what a router has set
		Method: c.Method, URL: c.URL, Proto: c.Proto, ProtoMajor: c.ProtoMajor, ProtoMinor: c.ProtoMinor,
		Header: c.Header, Body: http.NoBody, ContentLength: c.ContentLength, TransferEncoding: c.TransferEncoding,
		Close: c.Close, Host: c.Host, Form: c.Form, PostForm: c.PostForm, MultipartForm: c.MultipartForm,
		Trailer: c.Trailer, RemoteAddr: c.RemoteAddr, RequestURI: c.RequestURI, TLS: c.TLS,
	}).WithContext(ctx)
	if arrived.URL == nil {
		arrived.URL = &url.URL{Path: "/"}
	}
	if arrived.Header == nil {
		arrived.Header = make(http.Header)
	}
	if r.Body != nil && r.Body != http.NoBody {
		arrived.Body = unreadBody{run}
	}
	return arrived
}

// An unreadBody stands for the body of a request, which is not read.
type unreadBody struct{ run *dryRun }

func (b unreadBody) Read([]byte) (int, error) {
	b.run.unknown("a function of the program read the body of the request: Explain does not read it, so it was empty")
	return 0, io.EOF
}

func (unreadBody) Close() error { return nil }

// serve sends r through the skeleton of root, which package dryroute makes. It returns false if root cannot be looked
// into, so that the request may or may not meet the limiter.
func (run *dryRun) serve(root http.Handler, r *http.Request) (followed bool) {
	run.out, run.reached, run.end = new(dryrun.Recorder), false, dryroute.End{}
	b := &dryroute.Builder{Request: r, Places: run, Reached: func(r *http.Request, end dryroute.End) {
		run.reached, run.end = true, end
		run.note(r)
	}}
	defer func() {
		if reason := recover(); reason != nil {
			run.recovered(reason)
			followed = true
		}
	}()
	b.Of(root).ServeHTTP(run.out, r)
	if len(run.met) == 0 && run.end.Opaque && !run.end.Routed {
		run.unknown("%s, the handler of the server, cannot be looked into: what it does before the limiter is not known", run.end.Name)
		return false
	}
	for _, fault := range b.Faults() {
		run.unknown("%s", fault)
	}
	if foreign := b.Foreign(); len(foreign) > 0 {
		run.unknown("not run, so that it is not known whether they change or answer the request: %s", strings.Join(foreign, ", "))
	}
	return true
}

// note notes the route that r has matched, and returns it.
func (run *dryRun) note(r *http.Request) string {
	pattern := logtext.Show(run.of.mounted.pattern(r), maxExplained)
	run.e.Route = cmp.Or(pattern, run.e.Route)
	return pattern
}

// recovered notes a panic of a function of the program.
func (run *dryRun) recovered(reason any) {
	run.panicked = true
	text := run.trace.Text(fmt.Errorf("panic: %v: the server would abort the request", reason), maxExplained)
	if len(run.met) == 0 {
		run.unknown("%s", text)
		return
	}
	at := run.met[len(run.met)-1]
	at.Err = text
	if at.event != nil {
		return
	}
	for _, p := range at.policies {
		if !p.asked {
			p.asked, p.err, p.Found = true, fmt.Errorf("panic: %v", reason), run.trace.Took()
			return
		}
	}
}

// A probeHandler stands behind a middleware whose place is looked for, and behind a place whose handler is not known.
// Limiter.Handler does not note the handler around one as mounted.
type probeHandler struct{}

func (*probeHandler) ServeHTTP(http.ResponseWriter, *http.Request) {}

var probe http.Handler = new(probeHandler)

// The code of the middleware that Handler is and that Limit returns.
var (
	codeOfHandler = reflect.ValueOf((*Limiter)(nil).Handler).Pointer()
	codeOfLimit   = reflect.ValueOf((*Limiter)(nil).middleware(nil)).Pointer()
)

// Middleware implements dryroute.Places.
func (run *dryRun) Middleware(mw dryroute.Middleware) dryroute.Middleware {
	if code := reflect.ValueOf(mw).Pointer(); code != codeOfHandler && code != codeOfLimit {
		return nil
	}
	stand, _ := run.Handler(mw(probe))
	return stand
}

// Handler implements dryroute.Places.
func (run *dryRun) Handler(h http.Handler) (stand dryroute.Middleware, next http.Handler) {
	at, ours := h.(*limited)
	if !ours {
		return nil, nil
	}
	if at.l == run.of {
		run.seen[at.at] = true
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if at.l == run.of {
				run.pass(w, r, at.at, next)
				return
			}
			run.unknown("the request meets another Limiter, too, which may refuse it: explain it by that one")
			next.ServeHTTP(w, r)
		})
	}, at.next
}

// finish completes the explanation. mounts are the places of Limit that are in use, and handled reports that there are
// handlers of Handler.
func (run *dryRun) finish(handled bool, mounts []*place) {
	e := &run.e
	e.Limiters, e.Header = []explain.Limiter{}, make(http.Header)
	for _, here := range run.met {
		e.Limiters = append(e.Limiters, here.explained())
		if here.event != nil {
			e.Wait += here.event.Waited
			e.Degraded = e.Degraded || here.event.Degraded()
		}
	}
	if run.out != nil {
		e.Status, e.Header, e.Body = run.out.Answer()
		if e.Status == 0 && !run.reached && !run.panicked {
			e.Status = http.StatusOK // Deny or Error wrote nothing
		}
		if e.Method == http.MethodHead {
			e.Body = ""
		}
	}
	if len(run.met) > 0 && !run.reached {
		return
	}
	if handled && !run.seen[&run.of.places.list] {
		mounts = append(mounts, &run.of.places.list)
	}
	var hidden []string
	for _, at := range mounts {
		if !run.seen[at] {
			for _, p := range at.policies() {
				hidden = append(hidden, p.Name)
			}
		}
	}
	slices.Sort(hidden)
	hidden = slices.Compact(hidden)
	name := run.end.Name
	switch {
	case name == "" || name == dryroute.Name(probe):
		if len(hidden) > 0 {
			run.unknown("mounted where Explain cannot see, so that it is not known whether they apply: policies %s: "+remedy, strings.Join(hidden, ", "))
		}
	case len(hidden) > 0 && run.end.Opaque:
		run.unknown("%s cannot be looked into: policies that may be mounted inside: %s", name, strings.Join(hidden, ", "))
	case run.end.Routes && e.Route == "":
		run.unknown("%s cannot be looked into: its routes are not known", name)
	}
}
