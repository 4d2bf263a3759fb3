package ratelimit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/go-tokenbucket/ratelimit/explain"
	"github.com/go-tokenbucket/ratelimit/internal/failure"
)

// Decide charges r under policies, by default [Config.Policies], and returns the decision. It sets no headers and
// answers nothing. To adapt a framework that does not answer by [http.Handler], see [Responder]. It does not call
// [Config.Skip]. Policies that you pass are compiled at each call, and [Limiter.Reload] does not replace them.
//
// Decide does not wait. With [Policy.MaxWait] it may reserve future tokens. If the request is allowed, wait for the
// longest Wait of all Results that are not Shadow, or return the tokens with [Limiter.Refund].
//
// It returns an error if no decision was possible, or if a policy was left out. The error is one of the Store, of a
// function of a policy (such as [ErrNoKey]), of r's context, or about a malformed policy. Decision.Allowed is then what
// Handler would do. A policy with a [Concurrency] is an error, because nothing would release the slot.
func (l *Limiter) Decide(r *http.Request, policies ...Policy) (Decision, error) {
	compiled := l.mounts.handler.policies()
	if len(policies) > 0 {
		var err error
		if compiled, err = compile("policies", policies, true); err != nil {
			return Decision{}, fmt.Errorf("ratelimit: Decide: %w", err)
		}
	}
	if len(compiled) == 0 {
		return Decision{}, errors.New("ratelimit: Decide: no policies, and Config.Policies is empty")
	}
	for _, p := range compiled {
		if err := p.refuseSlots(); err != nil {
			return Decision{}, fmt.Errorf("ratelimit: Decide: %w", err)
		}
	}
	x := l.newExchange(r.Context())
	x.limited.Terms = &l.ofRequests
	err := l.decide(x, r, compiled, false)
	return x.decision, err
}

// prefaceMethod is the method of the line that starts HTTP/2 without TLS (RFC 9113, section 3.4). A handler for it
// takes the connection over and serves all further requests on it, past the limiter.
const prefaceMethod = "PRI"

var errPreface = fmt.Errorf("%w: a connection of HTTP/2 without TLS: mount its handler outside of the limiter", ErrBadRequest)

// decide decides about r under policies, into x.decision. Errors of a policy's functions are returned even if the
// request goes on: see outcomeOf. With waits, decide returns when the turn of r has come.
func (l *Limiter) decide(x *exchange, r *http.Request, policies []*policy, waits bool) error {
	c := calls.Get().(*call)
	defer c.release()
	op := "decide"
	if waits {
		op = "request"
	}
	start := l.start(r, op)
	if r.Method == prefaceMethod {
		return l.rejectRequest(x, errPreface, start)
	}
	leftOut, err := l.addPolicies(c, x, r, policies, start)
	if err != nil {
		return err
	}
	l.detectProxy(r, c)
	return l.takeCharges(x, c, waits, leftOut, start)
}

// addPolicies adds the charges of policies for r to c, and returns why policies are left out. If it returns refused, that
// refuses the request, and x is decided.
func (l *Limiter) addPolicies(c *call, x *exchange, r *http.Request, policies []*policy, start start) (leftOut, refused error) {
	var noKey, closed error
	var refusing []string
	for _, p := range policies {
		err := c.addFor(l, r, p)
		if err == nil {
			continue
		}
		switch p.outcomeOf(x, err) {
		case explain.BadRequest:
			return nil, l.rejectRequest(x, err, start)
		case explain.NoKey:
			noKey = cmp.Or(noKey, err)
		case explain.Failed:
			closed = errors.Join(closed, err)
			if p.FailClosed && errors.Is(err, ErrOutage) {
				refusing = append(refusing, p.Name)
			}
		default:
			if isClients(err) {
				l.logRefusal(x, err, true)
			} else {
				leftOut = errors.Join(leftOut, err)
			}
		}
	}
	if noKey != nil {
		return nil, l.rejectRequest(x, noKey, start)
	}
	if closed != nil {
		return nil, l.fail(x, refusing, true, 0, closed, start)
	}
	if leftOut != nil {
		l.logFailure(x, leftOut, true)
	}
	return leftOut, nil
}

// An error of a policy's function can refuse the request. If there are several, the first of these counts:
//   - 400: ErrBadRequest
//   - 403: ErrNoKey without ErrOutage, unless the policy is Optional
//   - 503: an ErrOutage of a policy with FailClosed, or any other error, also without FailClosed
//
// An ErrOutage of another policy leaves that policy out, as does any error of a Shadow. After the request's own context
// has ended, an ErrOutage is like any other error: a client could cause it by disconnecting, or by sending slowly.

// isClients reports whether err is about what the client sent: ErrBadRequest or ErrNoKey.
func isClients(err error) bool { return errors.Is(err, ErrBadRequest) || failure.IsNoKey(err) }

// outcomeOf returns what an error of p's functions makes of the request.
func (p *policy) outcomeOf(x *exchange, err error) string {
	switch {
	case p.Shadow:
		return explain.LeftOut
	case errors.Is(err, ErrBadRequest):
		return explain.BadRequest
	case failure.IsNoKey(err):
		return explain.NoKey
	case p.FailClosed || !errors.Is(err, ErrOutage) || x.Err() != nil || x.tooLate(lastMoment) != nil:
		return explain.Failed
	default:
		return explain.LeftOut
	}
}

// rejectRequest finishes a decision that refuses a request because of what its client sent.
func (l *Limiter) rejectRequest(x *exchange, err error, start start) error {
	x.decision.At = time.Now()
	l.logRefusal(x, err, false)
	l.report(x, nil, 0, err, start)
	return err
}

const (
	// refusalsEvery is how often a kind of refusal is logged. Clients can cause them at any rate.
	refusalsEvery = time.Minute

	// maxRefusals bounds the kinds of refusals. One client can cause about ten for a policy.
	maxRefusals = 256
)

// logRefusal logs why a request is refused, or would be without Shadow. In most programs the reason is a mistake in the
// wiring.
func (l *Limiter) logRefusal(ctx context.Context, err error, allowed bool) {
	l.refusals.LogKind(ctx, failure.Kind(err), err, slog.Bool("let_through", allowed))
}

// letThrough finishes a decision without a policy that applied. leftOut is why policies were left out.
func (l *Limiter) letThrough(x *exchange, leftOut error, start start) error {
	x.decision.Allowed, x.decision.At = true, time.Now()
	l.report(x, nil, 0, leftOut, start)
	return leftOut
}

// fail finishes a decision that failed because of err, and returns err. The request is let through, unless closed is
// true. A failure that the caller's own context caused is not logged. The request has waited for that long.
// refusing are the policies that refuse it because of an outage.
func (l *Limiter) fail(x *exchange, refusing []string, closed bool, waited time.Duration, err error, start start) error {
	d := &x.decision
	d.At = time.Now()
	d.Waited += waited
	switch {
	case !x.limited.Terms.Detached && closed && x.Err() != nil: // the caller ended it
	default:
		d.Allowed = !closed
		l.logFailure(x, err, d.Allowed)
	}
	if x.Err() != nil || x.tooLate(lastMoment) != nil { // which is no outage
		refusing = nil
	}
	if l.observe != nil {
		l.reportEvent(x, &Event{Refused: refusing, Err: err, Waited: waited}, start)
	}
	return err
}

func (l *Limiter) logFailure(ctx context.Context, err error, allowed bool) {
	l.failures.LogKind(ctx, failure.Kind(err), err, slog.Bool("let_through", allowed))
}

// began is some time before all decisions. To read the clock for the time since then takes half as long as time.Now.
var began = time.Now()

// A start is the beginning of a decision that is observed.
type start struct {
	at      time.Duration // since began
	op      string
	request *http.Request // nil for a call without one
}

// start returns the start of op, such as the decision about r, if there is an observer.
func (l *Limiter) start(r *http.Request, op string) (s start) {
	if l.observe != nil {
		s = start{time.Since(began), op, r}
	}
	return s
}

func (l *Limiter) report(x *exchange, results []Result, waited time.Duration, err error, start start) {
	if l.observe != nil {
		l.reportEvent(x, &Event{Results: results, Err: err, Waited: waited}, start)
	}
}

// reportEvent reports e to the observer, with what x and start say of it.
func (l *Limiter) reportEvent(x *exchange, e *Event, start start) {
	e.Op, e.Allowed = start.op, x.decision.Allowed
	e.Took = x.decision.At.Sub(began) - start.at - e.Waited // one reading of the clock less
	e.Route = l.routeOf(start.request)
	l.observe(x, e)
}

// routeOf returns the route of r, "" if r is nil.
func (l *Limiter) routeOf(r *http.Request) string {
	if r == nil {
		return ""
	}
	return l.routers.pattern(r)
}
