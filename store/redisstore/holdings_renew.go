package redisstore

import (
	"container/heap"
	"context"
	"time"
)

// schedule sets when h is due.
func (s *holdings) schedule(h *holding, now time.Time) {
	ended := !now.Before(h.claimed.Add(s.lease)) // in Redis, if it was not renewed
	switch {
	case h.flights > 0 || h.asserted:
		s.setDue(h, h.sent.Add(assertTime))
	case h.held == 0 && (ended || !h.unconfirmed && h.count == 0):
		if doubted := h.doubt.Add(s.lease); !ended && now.Before(doubted) {
			s.setDue(h, doubted)
			return
		}
		if h.index >= 0 {
			heap.Remove(&s.queue, h.index)
		}
		if h.lost == 0 {
			delete(s.byName, h.name)
		}
	case !h.failed.IsZero():
		s.setDue(h, h.failed.Add(repeatEvery))
	case h.unconfirmed:
		s.setDue(h, now)
	case h.held == h.count:
		s.setDue(h, h.confirmed.Add(s.lease/3))
	default:
		s.setDue(h, now.Add(-s.lease)) // before all renewals
	}
}

// released reports whether Redis has to learn of a release.
func (h *holding) released() bool { return h.held < h.count && !h.unconfirmed }

func (s *holdings) setDue(h *holding, due time.Time) {
	if h.due = due; h.index < 0 {
		heap.Push(&s.queue, h)
	} else {
		heap.Fix(&s.queue, h.index)
	}
}

// assert has flush send the slots of h to Redis.
func (s *holdings) assert(h *holding, now time.Time) {
	c := s.engine.newCall(context.Background())
	c.items = append(c.items, item{policy: h.name.policy, key: h.name.key, term: term{limit: h.limit, waited: -1, asserts: true}})
	c.deadline, c.limited = now.Add(assertTime), true
	s.engine.keys.name(c.items)
	l, err := s.engine.routes.laneOf(c)
	if err != nil {
		h.failed = now
		s.schedule(h, now)
		return
	}
	if h.asserted || h.flights > 0 { // one of the flights before takes long
		l.relieveSince(now.Add(-assertTime))
	}
	if !h.asserted { // else the one before still waits
		s.ready[l] = append(s.ready[l], c)
	}
	h.asserted, h.sent = true, now
	s.schedule(h, now)
}

// renew asserts the holdings that are due.
func (s *holdings) renew() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.armed = time.Time{}
	if s.stopped {
		return
	}
	now := time.Now()
	for n := 0; n < assertMost && len(s.queue) > 0 && !now.Before(s.queue[0].due); {
		h := s.queue[0]
		if h.flights == 0 && !h.asserted {
			s.schedule(h, now)
			if h.index < 0 || now.Before(h.due) { // it need not be asserted any more
				continue
			}
		}
		s.assert(h, now)
		s.last = now
		n++
	}
	s.log(now)
	s.flush(now)
}

// flush sends the assertions that are ready, and sets the timer for renew.
func (s *holdings) flush(now time.Time) {
	for l, calls := range s.ready {
		l.requeue(calls...)
	}
	clear(s.ready)
	var at time.Time
	if len(s.queue) > 0 {
		at = s.queue[0].due
	}
	pace := renewEvery
	if !at.IsZero() && s.queue[0].released() {
		pace = releaseEvery
	}
	if len(s.losses.fresh) > 0 && (at.IsZero() || s.losses.logged.Add(logEvery).Before(at)) {
		at = s.losses.logged.Add(logEvery)
	}
	if soonest := s.last.Add(pace); at.Before(soonest) && !at.IsZero() {
		at = soonest
	}
	if at.IsZero() || s.stopped || !s.armed.IsZero() && !at.Before(s.armed) {
		return
	}
	if s.armed = at; s.timer == nil {
		s.timer = time.AfterFunc(at.Sub(now), s.renew)
	} else {
		s.timer.Reset(at.Sub(now))
	}
}

// stop ends the renewals.
func (s *holdings) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	if s.timer != nil {
		s.timer.Stop()
	}
	s.losses.logged = time.Time{}
	s.log(time.Now())
}

// release sends what was released and is not confirmed yet.
func (s *holdings) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for _, h := range s.byName {
		if !h.asserted && (h.held != h.count || h.unconfirmed) {
			s.assert(h, now)
		}
	}
	s.flush(now)
}

// A dueQueue is a heap of holdings.
type dueQueue []*holding

func (q dueQueue) Len() int           { return len(q) }
func (q dueQueue) Less(i, j int) bool { return q[i].due.Before(q[j].due) }

func (q dueQueue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}

func (q *dueQueue) Push(h any) {
	h.(*holding).index = len(*q)
	*q = append(*q, h.(*holding))
}

func (q *dueQueue) Pop() any {
	last := len(*q) - 1
	h := (*q)[last]
	(*q)[last], h.index = nil, -1
	*q = (*q)[:last]
	return h
}
