package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/go-tokenbucket/ratelimit/internal/failure"
	"github.com/go-tokenbucket/ratelimit/store"
)

// A Charge names a bucket and the tokens that [Limiter.TakeAll], [Limiter.WaitAll] or [Limiter.Admit] takes from it.
type Charge struct {
	// Policy needs a Name and a Limit. Its functions are not called. A Limit with a rate of 0, such as
	// PerDay(0), denies.
	Policy Policy

	// Key is a key as a [KeyFunc] returns it, such as "user:" and the name from a form.
	Key string

	// Cost is the number of tokens. Default 1.
	Cost int64

	// Owed says that the tokens are used already, such as by an answer that was longer than expected. The
	// charge is then always allowed, also above the burst, and may leave a debt. It is still part of its
	// call: it is not made if another charge is denied, or if the call ends while it waits for another. Use a
	// separate call for a charge that must be made.
	Owed bool
}

// TakeAll takes tokens from several buckets in one step: from all of them, or from none. Decision.Results are in the
// order of charges, without those that are [Unlimited]. Two charges of one bucket are an error. Errors are as for
// [Limiter.Take]. Obey Decision.Allowed also after an error.
func (l *Limiter) TakeAll(ctx context.Context, charges ...Charge) (Decision, error) {
	c := calls.Get().(*call)
	defer c.release()
	if err := c.addCharges(charges); err != nil {
		return Decision{}, fmt.Errorf("ratelimit: TakeAll: %w", err)
	}
	x := l.newExchange(ctx)
	err := l.takeCharges(x, c, false, nil, l.start(nil, "take_all"))
	return x.decision, err
}

// Admit limits r inside a handler, by keys that only the handler knows, such as the user name of a login form. It sets
// the rate limit headers, and answers a request that is refused, as [Limiter.Handler] does. If it returns false,
// return:
//
//	if !limiter.Admit(w, r, ratelimit.Charge{Policy: perUser, Key: "user:" + r.PostFormValue("user")}) {
//		return
//	}
//
// Call it once for a request, with all charges: a second call does not know of the first. It waits for up to
// [Policy.MaxWait]. It does not call [Config.Skip] or [Policy.Settle]; for work that costs less, use
// [Limiter.Refund]. [FromContext] does not return its decision. For an empty Key it answers 403, unless the policy is
// Optional or Shadow. For wrong arguments it answers 503 and logs the error.
func (l *Limiter) Admit(w http.ResponseWriter, r *http.Request, charges ...Charge) bool {
	x := newRequestExchange(r.Context(), &l.ofRequests)
	return l.answer(w, r, x, l.admit(&x.exchange, r, charges)) != nil
}

var errNoChargeKey = fmt.Errorf("%w: Admit was called with an empty Key", ErrNoKey)

// admit decides about r under charges, into x.decision.
func (l *Limiter) admit(x *exchange, r *http.Request, charges []Charge) error {
	start := l.start(r, "admit")
	c := calls.Get().(*call)
	defer c.release()
	keyed := make([]Charge, 0, len(charges))
	for _, charge := range charges {
		if charge.Key != "" {
			charge.Policy.MaxWait = waitBound(r.Context(), charge.Policy.MaxWait)
			keyed = append(keyed, charge)
		} else if !charge.Policy.Optional && !charge.Policy.Shadow {
			return l.rejectRequest(x, failure.OfPolicy(charge.Policy.Name, errNoChargeKey), start)
		}
	}
	if len(keyed) > 0 || len(charges) == 0 {
		if err := c.addCharges(keyed); err != nil {
			return l.fail(x, true, fmt.Errorf("ratelimit: Admit: %w", err), start)
		}
	}
	return l.takeCharges(x, c, true, nil, start)
}

// addCharges adds charges, or returns an error that names every fault.
func (c *call) addCharges(charges []Charge) error {
	var faults error
	fault := func(i int, format string, args ...any) {
		faults = errors.Join(faults, fmt.Errorf("charges[%d]: "+format, append([]any{i}, args...)...))
	}
	if len(charges) == 0 {
		return errors.New("charges: must not be empty")
	}
	c.policies = slices.Grow(c.policies[:0], len(charges))[:len(charges)]
	for i, charge := range charges {
		limit, own := charge.Policy.Limit, &c.policies[i]
		if limit.isZero() {
			charge.Policy.Limit = Unlimited // has nothing to compile, like a rate of 0
		}
		if !own.compileOwn(&charge.Policy) {
			_, err := compile("Policy", []Policy{charge.Policy}, false)
			fault(i, "%w", err)
		}
		if charge.Key == "" {
			fault(i, "Key: must not be empty")
		}
		if charge.Cost < 0 {
			fault(i, "Cost %d: must be positive; 0 means 1", charge.Cost)
		}
		for j, other := range charges[:i] {
			if other.Policy.Name == charge.Policy.Name && other.Key == charge.Key {
				fault(i, "has the policy and key of charges[%d]: must be another bucket", j)
			}
		}
		switch {
		case faults != nil || limit == Unlimited:
			continue
		case limit.isZero():
			c.addZeroRate(own, limit, charge.Key, max(1, charge.Cost))
			continue
		}
		c.add(own, limit, store.Charge{
			Policy:  charge.Policy.Name,
			Key:     charge.Key,
			Limit:   own.limit,
			Cost:    max(1, charge.Cost),
			MaxWait: charge.Policy.MaxWait,
			Shadow:  charge.Policy.Shadow,
			Owed:    charge.Owed,
		})
	}
	return faults
}
