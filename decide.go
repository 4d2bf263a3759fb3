package ratelimit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"slices"
	"time"

	"github.com/go-tokenbucket/ratelimit/explain"
	"github.com/go-tokenbucket/ratelimit/internal/deadline"
	"github.com/go-tokenbucket/ratelimit/internal/failure"
	"github.com/go-tokenbucket/ratelimit/store"
)

// prefaceMethod is the method of the line that starts HTTP/2 without TLS (RFC 9113, section 3.4). A handler for it
// takes the connection over and serves all further requests on it, past the limiter.
const prefaceMethod = "PRI"

var errPreface = fmt.Errorf("%w: a connection of HTTP/2 without TLS: mount its handler outside of the limiter", ErrBadRequest)

// decide decides about r under policies, into x.decision. For errors of a policy's functions see answer.go: they are
// returned even if the request goes on. With waits, decide returns when the turn of r has come.
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
	var noKey, closed, leftOut error
	for _, p := range policies {
		err := c.addFor(l, r, p)
		if err == nil {
			continue
		}
		switch p.outcomeOf(x, err) {
		case explain.BadRequest:
			return l.rejectRequest(x, err, start)
		case explain.NoKey:
			noKey = cmp.Or(noKey, err)
		case explain.Failed:
			closed = errors.Join(closed, err)
		default:
			if isClients(err) {
				l.logRefusal(x, err, true)
			} else {
				leftOut = errors.Join(leftOut, err)
			}
		}
	}
	if noKey != nil {
		return l.rejectRequest(x, noKey, start)
	}
	if closed != nil {
		return l.fail(x, true, closed, start)
	}
	if leftOut != nil {
		l.logFailure(x, leftOut, true)
	}
	l.detectProxy(r, c)
	return l.takeCharges(x, c, waits, leftOut, start)
}

// takeCharges calls the store for c, unless there is nothing to charge or a rate of 0 denies the request anyway.
func (l *Limiter) takeCharges(x *exchange, c *call, waits bool, leftOut error, start start) error {
	switch {
	case len(c.charges) == 0 || c.zeroRateDenies():
		return l.concludeUncharged(x, c, leftOut, start)
	case waits:
		return l.takeInTurn(x, c, leftOut, start)
	default:
		return l.take(x, c, leftOut, start)
	}
}

// letThrough finishes a decision without a policy that applied. leftOut is why policies were left out.
func (l *Limiter) letThrough(x *exchange, leftOut error, start start) error {
	x.decision.Allowed, x.decision.At = true, time.Now()
	l.report(x, nil, 0, leftOut, start)
	return leftOut
}

// errDegraded is why a policy with FailClosed refuses a request that a stand-in for the store allowed.
var errDegraded = errors.New("the store is unavailable, and a stand-in answered")

// take calls the store for c and decides, into x.decision. leftOut is why other policies were left out. It is returned
// if the store does not fail.
func (l *Limiter) take(x *exchange, c *call, leftOut error, start start) error {
	ok, err := l.ask(x, c)
	if closed, failed := x.failed(c, err); failed != nil {
		if c.waits && ok {
			l.refundCall(x, c)
		}
		return l.fail(x, closed, failed, start)
	}
	own, blocked := x.fill(c, ok)
	if blocked && c.put == nil {
		x.decision.Allowed = l.denyLooks(x, c, own, ok)
	}
	own = x.insertZeroRates(c, own)
	var waited time.Duration
	if c.waits && x.decision.Allowed {
		if waited, err = l.waitTurn(x, c); err != nil {
			return l.abandonWait(x, own, waited, err, start)
		}
		x.decision.elapse(waited)
	}
	l.report(x, own, waited, leftOut, start)
	return leftOut
}

// failed returns why the Store's answer to c decides nothing, nil if it does, and whether that refuses the request. err is
// the error of the Store.
func (x *exchange) failed(c *call, err error) (closed bool, _ error) {
	if err == nil && c.failsClosed && c.degraded() {
		err = errDegraded
	}
	if err == nil {
		return false, nil
	}
	late := x.tooLate(lastMoment)
	return c.failsClosed || c.enforced && (late != nil || errors.Is(err, store.ErrOverloaded)), cmp.Or(late, err)
}

// fill fills x.decision with the results of c, whose charges the Store has allowed or not, after those of the limiters
// around this one. It returns the results of c, and whether one of its buckets is blocked.
func (x *exchange) fill(c *call, ok bool) (own []Result, blocked bool) {
	d := &x.decision
	d.Allowed, d.At = ok, time.Now()
	d.Results = x.firstResult[:0]
	if outer := x.outer(); outer != nil {
		d.Results = append(d.Results, outer.Results...)
		age(d.Results, max(0, d.At.Sub(outer.At))) // At is ahead after a wait in virtual time
		d.Waited = outer.Waited
	}
	before := len(d.Results)
	d.Results = slices.Grow(d.Results, len(c.charges))[:before+len(c.charges)]
	own = d.Results[before:]
	for i := range own { // field by field, because copying a Result is slow
		r, charge := &own[i], &c.charges[i]
		r.Policy, r.Key, r.Limit, r.Cost, r.Shadow = charge.Policy, charge.Key, c.applied[i].limit, charge.Cost, charge.Shadow
		r.Hidden = c.applied[i].policy.Hidden
		if charge.MaxWait > 0 {
			r.maxWait = uint32(min(charge.MaxWait.Milliseconds(), math.MaxUint32))
		}
		r.State = c.states[i]
		blocked = blocked || r.Blocked
	}
	return own, blocked
}

// denyLooks refuses c if it takes no tokens from a bucket that is blocked. The Store allows that, as a look. results are those
// of c, and ok says that the Store allowed it. denyLooks reports whether the call goes on. If not, the other buckets get back
// what they were charged.
func (l *Limiter) denyLooks(x *exchange, c *call, results []Result, ok bool) bool {
	refused := denyLooks(results)
	if ok && refused && l.refundCall(x, c) {
		next := 0
		for i := range results {
			if r := &results[i]; r.Cost > 0 && r.Allowed && r.Known() {
				if !r.Degraded {
					r.State = c.states[next]
				}
				next++
			}
		}
	}
	return ok && !refused
}

// denyLooks denies results that take no tokens from a bucket that is blocked. It reports whether that refuses the request.
func denyLooks(results []Result) (refused bool) {
	for i := range results {
		if r := &results[i]; r.Blocked && r.Cost == 0 {
			r.Allowed = false
			refused = refused || !r.Shadow
		}
	}
	return refused
}

// degraded reports whether a stand-in answered for a policy with FailClosed.
func (c *call) degraded() bool {
	for i := range c.applied {
		if c.states[i].Degraded && c.applied[i].policy.failsClosed() {
			return true
		}
	}
	return false
}

// ask calls the Store with c, unless it is too late. A call that waits, or is settled later, goes on until it is
// answered or times out, even if x ends before. Only the answer shows what has to be given back.
func (l *Limiter) ask(x *exchange, c *call) (bool, error) {
	if err := x.tooLate(0); err != nil {
		return false, err
	}
	limited := &x.limited
	if c.outlivesCaller {
		limited = &deadline.Context{Parent: context.WithoutCancel(x), Terms: &l.ofCalls}
	}
	defer limited.End()
	ctx := context.Context(limited)
	if c.failsClosed {
		ctx = store.WithoutStandIn(limited)
	}
	if c.put != nil {
		return c.put(ctx, c)
	}
	return l.store.Take(ctx, c.charges, c.states)
}

// fail finishes a decision that failed because of err, and returns err. The request is let through, unless closed is
// true. A failure that the caller's own context caused is not logged.
func (l *Limiter) fail(x *exchange, closed bool, err error, start start) error {
	d := &x.decision
	d.At = time.Now()
	switch {
	case !x.limited.Terms.Detached && closed && x.Err() != nil: // the caller ended it
	default:
		d.Allowed = !closed
		l.logFailure(x, err, d.Allowed)
	}
	l.report(x, nil, 0, err, start)
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
		l.observe(x, &Event{
			Op:      start.op,
			Allowed: x.decision.Allowed,
			Results: results,
			Err:     err,
			Took:    x.decision.At.Sub(began) - start.at - waited, // one reading of the clock less
			Waited:  waited,
			Route:   l.routeOf(start.request),
		})
	}
}

// routeOf returns the route of r, "" if r is nil.
func (l *Limiter) routeOf(r *http.Request) string {
	if r == nil {
		return ""
	}
	return l.routers.pattern(r)
}
