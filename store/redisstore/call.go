package redisstore

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/bucket"
	"github.com/go-tokenbucket/ratelimit/store"
)

// A term is what a charge asks of a bucket, as take.lua lists it.
type term struct {
	unit, refill, capacity int64
	need, debt             int64
	shadow                 bool
	past                   *bucket.Past // or nil; its own, so that calls that have one are not merged
}

// owed reports whether t is charged whatever the bucket holds.
func (t *term) owed() bool { return t.debt == bucket.AnyDebt }

// certain reports whether no bucket can refuse t.
func (t *term) certain() bool { return t.need <= 0 || t.owed() }

// look makes t a look that takes nothing, and puts the bucket under the limit as t does.
func (t *term) look() {
	t.past = nil
	if bucket.Relimits(t.need, t.debt) {
		t.need, t.debt = 0, bucket.AnyDebt
	} else {
		t.need, t.debt = 0, 0
	}
}

// vetoes reports whether a bucket can refuse the whole call for t.
func (t *term) vetoes() bool { return !t.certain() && !t.shadow }

// pays returns how many times a bucket of credits could pay t, of count.
func (t *term) pays(credits, count int64) int64 {
	return bucket.Limit{Unit: t.unit, Refill: t.refill, Capacity: t.capacity}.Grants(credits, t.need, t.debt, count)
}

// An item is a charge on its way: a copy, because a caller that leaves takes its charges along.
type item struct {
	policy, key string
	term        term

	// Its key in Redis and the slot of that, once it was named. Identical calls need only one name.
	name string
	slot uint16
}

func newItem(c *store.Charge) item {
	l := bucket.Limit(c.Limit)
	need, debt := l.Ask(c.Cost, c.MaxWait.Microseconds(), c.Owed)
	it := item{
		policy: c.Policy,
		key:    c.Key,
		term:   term{l.Unit, l.Refill, l.Capacity, need, debt, c.Shadow, nil},
	}
	if c.Refilled > 0 {
		past := l.Past(c.Refilled, c.Outage.Microseconds())
		it.term.past, it.term.debt = &past, bucket.AnyDebt
	}
	return it
}

// A call is charges that are taken together, on their way to one server and back.
type call struct {
	items []item
	next  *call // identical ones that came later; see entry
	tries int   // how often the server would not look at it yet

	// Of its caller's context, which is not touched when the caller has left.
	deadline time.Time
	limited  bool         // there is a deadline
	place    atomic.Int32 // where it is: waiting, claimed or left

	// The answer, once done has received: two integers an item, as from take.lua, for all identical calls
	// together, of which this is number turn.
	reply []int64
	turn  int64
	err   error
	done  chan bool // true: it is done; false: a wake, see watch.go

	watched bool          // the lane wakes its caller if it takes long
	woken   bool          // that has happened
	wakes   atomic.Uint32 // twice the number of its use, and 1 more if it is woken in that

	flight flight // if its caller sends it, with its entry
	alone  [1]entry

	few [2]item // room for what most have
}

// calls are reused, unless their caller left before they were done.
var calls = sync.Pool{New: func() any { return &call{done: make(chan bool, 2)} }}

func newCall(ctx context.Context) *call {
	c := calls.Get().(*call)
	c.items = c.few[:0]
	c.deadline, c.limited = ctx.Deadline()
	return c
}

func (c *call) release() {
	clear(c.few[:])
	c.unwatch()
	c.items, c.next, c.tries = nil, nil, 0
	c.place.Store(waiting)
	c.reply, c.turn, c.err = nil, 0, nil
	calls.Put(c)
}

// The places of a call.
const (
	waiting int32 = iota // to be sent
	claimed              // in a batch that is sent
	left                 // by its caller, and not to be sent any more
)

// errOver is of a call whose caller left before it was sent.
var errOver = errors.New("redisstore: the caller has left")

// finish gives the answer to whoever waits for it. It is the last that is done with c.
func (c *call) finish(reply []int64, turn int64, err error) {
	c.reply, c.turn, c.err = reply, turn, err
	c.done <- true
}

// wait waits until c, which is on its way through l, is done, or until ctx ends, and reports which.
func (c *call) wait(ctx context.Context, l *lane) bool {
	if c.isDone() { // first, because a context may have to begin to be waited for
		return true
	}
	for c.watched && !c.woken {
		switch {
		case c.received(<-c.done):
			return true
		case ctx.Err() == nil && watchable(ctx, c):
			l.watchAgain(c)
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

// received notes what came from c.done, and reports whether that is the end of c.
func (c *call) received(done bool) bool {
	c.woken = c.woken || !done
	return done
}

// same reports whether c and d ask the same, so that they can be asked as one. What is given back is not
// merged: it may reach the brim at any of them, and the answer would not tell at which.
func (c *call) same(d *call) bool {
	if len(c.items) != len(d.items) {
		return false
	}
	for i := range c.items {
		a, b := &c.items[i], &d.items[i]
		if a.key != b.key || a.term != b.term || a.policy != b.policy || a.term.need < 0 {
			return false
		}
	}
	return true
}

// answer returns how charge i was answered: the credits that its bucket held after this call, and whether
// it was charged.
func (c *call) answer(i int) (credits int64, charged bool) {
	taken, credits := c.reply[2*i], c.reply[2*i+1]
	t := &c.items[i].term
	if c.turn >= taken {
		return credits, false
	}
	if credits == -bucket.MaxCredits && t.owed() {
		return credits, true // the reply does not tell at which of them it got there, so all are told the deepest debt
	}
	return credits + (taken-1-c.turn)*t.need, true // what those behind it took was still there
}

// unknown reports that charge i, a shadow, could not be answered.
func (c *call) unknown(i int) bool { return c.reply[2*i] < 0 }
