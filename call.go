package ratelimit

import (
	"context"
	"net/http"
	"sync"

	"github.com/go-tokenbucket/ratelimit/internal/failure"
	"github.com/go-tokenbucket/ratelimit/store"
)

// A call is one call of a Store, with a charge for each policy.
type call struct {
	charges []store.Charge
	states  []store.State
	asked   []asked
	barred  []barred // results of policies with a rate of 0, which charge nothing

	enforced    bool   // a policy is not a Shadow
	failsClosed bool   // a policy refuses the request if only a stand-in can decide
	mayWait     bool   // a policy lets the request wait
	settles     bool   // a policy has a Settle
	waits       bool   // the caller waits for the tokens that it reserves
	crowded     bool   // there is no place for the caller to wait
	stays       bool   // it goes on if the caller leaves meanwhile
	own         policy // of a call without a request; see compileFor

	owned []policy // of a call without a request and with several charges

	// put puts it to the Store; nil: by Take.
	put func(context.Context, *call) (bool, error)
}

// asked is the policy and the limit of a charge.
type asked struct {
	policy *policy
	limit  Limit
}

// calls are reused, because a Store does not keep its arguments. A call keeps its old values until they are overwritten
// or it is collected.
var calls = sync.Pool{New: func() any { return new(call) }}

func (c *call) release() {
	c.charges, c.states, c.asked, c.barred = c.charges[:0], c.states[:0], c.asked[:0], c.barred[:0]
	c.enforced, c.failsClosed, c.mayWait, c.settles, c.waits, c.stays, c.crowded = false, false, false, false, false, false, false
	c.put = nil
	calls.Put(c)
}

func (c *call) add(p *policy, limit Limit, charge store.Charge) {
	if charge.Cost > 0 {
		charge.Lock = p.LockFor
	}
	c.charges = append(c.charges, charge)
	c.asked = append(c.asked, asked{p, limit})
	c.states = append(c.states, store.State{})
	c.enforced = c.enforced || !p.Shadow
	c.failsClosed = c.failsClosed || p.failsClosed()
	c.mayWait = c.mayWait || p.MaxWait > 0 && !p.Shadow
	c.settles = c.settles || p.Settle != nil
}

// addFor adds p's charge for r, if p applies to r.
func (c *call) addFor(l *Limiter, r *http.Request, p *policy) error {
	limit, charge, malformed, err := p.chargeFor(r)
	if malformed != nil {
		l.failures.LogKind(r.Context(), failure.Kind(malformed), malformed)
	}
	switch {
	case err != nil:
		return err
	case charge.Key == "":
		return nil
	case limit.isZero():
		c.bar(p, limit, charge.Key, charge.Cost)
		return nil
	}
	if between, swung := p.swings.see(charge.Key, limit); swung {
		l.warnOfSwings(p, limit, between)
	}
	c.add(p, limit, charge)
	return nil
}

// A barred is the result of a policy with a rate of 0.
type barred struct {
	at     int // number of charges before it
	result Result
}

// bar adds the result of p, whose limit has a rate of 0.
func (c *call) bar(p *policy, limit Limit, key string, cost int64) {
	c.barred = append(c.barred, barred{len(c.charges), Result{
		Policy: p.Name,
		Key:    key,
		Limit:  limit,
		Cost:   cost,
		Shadow: p.Shadow,
		Hidden: p.Hidden,
		State:  store.State{RetryAfter: store.Never},
	}})
}

// isBarred reports whether a policy that is not a Shadow has a rate of 0.
func (c *call) isBarred() bool {
	for i := range c.barred {
		if !c.barred[i].result.Shadow {
			return true
		}
	}
	return false
}
