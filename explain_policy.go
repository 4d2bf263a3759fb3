package ratelimit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-tokenbucket/ratelimit/explain"
	"github.com/go-tokenbucket/ratelimit/internal/deadline"
	"github.com/go-tokenbucket/ratelimit/internal/logtext"
	"github.com/go-tokenbucket/ratelimit/store"
)

// An explainedPolicy is what a policy says of a request, and its bucket.
type explainedPolicy struct {
	explain.Policy
	charge store.Charge
	kept   store.Kept // the bucket, at the time of the explanation
}

func describe(p *policy) explain.Policy {
	return explain.Policy{Name: p.Name, Shadow: p.Shadow, Hidden: p.Hidden, Optional: p.Optional, FailClosed: p.FailClosed}
}

// explainPolicies asks policies for the keys, limits and costs of r, and reads their buckets. memoized are the policies with
// functions that return the same again. Reading takes at most the time of one call of the Store.
func (x *explanation) explainPolicies(policies []*policy, r *http.Request, ex *exchange) (all []*explainedPolicy, memoized []*policy) {
	closed := false
	for _, p := range policies {
		e, own := x.explainPolicy(p, r, ex)
		all, memoized = append(all, e), append(memoized, own)
		closed = closed || e.charge.Key != "" && p.failsClosed()
	}
	limited := deadline.Context{Parent: r.Context(), Terms: &x.l.ofRequests}
	defer limited.End()
	ctx := context.Context(&limited)
	if closed {
		ctx = store.WithoutStandIn(ctx)
	}
	for _, e := range all {
		if x.err == nil && e.charge.Limit != (store.Limit{}) {
			x.err = e.readBucket(ctx, x.l.store, x.now)
		}
	}
	return all, memoized
}

// explainPolicy asks a policy for the key, the limit and the cost of r. Outcome is set if it charges nothing.
func (x *explanation) explainPolicy(p *policy, r *http.Request, ex *exchange) (e *explainedPolicy, own *policy) {
	e = &explainedPolicy{Policy: describe(p)}
	var chosen *Limit
	own = memoize(p, r, func(limit Limit) { chosen = &limit })
	var limit Limit
	var malformed, err error
	x.trace.Took() // of a function that goes on
	var key string // also if the limit is Unlimited, so that nothing is charged
	if panicked := recoverPanic(func() {
		if limit, e.charge, malformed, err = own.chargeFor(r, false); own.keys != nil {
			key, _ = own.Key(r)
		}
	}); panicked != nil {
		err = panicked
	}
	if step := x.trace.Took(); step != nil && len(step.Tried) > 0 {
		e.Found = step.Tried[0]
	}
	e.Key, e.Cost = e.charge.Key, e.charge.Cost
	if limit.IsConcurrency() {
		own.MaxWait = 0 // nobody knows when a slot becomes free
	}
	why := cmp.Or(p.limitFrom, "Policy.Limit")
	switch {
	case p.override(key) != nil:
		why = "of key " + logtext.Show(key, maxExplained) + ": " + p.insteadOf(p.keys[key])
	case chosen == nil:
	case *chosen == limit:
		why = "LimitFunc"
	case malformed != nil:
		why += fmt.Sprintf(": LimitFunc returned %v, which is malformed", *chosen)
	default:
		why += ": LimitFunc returned the zero Limit"
	}
	if limit != (Limit{}) {
		e.Limit, e.LimitWhy = limit.String(), why
	}
	switch {
	case err != nil:
		e.Outcome, e.Why = p.outcomeOf(ex, err), strings.TrimPrefix(x.trace.Text(err, maxExplained), "policy "+p.Name+": ")
	case limit == Unlimited:
		e.Outcome, e.Why = explain.Exempt, "the limit is Unlimited"
	case e.Key == "":
		e.Outcome, e.Why = explain.LeftOut, "the request has no key, and the policy is Optional"
	}
	return e, own
}

// memoize returns p with functions that remember what they return for r: each is called once. choose is called with the
// limit that LimitFunc returns.
func memoize(p *policy, r *http.Request, choose func(Limit)) *policy {
	own := &policy{Policy: p.Policy, limit: p.limit, slots: p.slots, keys: p.keys}
	key := sync.OnceValues(func() (string, error) { return keyBy(p.Key, r) })
	own.Key = func(*http.Request) (string, error) { return key() }
	if p.Cost != nil {
		cost := sync.OnceValue(func() int64 { return p.Cost(r) })
		own.Cost = func(*http.Request) int64 { return cost() }
	}
	if p.LimitFunc != nil {
		limit := sync.OnceValue(func() Limit {
			limit := p.LimitFunc(r)
			choose(limit)
			return limit
		})
		own.LimitFunc = func(*http.Request) Limit { return limit() }
	}
	return own
}

// bucketOf returns the bucket of c. If s is no Inspector, it is what a charge of 0 tokens says of it.
func bucketOf(ctx context.Context, s store.Store, c *store.Charge) (store.Bucket, error) {
	b, err := store.Inspect(ctx, s, c.Policy, c.Key)
	if !errors.Is(err, errors.ErrUnsupported) {
		return b, err
	}
	states := make([]store.State, 1)
	_, err = s.Take(ctx, []store.Charge{{Policy: c.Policy, Key: c.Key, Limit: c.Limit}}, states)
	l, now := c.Limit, &states[0]
	b = store.Bucket{Limit: l, Credits: l.Capacity, Blocked: now.RetryAfter, Degraded: now.Degraded}
	if l.IsQuota() || l.IsConcurrency() {
		b.Credits, b.Rest = now.Remaining, now.ResetAfter
	} else if !now.Blocked { // a block hides the tokens
		b.Credits -= now.ResetAfter.Microseconds() * l.Refill // rounded down
	}
	if now.Remaining > 0 {
		b.Credits = max(b.Credits, now.Remaining*l.Unit)
	}
	return b, err
}

// readBucket reads the bucket of e as it is now.
func (e *explainedPolicy) readBucket(ctx context.Context, s store.Store, now int64) error {
	c := &e.charge
	b, err := bucketOf(ctx, s, c)
	if err != nil {
		return err
	}
	if b.Degraded {
		c.Limit = cmp.Or(b.Limit, c.Limit) // the part of this replica
	}
	before := b.State(c.Limit)
	e.Before = &before
	e.kept = store.Kept{Limit: b.Limit, Credits: b.Credits, At: now - b.Age.Microseconds(), Locked: b.Locked}
	if b.Limit.IsQuota() {
		e.kept.At = now + b.Rest.Microseconds()
	}
	if b.Blocked > 0 {
		e.kept.BlockedUntil = now + b.Blocked.Microseconds()
	}
	return nil
}

// A snapshotStore is a Store of the buckets of policies, as they were read. So a decision about them is that of Handler, and
// writes nothing.
type snapshotStore struct {
	policies []*explainedPolicy
	now      int64         // in microseconds of Unix time
	err      error         // of the Store that they were read from
	asked    time.Duration // how long the last call waited for the next periods of quotas, holding nothing
	waited   time.Duration // for its tokens, after that
}

func (s *snapshotStore) Take(_ context.Context, charges []store.Charge, states []store.State) (bool, error) {
	if s.err != nil {
		return false, s.err
	}
	all, kept := make([]*explainedPolicy, len(charges)), make([]store.Kept, len(charges))
	charges = slices.Clone(charges)
	for i := range charges {
		c := &charges[i]
		e := s.policies[slices.IndexFunc(s.policies, func(e *explainedPolicy) bool { return e.Name == c.Policy })]
		if c.Limit = e.charge.Limit; e.Before.Degraded {
			c.Lock = 0 // not every stand-in locks
		}
		all[i], kept[i] = e, e.kept
	}
	ok := store.Decide(charges, kept, states, s.now)
	c := &call{charges: charges, states: states, waits: true}
	for until := c.nextPeriod(ok, nil); until > 0; until = c.nextPeriod(ok, nil) {
		s.asked += until
		c.shortenWaits(until)
		ok = store.Decide(charges, kept, states, s.now+s.asked.Microseconds())
	}
	s.waited = c.wait()
	for i, e := range all {
		e.kept, states[i].Degraded = kept[i], e.Before.Degraded
	}
	return ok, nil
}

// conclude completes an explanation by the result of its policy. A policy has none if it was left out, or if the request was
// refused before. refusers says why the request is not allowed.
// It is decided at the time now, for which the request has waited for asked.
func (e *explainedPolicy) conclude(results []Result, refusers string, allowed bool, now int64, asked time.Duration) {
	if e.Outcome != "" {
		return
	}
	r := Result{Cost: e.Cost, State: store.State{RetryAfter: Never}}
	switch i := slices.IndexFunc(results, func(r Result) bool { return r.Policy == e.Name }); {
	case i >= 0:
		r = results[i]
	case allowed:
		e.Outcome, e.Why = explain.LeftOut, refusers
		return
	case e.Before == nil && e.charge.Limit != store.Limit{}:
		e.Outcome, e.Why = explain.Failed, refusers
		return
	case e.Before != nil: // would the policy alone allow it?
		var states [1]store.State
		if r.State = *e.Before; !store.Decide([]store.Charge{e.charge}, []store.Kept{e.kept}, states[:], now) || !states[0].Allowed {
			r.State = states[0]
		}
	}
	if e.Before != nil {
		e.After = &r.State
	}
	switch e.Why = e.why(&r, asked); {
	case r.Allowed && !allowed:
		e.Outcome, e.Why = explain.NotCharged, refusers
	case r.Allowed:
		e.Outcome = explain.Allowed
	case e.Shadow:
		e.Outcome = explain.WouldDeny
	default:
		e.Outcome = explain.Denied
	}
}

// why returns why a bucket allows the request or denies it. asked is how long the request waits for the next period.
func (e *explainedPolicy) why(r *Result, asked time.Duration) string {
	switch limit := e.charge.Limit; {
	case r.Allowed && asked > 0 && limit.IsQuota() && e.Before.Remaining < r.Cost:
		return fmt.Sprintf("the request waits %v for the next period", asked)
	case r.Wait > 0:
		return fmt.Sprintf("the request waits %v for its tokens", r.Wait)
	case r.Allowed && limit.IsConcurrency():
		return fmt.Sprintf("the request takes %d of %d free slots", r.Cost, e.Before.Remaining)
	case r.Allowed:
		return fmt.Sprintf("the request takes %d of %d tokens", r.Cost, e.Before.Remaining)
	case limit == (store.Limit{}):
		return "the limit is 0"
	case r.Blocked:
		return fmt.Sprintf("the bucket is blocked for %v", r.RetryAfter)
	case limit.IsConcurrency() && e.charge.MaxWait > 0:
		return fmt.Sprintf("0 of %d slots are free: the request waits up to %v for one, and is denied if none becomes free", limit.Capacity, e.charge.MaxWait)
	case limit.IsConcurrency():
		return fmt.Sprintf("0 of %d slots are free", limit.Capacity)
	case r.RetryAfter == Never:
		return fmt.Sprintf("the cost is negative or above the %s of %d", capacityName(limit), limit.Remaining(limit.Capacity))
	default:
		return fmt.Sprintf("the request takes %d of %d tokens: possible in %v", r.Cost, r.Remaining, r.RetryAfter)
	}
}

// capacityName returns how a person calls the capacity of a limit.
func capacityName(l store.Limit) string {
	if l.IsQuota() {
		return "quota"
	}
	return "burst"
}
