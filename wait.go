package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/virtualtime"
)

// Wait reserves cost tokens of the bucket of p and key, and blocks until it has them. If the error is nil, do the work.
// Calls, and requests under the same policy, get their tokens in the order in which they reached the Store.
//
// It blocks for at most p.MaxWait. Default 0: until ctx's deadline, or without limit. If that is too short, Wait takes
// nothing and returns a *[WaitError] at once. It does the same if the cost is above the burst, if the bucket is blocked (see
// [Limiter.Block]), or if [Config.MaxWaiting] leaves no place. For a policy with Shadow it does not block and returns no
// such error.
//
// If ctx ends first, the tokens are given back. Wait then returns within twice [Config.Timeout], with
// Result.Allowed false and an error that wraps ctx's. A process that is killed gives nothing back: the tokens that it
// reserved delay others by up to their number divided by the rate. Other errors are as for [Limiter.Take].
func (l *Limiter) Wait(ctx context.Context, p Policy, key string, cost int64) (Result, error) {
	if cost < 0 {
		return Result{}, fmt.Errorf("ratelimit: Wait: cost %d: must be 0 or more; see Refund", cost)
	}
	p.MaxWait = maxWaitOf(p.MaxWait)
	r, err := l.charge(ctx, "wait", p, key, cost, true)
	if err == nil && !r.Allowed && !r.Shadow {
		err = newWaitError(r)
	}
	return r, err
}

// WaitAll reserves tokens of several buckets, from all of them or from none, and blocks until it has them all. It is to
// [Limiter.Wait] what [Limiter.TakeAll] is to [Limiter.Take]. It waits for a charge for at most the [Policy.MaxWait] of
// that charge. While it waits for one bucket, it holds the tokens of the others. WaitError.Result is the Result with
// the longest RetryAfter.
func (l *Limiter) WaitAll(ctx context.Context, charges ...Charge) (Decision, error) {
	c := calls.Get().(*call)
	defer c.release()
	patient := slices.Clone(charges)
	for i := range patient {
		p := &patient[i].Policy
		p.MaxWait = waitBound(ctx, maxWaitOf(p.MaxWait))
	}
	if err := c.addCharges(patient); err != nil {
		return Decision{}, fmt.Errorf("ratelimit: WaitAll: %w", err)
	}
	x := l.newExchange(ctx)
	err := l.takeCharges(x, c, true, nil, l.start(nil, "wait_all"))
	d := &x.decision
	if err == nil && !d.Allowed {
		var last *Result
		for i := range d.Results {
			if r := &d.Results[i]; !r.Allowed && !r.Shadow && (last == nil || r.RetryAfter > last.RetryAfter) {
				last = r
			}
		}
		if last != nil { // a Store of others may deny a call and none of its charges
			err = newWaitError(*last)
		}
	}
	return *d, err
}

// maxWaitOf returns how long a call that waits may wait under a policy with maxWait.
func maxWaitOf(maxWait time.Duration) time.Duration {
	if maxWait == 0 {
		return math.MaxInt64
	}
	return maxWait
}

// takeInTurn is take for a caller that waits for the tokens that c reserves. It takes a place before it calls the
// Store: after the answer of the Store, tokens are reserved and it is too late to refuse.
func (l *Limiter) takeInTurn(x *exchange, c *call, leftOut error, start start) error {
	if !c.mayWait {
		c.outlivesCaller = c.settles
		return l.take(x, c, leftOut, start)
	}
	c.waits, c.outlivesCaller = true, true
	var room [4]uint64
	queues := l.waiting.queues(room[:0], c.charges)
	if l.waiting.take(queues) {
		defer l.waiting.put(queues)
	} else {
		c.refuseToWait()
	}
	err := l.take(x, c, leftOut, start)
	if c.noPlace && err == nil && !x.decision.Allowed {
		l.logRefusal(x, errNoPlace, false)
	}
	return err
}

// errNoPlace is why a request is denied that has to wait and finds no place.
var errNoPlace = errors.New("no place to wait: Config.MaxWaiting is reached, for the key or in all")

// refuseToWait changes c so that it is allowed at once or not at all. Shadows still measure the wait.
func (c *call) refuseToWait() {
	c.noPlace = true
	for i := range c.charges {
		if !c.charges[i].Shadow {
			c.charges[i].MaxWait = 0
		}
	}
}

// waitBound returns maxWait, or the time until ctx's deadline if that is shorter. That time is cut to milliseconds, so
// that a Store can merge charges that come at almost the same time.
func waitBound(ctx context.Context, maxWait time.Duration) time.Duration {
	if maxWait == 0 {
		return 0
	}
	if deadline, ok := ctx.Deadline(); ok {
		if left := time.Until(deadline); left < maxWait {
			return max(0, left.Truncate(time.Millisecond))
		}
	}
	return maxWait
}

// wait returns how long it takes until c has all tokens that it reserved.
func (c *call) wait() (longest time.Duration) {
	for i := range c.charges {
		if !c.charges[i].Shadow && !c.charges[i].Owed {
			longest = max(longest, c.states[i].Wait)
		}
	}
	return longest
}

// askUntilDecided calls the Store with c, and again if c waits for slots or for the next period of a quota. It returns how long
// it waited, and in left why x ended before.
func (l *Limiter) askUntilDecided(x *exchange, c *call) (ok bool, waited time.Duration, left, err error) {
	for {
		ok, slept, left, err := l.askForSlots(x, c)
		waited += slept
		until := c.nextPeriod(ok, err)
		if left != nil || until == 0 {
			return ok, waited, left, err
		}
		slept, left = l.sleep(x, until, nil)
		waited += slept
		if left != nil {
			return ok, waited, left, nil
		}
		c.passTime(slept)
	}
}

// passTime changes c, which has waited for so long.
func (c *call) passTime(waited time.Duration) {
	c.shortenWaits(waited)
	c.useLimitsInForce()
}

// nextPeriod returns how long until c, a call that waits, is asked again because the next period of its quotas begins: nobody
// can reserve the tokens of a period. It is 0 if c is decided. ok and err are the answer of the Store.
func (c *call) nextPeriod(ok bool, err error) (until time.Duration) {
	if ok || err != nil || !c.waits || c.failsClosed && c.degraded() {
		return 0
	}
	for i := range c.charges {
		charge, s := &c.charges[i], &c.states[i]
		if s.Allowed || charge.Shadow {
			continue
		}
		if charge.Limit.IsConcurrency() && !s.Blocked && charge.MaxWait > 0 { // it waits for a slot afterwards
			continue
		}
		if !charge.Limit.IsQuota() || s.Blocked || s.RetryAfter == Never || s.RetryAfter > charge.MaxWait {
			return 0
		}
		until = max(until, s.RetryAfter)
	}
	return until
}

// shortenWaits changes c, which has waited, so that it waits no longer than its policies allow in all.
func (c *call) shortenWaits(waited time.Duration) {
	for i := range c.charges {
		c.charges[i].MaxWait = max(0, c.charges[i].MaxWait-waited)
	}
}

// useLimitsInForce changes c, which has waited, to be decided under the limits that are in force now.
func (c *call) useLimitsInForce() {
	for i := range c.charges {
		charge, applied := &c.charges[i], &c.applied[i]
		applied.limit, charge.Limit = applied.policy.inForce(charge.Key, applied.limit, charge.Limit)
	}
}

// waitTurn waits for the tokens that c has reserved, and returns how long it waited. If x ends first, the tokens are given
// back.
func (l *Limiter) waitTurn(x *exchange, c *call) (time.Duration, error) {
	turn := c.wait()
	if turn == 0 && x.limited.Terms.Detached {
		return 0, nil // even if its context has ended: the request goes on as without the policy
	}
	waited, err := l.sleep(x, turn, nil)
	if err != nil {
		l.refundCall(x, c, waited)
	}
	return waited, err
}

// sleep waits for d, or until it is woken, and returns how long it waited. In virtual time it returns d at once.
func (l *Limiter) sleep(ctx context.Context, d time.Duration, wake <-chan struct{}) (time.Duration, error) {
	if err := ctx.Err(); err != nil || d == 0 {
		return 0, err
	}
	if virtualtime.Sleep(ctx, d) {
		return d, nil
	}
	begin := time.Now()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return time.Since(begin), nil
	case <-wake:
		return time.Since(begin), nil
	case <-ctx.Done():
		return time.Since(begin), ctx.Err()
	}
}

// refundCall refunds what c was charged some time before, where it was charged: in the Store or in its stand-in. It refunds
// nothing to a quota whose period has ended meanwhile. It overwrites c, and reports whether c.states are now those of the
// charges that were refunded, in their order.
func (l *Limiter) refundCall(x *exchange, c *call, before time.Duration) bool {
	back := c.charges[:0]
	for i := range c.charges {
		charge, s := c.charges[i], &c.states[i]
		expired := charge.Limit.IsQuota() && before >= s.ResetAfter
		if charge.Cost > 0 && s.Allowed && isKnown(s) && !expired {
			charge.Cost, charge.MaxWait, charge.Lock, charge.Standby = -charge.Cost, 0, 0, s.Degraded
			_, charge.Limit = c.applied[i].policy.inForce(charge.Key, c.applied[i].limit, charge.Limit)
			back = append(back, charge)
		}
	}
	if len(back) == 0 {
		return true
	}
	ctx, stop := context.WithTimeout(context.WithoutCancel(x), l.timeout)
	defer stop()
	clear(c.states)
	if _, err := l.store.Take(ctx, back, c.states[:len(back)]); err != nil {
		l.logFailure(x, fmt.Errorf("the tokens of a refused request were not given back: %w", err), false)
		return false
	}
	if c.slots {
		l.slots.released(back)
	}
	return true
}

// elapse updates a decision after its request has waited. A bucket may have been locked by the request before that.
func (d *Decision) elapse(waited time.Duration) {
	d.At = d.At.Add(waited)
	d.Waited += waited
	for i := range d.Results {
		r := &d.Results[i]
		if r.Limit.IsConcurrency() { // nobody knows when a slot is free
			continue
		}
		r.ResetAfter = max(0, r.ResetAfter-waited)
		if r.Blocked && r.Allowed {
			r.RetryAfter = max(0, r.RetryAfter-waited)
			r.Blocked = r.RetryAfter > 0
		}
	}
}

// abandonWait finishes a decision whose request ended while it waited. The request is refused, also without FailClosed,
// because its turn has not come.
func (l *Limiter) abandonWait(x *exchange, results []Result, waited time.Duration, err error, start start) error {
	d := &x.decision
	d.Allowed, d.At, d.Results = false, time.Now(), nil
	if !errors.Is(err, context.Canceled) {
		err = fmt.Errorf("%w: its deadline passed before its turn: %w", errNoTime, err)
		l.logFailure(x, err, false)
	}
	l.report(x, results, waited, err, start)
	return err
}

// A WaitError is the error of [Limiter.Wait] and [Limiter.WaitAll] if the call cannot get its tokens in time, and of
// [Limiter.Acquire] if it gets no slot. Either tokens come later than the call may wait, or [Config.MaxWaiting] leaves no
// place to wait, or the cost is above the burst, or the bucket is blocked. No tokens were taken.
type WaitError struct {
	// RetryAfter is how long it takes until the same call can succeed, if no other call takes the tokens.
	// It is [Never] for a cost above the burst, and for a rate of 0.
	RetryAfter time.Duration

	// Result is the result that Wait returned with the error, or that of the policy of Acquire.
	Result Result

	noPlace bool // there was no place to wait, or no time
}

func newWaitError(r Result) *WaitError {
	return &WaitError{RetryAfter: r.RetryAfter, Result: r, noPlace: r.maxWait == 0}
}

// Error returns a text with the policy and the time to retry after. It does not contain the key.
func (e *WaitError) Error() string {
	verb := "Wait"
	if e.Result.Limit.IsConcurrency() {
		verb = "Acquire"
	}
	switch {
	case e.RetryAfter == Never:
		return fmt.Sprintf("ratelimit: %s: policy %s: cost %d can never be paid: it is above the burst, or the rate is 0", verb, e.Result.Policy, e.Result.Cost)
	case e.Result.Blocked:
		return fmt.Sprintf("ratelimit: %s: policy %s: the bucket is blocked: retry after %v", verb, e.Result.Policy, e.RetryAfter)
	case verb == "Acquire":
		return fmt.Sprintf("ratelimit: Acquire: policy %s: 0 of %d slots are free: retry after %v", e.Result.Policy, e.Result.Limit.Rate, e.RetryAfter)
	case e.noPlace:
		return fmt.Sprintf("ratelimit: %s: policy %s: no time or no place to wait (Config.MaxWaiting): retry after %v", verb, e.Result.Policy, e.RetryAfter)
	}
	return fmt.Sprintf("ratelimit: %s: policy %s: the tokens would come later than MaxWait or the deadline: retry after %v", verb, e.Result.Policy, e.RetryAfter)
}
