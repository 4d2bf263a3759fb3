package ratelimit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/deadline"
	"github.com/go-tokenbucket/ratelimit/internal/policyname"
	"github.com/go-tokenbucket/ratelimit/store"
)

// Take takes cost tokens from the bucket of p and key, such as "member:5". Use it in workers and other protocols; in a
// handler use [Limiter.Admit], which also answers. p needs a Name and a Limit. Its functions are not called.
// A cost of 0 is allowed unless the bucket is blocked, see [Limiter.Block]. A negative one is an error.
//
//	Allowed  err
//	true     nil      the tokens were taken
//	false    nil      the bucket has too few tokens: see RetryAfter
//	true     not nil  the Store failed, and p does not set FailClosed: nothing is known of the bucket
//	false    not nil  the Store failed and p sets FailClosed, ctx has ended, or an argument is wrong
//
// With [Policy.MaxWait], Take may reserve future tokens, even beyond ctx's deadline. Result.Wait is how long to wait
// before the work. [Limiter.Wait] waits itself, [Limiter.Refund] returns the tokens.
func (l *Limiter) Take(ctx context.Context, p Policy, key string, cost int64) (Result, error) {
	if cost < 0 {
		return Result{}, fmt.Errorf("ratelimit: Take: cost %d: must be 0 or more; see Refund", cost)
	}
	return l.charge(ctx, "take", p, key, cost, false)
}

// Refund returns n tokens to the bucket of p and key, at most until it is full. Use it for work that was charged and
// not done. Tokens of a quota go to the period that it is now, so do not refund work of an earlier one. n must be above
// 0. Arguments and errors are as for [Limiter.Take], with one exception: Refund does not end with ctx, so it also works
// after the client of a request has left. It takes at most [Config.Timeout].
func (l *Limiter) Refund(ctx context.Context, p Policy, key string, n int64) (Result, error) {
	if n <= 0 {
		return Result{}, fmt.Errorf("ratelimit: Refund: n %d: must be above 0", n)
	}
	// Work is often not done because ctx has ended.
	return l.charge(context.WithoutCancel(ctx), "refund", p, key, -n, false)
}

func (l *Limiter) charge(ctx context.Context, op string, p Policy, key string, cost int64, waits bool) (Result, error) {
	c := calls.Get().(*call)
	defer c.release()
	if err := c.compileFor(op, &p, key); err != nil {
		return Result{}, err
	}
	if err := p.refuseSlots(); err != nil {
		return Result{}, fmt.Errorf("ratelimit: %s: %w", exported(op), err)
	}
	if p.Limit == Unlimited {
		return Result{Policy: p.Name, Key: key, Limit: p.Limit, Cost: cost, Hidden: p.Hidden, State: store.State{Allowed: true, Remaining: math.MaxInt64}}, nil
	}
	decide, maxWait := (*Limiter).take, p.MaxWait
	if waits {
		decide, maxWait = (*Limiter).takeInTurn, waitBound(ctx, p.MaxWait)
	}
	c.add(&c.policy, p.Limit, store.Charge{
		Policy:  p.Name,
		Key:     key,
		Limit:   c.policy.limit,
		Cost:    cost,
		MaxWait: maxWait,
		Shadow:  p.Shadow,
	})
	return l.conclude(ctx, op, c, decide)
}

// compileFor makes p, the policy of a call without a request such as "take", ready as c.policy.
func (c *call) compileFor(op string, p *Policy, key string) error {
	if c.policy.compileOwn(p) && key != "" {
		return nil
	}
	_, err := compile("policy", []Policy{*p}, false)
	if key == "" {
		err = errors.Join(err, errors.New("key: must not be empty"))
	}
	return fmt.Errorf("ratelimit: %s: %w", exported(op), err)
}

// exported returns the name of the method of an Event's Op.
func exported(op string) string { return strings.ToUpper(op[:1]) + op[1:] }

// compileOwn compiles of, a policy of a call without a request, into p. It reports whether the policy is valid. Such a
// call compiles its policies each time, so it does not use compile, which allocates. p may be from an earlier call,
// often with the same policy.
func (p *policy) compileOwn(of *Policy) (ok bool) {
	if p.Limit != of.Limit || p.limit == (store.Limit{}) {
		p.limit = store.Limit{}
		if of.Limit != Unlimited {
			p.limit, _ = of.Limit.compile()
		}
	}
	p.Policy, p.slots = *of, of.Limit.IsConcurrency()
	return (of.Limit == Unlimited || p.limit != (store.Limit{})) && of.MaxWait >= 0 && of.validLock() && len(of.refusedBesideSlots()) == 0 && policyname.Valid(of.Name)
}

// conclude makes a call of one charge.
func (l *Limiter) conclude(ctx context.Context, op string, c *call, decide func(*Limiter, *exchange, *call, error, start) error) (Result, error) {
	x := l.newExchange(ctx)
	if err := decide(l, x, c, nil, l.start(nil, op)); err != nil {
		of := &c.charges[0]
		return Result{
			Policy: of.Policy,
			Key:    of.Key,
			Limit:  c.applied[0].limit,
			Cost:   of.Cost,
			Shadow: of.Shadow,
			Hidden: c.applied[0].policy.Hidden,
			State:  store.State{Allowed: x.decision.Allowed},
		}, err
	}
	return x.decision.Results[0], nil
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

// errDegraded is why a policy with FailClosed refuses a request that a stand-in for the store allowed.
var errDegraded = errors.New("the store is unavailable, and a stand-in answered")

// take calls the store for c and decides, into x.decision. leftOut is why other policies were left out. It is returned
// if the store does not fail.
func (l *Limiter) take(x *exchange, c *call, leftOut error, start start) error {
	ok, waited, left, err := l.askUntilDecided(x, c)
	if left != nil {
		own, _ := x.fill(c, ok)
		return l.abandonWait(x, own, waited, left, start)
	}
	if closed, failed := x.failed(c, err); failed != nil {
		if (c.waits || c.slots) && ok { // other calls with FailClosed reach no stand-in
			l.refundCall(x, c, 0)
		}
		return l.fail(x, c.failedClosed(), closed, waited, failed, start)
	}
	own, blocked := x.fill(c, ok)
	if blocked && c.put == nil {
		x.decision.Allowed = l.denyLooks(x, c, own, ok)
	}
	own = x.insertZeroRates(c, own)
	x.decision.Waited += waited
	if c.waits && x.decision.Allowed {
		turn, left := l.waitTurn(x, c)
		waited += turn
		if left != nil {
			return l.abandonWait(x, own, waited, left, start)
		}
		x.decision.elapse(turn)
	}
	if c.slots && x.decision.Allowed {
		l.hold(x, c, start)
	}
	l.report(x, own, waited, leftOut, start)
	return leftOut
}

// failed returns the error if the Store's answer to c decides nothing, and whether that refuses the request. err is the error
// of the Store.
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
	if ok && refused && l.refundCall(x, c, 0) {
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
