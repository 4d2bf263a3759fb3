package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"time"

	"github.com/go-tokenbucket/ratelimit/store"
)

// Decide charges r under policies, or under Config.Policies if there are none, and returns the decision. It answers
// nothing and sets no headers: it is for routers that do not use http.Handler. To answer as Handler does, use Admit.
// Decide does not call Config.Skip. It compiles policies at each call, where Limit does so once, and Reload does not
// reach them.
//
// Decide does not wait. Under a policy with MaxWait it may reserve tokens that are still to come: where the
// decision is Allowed, wait for the longest State.Wait of its Results that are no Shadow, or give them back
// by Refund.
//
// An error says why nothing could be decided, or not about every policy: it wraps ErrNoKey or ErrBadRequest, it
// is that of the Store, of another function of a policy or of r's context, or it names what is wrong with a policy.
// Decision.Allowed is then what Handler would do.
func (l *Limiter) Decide(r *http.Request, policies ...Policy) (Decision, error) {
	compiled := l.places.list.policies()
	if len(policies) > 0 {
		var err error
		if compiled, err = compile("policies", policies, true); err != nil {
			return Decision{}, fmt.Errorf("ratelimit: Decide: %w", err)
		}
	}
	if len(compiled) == 0 {
		return Decision{}, errors.New("ratelimit: Decide: no policies, and Config.Policies is empty")
	}
	x := l.newExchange(r.Context())
	x.limited.Terms = &l.ofRequests
	err := l.decide(x, r, compiled, false)
	return x.decision, err
}

// Take takes cost tokens of key's bucket of p, where there is no request: in workers, or in another
// protocol. key is what a KeyFunc would return, "member:5" for example. p needs a Name and a Limit; its
// functions are not called. A cost of 0 is always allowed; it must not be negative. In a handler use Admit, which
// also answers. Take has four outcomes:
//
//	Allowed  err
//	true     nil      the tokens were taken
//	false    nil      the bucket has too few tokens: see RetryAfter
//	true     not nil  the Store failed, and p does not fail closed: nothing is known of the bucket
//	false    not nil  the Store failed and p says FailClosed, ctx has ended, or an argument is wrong
//
// Take does not wait, as Wait does. If p has a MaxWait, it may reserve tokens that are still to come, also
// after ctx's deadline: Result.Wait says when the work may be done. Refund gives them back.
func (l *Limiter) Take(ctx context.Context, p Policy, key string, cost int64) (Result, error) {
	if cost < 0 {
		return Result{}, fmt.Errorf("ratelimit: Take: cost %d: must be 0 or more; see Refund", cost)
	}
	return l.charge(ctx, "Take", p, key, cost, false)
}

// Refund gives n tokens back to key's bucket of p, at most to full: for work that was charged and not done.
// n must be above 0. Arguments and errors are as for Take.
func (l *Limiter) Refund(ctx context.Context, p Policy, key string, n int64) (Result, error) {
	if n <= 0 {
		return Result{}, fmt.Errorf("ratelimit: Refund: n %d: must be above 0", n)
	}
	return l.charge(ctx, "Refund", p, key, -n, false)
}

func (l *Limiter) charge(ctx context.Context, name string, p Policy, key string, cost int64, waits bool) (Result, error) {
	c := calls.Get().(*call)
	defer c.release()
	if err := c.compileFor(name, &p, key); err != nil {
		return Result{}, err
	}
	if p.Limit == Unlimited {
		return Result{Policy: p.Name, Key: key, Limit: p.Limit, Cost: cost, Hidden: p.Hidden, State: store.State{Allowed: true, Remaining: math.MaxInt64}}, nil
	}
	decide, maxWait := (*Limiter).take, p.MaxWait
	if waits {
		decide, maxWait = (*Limiter).takeInTurn, patience(ctx, p.MaxWait)
	}
	c.add(&c.own, p.Limit, store.Charge{
		Policy:  p.Name,
		Key:     key,
		Limit:   c.own.limit,
		Cost:    cost,
		MaxWait: maxWait,
		Shadow:  p.Shadow,
	})
	return l.conclude(ctx, c, decide)
}

// compileFor makes p, the policy of a call without a request, ready as c.own. Such a call compiles its policy each
// time, so a policy without a fault is not put through compile, which allocates.
func (c *call) compileFor(name string, p *Policy, key string) error {
	c.own.Policy, c.own.limit = *p, store.Limit{}
	var err error
	if p.Limit != Unlimited {
		c.own.limit, err = p.Limit.compile()
	}
	if err == nil && key != "" && p.MaxWait >= 0 && validName(p.Name) {
		return nil
	}
	_, err = compile("policy", []Policy{*p}, false)
	if key == "" {
		err = errors.Join(err, errors.New("key: must not be empty"))
	}
	return fmt.Errorf("ratelimit: %s: %w", name, err)
}

// conclude makes a call of one charge.
func (l *Limiter) conclude(ctx context.Context, c *call, decide func(*Limiter, *exchange, *call, error, start) error) (Result, error) {
	x := l.newExchange(ctx)
	if err := decide(l, x, c, nil, l.start(nil)); err != nil {
		of := &c.charges[0]
		return Result{
			Policy: of.Policy,
			Key:    of.Key,
			Limit:  c.asked[0].limit,
			Cost:   of.Cost,
			Shadow: of.Shadow,
			Hidden: c.asked[0].policy.Hidden,
			State:  store.State{Allowed: x.decision.Allowed},
		}, err
	}
	return x.decision.Results[0], nil
}

// Peek returns the state of key's bucket of p and changes nothing. It is always Allowed. Result.Used says whether the
// bucket has been charged and has not refilled since.
//
// p needs only a Name. With a Limit, the bucket is reported by that. Without one, it is reported by the limit that it
// was last charged under, such as a tier of LimitFunc, and Result.Limit is that limit as a rate per second, minute,
// hour or day where possible. A bucket that is not Used has no such limit: Limit and Remaining are then zero.
//
// A Store that is no [store.Inspector] is asked by a Take of 0, for which p needs a Limit. Errors are as for Take.
func (l *Limiter) Peek(ctx context.Context, p Policy, key string) (Result, error) {
	if p.Limit == Unlimited {
		return l.charge(ctx, "Peek", p, key, 0, false)
	}
	return l.special(ctx, "Peek", p, key, 0, l.inspect)
}

// Reset removes key's bucket of p, so that it is full under any limit, for a member who was locked out in error.
// It reaches the denials, leases and stand-ins of this process at once, and those of other replicas within
// redisstore.Config.DenialAge and lease.Config.Hold.
//
// p needs only a Name. Result.Limit is that of p, and Remaining its burst, or 0 if p has none. Errors are as for Take.
// If a fallback.Store stands in for the Store, the bucket is reset in the Store when that is back.
func (l *Limiter) Reset(ctx context.Context, p Policy, key string) (Result, error) {
	return l.special(ctx, "Reset", p, key, store.Reset, func(ctx context.Context, c *call) (bool, error) {
		ok, err := l.store.Take(ctx, c.charges, c.states)
		switch p.Limit {
		case Limit{}:
			c.states[0].Remaining = 0
		case Unlimited:
			c.states[0].Remaining = math.MaxInt64
		}
		return ok, err
	})
}

// special makes a call of one charge that needs no limit, which put puts to the Store.
func (l *Limiter) special(ctx context.Context, name string, p Policy, key string, cost int64, put func(context.Context, *call) (bool, error)) (Result, error) {
	limit := p.Limit
	if limit == (Limit{}) || limit == Unlimited {
		p.Limit = PerSecond(1) // any will do
	}
	c := calls.Get().(*call)
	defer c.release()
	if err := c.compileFor(name, &p, key); err != nil {
		return Result{}, err
	}
	c.add(&c.own, limit, store.Charge{Policy: p.Name, Key: key, Limit: c.own.limit, Cost: cost, Shadow: p.Shadow})
	c.put = put
	return l.conclude(ctx, c, (*Limiter).take)
}

// inspect reports what the Store keeps of c's bucket, by the limit of c, or if it has none by that of the bucket.
func (l *Limiter) inspect(ctx context.Context, c *call) (bool, error) {
	charge, asked := &c.charges[0], &c.asked[0]
	given := asked.limit != Limit{}
	b, err := store.Inspect(ctx, l.store, charge.Policy, charge.Key)
	switch unsupported := errors.Is(err, errors.ErrUnsupported); {
	case unsupported && !given:
		return false, fmt.Errorf("ratelimit: Peek: policy %q: Limit: must be set for a Store that is no store.Inspector: %w", charge.Policy, err)
	case err != nil && !unsupported:
		return false, err
	case unsupported, given && b.Degraded: // whose limit may be a part of the one that is asked for
		ok, err := l.store.Take(ctx, c.charges, c.states)
		c.used = c.states[0].ResetAfter > 0
		return ok, err
	}
	c.used = b.Used()
	switch {
	case given:
		c.states[0] = b.State(charge.Limit)
	case c.used:
		asked.limit = readable(b.Limit)
		c.states[0] = b.State(b.Limit)
	default:
		c.states[0] = store.State{Allowed: true, Degraded: b.Degraded}
	}
	return true, nil
}

// readable returns the Limit that was compiled to l, or one of the same rate and burst: in the shortest time in which
// whole tokens come, unless in another one as many come as the burst has.
func readable(l store.Limit) Limit {
	burst := max(1, l.Capacity/l.Unit)
	readable := Limit{Rate: l.Refill, Per: time.Duration(l.Unit) * time.Microsecond, Burst: burst}
	found := false
	for _, per := range []time.Duration{time.Second, time.Minute, time.Hour, 24 * time.Hour} {
		// Below 2^52 credits a microsecond, and 2^37 microseconds, a rate may be beyond 64 bits.
		if l.Refill > math.MaxInt64/per.Microseconds() || l.Refill*per.Microseconds()%l.Unit != 0 {
			continue
		}
		rate := l.Refill * per.Microseconds() / l.Unit
		if rate == burst {
			return Limit{Rate: rate, Per: per}
		}
		if !found {
			readable.Rate, readable.Per, found = rate, per, true
		}
	}
	return readable
}
