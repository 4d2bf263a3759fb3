package ratelimit

import (
	"context"
	"fmt"

	"github.com/go-tokenbucket/ratelimit/store"
)

// Acquire takes a slot of p and key, such as "member:5", and returns the function that releases it. Use it for jobs and streams.
// p needs a Name and a [Concurrency] as its Limit. Its functions are not called.
//
//	release, err := limiter.Acquire(ctx, exports, "member:5")
//
// If all slots are held, Acquire waits for up to p.MaxWait, until ctx ends. Default 0: it does not wait. Without a slot, the
// error is a *[WaitError]. If the Store fails and p does not set FailClosed, the error is nil: the work may go on without a slot.
// Other errors are as for [Limiter.Wait]. release is never nil. Any goroutine may call it, more than once, and after
// [Limiter.Close].
func (l *Limiter) Acquire(ctx context.Context, p Policy, key string) (release func(), err error) {
	release = func() {}
	c := calls.Get().(*call)
	defer c.release()
	if err := c.compileFor("acquire", &p, key); err != nil {
		return release, err
	}
	switch {
	case p.Limit == Unlimited:
		return release, nil
	case !p.Limit.IsConcurrency():
		return release, fmt.Errorf("ratelimit: Acquire: policy %q: Limit %v: must be a Concurrency: use Take or Wait for a rate", p.Name, p.Limit)
	}
	c.add(&c.policy, p.Limit, store.Charge{
		Policy:  p.Name,
		Key:     key,
		Limit:   c.policy.limit,
		Cost:    1,
		MaxWait: waitBound(ctx, p.MaxWait),
		Shadow:  p.Shadow,
	})
	x, decided := l.newExchange(ctx), false
	defer func() {
		if !decided { // the observer panicked
			x.held.done()
		}
	}()
	err = l.takeInTurn(x, c, nil, l.start(nil, "acquire"))
	decided = true
	switch {
	case x.held != nil:
		return x.held.done, nil
	case x.decision.Allowed: // also if the Store has failed, or a Shadow found no slot
		return release, nil
	case err == nil:
		err = newWaitError(x.decision.Results[0])
	}
	return release, err
}

// refuseSlots returns an error if p has a concurrency limit. It is for calls that take tokens, because nothing would release a
// slot.
func (p *Policy) refuseSlots() error {
	if !p.Limit.IsConcurrency() {
		return nil
	}
	return fmt.Errorf("policy %q: Limit %v: must not be a Concurrency, because only Handler, Limit and Acquire release its slots", p.Name, p.Limit)
}
