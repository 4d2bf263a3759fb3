package outbound

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-tokenbucket/ratelimit"
)

// A Turn is a call that may be made now. Pass it to [Quota.Report].
type Turn struct {
	key           string
	policy        ratelimit.Policy
	charged, sent time.Time
	left          float64 // what the bucket held when the call was sent, without what later calls took
	known         bool    // left is known
}

// Wait charges cost tokens for a call of key, and blocks until it may be made. It blocks for at most Policy.MaxWait, by
// default until ctx ends. If its turn would come too late, it charges nothing and returns an *[Error] at once, or as
// soon as that is known. If the Store fails, the call may be made, unless Policy has FailClosed.
func (q *Quota) Wait(ctx context.Context, key string, cost int64) (Turn, error) {
	if key == "" {
		return Turn{}, fmt.Errorf("outbound: Wait: key: must not be empty")
	}
	return q.wait(ctx, q.policy, key, cost)
}

// In a process, the calls of one key that have to wait stand in line. Only the first one reserves a token, just before
// its turn. So few tokens are reserved in all replicas together, and a correction takes effect on all others.

// ahead is how long before its turn a call lets the next one in line reserve a token.
const ahead = 20 * time.Millisecond

func (q *Quota) wait(ctx context.Context, p ratelimit.Policy, key string, cost int64) (Turn, error) {
	if cost < 0 {
		return Turn{}, fmt.Errorf("outbound: policy %s: cost %d: must be 0 or more", p.Name, cost)
	}
	if p.Limit == ratelimit.Unlimited {
		return Turn{}, ctx.Err()
	}
	if err := ctx.Err(); err != nil {
		return Turn{}, &Error{Policy: p.Name, Key: key, Err: err}
	}
	q.mu.Lock()
	line := q.view(key).line
	q.mu.Unlock()
	if cost == 0 {
		line = newLine() // it takes no tokens, so it does not wait for those of others
	}
	c := call{q: q, line: line, Turn: Turn{key: key, policy: p}, ctx: ctx, cost: cost, until: time.Now().Add(math.MaxInt64)}
	if p.MaxWait > 0 {
		c.until, c.bound = time.Now().Add(p.MaxWait), "MaxWait"
	}
	if deadline, ok := ctx.Deadline(); ok && deadline.Before(c.until) {
		c.until, c.bound = deadline, "the context's deadline"
	}
	// A call does not stand in line if there are tokens for all who do.
	free := line.isEmpty() || c.before(line.waiting.Load()+1+cost) <= 0
	never := p.Limit.Rate == 0 || cost > cmp.Or(p.Limit.Burst, p.Limit.Rate)
	if never || free && time.Until(q.stopped(key)) <= 0 {
		switch d, err := c.take(0); {
		case err == nil && d.Allowed && ctx.Err() != nil:
			c.giveBack()
			return Turn{}, c.fail(0, ctx.Err())
		case err != nil || d.Allowed || d.RetryAfter() == ratelimit.Never || isBlocked(&d):
			return c.finish(d, err)
		}
	}
	for {
		if turn, again, err := c.waitInLine(); !again {
			return turn, err
		}
	}
}

// waitInLine stands in line, reserves the tokens, and waits for them. It returns again if the key has been stopped
// meanwhile: the tokens are given back, and the call has to stand in line once more.
func (c *call) waitInLine() (_ Turn, again bool, _ error) {
	if err := c.waitForStop(); err != nil {
		return Turn{}, false, err
	}
	if err := c.stand(); err != nil {
		return Turn{}, false, err
	}
	d, err := c.take(max(1, time.Until(c.until)))
	turn := c.charged.Add(longestWait(&d))
	c.line.turn.Store(int64(turn.Sub(c.line.made)))
	reserved := err == nil && d.Allowed
	left := sleepUntil(c.ctx, turn.Add(-ahead))
	if reserved && left != nil {
		c.giveBack() // before the next one reserves a token, which would come after this one
	}
	c.line.leave()
	if reserved && left == nil {
		left = sleepUntil(c.ctx, turn)
		again = left == nil && c.stoppedSince(turn)
		if left != nil || again {
			c.giveBack()
		}
	}
	switch {
	case again:
		return Turn{}, true, nil
	case reserved && left != nil:
		return Turn{}, false, c.fail(0, left)
	default:
		done, err := c.finish(d, err)
		return done, false, err
	}
}

// A call is a call that waits.
type call struct {
	Turn
	q     *Quota
	line  *line
	ctx   context.Context
	cost  int64
	until time.Time // it waits no longer
	bound string    // what until is, for an Error
}

func (c *call) fail(after time.Duration, err error) error {
	return &Error{Policy: c.policy.Name, Key: c.key, RetryAfter: after, Err: err, bound: c.bound, left: max(0, time.Until(c.until))}
}

// take charges the call, or reserves tokens that come within maxWait. It does not end with the caller's context: what it
// took must be known to be given back.
func (c *call) take(maxWait time.Duration) (ratelimit.Decision, error) {
	c.charged = time.Now()
	stop, p := c.q.stop, c.policy
	stop.MaxWait, p.MaxWait = maxWait, maxWait
	charges := []ratelimit.Charge{{Policy: stop, Key: c.key}, {Policy: p, Key: c.key, Cost: c.cost}}
	if c.cost == 0 {
		charges = charges[:1]
	}
	d, err := c.q.limiter.TakeAll(context.WithoutCancel(c.ctx), charges...)
	if limit := p.Limit; err == nil && c.cost > 0 && limit.Rate > 0 {
		empty := c.charged.Add(d.Results[1].ResetAfter - refill(limit, cmp.Or(limit.Burst, limit.Rate)))
		c.line.empty.Store(int64(empty.Sub(c.line.made)))
	}
	return d, err
}

// finish returns the turn of a call, or why it has none.
func (c *call) finish(d ratelimit.Decision, err error) (Turn, error) {
	if !d.Allowed {
		if isBlocked(&d) {
			c.bound = "" // calls do not wait for the end of a block
		}
		return Turn{}, c.fail(d.RetryAfter(), err)
	}
	c.sent = time.Now()
	if err == nil && c.cost > 0 {
		r := &d.Results[len(d.Results)-1]
		c.known = !r.Degraded
		c.left = float64(r.Remaining) + rate(c.policy.Limit)*(c.sent.Sub(c.charged)-r.Wait).Seconds()
	}
	return c.Turn, nil
}

func isBlocked(d *ratelimit.Decision) bool {
	return slices.ContainsFunc(d.Results, func(r ratelimit.Result) bool { return r.Blocked })
}

// giveBack returns the tokens of a call that is not made.
func (c *call) giveBack() {
	if c.cost > 0 {
		c.q.limiter.Refund(c.ctx, c.policy, c.key, c.cost) // the limiter logs an error
	}
}

// before returns how long it takes at least until the call at the head of the line and tokens of others after it had
// their turn.
func (c *call) before(tokens int64) time.Duration {
	now := time.Since(c.line.made)
	turn := time.Duration(c.line.turn.Load()) - now
	empty := time.Duration(c.line.empty.Load()) - now
	return max(0, turn, empty+refill(c.policy.Limit, tokens))
}

// stand waits until the call is the first in line.
func (c *call) stand() error {
	line := c.line
	ahead := line.waiting.Add(1) - 1
	defer line.waiting.Add(-1)
	before := func() time.Duration { return c.before(ahead) }
	if before, patience := before(), time.Until(c.until); before > patience {
		return c.fail(before-patience, nil)
	}
	timer := time.NewTimer(time.Until(c.until))
	defer timer.Stop()
	select {
	case line.first <- struct{}{}:
		return nil
	case <-timer.C:
		return c.fail(before(), nil)
	case <-c.ctx.Done():
		return c.fail(before(), c.ctx.Err())
	}
}

// A line is the calls of one key that wait in this process.
type line struct {
	// first holds a value while a call is the first. Go lets the others send theirs in the order in which they came.
	first chan struct{}

	waiting atomic.Int64 // how many others there are

	// In nanoseconds since made, so that they do not change with the clock.
	made  time.Time
	turn  atomic.Int64 // when the turn of the first one comes
	empty atomic.Int64 // when the bucket is empty, or would have been, if nothing else is taken
}

func newLine() *line { return &line{first: make(chan struct{}, 1), made: time.Now()} }

func (l *line) isEmpty() bool { return len(l.first) == 0 }

func (l *line) leave() {
	l.turn.Store(0)
	<-l.first
}

// waitForStop waits for the end of a stop that this process knows of.
func (c *call) waitForStop() error {
	for {
		end := c.q.stopped(c.key)
		if time.Until(end) <= 0 {
			return nil
		}
		if over := end.Sub(c.until); over > 0 {
			return c.fail(max(over, c.before(c.cost)-time.Until(c.until)), nil)
		}
		if err := sleepUntil(c.ctx, end); err != nil {
			return c.fail(time.Until(end), err)
		}
	}
}

// stoppedSince reports whether a replica was told to stop while the call waited for its turn.
func (c *call) stoppedSince(turn time.Time) bool {
	if time.Until(c.q.stopped(c.key)) > 0 {
		return true
	}
	if !turn.After(c.charged) {
		return false
	}
	stop, err := c.q.limiter.Peek(context.WithoutCancel(c.ctx), c.q.stop, c.key)
	return err == nil && stop.ResetAfter > stopBurst+ahead
}

// stopped returns the end of the last stop that this process knows of.
func (q *Quota) stopped(key string) time.Time {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.view(key).stop
}

func longestWait(d *ratelimit.Decision) (longest time.Duration) {
	for i := range d.Results {
		longest = max(longest, d.Results[i].Wait)
	}
	return longest
}

// refill returns how long it takes until tokens have come.
func refill(l ratelimit.Limit, tokens int64) time.Duration {
	return time.Duration(min(float64(tokens)/rate(l)*float64(time.Second), 1<<62))
}

// rate returns the tokens of a second.
func rate(l ratelimit.Limit) float64 { return float64(l.Rate) / l.Per.Seconds() }

func sleepUntil(ctx context.Context, at time.Time) error {
	d := time.Until(at)
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
