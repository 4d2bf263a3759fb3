package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-tokenbucket/ratelimit/store"
)

// An exchange is one request on its way through a limiter. It is the context that the request goes on
// with, holds the decision about it and the request itself, and is one allocation for all of that.
type exchange struct {
	context.Context // of the request as it came
	decision        Decision
	one             [1]Result // room for the results of most
	timeout         time.Duration
	timer           atomic.Pointer[timer] // see deadline
	request         http.Request
}

func newExchange(ctx context.Context, timeout time.Duration) *exchange {
	return &exchange{Context: ctx, timeout: timeout}
}

// with returns r with x as its context.
func (x *exchange) with(r *http.Request) *http.Request {
	x.request = *r.WithContext(x) // inlined, so that this is the only copy on the heap
	return &x.request
}

func (x *exchange) Value(key any) any {
	if key == (decisionKey{}) {
		return &x.decision
	}
	return x.Context.Value(key)
}

// A call is what a Store is asked about one request, charge by charge.
type call struct {
	charges []store.Charge
	states  []store.State
	asked   []asked
	waits   bool // its caller waits for what it reserves
}

// asked is on whose behalf a charge is made.
type asked struct {
	policy *policy
	limit  Limit
}

// calls are reused: a Store does not keep what it is given.
var calls = sync.Pool{New: func() any { return new(call) }}

func (c *call) release() {
	clear(c.charges)
	clear(c.asked)
	c.charges, c.states, c.asked = c.charges[:0], c.states[:0], c.asked[:0]
	c.waits = false
	calls.Put(c)
}

func (c *call) add(p *policy, limit Limit, charge store.Charge) {
	c.charges = append(c.charges, charge)
	c.asked = append(c.asked, asked{p, limit})
	c.states = append(c.states, store.State{})
}

// addFor adds p's charge for r, unless p does not apply to it.
func (c *call) addFor(r *http.Request, p *policy) error {
	limit, compiled, err := p.limitOf(r)
	if err != nil || limit == Unlimited {
		return err
	}
	key, err := p.Key(r)
	if err == nil && key == "" {
		err = ErrNoKey
	}
	if err != nil {
		if errors.Is(err, ErrNoKey) && (p.Optional || p.Shadow) {
			return nil
		}
		return fmt.Errorf("policy %q: %w", p.Name, err)
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

// decide decides about r by policies, into x.decision. A policy of which a function fails is left out, so
// that it cannot switch off the others, unless it fails closed; the error says so either way. If waits, it
// returns when the turn of r has come.
func (l *Limiter) decide(x *exchange, r *http.Request, policies []*policy, waits bool) error {
	c := calls.Get().(*call)
	defer c.release()
	start := l.start()
	var leftOut, closed error
	for _, p := range policies {
		switch err := c.addFor(r, p); {
		case err == nil:
		case errors.Is(err, ErrNoKey):
			return l.fail(x, true, err, start)
		case p.failsClosed():
			closed = errors.Join(closed, err)
		default:
			leftOut = errors.Join(leftOut, err)
		}
	}
	if closed != nil {
		return l.fail(x, true, closed, start)
	}
	if leftOut != nil {
		l.failures.log(x, leftOut, true)
	}
	if len(c.charges) == 0 {
		x.decision.Allowed, x.decision.At = true, time.Now()
		l.report(x, nil, 0, leftOut, start)
		return leftOut
	}
	if waits {
		return l.takeInTurn(x, c, leftOut, start)
	}
	return l.take(x, c, leftOut, start)
}

// errDegraded is why a policy that fails closed refuses what a stand-in for the store allowed.
var errDegraded = errors.New("the store is away, and a stand-in answered")

// take has the store decide about c, into x.decision. leftOut is why other policies could not be asked
// about, and is returned if the store does not fail.
func (l *Limiter) take(x *exchange, c *call, leftOut error, start time.Time) error {
	ok, err := l.ask(x, c)
	closed := c.waits && x.Err() != nil // or a policy fails closed
	for i := range c.asked {
		if c.asked[i].policy.failsClosed() {
			closed = true
			if err == nil && c.states[i].Degraded {
				err = errDegraded
			}
		}
	}
	if err != nil {
		if c.waits && ok {
			l.giveBack(x, c)
		}
		return l.fail(x, closed, err, start)
	}

	d := &x.decision
	d.Allowed, d.At = ok, time.Now()
	d.Results = x.one[:0]
	if outer, stacked := FromContext(x.Context); stacked {
		d.Results = append(d.Results, outer.Results...)
		d.Waited = outer.Waited
	}
	for i := range c.charges {
		d.Results = append(d.Results, Result{
			Policy: c.charges[i].Policy,
			Key:    c.charges[i].Key,
			Limit:  c.asked[i].limit,
			Cost:   c.charges[i].Cost,
			Shadow: c.charges[i].Shadow,
			State:  c.states[i],

			maxWait: uint32(min(c.charges[i].MaxWait.Milliseconds(), math.MaxUint32)),
		})
	}
	own := d.Results[len(d.Results)-len(c.charges):]
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

// ask puts c to the Store. One that waits stays until it is answered, within the timeout, even if x ends
// before: only the answer tells what there is to give back.
func (l *Limiter) ask(x *exchange, c *call) (bool, error) {
	if c.waits {
		if err := x.Err(); err != nil {
			return false, err
		}
		x = newExchange(context.WithoutCancel(x.Context), l.timeout)
	}
	deadline := (*deadline)(x)
	ok, err := l.store.Take(deadline, c.charges, c.states)
	deadline.end()
	return ok, err
}

// fail concludes a decision that could not be made because of err, and returns err. The request is let
// through, unless it has no key, its client is gone, or one of its policies fails closed.
func (l *Limiter) fail(x *exchange, closed bool, err error, start time.Time) error {
	d := &x.decision
	d.At = time.Now()
	switch {
	case errors.Is(err, ErrNoKey):
	case errors.Is(x.Context.Err(), context.Canceled): // not an outage, and nobody is there to let through
		err = x.Context.Err()
	default:
		d.Allowed = !closed
		l.failures.log(x, err, d.Allowed)
	}
	l.report(x, nil, 0, err, start)
	return err
}

// start returns the time, if somebody wants to know how long the decision took.
func (l *Limiter) start() (now time.Time) {
	if l.observe != nil {
		now = time.Now()
	}
	return now
}

func (l *Limiter) report(x *exchange, results []Result, waited time.Duration, err error, start time.Time) {
	if l.observe != nil {
		l.observe(x, &Event{
			Allowed: x.decision.Allowed,
			Results: results,
			Err:     err,
			Took:    time.Since(start) - waited,
			Waited:  waited,
		})
	}
}
