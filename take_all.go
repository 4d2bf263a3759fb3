package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/go-tokenbucket/ratelimit/internal/keyerr"
	"github.com/go-tokenbucket/ratelimit/store"
)

// A Charge is what TakeAll and Admit take from one bucket.
type Charge struct {
	// Policy needs a Name and a Limit. Its functions are not called. A Limit with a rate of 0, such as PerDay(0),
	// denies.
	Policy Policy

	// Key is what a KeyFunc would return, such as "user:" and the name that a form holds.
	Key string

	// Cost is in tokens. Default 1.
	Cost int64
}

// TakeAll is Take for several buckets in one step: all of them are charged, or none. The Results of the Decision are
// in the order of charges, without those whose Limit is Unlimited. One bucket must not be charged twice.
//
// Errors are as for Take. Decision.Allowed says what to do then.
func (l *Limiter) TakeAll(ctx context.Context, charges ...Charge) (Decision, error) {
	c := calls.Get().(*call)
	defer c.release()
	if err := c.addCharges(charges); err != nil {
		return Decision{}, fmt.Errorf("ratelimit: TakeAll: %w", err)
	}
	x := l.newExchange(ctx)
	err := l.takeUnlessBarred(x, c, false, nil, l.start(nil))
	return x.decision, err
}

// Admit decides about r inside a handler, by keys that only the handler knows, such as the user name of a login form.
// It sets the rate limit headers, and answers the request if it is refused, both as Handler does. The handler
// returns if Admit reports false:
//
//	if !limiter.Admit(w, r, ratelimit.Charge{Policy: perUser, Key: "user:" + r.PostFormValue("user")}) {
//		return
//	}
//
// Call it once in a request, with all charges: a second call does not know of the first. It waits for up to
// Policy.MaxWait, as Handler does. It does not call Config.Skip, nor does FromContext return its decision.
//
// An empty Key answers 403, unless the policy is Optional or a Shadow. Arguments that are malformed answer 503, and
// are logged. Nothing is settled later: use Refund where a request turns out to cost less.
func (l *Limiter) Admit(w http.ResponseWriter, r *http.Request, charges ...Charge) bool {
	x := l.newRequestExchange(r.Context())
	return l.answer(w, r, x, l.admit(&x.exchange, r, charges)) != nil
}

var errNoChargeKey = fmt.Errorf("%w: Admit was called with an empty Key", ErrNoKey)

// admit decides about r by charges, into x.decision.
func (l *Limiter) admit(x *exchange, r *http.Request, charges []Charge) error {
	start := l.start(r)
	c := calls.Get().(*call)
	defer c.release()
	keyed := make([]Charge, 0, len(charges))
	for _, charge := range charges {
		if charge.Key != "" {
			charge.Policy.MaxWait = patience(r.Context(), charge.Policy.MaxWait)
			keyed = append(keyed, charge)
		} else if !charge.Policy.Optional && !charge.Policy.Shadow {
			return l.turnAway(x, keyerr.OfPolicy(charge.Policy.Name, errNoChargeKey), start)
		}
	}
	if len(keyed) > 0 || len(charges) == 0 {
		if err := c.addCharges(keyed); err != nil {
			return l.fail(x, true, fmt.Errorf("ratelimit: Admit: %w", err), start)
		}
	}
	return l.takeUnlessBarred(x, c, true, nil, start)
}

// addCharges adds charges, or reports everything that is wrong with them.
func (c *call) addCharges(charges []Charge) error {
	var faults error
	fault := func(i int, format string, args ...any) {
		faults = errors.Join(faults, fmt.Errorf("charges[%d]: "+format, append([]any{i}, args...)...))
	}
	if len(charges) == 0 {
		return errors.New("charges: must not be empty")
	}
	for i, charge := range charges {
		limit := charge.Policy.Limit
		if limit.isZero() {
			charge.Policy.Limit = Unlimited // for which there is nothing to compile, either
		}
		compiled, err := compile("Policy", []Policy{charge.Policy}, false)
		if err != nil {
			fault(i, "%w", err)
		}
		if charge.Key == "" {
			fault(i, "Key: must not be empty")
		}
		if charge.Cost < 0 {
			fault(i, "Cost %d: must be above 0, or 0 for 1", charge.Cost)
		}
		for j, other := range charges[:i] {
			if other.Policy.Name == charge.Policy.Name && other.Key == charge.Key {
				fault(i, "is of the bucket of charges[%d]: must be of another", j)
			}
		}
		switch {
		case faults != nil || limit == Unlimited:
			continue
		case limit.isZero():
			c.bar(compiled[0], limit, charge.Key, max(1, charge.Cost))
			continue
		}
		c.add(compiled[0], limit, store.Charge{
			Policy:  charge.Policy.Name,
			Key:     charge.Key,
			Limit:   compiled[0].limit,
			Cost:    max(1, charge.Cost),
			MaxWait: charge.Policy.MaxWait,
			Shadow:  charge.Policy.Shadow,
		})
	}
	return faults
}
