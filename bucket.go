package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"
	"unicode/utf8"

	"github.com/go-tokenbucket/ratelimit/store"
)

// A Bucket is what [Limiter.Peek] reports of a bucket.
type Bucket struct {
	Result

	// Used reports whether the bucket has been charged and has not been full since.
	Used bool

	// Locked reports that the bucket is locked by [Policy.LockFor], and not blocked by [Limiter.Block].
	Locked bool

	// BlockedSince is for how long the bucket has been blocked or locked, and Reason is that of the block. The zero
	// values mean that the Store does not know.
	BlockedSince time.Duration
	Reason       string
}

// Peek returns the state of the bucket of p and key and changes nothing. The result is always Allowed.
//
// p needs only a Name. If it has a Limit, the result is computed under that Limit. Otherwise it is computed under the
// limit of the last charge, which is then Result.Limit. For a bucket that is not Used, it is zero, and so is Remaining.
// If a policy of p's name is mounted, an [Override] of it or of key goes before both limits.
// If the bucket is blocked or locked, Blocked is set, and RetryAfter is for how much longer.
//
// If the Store is not a [store.Inspector], Peek takes 0 tokens instead, and p needs a Limit. Errors are as for
// [Limiter.Take].
func (l *Limiter) Peek(ctx context.Context, p Policy, key string) (b Bucket, err error) {
	if o := l.mounts.overriddenLimit(p.Name, key); o != nil {
		p.Limit = o.Limit
	}
	if p.Limit == Unlimited {
		b.Result, err = l.charge(ctx, "peek", p, key, 0, false)
		return b, err
	}
	b.Result, err = l.chargeAnyLimit(ctx, "peek", p, key, 0, func(ctx context.Context, c *call) (bool, error) {
		return l.inspect(ctx, c, &b)
	})
	return b, err
}

// inspect reports the bucket of c as the Store keeps it, under the limit of c, or without one under the bucket's own. Into
// peeked it puts what a Result has no field for.
func (l *Limiter) inspect(ctx context.Context, c *call, peeked *Bucket) (bool, error) {
	charge, asked := &c.charges[0], &c.applied[0]
	given := asked.limit != Limit{}
	b, err := store.Inspect(ctx, l.store, charge.Policy, charge.Key)
	switch unsupported := errors.Is(err, errors.ErrUnsupported); {
	case unsupported && !given:
		return false, fmt.Errorf("ratelimit: Peek: policy %q: Limit: must be set for a Store that is no store.Inspector: %w", charge.Policy, err)
	case err != nil && !unsupported:
		return false, err
	case unsupported, given && b.Degraded: // the limit of a stand-in may be a part of the one that is given
		ok, err := l.store.Take(ctx, c.charges, c.states)
		peeked.Used = c.states[0].ResetAfter > c.states[0].RetryAfter // which is above 0 if the bucket is blocked
		if charge.Limit.IsQuota() {
			peeked.Used = c.states[0].Remaining < charge.Limit.Capacity
		}
		return ok, err
	}
	peeked.Used, peeked.Locked, peeked.BlockedSince, peeked.Reason = b.Used(), b.Locked, b.BlockedSince, b.Reason
	switch {
	case given:
		c.states[0] = b.State(charge.Limit)
	case peeked.Used:
		asked.limit = readable(b.Limit)
		c.states[0] = b.State(b.Limit)
	default:
		c.states[0] = store.State{Allowed: true, Degraded: b.Degraded, Blocked: b.Blocked > 0, RetryAfter: b.Blocked, ResetAfter: b.Blocked}
	}
	return true, nil
}

// readable returns the Limit that was compiled to l, or one of the same rate and burst. Its Per is a second, minute,
// hour or day: one in which the rate equals the burst, or else the shortest one with a whole rate.
func readable(l store.Limit) Limit {
	if l.IsConcurrency() {
		return Concurrency(l.Capacity)
	}
	if l.IsQuota() {
		quota := Quota(l.Capacity, l.Period.Unit)
		if zone := l.Period.Location(); zone != time.UTC {
			return quota.In(zone.String())
		}
		return quota
	}
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

// Reset makes the bucket of p and key full again, under any limit, and ends its block or lock. Use it for example after a
// lockout by mistake. It takes effect in this process at once. In other replicas it takes effect on remembered denials
// within redisstore.Config.DenialAge, and on leases within lease.Config.Hold.
//
// p needs only a Name. Result.Limit is the Limit of p, and Remaining its burst, or 0 without a Limit. Errors are as for
// [Limiter.Take]. If the Result is Degraded, the Store is unavailable: only this replica has reset the bucket, until the
// Store is back.
func (l *Limiter) Reset(ctx context.Context, p Policy, key string) (Result, error) {
	return l.chargeAnyLimit(ctx, "reset", p, key, store.Reset, func(ctx context.Context, c *call) (bool, error) {
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

// Block denies all requests and calls for the bucket of p and key for d, on all replicas, also those with a cost of 0. It
// replaces an earlier Block. [Limiter.Unblock] and [Limiter.Reset] end it. Meanwhile the bucket refills. From p, only the
// Name is used. The time d is at least 1 µs and at most 35 years. [Limiter.Peek] shows the reason, of at most 200 bytes, such
// as "alice: scrapes prices".
//
// The Result is Blocked, with d as RetryAfter. If it is Degraded, the Store is unavailable: the block then holds on this
// replica only, until the Store is back.
//
// It does not reach requests that wait already, requests with an [Unlimited] limit, and those that [Config.Skip] or a
// failed Store lets through. In other replicas, a lease may allow requests for up to lease.Config.Hold. Errors are as for
// [Limiter.Refund], and wrap [errors.ErrUnsupported] if the Store cannot block. See
// https://github.com/go-tokenbucket/ratelimit/blob/main/docs/recipes.md.
func (l *Limiter) Block(ctx context.Context, p Policy, key string, d time.Duration, reason string) (Result, error) {
	if d < time.Microsecond || d > store.MaxBlock {
		return Result{}, fmt.Errorf("ratelimit: Block: d %v: must be at least 1µs and at most %v (35 years); see Unblock", d, store.MaxBlock)
	}
	if len(reason) > store.MaxReason || !utf8.ValidString(reason) {
		return Result{}, fmt.Errorf("ratelimit: Block: reason of %d bytes: must be at most %d bytes of UTF-8", len(reason), store.MaxReason)
	}
	return l.block(ctx, "block", p, key, store.Block{For: d, Reason: reason})
}

// Unblock ends a [Limiter.Block], and a lock by [Policy.LockFor]. The bucket has the tokens that it would have without it.
// Other replicas may deny for up to redisstore.Config.DenialAge longer. p needs only a Name. Result says nothing of the
// tokens: see [Limiter.Peek]. If it is Degraded, only this replica has ended the block, until the Store is back. Errors are
// as for [Limiter.Refund].
func (l *Limiter) Unblock(ctx context.Context, p Policy, key string) (Result, error) {
	return l.block(ctx, "unblock", p, key, store.Block{})
}

func (l *Limiter) block(ctx context.Context, op string, p Policy, key string, b store.Block) (Result, error) {
	p.Limit = Limit{} // a block is under no limit
	// An operator who blocks a client may close the page at once.
	return l.chargeAnyLimit(context.WithoutCancel(ctx), op, p, key, 0, func(ctx context.Context, c *call) (bool, error) {
		charge := &c.charges[0]
		degraded, err := store.SetBlock(ctx, l.store, charge.Policy, charge.Key, b)
		c.states[0] = store.State{Allowed: true, Degraded: degraded, Blocked: b.For > 0, RetryAfter: b.For, ResetAfter: b.For}
		return true, err
	})
}

// chargeAnyLimit makes a call of one charge that needs no limit. put passes it to the Store.
func (l *Limiter) chargeAnyLimit(ctx context.Context, op string, p Policy, key string, cost int64, put func(context.Context, *call) (bool, error)) (Result, error) {
	limit := p.Limit
	if limit == (Limit{}) || limit == Unlimited {
		p.Limit = anyLimit
	}
	c := calls.Get().(*call)
	defer c.release()
	if err := c.compileFor(op, &p, key); err != nil {
		return Result{}, err
	}
	c.add(&c.policy, limit, store.Charge{Policy: p.Name, Key: key, Limit: c.policy.limit, Cost: cost, Shadow: p.Shadow})
	c.put = put
	return l.conclude(ctx, op, c, (*Limiter).take)
}

// anyLimit is the limit of a call that needs none.
var anyLimit = Limit{Rate: 1 << 52, Per: time.Microsecond, Burst: 1 << 52}
