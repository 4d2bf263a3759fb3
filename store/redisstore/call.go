package redisstore

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/bucket"
	"github.com/go-tokenbucket/ratelimit/store"
)

// A term is the numbers of a charge, as take.lua lists them.
type term struct {
	limit      store.Limit
	need, debt int64
	shadow     bool
	lock       int64 // in microseconds, or 0

	period *period // of a quota, else nil

	// Of a concurrency limit:
	waited  int64  // for how many microseconds the caller has waited for a slot; -1 if it does not wait
	asserts bool   // it renews or releases slots
	claim   *claim // set each time the charge is sent; nil if it only looks
}

// acquires reports whether t takes slots.
func (t *term) acquires() bool { return t.need > 0 && t.limit.IsConcurrency() }

// certain reports whether no bucket can refuse t.
func (t *term) certain() bool { return t.need <= 0 || t.debt < 0 }

// look turns t into a charge that only reads the bucket.
func (t *term) look() { t.need, t.debt, t.lock = 0, 0, 0 }

// vetoes reports whether the whole call is refused if the bucket refuses t.
func (t *term) vetoes() bool { return !t.certain() && !t.shadow }

// pays returns how many times, up to count, a bucket can pay t. It has credits, and is blocked for so long.
func (t *term) pays(credits, blocked, count int64) int64 {
	if blocked > 0 && !bucket.Passes(t.need, t.debt) {
		return 0
	}
	return t.limit.Grants(credits, t.need, t.debt, count)
}

// An item is a charge on its way. It is a copy, because the caller may reuse its charges after it has left.
type item struct {
	policy, key string
	term        term

	// The key in Redis and its hash slot. Of identical calls, only the first needs them.
	name string
	slot uint16
}

func (e *engine) newItem(c *store.Charge) item {
	need, debt := c.Limit.Ask(c.Cost, c.MaxWait.Microseconds(), c.Owed, c.Settles)
	it := item{
		policy: c.Policy,
		key:    c.Key,
		term:   term{limit: c.Limit, need: need, debt: debt, shadow: c.Shadow, lock: bucket.Microseconds(c.Lock)},
	}
	switch {
	case c.Limit.IsQuota():
		it.term.period = e.calendar.at(c.Limit.Period, e.now())
	case c.Limit.IsConcurrency():
		if it.term.waited = -1; c.MaxWait > 0 {
			it.term.waited = max(0, c.Waited.Microseconds())
		}
	}
	return it
}

// A call is charges that are taken together by one server.
type call struct {
	items []item
	next  *call // an identical call that came later; see entry
	tries int   // how often the server could not answer it yet

	// Copied from the caller's context, because the context must not be used after the caller has left.
	deadline time.Time
	limited  bool         // it has a deadline
	stage    atomic.Int32 // waiting, claimed or left

	// The answer, valid once done has received: two integers for each item, as from take.lua. If one of the buckets is
	// blocked or has a quota, behind them for how long each is blocked, and then how long each one's period goes on. For
	// slots, that is what has become of the claim: see claim.
	// Identical calls share it; turn is the number of this one among them.
	reply []int64
	turn  int64
	err   error
	done  chan bool // true: it is done; false: a wake, see wakeup.go

	mayWake bool          // the lane wakes its caller if it takes long
	woken   bool          // that has happened
	wakes   atomic.Uint32 // twice the number of this use of the call, plus 1 once the caller was woken in it

	flight flight // used if the caller sends the call
	alone  [1]entry

	few [2]item // memory for the items of most calls
}

// newCall returns a call under ctx without items.
//
// Calls are reused, unless the caller left before the call was done. Each engine reuses its own: the channel of a call
// belongs to the bubble of testing/synctest that it was made in, and other code must not use it.
func (e *engine) newCall(ctx context.Context) *call {
	c, ok := e.calls.Get().(*call)
	if !ok {
		c = &call{done: make(chan bool, 2)}
	}
	c.items = c.few[:0]
	c.deadline, c.limited = ctx.Deadline()
	return c
}

// release has c reused.
func (e *engine) release(c *call) {
	clear(c.few[:])
	c.endWakeup()
	c.items, c.next, c.tries = nil, nil, 0
	c.stage.Store(waiting)
	c.reply, c.turn, c.err = nil, 0, nil
	e.calls.Put(c)
}

// Values of call.stage.
const (
	waiting  int32 = iota // not sent yet
	claimed               // in a batch that is being sent
	left                  // abandoned by its caller, and not to be sent any more
	credited              // done in a moment, and its slots are those of the caller, who must release them
)

// credit gives the slots that c has got to its caller. It reports false if the caller has left before.
func (c *call) credit() bool {
	return c.stage.CompareAndSwap(claimed, credited) || c.stage.CompareAndSwap(waiting, credited)
}

// acquires reports whether c takes slots.
func (c *call) acquires() bool {
	for i := range c.items {
		if c.items[i].term.acquires() {
			return true
		}
	}
	return false
}

// asserts reports whether c renews or releases slots.
func (c *call) asserts() bool { return c.items[0].term.asserts }

// errOver is the error of a call whose caller left before it was sent.
var errOver = errors.New("redisstore: the caller has left")

// finish hands the answer to the caller of c. The lane must not use c after it.
func (c *call) finish(reply []int64, turn int64, err error) {
	c.reply, c.turn, c.err = reply, turn, err
	c.done <- true
}

// wait blocks until c, which is in lane l, is done, or until ctx ends. It reports whether c is done.
func (c *call) wait(ctx context.Context, l *lane) bool {
	if c.isDone() { // first, because waiting on a context may cost a timer
		return true
	}
	for c.mayWake && !c.woken {
		switch {
		case c.received(<-c.done):
			return true
		case ctx.Err() == nil && mayBeWoken(ctx, c):
			l.wakeAgain(c)
		}
	}
	for {
		select {
		case done := <-c.done:
			if c.received(done) {
				return true
			}
		case <-ctx.Done():
			return false
		}
	}
}

// isDone reports whether c is done, without waiting.
func (c *call) isDone() bool {
	for {
		select {
		case done := <-c.done:
			if c.received(done) {
				return true
			}
		default:
			return false
		}
	}
}

// received handles a value from c.done and reports whether c is done.
func (c *call) received(done bool) bool {
	c.woken = c.woken || !done
	return done
}

// same reports whether c and d are identical, so that one charge can stand for both. Only looks and charges that a
// bucket can refuse are merged. The answer does not say which refund filled a bucket, or which debt reached the bound.
func (c *call) same(d *call) bool {
	if len(c.items) != len(d.items) {
		return false
	}
	for i := range c.items {
		a, b := &c.items[i], &d.items[i]
		if a.key != b.key || a.term != b.term || a.policy != b.policy || a.term.need < 0 || a.term.debt < 0 {
			return false
		}
	}
	return true
}

// answer returns the answer to charge i: the credits of the bucket after this call, and whether it was charged.
func (c *call) answer(i int) (credits int64, charged bool) {
	taken, credits := c.reply[2*i], c.reply[2*i+1]
	t := &c.items[i].term
	if c.turn >= taken {
		return credits, false
	}
	return credits + (taken-1-c.turn)*t.need, true // calls behind this one had not taken their tokens yet
}

// blocked returns for how many microseconds the bucket of charge i is blocked after this call.
func (c *call) blocked(i int) int64 {
	n := len(c.items)
	if len(c.reply) == 2*n {
		return 0
	}
	if t := &c.items[i].term; t.lock > 0 && !t.certain() {
		if credits, charged := c.answer(i); charged && credits >= t.limit.Unit {
			return 0 // a call behind this one has locked the bucket
		}
	}
	return c.reply[2*n+i]
}

// rest returns for how many microseconds the period of charge i goes on, 0 if its limit is no quota.
func (c *call) rest(i int) int64 {
	if n := len(c.items); len(c.reply) > 2*n {
		return c.reply[3*n+i]
	}
	return 0
}

// unknown reports whether charge i, a shadow, got no answer.
func (c *call) unknown(i int) bool { return c.reply[2*i] < 0 }
