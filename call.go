package ratelimit

import (
	"context"
	"net/http"
	"slices"
	"sync"

	"github.com/go-tokenbucket/ratelimit/internal/failure"
	"github.com/go-tokenbucket/ratelimit/store"
)

// A call is one call of a Store, with a charge for each policy.
type call struct {
	charges   []store.Charge
	states    []store.State
	applied   []appliedPolicy
	zeroRates []zeroRate // results of policies with a rate of 0, which charge nothing

	enforced       bool   // a policy is not a Shadow
	failsClosed    bool   // a policy refuses the request if only a stand-in can decide
	mayWait        bool   // a policy lets the request wait
	settles        bool   // a policy has a Settle
	slots          bool   // a policy has a concurrency limit
	waits          bool   // the caller waits for the tokens that it reserves
	noPlace        bool   // there is no place for the caller to wait
	looks          bool   // it takes no tokens
	outlivesCaller bool   // it goes on if the caller leaves meanwhile
	policy         policy // of a call without a request; see compileFor

	policies []policy // of a call without a request and with several charges

	// put puts it to the Store; nil: by Take.
	put func(context.Context, *call) (bool, error)
}

// appliedPolicy is the policy and the limit of a charge.
type appliedPolicy struct {
	policy *policy
	limit  Limit
}

// calls are reused, because a Store does not keep its arguments. A call keeps its old values until they are overwritten
// or it is collected.
var calls = sync.Pool{New: func() any { return new(call) }}

func (c *call) release() {
	c.charges, c.states, c.applied, c.zeroRates = c.charges[:0], c.states[:0], c.applied[:0], c.zeroRates[:0]
	c.enforced, c.failsClosed, c.mayWait, c.settles, c.slots, c.waits, c.looks, c.outlivesCaller, c.noPlace = false, false, false, false, false, false, false, false, false
	c.put = nil
	calls.Put(c)
}

func (c *call) add(p *policy, limit Limit, charge store.Charge) {
	if charge.Cost > 0 {
		charge.Lock = p.LockFor
	}
	c.charges = append(c.charges, charge)
	c.applied = append(c.applied, appliedPolicy{p, limit})
	c.states = append(c.states, store.State{})
	c.enforced = c.enforced || !p.Shadow
	c.failsClosed = c.failsClosed || p.failsClosed()
	c.mayWait = c.mayWait || p.MaxWait > 0 && !p.Shadow
	c.settles = c.settles || p.Settle != nil
	c.slots = c.slots || p.slots
	if p.slots && p.Shadow {
		c.charges[len(c.charges)-1].MaxWait = 0 // it never asks again
	}
}

// addFor adds p's charge for r, if p applies to r.
func (c *call) addFor(l *Limiter, r *http.Request, p *policy) error {
	limit, charge, malformed, err := p.chargeFor(r, c.looks)
	if malformed != nil {
		l.failures.LogKind(r.Context(), failure.Kind(malformed), malformed)
	}
	switch {
	case err != nil:
		return err
	case charge.Key == "":
		return nil
	case limit.isZero():
		c.addZeroRate(p, limit, charge.Key, charge.Cost)
		return nil
	}
	if p.swings != nil && !c.looks && p.override(charge.Key) == nil { // an operator may end an override at any time
		if between, swung := p.swings.record(charge.Key, limit); swung {
			l.warnOfSwing(p, limit, between)
		}
	}
	c.add(p, limit, charge)
	return nil
}

// failedClosed returns the names of the policies that refuse the request if the Store does not decide.
func (c *call) failedClosed() (names []string) {
	for i := range c.applied {
		if p := c.applied[i].policy; p.failsClosed() {
			names = append(names, p.Name)
		}
	}
	return names
}

// A zeroRate is the result of a policy whose LimitFunc returned a rate of 0. No bucket has such a limit, so the Store is
// not called for it.
type zeroRate struct {
	before int // number of charges before it
	result Result
}

// addZeroRate adds the result of p, whose limit has a rate of 0.
func (c *call) addZeroRate(p *policy, limit Limit, key string, cost int64) {
	c.zeroRates = append(c.zeroRates, zeroRate{len(c.charges), Result{
		Policy: p.Name,
		Key:    key,
		Limit:  limit,
		Cost:   cost,
		Shadow: p.Shadow,
		Hidden: p.Hidden,
		State:  store.State{RetryAfter: store.Never},
	}})
}

// zeroRateDenies reports whether a policy that is not a Shadow has a rate of 0.
func (c *call) zeroRateDenies() bool {
	return slices.ContainsFunc(c.zeroRates, func(z zeroRate) bool { return !z.result.Shadow })
}

// insertZeroRates inserts the results of c.zeroRates between those of its charges, own, which end x.decision.Results. It
// returns them all.
func (x *exchange) insertZeroRates(c *call, own []Result) []Result {
	d := &x.decision
	before := len(d.Results) - len(own)
	for i := range c.zeroRates {
		z := &c.zeroRates[i]
		d.Results = slices.Insert(d.Results, before+min(z.before, len(own))+i, z.result)
	}
	return d.Results[before:]
}

// concludeUncharged finishes a decision that charges no bucket. A rate of 0 denies the request.
func (l *Limiter) concludeUncharged(x *exchange, c *call, leftOut error, start start) error {
	if len(c.zeroRates) == 0 {
		return l.letThrough(x, leftOut, start)
	}
	x.fill(&call{}, !c.zeroRateDenies())
	l.report(x, x.insertZeroRates(c, nil), 0, leftOut, start)
	return leftOut
}
