package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"
)

// Wait is Take for workers that would rather wait than be refused. It reserves cost tokens of key's bucket of p, and
// returns when they have come. If the error is nil, the work may be done. Calls, and requests under the same policy,
// get their turns in the order in which the Store was asked, as Policy.MaxWait says.
//
// It waits for up to p.MaxWait. The default of 0 stands for as long as ctx has until its deadline, which may be
// forever. If that is too short, or the cost is above the burst, or Config.MaxWaiting leaves no place to wait, it
// takes nothing and returns a *[WaitError] at once. A Shadow is not waited for, and is never an error.
//
// If ctx ends first, the tokens are given back, Result.Allowed is false and the error wraps that of ctx. Wait then
// returns within Config.Timeout. Other errors are as for Take, and so is Result.Allowed.
func (l *Limiter) Wait(ctx context.Context, p Policy, key string, cost int64) (Result, error) {
	if cost < 0 {
		return Result{}, fmt.Errorf("ratelimit: Wait: cost %d: must be 0 or more; see Refund", cost)
	}
	if p.MaxWait == 0 {
		p.MaxWait = math.MaxInt64
	}
	r, err := l.charge(ctx, "Wait", p, key, cost, true)
	if err == nil && !r.Allowed && !r.Shadow {
		err = &WaitError{RetryAfter: r.RetryAfter, Result: r, crowded: r.maxWait == 0}
	}
	return r, err
}

// takeInTurn is take for a caller that waits for the tokens that c reserves. It takes a slot before the
// Store is asked: once that has answered, it is too late to be refused.
func (l *Limiter) takeInTurn(x *exchange, c *call, leftOut error, start start) error {
	if !c.mayWait {
		c.stays = c.settles
		return l.take(x, c, leftOut, start)
	}
	c.waits, c.stays = true, true
	var room [4]uint64
	queues := l.waiting.queues(room[:0], c.charges)
	if l.waiting.take(queues) {
		defer l.waiting.put(queues)
	} else {
		c.refuseToWait()
	}
	err := l.take(x, c, leftOut, start)
	if c.crowded && err == nil && !x.decision.Allowed {
		l.logRefusal(x, errCrowded, false)
	}
	return err
}

// errCrowded is why a request is denied that would otherwise have waited for its turn.
var errCrowded = errors.New("no place to wait: as many wait as Config.MaxWaiting allows, for one key or in all")

// refuseToWait makes c one that is allowed at once or not at all. Shadows measure what they did before.
func (c *call) refuseToWait() {
	c.crowded = true
	for i := range c.charges {
		if !c.charges[i].Shadow {
			c.charges[i].MaxWait = 0
		}
	}
}

// patience returns how much of maxWait there is time for until ctx's deadline. What is left until then is
// cut to milliseconds, or no two charges would be alike, and a Store could not merge them.
func patience(ctx context.Context, maxWait time.Duration) time.Duration {
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

// wait returns how long it is until all tokens have come that c has reserved.
func (c *call) wait() (longest time.Duration) {
	for i := range c.charges {
		if !c.charges[i].Shadow {
			longest = max(longest, c.states[i].Wait)
		}
	}
	return longest
}

// await waits for the tokens that c has reserved, and returns how long it did. If x ends first, they are
// given back.
func (l *Limiter) await(x *exchange, c *call) (time.Duration, error) {
	turn := c.wait()
	if turn == 0 && x.limited.Terms.Detached {
		return 0, nil // the request goes on as it would without the policy
	}
	waited, err := sleep(x, turn)
	if err != nil {
		l.giveBack(x, c)
	}
	return waited, err
}

func sleep(ctx context.Context, d time.Duration) (time.Duration, error) {
	if err := ctx.Err(); err != nil || d == 0 {
		return 0, err
	}
	begin := time.Now()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return time.Since(begin), nil
	case <-ctx.Done():
		return time.Since(begin), ctx.Err()
	}
}

// giveBack refunds what c was charged. What a stand-in charged is lost: if the Store has come back since,
// it would be given tokens that it never took.
func (l *Limiter) giveBack(x *exchange, c *call) {
	back := c.charges[:0]
	for i := range c.charges {
		if charge, s := c.charges[i], &c.states[i]; charge.Cost > 0 && s.Allowed && !s.Degraded {
			charge.Cost, charge.MaxWait = -charge.Cost, 0
			charge.Limit = c.asked[i].policy.inForce(charge.Limit)
			back = append(back, charge)
		}
	}
	if len(back) == 0 {
		return
	}
	ctx, stop := context.WithTimeout(context.WithoutCancel(x), l.timeout)
	defer stop()
	clear(c.states)
	if _, err := l.store.Take(ctx, back, c.states[:len(back)]); err != nil {
		l.logFailure(x, fmt.Errorf("the tokens of one that did not wait for its turn are lost: %w", err), false)
	}
}

// elapse makes a decision one of now, after its request has waited.
func (d *Decision) elapse(waited time.Duration) {
	d.At = time.Now()
	d.Waited += waited
	for i := range d.Results {
		d.Results[i].ResetAfter = max(0, d.Results[i].ResetAfter-waited)
	}
}

// leave concludes a decision whose request ended while it waited: it is refused, whatever the policies say
// of failures, because its turn has not come.
func (l *Limiter) leave(x *exchange, results []Result, waited time.Duration, err error, start start) error {
	d := &x.decision
	d.Allowed, d.At, d.Results = false, time.Now(), nil
	if !errors.Is(err, context.Canceled) {
		err = fmt.Errorf("%w: its deadline ended before its turn: %w", errNoTime, err)
		l.logFailure(x, err, false)
	}
	l.report(x, results, waited, err, start)
	return err
}

// A WaitError is the error of [Limiter.Wait] if the tokens would come later than the call may wait, if
// Config.MaxWaiting leaves no place to wait, or if the cost is above the burst. Nothing was taken.
type WaitError struct {
	// RetryAfter is how long until the same call could succeed, if nobody else takes the tokens. It is Never for
	// a cost above the burst.
	RetryAfter time.Duration

	// Result is what Wait returned beside the error.
	Result Result

	crowded bool // there was no place to wait, or no time
}

// Error names the policy and says when to call again. It does not contain the key.
func (e *WaitError) Error() string {
	switch {
	case e.RetryAfter == Never:
		return fmt.Sprintf("ratelimit: Wait: policy %s: cost %d is above the burst", e.Result.Policy, e.Result.Cost)
	case e.crowded:
		return fmt.Sprintf("ratelimit: Wait: policy %s: no time or no place to wait (Config.MaxWaiting): retry after %v", e.Result.Policy, e.RetryAfter)
	}
	return fmt.Sprintf("ratelimit: Wait: policy %s: the tokens would come too late: retry after %v", e.Result.Policy, e.RetryAfter)
}
