package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-tokenbucket/ratelimit/internal/policyname"
	"github.com/go-tokenbucket/ratelimit/store"
)

// Decide charges r under policies, by default [Config.Policies], and returns the decision. It sets no headers and
// answers nothing. To adapt a framework that does not answer by [http.Handler], see [Responder]. It does not call
// [Config.Skip]. Policies that you pass are compiled at each call, and [Limiter.Reload] does not replace them.
//
// Decide does not wait. With [Policy.MaxWait] it may reserve future tokens. If the request is allowed, wait for the
// longest Wait of all Results that are not Shadow, or return the tokens with [Limiter.Refund].
//
// It returns an error if no decision was possible, or if a policy was left out. The error is one of the Store, of a
// function of a policy (such as [ErrNoKey]), of r's context, or about a malformed policy. Decision.Allowed is then what
// Handler would do.
func (l *Limiter) Decide(r *http.Request, policies ...Policy) (Decision, error) {
	compiled := l.mounts.handler.policies()
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

// Take takes cost tokens from the bucket of p and key, such as "member:5". Use it in workers and other protocols; in a
// handler use [Limiter.Admit], which also answers. p needs a Name and a Limit. Its functions are not called.
// A cost of 0 is allowed unless the bucket is blocked, see [Limiter.Block]. A negative one is an error.
//
//	Allowed  err
//	true     nil      the tokens were taken
//	false    nil      the bucket has too few tokens: see RetryAfter
//	true     not nil  the Store failed, and p does not set FailClosed: nothing is known of the bucket
//	false    not nil  the Store failed and p sets FailClosed, ctx has ended, or an argument is wrong
//
// With [Policy.MaxWait], Take may reserve future tokens, even beyond ctx's deadline. Result.Wait is how long to wait
// before the work. [Limiter.Wait] waits itself, [Limiter.Refund] returns the tokens.
func (l *Limiter) Take(ctx context.Context, p Policy, key string, cost int64) (Result, error) {
	if cost < 0 {
		return Result{}, fmt.Errorf("ratelimit: Take: cost %d: must be 0 or more; see Refund", cost)
	}
	return l.charge(ctx, "take", p, key, cost, false)
}

// Refund returns n tokens to the bucket of p and key, at most until it is full. Use it for work that was charged and
// not done. n must be above 0. Arguments and errors are as for [Limiter.Take], with one exception: Refund does not
// end with ctx, so it also works after the client of a request has left. It takes at most [Config.Timeout].
func (l *Limiter) Refund(ctx context.Context, p Policy, key string, n int64) (Result, error) {
	if n <= 0 {
		return Result{}, fmt.Errorf("ratelimit: Refund: n %d: must be above 0", n)
	}
	// Work is often not done because ctx has ended.
	return l.charge(context.WithoutCancel(ctx), "refund", p, key, -n, false)
}

func (l *Limiter) charge(ctx context.Context, op string, p Policy, key string, cost int64, waits bool) (Result, error) {
	c := calls.Get().(*call)
	defer c.release()
	if err := c.compileFor(op, &p, key); err != nil {
		return Result{}, err
	}
	if p.Limit == Unlimited {
		return Result{Policy: p.Name, Key: key, Limit: p.Limit, Cost: cost, Hidden: p.Hidden, State: store.State{Allowed: true, Remaining: math.MaxInt64}}, nil
	}
	decide, maxWait := (*Limiter).take, p.MaxWait
	if waits {
		decide, maxWait = (*Limiter).takeInTurn, waitBound(ctx, p.MaxWait)
	}
	c.add(&c.policy, p.Limit, store.Charge{
		Policy:  p.Name,
		Key:     key,
		Limit:   c.policy.limit,
		Cost:    cost,
		MaxWait: maxWait,
		Shadow:  p.Shadow,
	})
	return l.conclude(ctx, op, c, decide)
}

// compileFor makes p, the policy of a call without a request such as "take", ready as c.own.
func (c *call) compileFor(op string, p *Policy, key string) error {
	if c.policy.compileOwn(p) && key != "" {
		return nil
	}
	_, err := compile("policy", []Policy{*p}, false)
	if key == "" {
		err = errors.Join(err, errors.New("key: must not be empty"))
	}
	return fmt.Errorf("ratelimit: %s: %w", strings.ToUpper(op[:1])+op[1:], err)
}

// compileOwn compiles of, a policy of a call without a request, into p. It reports whether the policy is valid. Such a
// call compiles its policies each time, so it does not use compile, which allocates. p may be from an earlier call,
// often with the same policy.
func (p *policy) compileOwn(of *Policy) (ok bool) {
	if p.Limit != of.Limit || p.limit == (store.Limit{}) {
		p.limit = store.Limit{}
		if of.Limit != Unlimited {
			p.limit, _ = of.Limit.compile()
		}
	}
	p.Policy = *of
	return (of.Limit == Unlimited || p.limit != (store.Limit{})) && of.MaxWait >= 0 && of.validLock() && policyname.Valid(of.Name)
}

// conclude makes a call of one charge.
func (l *Limiter) conclude(ctx context.Context, op string, c *call, decide func(*Limiter, *exchange, *call, error, start) error) (Result, error) {
	x := l.newExchange(ctx)
	if err := decide(l, x, c, nil, l.start(nil, op)); err != nil {
		of := &c.charges[0]
		return Result{
			Policy: of.Policy,
			Key:    of.Key,
			Limit:  c.applied[0].limit,
			Cost:   of.Cost,
			Shadow: of.Shadow,
			Hidden: c.applied[0].policy.Hidden,
			State:  store.State{Allowed: x.decision.Allowed},
		}, err
	}
	return x.decision.Results[0], nil
}

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
// If the bucket is blocked or locked, Blocked is set, and RetryAfter is for how much longer.
//
// If the Store is not a [store.Inspector], Peek takes 0 tokens instead, and p needs a Limit. Errors are as for
// [Limiter.Take].
func (l *Limiter) Peek(ctx context.Context, p Policy, key string) (b Bucket, err error) {
	if p.Limit == Unlimited {
		b.Result, err = l.charge(ctx, "peek", p, key, 0, false)
		return b, err
	}
	b.Result, err = l.chargeAnyLimit(ctx, "peek", p, key, 0, func(ctx context.Context, c *call) (bool, error) {
		return l.inspect(ctx, c, &b)
	})
	return b, err
}

// Reset makes the bucket of p and key full again, under any limit, and ends its block or lock. Use it for example after a
// lockout by mistake. It takes effect in this process at once. In other replicas it takes effect on remembered denials
// within redisstore.Config.DenialAge, and on leases within lease.Config.Hold.
//
// p needs only a Name. Result.Limit is the Limit of p, and Remaining its burst, or 0 without a Limit. Errors are as for
// [Limiter.Take]. If the Store is unavailable and a fallback.Store answers, the bucket is reset in the Store when that
// is available again.
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
