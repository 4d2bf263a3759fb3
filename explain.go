package ratelimit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/go-tokenbucket/ratelimit/explain"
	"github.com/go-tokenbucket/ratelimit/internal/answer"
	"github.com/go-tokenbucket/ratelimit/internal/deadline"
	"github.com/go-tokenbucket/ratelimit/internal/dryrun"
	"github.com/go-tokenbucket/ratelimit/internal/logtext"
)

// Explain returns which policies would apply to r, and why: the key, limit, bucket and verdict of each policy of Handler and
// of each one that [Limiter.Limit] has mounted. It reads buckets and writes nothing. It runs no handler and no router.
//
// Set r.Pattern to the route of r, as [Route] has it. The answer of r is then that of Handler's policies and of those that
// requests of this route have met since the program started. All others are listed apart, with routes to choose from. policies
// are explained as mounted on the route of r, inside of all others.
//
// It calls Skip, Key, LimitFunc, Cost and Headers, and does not read r's body. If one of these functions charges a Limiter
// itself, that is a charge. See https://github.com/go-tokenbucket/ratelimit/blob/main/docs/explain.md.
//
// The result is experimental, as package explain is.
func (l *Limiter) Explain(r *http.Request, policies ...Policy) *explain.Explanation {
	ctx, trace, end := dryrun.Begin(freshContext{r.Context()}, r)
	defer end()
	x := &explaining{l: l, trace: trace}
	recursive := dryrun.Of(r.Context()) != nil
	r = x.copyOf(ctx, r)
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
	stops, others := x.stops(r, policies)
	met := true
	for _, at := range stops {
		judged, next := x.judge(r, at, met)
		x.e.Limiters = append(x.e.Limiters, judged)
		if r = next; !judged.Allowed {
			met = false
		}
	}
	for _, at := range others {
		judged, _ := x.judge(r, at, false)
		x.e.Limiters = append(x.e.Limiters, judged)
	}
	return &x.e
}

const (
	// maxExplained bounds a text of a request or of an error in an explanation, in bytes.
	maxExplained = 1024

	// maxOthers bounds the places that are explained and not on the way of the request. A program may call Limit for each
	// request.
	maxOthers = 100
)

// A freshContext has the values of another context, except for those that a limiter has put there. So a handler can explain
// the request that it serves.
type freshContext struct{ context.Context }

func (c freshContext) Value(key any) any {
	switch key {
	case decisionKey{}, foreignKey{}, settlementKey{}, visitKey{}:
		return nil
	}
	return c.Context.Value(key)
}

// String returns the names of the chain of contexts, without their values.
func (c freshContext) String() string { return deadline.Name(c.Context) + ".Fresh" }

// An explaining is a request that is being explained. One goroutine uses it.
type explaining struct {
	l     *Limiter
	trace *dryrun.Run
	e     explain.Explanation
	err   error // of the Store: it is not asked again
}

func (x *explaining) unknown(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(x.e.Unknown, text) {
		x.e.Unknown = append(x.e.Unknown, text)
	}
}

// textOf returns the text of err without credentials.
func (x *explaining) textOf(err error) string { return x.trace.Text(err, maxExplained) }

// copyOf returns a copy of r with its route as the Pattern.
func (x *explaining) copyOf(ctx context.Context, r *http.Request) *http.Request {
	c := r.Clone(ctx)
	c.Pattern = new(subRouters).pattern(r)
	if c.URL == nil {
		c.URL = &url.URL{Path: "/"}
	}
	if c.Header == nil {
		c.Header = make(http.Header)
	}
	if c.Body = http.NoBody; r.Body != nil && r.Body != http.NoBody {
		c.Body = unreadBody{x}
	}
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

// An unreadBody stands for the body of a request, which is not read.
type unreadBody struct{ x *explaining }

func (b unreadBody) Read([]byte) (int, error) {
	b.x.unknown("a function of the program read the body of the request: Explain does not read it, so it was empty")
	return 0, io.EOF
}

func (unreadBody) Close() error { return nil }

// A stop is a place as a request meets it.
type stop struct {
	explain.Limiter
	policies []*policy
	pattern  string // that Route sees there
	routed   bool   // the request has its path values
}

// stops returns the stops on the way of r, the outermost first, and all others. policies are those of the caller.
func (x *explaining) stops(r *http.Request, policies []Policy) (way, others []stop) {
	places := &x.l.places
	visits, unclear := places.way(r.Pattern)
	var on []*place
	if len(visits) == 0 && len(places.list.policies()) > 0 {
		way, on = append(way, x.stopAt(&places.list, r.Pattern, true)), append(on, &places.list)
	}
	for _, v := range visits {
		pattern := v.pattern
		if !v.sure {
			pattern = r.Pattern // which chi finds out there
		}
		way, on = append(way, x.stopAt(v.at, pattern, v.sure)), append(on, v.at)
	}
	if compiled, err := compile("policies", policies, true); err != nil {
		x.unknown("Explain was called with malformed policies: %v", err)
	} else if len(policies) > 0 {
		way = append(way, stop{explain.Limiter{Mounted: "Limit", Pattern: x.e.Route}, compiled, r.Pattern, true})
	}
	var elsewhere, perhaps []string
	for _, at := range places.all() {
		if slices.Contains(on, at) || len(at.policies()) == 0 {
			continue
		}
		if len(others) == maxOthers {
			x.unknown("more than %d places of Limit are not on the way of the request: the others are not listed", maxOthers)
			break
		}
		patterns, more := at.routes()
		pattern := r.Pattern
		if len(patterns) == 1 && !more {
			pattern = patterns[0]
		}
		others = append(others, x.stopAt(at, pattern, true))
		if at == &places.list { // other places have been met without Handler
			continue
		}
		for _, p := range at.policies() {
			if elsewhere = append(elsewhere, p.Name); more || slices.Contains(unclear, at) {
				perhaps = append(perhaps, p.Name)
			}
		}
	}
	switch {
	case r.Pattern == "" && len(elsewhere) > 0:
		x.unknown("the request has no route, so it is not known which of these policies apply: %s: choose one of their routes", names(elsewhere))
	case len(perhaps) > 0:
		x.unknown("it is not known whether these policies apply, because they have served no request so far, or too many routes to keep, or it is not clear which of them this route has: %s", names(perhaps))
	}
	return way, others
}

// names lists names of policies, each once.
func names(list []string) string {
	slices.Sort(list)
	return strings.Join(slices.Compact(list), ", ")
}

func (x *explaining) stopAt(at *place, pattern string, routed bool) stop {
	s := stop{explain.Limiter{Mounted: "Limit", Pattern: logtext.Show(pattern, maxExplained)}, at.policies(), pattern, routed}
	if at == &x.l.places.list {
		s.Mounted = "Handler"
	}
	patterns, _ := at.routes()
	for _, pattern := range patterns {
		s.Routes = append(s.Routes, logtext.Show(pattern, maxExplained))
	}
	return s
}

// judge explains what happens to r at a stop. If met is true, r comes there, and the answer becomes that of the stop. next is
// r as it goes on.
func (x *explaining) judge(r *http.Request, at stop, met bool) (here explain.Limiter, next *http.Request) {
	here, next = at.Limiter, r.WithContext(r.Context())
	here.Met, here.Policies = met, []explain.Policy{}
	if next.Pattern = at.pattern; at.routed {
		setPathValues(next)
	}
	ex, c := newRequestExchange(r.Context(), &x.l.ofRequests), new(call)

	refusal := guard(func() { here.Skipped = x.l.skip != nil && x.l.skip(next) })
	if here.Skipped {
		here.Allowed = true
		for _, p := range at.policies {
			here.Policies = append(here.Policies, x.skipped(p))
		}
		return here, r
	}
	var all []*judgment
	for _, p := range at.policies {
		all = append(all, x.ask(p, c, next, &ex.exchange))
	}
	refusal = cmp.Or(refusal, refusalOf(all))
	if next.Method == prefaceMethod {
		refusal = errPreface
	}
	if policy, proxy, found := c.sharedBy(next); met && found && isForwarded(next) {
		x.unknown("all clients of the proxy %v share one bucket of policy %s: use ClientIP instead of RemoteIP, with the proxy in IPConfig.TrustedProxies", proxy, policy)
	}

	before, ok, err := x.look(&ex.exchange, c, refusal != nil || c.isBarred(), met)
	closed, failed := ex.failed(c, err)
	var results []Result
	switch {
	case failed != nil && c.isBarred(): // without the Store
		results, failed = ex.fillBarred(c), nil
	case failed != nil && closed:
		refusal = cmp.Or(refusal, failed)
	case failed == nil:
		looked := newRequestExchange(r.Context(), &x.l.ofRequests)
		results, _ = looked.fill(c, ok)
		if shut(results) {
			looked.decision.Allowed = false
		}
		results = looked.insertBarred(c, results)
		if refusal == nil && len(results) > 0 && !c.isBarred() {
			ex = looked
		}
	}
	switch d := &ex.decision; {
	case refusal != nil:
	case len(d.Results) == 0 && c.isBarred():
		ex.fillBarred(c)
	case len(d.Results) > 0:
		x.wait(d, c, met)
	default:
		d.Allowed, d.At = true, time.Now()
	}
	if met {
		next, refusal = x.answer(ex, next, refusal)
	}
	here.Allowed = ex.decision.Allowed && refusal == nil
	if err := cmp.Or(refusal, failed); err != nil {
		here.Err = x.textOf(err)
	}
	refusers := here.Err
	if names := denied(results, false); len(names) > 0 && refusal == nil {
		refusers = "denied by " + strings.Join(names, ", ")
	}
	for _, j := range all {
		x.conclude(j, results, before, refusers, here.Allowed)
		here.Policies = append(here.Policies, j.Policy)
	}
	return here, next
}

// skipped explains a policy that Config.Skip leaves out.
func (x *explaining) skipped(p *policy) explain.Policy {
	j := x.describe(p)
	j.limitIs(p.Limit, cmp.Or(p.from, "Policy.Limit"))
	j.Outcome, j.Why = explain.LeftOut, "Config.Skip exempts the request"
	return j.Policy
}

// refusalOf returns why functions of policies refuse the request, nil if they do not.
func refusalOf(all []*judgment) error {
	var noKey, failed error
	for _, j := range all {
		switch {
		case j.Outcome == explain.BadRequest, errors.Is(j.err, errPanic):
			return j.err // the policies behind it are not asked
		case j.Outcome == explain.NoKey:
			noKey = cmp.Or(noKey, j.err)
		case j.Outcome == explain.Failed:
			failed = errors.Join(failed, j.err)
		}
	}
	return cmp.Or(noKey, failed)
}

// wait lets the request wait for the tokens that c has reserved. Nobody waits: what follows is explained as of now.
func (x *explaining) wait(d *Decision, c *call, met bool) {
	d.At = d.At.Add(x.e.Wait)
	if wait := c.wait(); d.Allowed {
		d.elapse(wait)
		if met {
			x.e.Wait += wait
		}
	}
}

// answer answers the request as the limiter does, without a body. It returns the request as it goes on, and why it does not.
func (x *explaining) answer(ex *requestExchange, r *http.Request, refusal error) (*http.Request, error) {
	h, d := x.e.Header, &ex.decision
	if refusal == nil {
		refusal = guard(func() { r = x.l.setHeaders(h, &ex.exchange, ex.with(r)) })
	}
	x.e.Degraded = x.e.Degraded || slices.ContainsFunc(d.Results, func(r Result) bool { return r.Degraded })
	switch {
	case errors.Is(refusal, errPanic): // is not answered
	case refusal != nil:
		x.e.Status = answer.Refusal(h, refusal)
	case !d.Allowed:
		setDenied(h, d)
		x.e.Status = http.StatusTooManyRequests
	}
	return r, refusal
}

var errPanic = errors.New("panic")

// guard calls f, which calls functions of the program, and returns a panic of them as an error.
func guard(f func()) (err error) {
	defer func() {
		if reason := recover(); reason != nil {
			err = fmt.Errorf("%w: %v: the server would abort the request", errPanic, reason)
		}
	}()
	f()
	return nil
}
