package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"slices"

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
		if err := charge.Policy.refuseSlots(); err != nil {
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
