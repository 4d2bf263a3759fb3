package redisstore

import (
	"sync"
	"time"
)

// An entry is a list of identical calls. They are sent as one, which stands for all of them.
type entry struct {
	first, last *call // linked by next, in the order in which they came
	count       int64
	resent      int64 // how many of them were sent before, to a server that could not answer
	lone        int   // the number of its term, if it is a single call of one charge; see command.sort
}

// A batch is the entries that are sent together.
type batch struct {
	entries []entry
	charges int
	byName  map[name]int // the latest entry whose first item is of that bucket
	calls   int
	since   time.Time // when it began to wait
}

type name struct{ policy, key string }

var batches = sync.Pool{New: func() any { return &batch{byName: make(map[name]int)} }}

func newBatch() *batch {
	b := batches.Get().(*batch)
	b.since = time.Now()
	return b
}

// release reuses a batch. No caller may still refer to its entries.
func (b *batch) release() {
	clear(b.entries)
	clear(b.byName)
	b.entries, b.charges, b.calls = b.entries[:0], 0, 0
	batches.Put(b)
}

// add adds c, merged with identical calls. It reports false if the batch would then have more than most charges.
func (b *batch) add(c *call, most int) bool {
	first := name{c.items[0].policy, c.items[0].key}
	if i, found := b.byName[first]; found && b.entries[i].first.same(c) {
		e := &b.entries[i]
		e.last.next = c
		e.last = c
		e.count++
		b.calls++
		return true
	}
	if b.charges > 0 && b.charges+len(c.items) > most {
		return false
	}
	b.byName[first] = len(b.entries)
	b.entries = append(b.entries, entry{first: c, last: c, count: 1})
	b.charges += len(c.items)
	b.calls++
	return true
}

// claim removes the calls whose callers have left, so that they are not charged. It returns the latest deadline of
// the other callers. The time is zero if one of them has no deadline.
func (b *batch) claim() (deadline time.Time) {
	endless := false
	b.entries = keep(b.entries, func(c *call) bool {
		if !c.stage.CompareAndSwap(waiting, claimed) {
			return false
		}
		if !c.limited {
			endless = true
		} else if c.deadline.After(deadline) {
			deadline = c.deadline
		}
		return true
	})
	if endless || len(b.entries) == 0 {
		return time.Time{}
	}
	// A caller that still waits after its deadline waits because this process lacks processor time.
	if soonest := time.Now().Add(defaultGiven); time.Until(deadline) <= 0 {
		return soonest
	}
	return deadline
}

// keep returns entries without the calls that stays rejects. It finishes these: their callers have left.
func keep(entries []entry, stays func(*call) bool) []entry {
	kept := entries[:0]
	for _, e := range entries {
		var rest entry
		for c, next := e.first, (*call)(nil); c != nil; c = next {
			next, c.next = c.next, nil
			if !stays(c) {
				c.finish(nil, 0, errOver)
				continue
			}
			if rest.count == 0 {
				rest.first = c
			} else {
				rest.last.next = c
			}
			rest.last = c
			rest.count++
			if c.tries > 0 {
				rest.resent++
			}
		}
		if rest.count > 0 {
			kept = append(kept, rest)
		}
	}
	clear(entries[len(kept):])
	return kept
}

// finish answers the calls of e.
func (e *entry) finish(reply []int64, err error) {
	turn := int64(0)
	for c, next := e.first, (*call)(nil); c != nil; c = next {
		next = c.next // before c is reused
		c.finish(reply, turn, err)
		turn++
	}
}

// long returns the answer to the calls of e if some of its buckets are blocked or have quotas, or if slots were lost. It also
// returns the rest of tail after them. For each such bucket, tail has two integers. The first is the number of its charge,
// below zero for a quota or slots. The second is for how long it is blocked or the period goes on, or what became of the claim.
// The first charge of e has the number first+1.
func (e *entry) long(reply, tail []int64, first int) (long, rest []int64) {
	charges := len(e.first.items)
	reply = append(make([]int64, 0, 4*charges), reply...)[:4*charges]
	for len(tail) > 0 && max(tail[0], -tail[0]) <= int64(first+charges) {
		if i := int(tail[0]) - first - 1; i >= 0 {
			reply[2*charges+i] = tail[1]
		} else if i := int(-tail[0]) - first - 1; i >= 0 {
			reply[3*charges+i] = tail[1]
		}
		tail = tail[2:]
	}
	return reply, tail
}

// slot is that of its first key.
func (e *entry) slot() uint16 { return e.first.items[0].slot }

// untouched reports whether nothing of e was carried out, according to the reply of a script across slots.
func (e *entry) untouched(reply []int64) bool { return reply[0] == -1 }

// vetoed reports whether reply says that a key of a charge that is no shadow holds no bucket.
func (e *entry) vetoed(reply []int64) bool {
	for i := range e.first.items {
		if reply[2*i] == -1 && !e.first.items[i].term.shadow {
			return true
		}
	}
	return false
}
