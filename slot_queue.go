package ratelimit

import (
	"slices"
	"sync"
	"time"

	"github.com/go-tokenbucket/ratelimit/store"
)

// slotQueues are the calls of a Limiter that wait for slots, by policy and key. Only the first call of a queue charges the
// Store: at once, then each slotPoll, and when this Limiter has released a slot.
//
// A call that takes slots under several policies is in several queues. If the Store refuses it in one of them, or an earlier
// call holds it up there, later calls pass it in the others. Otherwise a key that has no slot left would hold up all keys that
// share a policy with it.
type slotQueues struct {
	mu     sync.Mutex
	queues map[waitQueue]*slotQueue // without those that are empty
}

// slotPoll is how often a call that waits for a slot charges the Store. Another replica may have released one.
const slotPoll = 100 * time.Millisecond

// A slotQueue is the calls that wait for slots of one key.
type slotQueue struct {
	of       waitQueue
	waiters  []*slotWaiter // in the order in which they came
	due      time.Time     // when the first one may charge the Store; zero: at once
	releases int           // of slots of the key, since the queue began
	lacked   bool          // the Store has refused a call of it
}

// A slotWaiter is a call in its queues.
type slotWaiter struct {
	places []slotPlace
	wake   chan struct{} // has room for one
}

// A slotPlace is the place of a call in one queue.
type slotPlace struct {
	queue    *slotQueue
	charge   int  // index in the call
	passed   bool // later calls pass it, because it is refused or held up elsewhere
	releases int  // of the queue, when the call charged the Store
}

// join adds c to the queues of the slots that it may wait for. It returns nil if there are none. A call that may not wait joins
// a queue, too, in which the Store has refused calls: it is denied if it is not the first, and passes nobody.
func (qs *slotQueues) join(c *call) *slotWaiter {
	if !c.slots {
		return nil
	}
	var w *slotWaiter
	qs.mu.Lock()
	defer qs.mu.Unlock()
	for i := range c.charges {
		charge := &c.charges[i]
		if !charge.Limit.IsConcurrency() || charge.Shadow {
			continue
		}
		of := waitQueue{charge.Policy, charge.Key}
		q, waits := qs.queues[of], c.waits && charge.MaxWait > 0
		if !waits && (q == nil || !q.lacked) {
			continue
		}
		if q == nil {
			q = &slotQueue{of: of}
			if qs.queues == nil {
				qs.queues = make(map[waitQueue]*slotQueue)
			}
			qs.queues[of] = q
		}
		if w == nil {
			w = &slotWaiter{wake: make(chan struct{}, 1)}
		}
		q.waiters = append(q.waiters, w)
		w.places = append(w.places, slotPlace{queue: q, charge: i})
	}
	return w
}

// leave removes w. The next call charges the Store at once if w has got its slots: there may be more.
func (qs *slotQueues) leave(w *slotWaiter, granted bool) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	for i := range w.places {
		q := w.places[i].queue
		n := slices.Index(q.waiters, w)
		if q.waiters = slices.Delete(q.waiters, n, n+1); len(q.waiters) == 0 {
			delete(qs.queues, q.of)
		}
		if granted {
			q.due = time.Time{}
		}
		q.wakeFirst()
	}
}

// turn returns whether it is the turn of w, and how long until it may charge the Store. If w has rested, it has waited for as
// long as turn said.
func (qs *slotQueues) turn(w *slotWaiter, rested bool) (its bool, until time.Duration) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	for i := range w.places {
		p := &w.places[i]
		if p.queue.holdsUp(w) {
			w.isHeldUp(i)
			return false, slotPoll
		}
		if !p.passed && !rested {
			until = max(until, time.Until(p.queue.due))
		}
		p.releases = p.queue.releases
	}
	return true, until
}

// isHeldUp records that an earlier call holds up w in its place i.
func (w *slotWaiter) isHeldUp(i int) {
	for j := range w.places {
		p := &w.places[j]
		if was := p.passed; j == i {
			p.passed = false
		} else if p.passed = true; !was {
			p.queue.wakeFirst()
		}
	}
}

// refused records that the Store has refused c, the call of w. If it lacks the slots of several queues, later calls pass it in
// all but the first of them. It may not ask again until the others are due, and slots that are free meanwhile would be idle.
func (qs *slotQueues) refused(w *slotWaiter, c *call) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	lacks := false
	for i := range w.places {
		p := &w.places[i]
		refused := !c.states[p.charge].Allowed
		p.queue.lacked = p.queue.lacked || refused
		if p.passed = lacks || !refused; p.passed {
			p.queue.wakeFirst()
			continue
		}
		lacks = true
		if p.releases == p.queue.releases { // otherwise a slot may be free again
			p.queue.due = time.Now().Add(slotPoll)
		}
	}
}

// released lets calls that wait for slots charge the Store, because those of charges were released.
func (qs *slotQueues) released(charges []store.Charge) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	for i := range charges {
		if q := qs.queues[waitQueue{charges[i].Policy, charges[i].Key}]; q != nil {
			q.releases++
			q.due = time.Time{}
			q.wakeFirst()
		}
	}
}

// holdsUp reports whether an earlier call than w waits for a slot of q.
func (q *slotQueue) holdsUp(w *slotWaiter) bool {
	for _, earlier := range q.waiters {
		if earlier == w {
			break
		}
		if !earlier.isPassedIn(q) {
			return true
		}
	}
	return false
}

// wakeFirst wakes the first call that waits for a slot of q.
func (q *slotQueue) wakeFirst() {
	for _, w := range q.waiters {
		if !w.isPassedIn(q) {
			select {
			case w.wake <- struct{}{}:
			default:
			}
			return
		}
	}
}

func (w *slotWaiter) isPassedIn(q *slotQueue) bool {
	return slices.ContainsFunc(w.places, func(p slotPlace) bool { return p.queue == q && p.passed })
}

// timeLeft returns how long c, the call of w, may still wait for the slots that it lacks.
func (w *slotWaiter) timeLeft(c *call) time.Duration {
	left := store.Never
	for i := range w.places {
		if p := &w.places[i]; !p.passed {
			left = min(left, c.charges[p.charge].MaxWait)
		}
	}
	return left
}

// askForSlots calls the Store with c. If c may wait for slots, it waits for its turn, and calls again until it has them. It
// returns how long it waited, and in left why x ended before.
func (l *Limiter) askForSlots(x *exchange, c *call) (ok bool, waited time.Duration, left, err error) {
	w := l.slots.join(c)
	if w == nil {
		ok, err = l.ask(x, c)
		return ok, 0, nil, err
	}
	defer func() { l.slots.leave(w, ok && err == nil) }()
	rested, asked := false, false
	for {
		its, until := l.slots.turn(w, rested)
		if its && until <= 0 {
			ok, err = l.ask(x, c)
			if !c.lacksSlots(ok, err) {
				return ok, waited, nil, err
			}
			l.slots.refused(w, c)
			rested, asked = false, true
			continue
		}
		most := w.timeLeft(c)
		if most <= 0 {
			if !asked {
				err = l.lookAtSlots(x, c, w)
			}
			return false, waited, nil, err
		}
		slept, ended := l.sleep(x, min(until, most), w.wake)
		waited += slept
		if ended != nil {
			return false, waited, ended, nil
		}
		rested = its && slept >= until
		c.passTime(slept)
		for i := range w.places {
			c.charges[w.places[i].charge].Waited += slept
		}
	}
}

// lacksSlots reports whether c is refused only because it has to wait for slots, and may do so. ok and err are the answer of
// the Store.
func (c *call) lacksSlots(ok bool, err error) (lacks bool) {
	if ok || err != nil || c.failsClosed && c.degraded() {
		return false
	}
	for i := range c.charges {
		charge, s := &c.charges[i], &c.states[i]
		if s.Allowed || charge.Shadow {
			continue
		}
		if !charge.Limit.IsConcurrency() || s.Blocked || charge.MaxWait <= 0 {
			return false
		}
		lacks = true
	}
	return lacks
}

// lookAtSlots fills the states of c, a call that is refused because its turn did not come. It takes nothing.
func (l *Limiter) lookAtSlots(x *exchange, c *call, w *slotWaiter) error {
	charges := c.charges
	defer func() { c.charges = charges }()
	c.charges = slices.Clone(charges)
	for i := range c.charges {
		look := &c.charges[i]
		look.Cost, look.MaxWait, look.Lock = 0, 0, 0
	}
	_, err := l.ask(x, c)
	for i := range w.places {
		if p := &w.places[i]; !p.passed {
			s := &c.states[p.charge]
			s.Allowed, s.RetryAfter = false, max(s.RetryAfter, time.Second)
		}
	}
	return err
}
