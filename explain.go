package ratelimit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/go-tokenbucket/ratelimit/explain"
	"github.com/go-tokenbucket/ratelimit/internal/deadline"
	"github.com/go-tokenbucket/ratelimit/internal/dryrun"
	"github.com/go-tokenbucket/ratelimit/internal/failure"
	"github.com/go-tokenbucket/ratelimit/internal/logtext"
)

// Explain returns which policies would apply to r, and why. It has the key, limit, bucket and verdict of each policy of
// Handler, and of each one that [Limiter.Limit] has mounted. It reads buckets and writes nothing. It runs no handler and no
// router.
//
// Set r.Pattern to the route of r, as [Route] has it. The verdict is then by the policies of Handler, and by those that
// requests of this route have met since the program started. All others are listed apart, with routes to choose from. The
// argument policies is explained as mounted on the route of r, inside of all others.
//
// It calls Skip, Key, LimitFunc, Cost and Headers, and does not read r's body. If one of these functions charges a Limiter
// itself, that is a charge. See https://github.com/go-tokenbucket/ratelimit/blob/main/docs/explain.md.
//
// The result is experimental, as package explain is.
func (l *Limiter) Explain(r *http.Request, policies ...Policy) *explain.Explanation {
	ctx, trace, end := dryrun.Begin(bareContext{r.Context()}, r)
	defer end()
	silent := slog.New(slog.DiscardHandler)
	x := &explanation{l: l, trace: trace, dry: Limiter{
		headers:    l.headers,
		timeout:    l.timeout,
		failures:   failure.Log{Logger: silent},
		refusals:   failure.Log{Logger: silent},
		ofRequests: l.ofRequests,
	}}
	x.now = time.Now().UnixMicro()
	recursive := dryrun.OfRequest(r) != nil
	r = explained(ctx, r)
	x.e = explain.Explanation{
		At:       time.Now(),
		Method:   logtext.Show(r.Method, 64),
		Host:     logtext.Show(r.Host, maxExplained),
		Path:     logtext.Show(r.URL.Path, maxExplained),
		Peer:     logtext.Show(r.RemoteAddr, maxExplained),
		Route:    logtext.Show(r.Pattern, maxExplained),
		Limiters: []explain.Limiter{},
		Header:   make(http.Header),
	}
	if recursive {
		x.unknown("a function that an explanation calls has called Explain: it would be called again without end, so nothing is explained here")
		return &x.e
	}
	onPath, others := x.mountsFor(r, policies)
	met := true
	for i, m := range append(onPath, others...) {
		met = met && i < len(onPath)
		explained, next := x.explainMount(r, m, met)
		x.e.Limiters = append(x.e.Limiters, explained)
		if met {
			r, met = next, explained.Allowed
		}
	}
	return &x.e
}

const (
	// maxExplained bounds a text of a request or of an error in an explanation, in bytes.
	maxExplained = 1024

	// maxOthers bounds the mounts that are explained and not on the path of the request. A program may call Limit for
	// each request.
	maxOthers = 100
)

// A bareContext has the values of another context, except for those that a limiter has put there. So a handler can explain
// the request that it serves.
type bareContext struct{ context.Context }

func (c bareContext) Value(key any) any {
	switch key {
	case decisionKey{}, foreignKey{}, settlementKey{}, visitKey{}:
		return nil
	}
	return c.Context.Value(key)
}

// String returns the names of the chain of contexts, without their values.
func (c bareContext) String() string { return deadline.Name(c.Context) + ".Bare" }

// An explanation is a request that is being explained. One goroutine uses it.
type explanation struct {
	l     *Limiter
	dry   Limiter // decides and answers as l does, by the buckets that were read, and is not observed
	trace *dryrun.Run
	e     explain.Explanation
	now   int64 // in microseconds of Unix time: buckets are read and decided about as at this time
	err   error // of the Store: it is not asked again
}

func (x *explanation) unknown(format string, args ...any) {
	x.e.Unknown = append(x.e.Unknown, fmt.Sprintf(format, args...))
}

// explained returns a copy of r with its route as the Pattern and without its body.
func explained(ctx context.Context, r *http.Request) *http.Request {
	c := r.Clone(ctx)
	c.Pattern = new(subRouters).pattern(r)
	if c.URL == nil {
		c.URL = &url.URL{Path: "/"}
	}
	if c.Header == nil {
		c.Header = make(http.Header)
	}
	c.Body = http.NoBody
	return c
}

// setPathValues sets the path values of r, as a router does that has matched its Pattern.
func setPathValues(r *http.Request) {
	pattern, mux := r.Pattern, http.NewServeMux()
	defer func() {
		_ = recover() // a pattern of another router, or one that r does not match: there is nowhere to write to
		r.Pattern = pattern
	}()
	mux.HandleFunc(chiExpression.ReplaceAllString(pattern, "{$1}"), func(_ http.ResponseWriter, matched *http.Request) { *r = *matched })
	mux.ServeHTTP(nil, r.WithContext(r.Context()))
}

// chiExpression is a wildcard of chi with a regular expression.
var chiExpression = regexp.MustCompile(`\{([^{}:]+):[^{}]*\}`)

// explainMount explains what happens to r at m. If met is true, r comes there, and the answer becomes that of m. next is r as
// it goes on.
func (x *explanation) explainMount(r *http.Request, m explainedMount, met bool) (here explain.Limiter, next *http.Request) {
	here, next = m.Limiter, r.WithContext(r.Context())
	here.Met, here.Policies = met, []explain.Policy{}
	if next.Pattern = m.pattern; m.routed {
		setPathValues(next)
	}
	panicked := recoverPanic(func() { here.Skipped = x.l.skip != nil && x.l.skip(next) })
	if here.Skipped {
		here.Allowed = true
		for _, p := range m.policies {
			skipped := describe(p)
			skipped.Outcome, skipped.Why = explain.LeftOut, "Config.Skip exempts the request"
			here.Policies = append(here.Policies, skipped)
		}
		return here, r
	}
	ex := newRequestExchange(r.Context(), &x.dry.ofRequests)
	policies, memoized := x.explainPolicies(m.policies, next, &ex.exchange)
	snapshot := &snapshotStore{policies: policies, now: x.now, err: x.err}
	x.dry.store = snapshot
	var err error
	panicked = cmp.Or(panicked, recoverPanic(func() { err = x.dry.decide(&ex.exchange, next, memoized, false) }))
	d := &ex.decision
	own := ex.own()
	d.At, d.Waited = d.At.Add(snapshot.asked), d.Waited+snapshot.asked // in the headers alone: nobody waits
	if d.Allowed {
		d.elapse(snapshot.waited)
	}
	if met && panicked == nil {
		panicked = recoverPanic(func() { next = cmp.Or(x.dry.answer(answerRecorder{explanation: x}, next, ex, err), next) })
		x.e.Degraded = x.e.Degraded || slices.ContainsFunc(own, func(r Result) bool { return r.Degraded })
	}
	here.Allowed = d.Allowed && panicked == nil
	if err := cmp.Or(panicked, err); err != nil {
		here.Err = x.trace.Text(err, maxExplained)
	}
	refusers := here.Err
	if names := denied(own, false); len(names) > 0 {
		refusers = "denied by " + strings.Join(names, ", ")
	}
	for _, p := range policies {
		p.conclude(own, refusers, here.Allowed, x.now+snapshot.asked.Microseconds(), snapshot.asked)
		here.Policies = append(here.Policies, p.Policy)
	}
	return here, next
}

// An answerRecorder notes how a request is answered, and writes nothing.
type answerRecorder struct {
	Responder
	explanation *explanation
}

func (r answerRecorder) Header() http.Header { return r.explanation.e.Header }

func (r answerRecorder) Refuse(_ *http.Request, status int, _ error) bool {
	r.explanation.e.Status = status
	return true
}

var errPanic = errors.New("panic")

// recoverPanic calls f, which calls functions of the program, and returns a panic of them as an error.
func recoverPanic(f func()) (err error) {
	defer func() {
		if reason := recover(); reason != nil {
			err = fmt.Errorf("%w: %v: the server would abort the request", errPanic, reason)
		}
	}()
	f()
	return nil
}
