package ratelimit

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/deadline"
	"github.com/go-tokenbucket/ratelimit/store"
)

// heldSlots are the slots that a request or a call of [Limiter.Acquire] holds. They are released when all of its users have
// ended: the handler, and the connections that it has taken over.
type heldSlots struct {
	l       *Limiter
	ctx     context.Context // its values
	request *http.Request   // nil for a call without one, or if no observer asks for its route
	route   string          // if the request may be over at the release
	slots   []heldSlot
	room    [1]heldSlot // for slots
	users   atomic.Int32
}

// A heldSlot is a slot, and how it is released.
type heldSlot struct {
	charge store.Charge // that releases it
	limit  Limit        // that it was taken under
	policy *policy      // nil for a policy of Acquire
	hidden bool
}

// hold keeps the slots that c has taken in x.held.
func (l *Limiter) hold(x *exchange, c *call, start start) {
	held := &heldSlots{l: l, ctx: x, request: start.request}
	held.slots = held.room[:0]
	for i := range c.charges {
		charge, s := c.charges[i], &c.states[i]
		if !charge.Limit.IsConcurrency() || charge.Cost <= 0 || !s.Allowed || !isKnown(s) {
			continue
		}
		charge.Cost, charge.MaxWait, charge.Waited, charge.Standby = -charge.Cost, 0, 0, s.Degraded
		slot := heldSlot{charge: charge, limit: c.applied[i].limit, hidden: c.applied[i].policy.Hidden}
		if p := c.applied[i].policy; p != &c.policy {
			slot.policy = p
		}
		held.slots = append(held.slots, slot)
	}
	if len(held.slots) > 0 {
		held.users.Store(1)
		x.held = held
	}
}

// join adds a user. It returns false if the slots are released already.
func (h *heldSlots) join() bool {
	for {
		n := h.users.Load()
		if n <= 0 {
			return false
		}
		if h.users.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// done ends a user. Further calls, when no user is left, do nothing.
func (h *heldSlots) done() {
	if h != nil && h.users.Add(-1) == 0 {
		h.release()
	}
}

// release gives the slots back, under the limits that are in force now.
func (h *heldSlots) release() {
	l, begin := h.l, time.Now()
	charges, states := make([]store.Charge, len(h.slots)), make([]store.State, len(h.slots))
	for i := range h.slots {
		s := &h.slots[i]
		if s.policy != nil {
			s.limit, s.charge.Limit = s.policy.inForce(s.charge.Key, s.limit, s.charge.Limit)
		}
		charges[i] = s.charge
	}
	limited := &deadline.Context{Parent: context.WithoutCancel(h.ctx), Terms: &l.ofCalls}
	defer limited.End()
	if _, err := l.store.Take(limited, charges, states); err != nil {
		l.failures.Log(limited, fmt.Errorf("the slot of a request was not released: %w", err))
		return
	}
	l.slots.released(charges)
	h.reportLost(states, begin)
}

// reportLost reports the slots that were not held any more.
func (h *heldSlots) reportLost(states []store.State, begin time.Time) {
	var lost []Result
	for i := range states {
		if s := &h.slots[i]; states[i].Lost {
			lost = append(lost, Result{
				Policy: s.charge.Policy,
				Key:    s.charge.Key,
				Limit:  s.limit,
				Cost:   s.charge.Cost,
				Shadow: s.charge.Shadow,
				Hidden: s.hidden,
				State:  states[i],
			})
		}
	}
	if l := h.l; len(lost) > 0 && l.observe != nil {
		if h.request != nil {
			h.route = l.routeOf(h.request)
		}
		l.observe(context.WithoutCancel(h.ctx), &Event{Op: "expired", Allowed: true, Results: lost, Took: time.Since(begin), Route: h.route})
	}
}
