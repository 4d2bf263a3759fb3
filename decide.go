package ratelimit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/deadline"
	"github.com/go-tokenbucket/ratelimit/internal/keyerr"
	"github.com/go-tokenbucket/ratelimit/store"
)

// An exchange is one request on its way through a limiter. It is the context that the request goes on
// with, and holds the decision about it. A requestExchange is one allocation for that and the request itself.
type exchange struct {
	limited  deadline.Context // of the Store's call. Its Parent is that of the request as it came
	decision Decision
	one      [1]Result // room for the results of most
}

// A requestExchange is an exchange with room for its request.
type requestExchange struct {
	exchange
	request http.Request
}

// newExchange returns the exchange of a call without a request, which ctx ends.
func (l *Limiter) newExchange(ctx context.Context) *exchange {
	return &exchange{limited: deadline.Context{Parent: ctx, Terms: &l.ofCalls}}
}

// newRequestExchange returns that of a request with context ctx. A cancelled ctx does not end it: that may be the
// server's shutdown, whose clients are still there, and a client that leaves pays for what it has asked for.
func (l *Limiter) newRequestExchange(ctx context.Context) *requestExchange {
	return &requestExchange{exchange: exchange{limited: deadline.Context{Parent: ctx, Terms: &l.ofRequests}}}
}

// with returns r with x as its context.
func (x *requestExchange) with(r *http.Request) *http.Request {
	x.request = *r.WithContext(&x.exchange) // inlined, so that this is the only copy on the heap
	return &x.request
}

func (x *exchange) came() context.Context { return x.limited.Parent }

// outer returns the decision of the limiters around this one, nil if there are none. A call without a request has none:
// in the handler of a limited request, its results are its own.
func (x *exchange) outer() *Decision {
	if !x.limited.Terms.Detached {
		return nil
	}
	d, _ := FromContext(x.came())
	return d
}

func (x *exchange) Deadline() (time.Time, bool) { return x.came().Deadline() }

func (x *exchange) Done() <-chan struct{} { return x.came().Done() }

func (x *exchange) Err() error { return x.came().Err() }

func (x *exchange) Value(key any) any {
	if key == (decisionKey{}) {
		return &x.decision
	}
	return x.came().Value(key)
}

// String names the chain of contexts and nothing that they hold, least of all the request.
func (x *exchange) String() string { return deadline.Name(x.came()) + ".WithDecision" }

// Format prints String, whatever the verb: %#v would print the request with its credentials.
func (x *exchange) Format(f fmt.State, _ rune) { io.WriteString(f, x.String()) }

// errNoTime is why a request is refused whose own deadline has passed: let through, it would not be charged.
var errNoTime = errors.New("the request has no time left")

// lastMoment is how long before a request's own deadline a failure is taken for the end of that. A connection may
// notice a deadline before its context does.
const lastMoment = 10 * time.Millisecond

// over returns why it is too late to decide, nil if it is not: a request's deadline has passed or will within some
// time, or the context of a call without a request has ended.
func (x *exchange) over(within time.Duration) error {
	if x.limited.Terms.Detached {
		if at, limited := x.came().Deadline(); limited && time.Until(at) <= within {
			return fmt.Errorf("%w: %w", errNoTime, context.DeadlineExceeded)
		}
		return nil
	}
	return x.Err()
}

// A call is what a Store is asked about one request, charge by charge.
type call struct {
	charges []store.Charge
	states  []store.State
	asked   []asked
	barred  []barred // what policies with a rate of 0 say, for which nothing is charged

	enforced    bool   // a policy is no Shadow
	failsClosed bool   // a policy refuses the request rather than have a stand-in decide
	mayWait     bool   // a policy lets it wait
	settles     bool   // a policy says what it cost once it is answered
	waits       bool   // its caller waits for what it reserves
	crowded     bool   // there is no place to wait for its caller
	stays       bool   // it is answered even if its caller leaves meanwhile
	used        bool   // its bucket was charged and has not refilled since; see Peek
	own         policy // of a call without a request; see compileFor

	// put puts it to the Store; nil: by Take.
	put func(context.Context, *call) (bool, error)
}

// asked is on whose behalf a charge is made.
type asked struct {
	policy *policy
	limit  Limit
}

// calls are reused: a Store does not keep what it is given. What a call was about stays in it until it is
// overwritten or collected.
var calls = sync.Pool{New: func() any { return new(call) }}

func (c *call) release() {
	c.charges, c.states, c.asked, c.barred = c.charges[:0], c.states[:0], c.asked[:0], c.barred[:0]
	c.enforced, c.failsClosed, c.mayWait, c.settles, c.waits, c.stays, c.crowded = false, false, false, false, false, false, false
	c.used, c.put = false, nil
	calls.Put(c)
}

func (c *call) add(p *policy, limit Limit, charge store.Charge) {
	c.charges = append(c.charges, charge)
	c.asked = append(c.asked, asked{p, limit})
	c.states = append(c.states, store.State{})
	c.enforced = c.enforced || !p.Shadow
	c.failsClosed = c.failsClosed || p.failsClosed()
	c.mayWait = c.mayWait || p.MaxWait > 0 && !p.Shadow
	c.settles = c.settles || p.Settle != nil
}

// addFor adds p's charge for r, unless p does not apply to it.
func (c *call) addFor(l *Limiter, r *http.Request, p *policy) error {
	limit, compiled, err := p.limitOf(r)
	if err != nil {
		err = keyerr.OfPolicy(p.Name, err)
		if limit == (Limit{}) {
			return err
		}
		l.failures.LogKind(r.Context(), keyerr.Kind(err), fmt.Errorf("%w: Policy.Limit applies instead, %v", err, limit))
	}
	if limit == Unlimited {
		return nil
	}
	key, err := keyBy(p.Key, r)
	if err != nil {
		if p.Optional && keyerr.IsNoKey(err) {
			return nil
		}
		return keyerr.OfPolicy(p.Name, err)
	}
	if limit.isZero() {
		c.bar(p, limit, key, p.costOf(r))
		return nil
	}
	if between, swung := p.swings.see(key, limit); swung {
		l.warnOfSwings(p, limit, between)
	}
	c.add(p, limit, store.Charge{
		Policy:  p.Name,
		Key:     key,
		Limit:   compiled,
		Cost:    p.costOf(r),
		MaxWait: patience(r.Context(), p.MaxWait),
		Shadow:  p.Shadow,
	})
	return nil
}

// prefaceMethod is that of the line by which a client begins HTTP/2 where nobody has agreed on it (RFC 9113, section
// 3.4). A handler for that takes the connection over, and serves all further requests of it by itself.
const prefaceMethod = "PRI"

var errPreface = fmt.Errorf("%w: a connection of HTTP/2 without TLS: mount its handler outside of the limiter", ErrBadRequest)

// decide decides about r by policies, into x.decision. What becomes of a policy of which a function fails is said in
// answer.go; the error says so either way. If waits, it returns when the turn of r has come.
func (l *Limiter) decide(x *exchange, r *http.Request, policies []*policy, waits bool) error {
	c := calls.Get().(*call)
	defer c.release()
	start := l.start(r)
	if r.Method == prefaceMethod {
		return l.turnAway(x, errPreface, start)
	}
	var noKey, closed, leftOut error
	for _, p := range policies {
		switch err := c.addFor(l, r, p); {
		case err == nil:
		case isClients(err) && p.Shadow:
			l.logRefusal(x, err, true)
		case errors.Is(err, ErrBadRequest):
			return l.turnAway(x, err, start)
		case keyerr.IsNoKey(err):
			if noKey == nil {
				noKey = err
			}
		case p.refuses(x, err):
			closed = errors.Join(closed, err)
		default:
			leftOut = errors.Join(leftOut, err)
		}
	}
	if noKey != nil {
		return l.turnAway(x, noKey, start)
	}
	if closed != nil {
		return l.fail(x, true, closed, start)
	}
	if leftOut != nil {
		l.logFailure(x, leftOut, true)
	}
	if policy, proxy, found := l.proxied.look(r, c); found {
		l.warnOfProxy(policy, proxy)
	}
	return l.takeUnlessBarred(x, c, waits, leftOut, start)
}

// takeUnlessBarred has the store decide about c, if there is something to be charged, and nothing denies it anyway.
func (l *Limiter) takeUnlessBarred(x *exchange, c *call, waits bool, leftOut error, start start) error {
	switch {
	case len(c.charges) == 0 || c.isBarred():
		return l.concludeBarred(x, c, leftOut, start)
	case waits:
		return l.takeInTurn(x, c, leftOut, start)
	default:
		return l.take(x, c, leftOut, start)
	}
}

// pass concludes a decision to which no policy applied. leftOut is why some did not.
func (l *Limiter) pass(x *exchange, leftOut error, start start) error {
	x.decision.Allowed, x.decision.At = true, time.Now()
	l.report(x, nil, 0, leftOut, start)
	return leftOut
}

// errDegraded is why a policy that fails closed refuses what a stand-in for the store allowed.
var errDegraded = errors.New("the store is away, and a stand-in answered")

// take has the store decide about c, into x.decision. leftOut is why other policies could not be asked
// about, and is returned if the store does not fail.
func (l *Limiter) take(x *exchange, c *call, leftOut error, start start) error {
	ok, err := l.ask(x, c)
	if err == nil && c.failsClosed && c.degraded() {
		err = errDegraded
	}
	if err != nil {
		if c.waits && ok {
			l.giveBack(x, c)
		}
		late := x.over(lastMoment)
		closed := c.failsClosed || c.enforced && (late != nil || errors.Is(err, store.ErrOverloaded))
		return l.fail(x, closed, cmp.Or(late, err), start)
	}

	d := &x.decision
	d.Allowed, d.At = ok, time.Now()
	d.Results = x.one[:0]
	if outer := x.outer(); outer != nil {
		d.Results = append(d.Results, outer.Results...)
		d.Waited = outer.Waited
	}
	before := len(d.Results)
	d.Results = slices.Grow(d.Results, len(c.charges))[:before+len(c.charges)]
	own := d.Results[before:]
	for i := range own { // field by field, because to copy a Result takes its time
		r, charge := &own[i], &c.charges[i]
		r.Policy, r.Key, r.Limit, r.Cost, r.Shadow = charge.Policy, charge.Key, c.asked[i].limit, charge.Cost, charge.Shadow
		r.Hidden = c.asked[i].policy.Hidden
		if charge.MaxWait > 0 {
			r.maxWait = uint32(min(charge.MaxWait.Milliseconds(), math.MaxUint32))
		}
		r.Used = c.used
		r.State = c.states[i]
	}
	if len(c.barred) > 0 {
		own = d.insertBarred(before, c.barred)
	}
	var waited time.Duration
	if c.waits && ok {
		if waited, err = l.await(x, c); err != nil {
			return l.leave(x, own, waited, err, start)
		}
		d.elapse(waited)
	}
	l.report(x, own, waited, leftOut, start)
	return leftOut
}

// degraded reports whether a stand-in answered for a policy that fails closed.
func (c *call) degraded() bool {
	for i := range c.asked {
		if c.states[i].Degraded && c.asked[i].policy.failsClosed() {
			return true
		}
	}
	return false
}

// ask puts c to the Store, unless it is too late for that. One that waits, or is settled later, stays until it is
// answered, within the timeout, even if x ends before: only the answer tells what there is to give back.
func (l *Limiter) ask(x *exchange, c *call) (bool, error) {
	if err := x.over(0); err != nil {
		return false, err
	}
	limited := &x.limited
	if c.stays {
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

// fail concludes a decision that could not be made because of err, and returns err. The request is let
// through, unless closed says otherwise. What the caller's own context has ended is its own to log.
func (l *Limiter) fail(x *exchange, closed bool, err error, start start) error {
	d := &x.decision
	d.At = time.Now()
	switch {
	case !x.limited.Terms.Detached && closed && x.Err() != nil: // the caller knows
	default:
		d.Allowed = !closed
		l.logFailure(x, err, d.Allowed)
	}
	l.report(x, nil, 0, err, start)
	return err
}

func (l *Limiter) logFailure(ctx context.Context, err error, allowed bool) {
	l.failures.LogKind(ctx, keyerr.Kind(err), err, slog.Bool("let_through", allowed))
}

// A start is the beginning of a decision that somebody observes.
type start struct {
	at      time.Time
	request *http.Request // nil for a call without one
}

// start returns that of a decision about r, if somebody wants to know how long it took.
func (l *Limiter) start(r *http.Request) (s start) {
	if l.observe != nil {
		s = start{time.Now(), r}
	}
	return s
}

func (l *Limiter) report(x *exchange, results []Result, waited time.Duration, err error, start start) {
	if l.observe != nil {
		l.observe(x, &Event{
			Allowed: x.decision.Allowed,
			Results: results,
			Err:     err,
			Took:    time.Since(start.at) - waited,
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
	return l.mounted.pattern(r)
}
