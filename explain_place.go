package ratelimit

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-tokenbucket/ratelimit/explain"
	"github.com/go-tokenbucket/ratelimit/internal/answer"
)

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
