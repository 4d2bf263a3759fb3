package ratelimit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/go-tokenbucket/ratelimit/explain"
	"github.com/go-tokenbucket/ratelimit/internal/bucket"
	"github.com/go-tokenbucket/ratelimit/internal/infer"
	"github.com/go-tokenbucket/ratelimit/store"
)

// A judgment is what a policy asks of a request, and what comes of it.
type judgment struct {
	explain.Policy
	of    *policy
	limit Limit
	err   error // of a function of the policy
}

func (x *explaining) describe(p *policy) *judgment {
	return &judgment{of: p, Policy: explain.Policy{Name: p.Name, Shadow: p.Shadow, Hidden: p.Hidden, Optional: p.Optional, FailClosed: p.FailClosed}}
}

func (j *judgment) limitIs(limit Limit, why string) {
	if j.limit = limit; limit != (Limit{}) {
		j.Limit, j.LimitWhy = limit.String(), why
	}
}

// ask asks a policy for the key, the limit and the cost of r, and adds its charge to c. Outcome is set if it charges nothing.
func (x *explaining) ask(p *policy, c *call, r *http.Request, ex *exchange) *judgment {
	j := x.describe(p)
	own, chosen := &policy{Policy: p.Policy, limit: p.limit}, (*Limit)(nil)
	if p.LimitFunc != nil {
		own.LimitFunc = func(r *http.Request) Limit {
			limit := p.LimitFunc(r)
			chosen = &limit
			return limit
		}
	}
	var limit Limit
	var charge store.Charge
	x.trace.Forget()
	if panicked := guard(func() { limit, charge, _, j.err = own.chargeFor(r) }); panicked != nil {
		j.err = panicked
	}
	j.Found, j.Key, j.Cost = x.trace.Took(), charge.Key, charge.Cost
	why := cmp.Or(p.from, "Policy.Limit")
	switch {
	case p.LimitFunc == nil:
		limit = p.Limit
	case chosen == nil: // it panicked
	case *chosen == Limit{}:
		limit, why = p.Limit, why+": LimitFunc returned the zero Limit"
	case !chosen.valid():
		limit, why = p.Limit, why+fmt.Sprintf(": LimitFunc returned %v, which is malformed", *chosen)
	default:
		limit, why = *chosen, "LimitFunc"
	}
	j.limitIs(limit, why)
	switch {
	case j.err != nil:
		j.Outcome, j.Why = p.outcomeOf(ex, j.err), strings.TrimPrefix(x.textOf(j.err), "policy "+p.Name+": ")
	case limit == Unlimited && chosen != nil:
		j.Outcome, j.Why = explain.Exempt, "LimitFunc returned Unlimited"
	case limit == Unlimited:
		j.Outcome, j.Why = explain.Exempt, why+" is Unlimited"
	case j.Key == "":
		j.Outcome, j.Why = explain.LeftOut, "the request has no key, and the policy is Optional"
	case limit.isZero():
		c.bar(p, limit, charge.Key, charge.Cost)
	default:
		c.add(p, limit, charge)
	}
	return j
}

func (l Limit) valid() bool {
	_, err := l.compile()
	return err == nil || l.isZero() || l == Unlimited
}

// conclude completes the judgment of a policy by its result. Without results, the Store has failed. refusers says why the
// request is not allowed.
func (x *explaining) conclude(j *judgment, results []Result, before map[string]*store.State, refusers string, allowed bool) {
	if j.Outcome != "" {
		return
	}
	i := slices.IndexFunc(results, func(r Result) bool { return r.Policy == j.Name })
	if i < 0 {
		if j.Outcome, j.Why = explain.LeftOut, refusers; !allowed {
			j.Outcome = explain.Failed
		}
		return
	}
	r := &results[i]
	if j.Before = before[j.Name]; j.Before != nil {
		j.After = &r.State
	}
	switch {
	case r.Allowed && !allowed:
		j.Outcome, j.Why = explain.NotCharged, refusers
	case r.Allowed:
		j.Outcome, j.Why = explain.Allowed, j.whyAllowed(r)
	case r.Shadow:
		j.Outcome, j.Why = explain.WouldDeny, j.whyDenied(r)
	default:
		j.Outcome, j.Why = explain.Denied, j.whyDenied(r)
	}
}

func (j *judgment) whyAllowed(r *Result) string {
	switch {
	case r.Cost == 0:
		return "the request takes no tokens"
	case r.Wait > 0:
		return fmt.Sprintf("the request waits %v for its tokens", r.Wait)
	default:
		return fmt.Sprintf("the request takes %d of %d tokens", r.Cost, j.Before.Remaining)
	}
}

func (j *judgment) whyDenied(r *Result) string {
	switch maxWait := j.of.MaxWait; {
	case r.Limit.isZero():
		return "the rate is 0"
	case r.Blocked:
		return fmt.Sprintf("the bucket is blocked for %v", r.RetryAfter)
	case r.RetryAfter == Never:
		return fmt.Sprintf("the cost is negative or above the burst of %d", r.Limit.burst())
	case maxWait > 0:
		return fmt.Sprintf("the tokens come in %v, which is later than MaxWait, %v, or the deadline of the request allow", r.RetryAfter+maxWait, maxWait)
	default:
		return fmt.Sprintf("the request takes %d of %d tokens: enough in %v", r.Cost, r.Remaining, r.RetryAfter)
	}
}

// look fills the states of c as the Store would if it was charged, and returns the states now, by policy. With refused, the
// request is refused for another reason. If the Store has failed before, it is asked only if the request meets these policies.
func (x *explaining) look(ex *exchange, c *call, refused, met bool) (before map[string]*store.State, ok bool, err error) {
	if len(c.charges) == 0 {
		return nil, !refused, nil
	}
	if x.err != nil && !met {
		return nil, false, x.err
	}
	before = make(map[string]*store.State)
	c.put = func(ctx context.Context, c *call) (bool, error) {
		buckets, ok := make([]store.Bucket, len(c.charges)), !refused
		for i := range c.charges {
			charge := &c.charges[i]
			b, err := bucketOf(ctx, x.l.store, charge)
			if err != nil {
				return false, err
			}
			if b.Degraded {
				charge.Lock = 0 // not every stand-in locks
				charge.Limit = cmp.Or(b.Limit, charge.Limit)
			}
			now := b.State(charge.Limit)
			buckets[i], before[charge.Policy] = b, &now
			c.states[i] = stateOf(b, charge, false)
			refuses := !c.states[i].Allowed || now.Blocked && charge.Cost == 0 // see shut
			ok = ok && (!refuses || charge.Shadow)
		}
		for i := range c.charges {
			if ok && c.states[i].Allowed {
				c.states[i] = stateOf(buckets[i], &c.charges[i], true)
			}
		}
		return ok, nil
	}
	ok, err = x.l.ask(ex, c)
	x.err = err
	return before, ok, err
}

// bucketOf returns the bucket of c. If s is no Inspector, it is what a look says of it.
func bucketOf(ctx context.Context, s store.Store, c *store.Charge) (store.Bucket, error) {
	b, err := store.Inspect(ctx, s, c.Policy, c.Key)
	if !errors.Is(err, errors.ErrUnsupported) {
		return b, err
	}
	look, states := []store.Charge{{Policy: c.Policy, Key: c.Key, Limit: c.Limit}}, make([]store.State, 1)
	if _, err := s.Take(ctx, look, states); err != nil {
		return b, err
	}
	return infer.Bucket(&look[0], &states[0]), nil
}

// stateOf returns the state that b answers to c. If charged is true, b is charged, which can pay.
func stateOf(b store.Bucket, c *store.Charge, charged bool) store.State {
	l, left := c.Limit, b.Blocked
	now := l.Advance(bucket.Bucket{Tokens: b.Credits, Unit: b.Limit.Unit}, b.Age.Microseconds()).Tokens
	if charged {
		need, debt := l.Ask(c.Cost, c.MaxWait.Microseconds(), c.Owed, c.Settles)
		now = l.Charge(now, need, debt, 1)
		if left == 0 && now < l.Unit {
			left = c.Lock
		}
	}
	var s store.State
	c.Fill(&s, now, left, charged)
	s.Degraded = b.Degraded
	return s
}
