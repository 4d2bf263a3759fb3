package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/go-tokenbucket/ratelimit/store"
)

// An exchange is one request on its way through a limiter. It is the context that the request goes on
// with, holds the decision about it, and is one allocation for all of that.
type exchange struct {
	context.Context // of the request as it came
	decision        Decision
	one             [1]Result // room for the results of most
	deadline        deadline  // the context of the store's call
}

func newExchange(ctx context.Context, timeout time.Duration) *exchange {
	return &exchange{Context: ctx, deadline: deadline{Context: ctx, timeout: timeout}}
}

func (x *exchange) Value(key any) any {
	if key == (decisionKey{}) {
		return &x.decision
	}
	return x.Context.Value(key)
}

// A call is what a Store is asked about one request, charge by charge.
type call struct {
	charges  []store.Charge
	states   []store.State
	policies []*policy
	limits   []Limit
}

// calls are reused. A Store does not keep what it is given.
var calls = sync.Pool{New: func() any { return new(call) }}

func (c *call) release() {
	clear(c.charges)
	clear(c.policies)
	c.charges, c.states, c.policies, c.limits = c.charges[:0], c.states[:0], c.policies[:0], c.limits[:0]
	calls.Put(c)
}

func (c *call) add(p *policy, limit Limit, charge store.Charge) {
	c.charges = append(c.charges, charge)
	c.states = append(c.states, store.State{})
	c.policies = append(c.policies, p)
	c.limits = append(c.limits, limit)
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
	cost, err := p.costOf(r)
	if err != nil {
		return err
	}
	c.add(p, limit, store.Charge{Policy: p.Name, Key: key, Limit: compiled, Cost: cost, Shadow: p.Shadow})
	return nil
}

// decide decides about r by policies, into x.decision.
func (l *Limiter) decide(x *exchange, r *http.Request, policies []*policy) error {
	c := calls.Get().(*call)
	defer c.release()
	start := l.start()
	var failure error
	for _, p := range policies {
		err := c.addFor(r, p)
		switch {
		case err == nil:
		case errors.Is(err, ErrNoKey): // refused, whatever failed for other policies
			return l.fail(x, policies, err, start)
		case p.Shadow: // it must not stand in the way of those that are enforced
			l.failures.log(x, err, true)
		case failure == nil:
			failure = err
		}
	}
	if failure != nil {
		return l.fail(x, policies, failure, start)
	}
	if len(c.charges) == 0 {
		x.decision.Allowed, x.decision.At = true, time.Now()
		l.report(x, nil, start)
		return nil
	}
	return l.take(x, c, start)
}

// errDegraded is why a policy that fails closed refuses what a stand-in for the store allowed.
var errDegraded = errors.New("the store is away, and a stand-in answered")

// take has the store decide about c, into x.decision.
func (l *Limiter) take(x *exchange, c *call, start time.Time) error {
	ok, err := l.store.Take(&x.deadline, c.charges, c.states)
	x.deadline.end()
	for i, p := range c.policies {
		if err == nil && c.states[i].Degraded && p.FailClosed && !p.Shadow {
			err = errDegraded
		}
	}
	if err != nil {
		return l.fail(x, c.policies, err, start)
	}

	d := &x.decision
	d.Allowed, d.At = ok, time.Now()
	d.Results = x.one[:0]
	if outer, stacked := FromContext(x.Context); stacked {
		d.Results = append(d.Results, outer.Results...)
	}
	for i, p := range c.policies {
		d.Results = append(d.Results, Result{
			Policy: p.Name,
			Key:    c.charges[i].Key,
			Limit:  c.limits[i],
			Cost:   c.charges[i].Cost,
			Shadow: p.Shadow,
			State:  c.states[i],
		})
	}
	l.report(x, nil, start)
	return nil
}

// fail concludes a decision that could not be made about policies because of err, and returns err. The
// request is let through, unless it has no key, its client is gone, or one of policies fails closed.
func (l *Limiter) fail(x *exchange, policies []*policy, err error, start time.Time) error {
	d := &x.decision
	d.At = time.Now()
	switch {
	case errors.Is(err, ErrNoKey):
	case x.Context.Err() != nil: // not an outage, and nobody is there to let through
		err = x.Context.Err()
	default:
		d.Allowed = true
		for _, p := range policies {
			if p.FailClosed && !p.Shadow {
				d.Allowed = false
			}
		}
		l.failures.log(x, err, d.Allowed)
	}
	l.report(x, err, start)
	return err
}

// start returns the time, if somebody wants to know how long the decision took.
func (l *Limiter) start() (now time.Time) {
	if l.observe != nil {
		now = time.Now()
	}
	return now
}

func (l *Limiter) report(x *exchange, err error, start time.Time) {
	if l.observe != nil {
		l.observe(x, &Event{Decision: &x.decision, Err: err, Took: time.Since(start)})
	}
}
