package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/go-tokenbucket/ratelimit/store"
)

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
// DenialAge and LeaseConfig.Hold.
//
// p needs only a Name. Result.Limit is that of p, and Remaining its burst, or 0 if p has none. Errors are as for Take.
// If a [store.Fallback] stands in for the Store, the bucket is reset in the Store when that is back.
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
	compiled, err := compileFor(name, p, key)
	if err != nil {
		return Result{}, err
	}
	c := calls.Get().(*call)
	defer c.release()
	c.add(compiled, limit, store.Charge{Policy: p.Name, Key: key, Limit: compiled.limit, Cost: cost, Shadow: p.Shadow})
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
