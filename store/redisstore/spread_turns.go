package redisstore

import (
	"cmp"
	"math"
	"slices"
)

// takeInTurn reads all buckets first, and then charges one place after another. A call that one bucket is certain to
// refuse takes nothing from the others. If many calls see the same last tokens at once, only those that the first
// place admits go on to the next.
//
// The first place is the one that can pay the fewest such calls, so it refuses the most. The refused calls have not
// touched the buckets with more tokens, which are mostly those that many clients share. If the shared bucket is the
// scarcest, the refused calls have not touched the buckets of single clients. Shadows refuse nothing, so they come last.
func (e *engine) takeInTurn(w *waiter, items []item, found []answer, apart bool) (refused bool, err error) {
	if refused, err := e.look(w, items, found, apart); refused || err != nil {
		return refused, err
	}
	turns, err := e.split(w.ctx, items, apart, func(_ int, t *term) bool { return t.vetoes() })
	if err != nil {
		return false, err
	}
	slices.SortStableFunc(turns, func(a, b *part) int {
		aNow, aFull := a.tightness(found)
		bNow, bFull := b.tightness(found)
		return cmp.Or(cmp.Compare(aNow, bNow), cmp.Compare(aFull, bFull))
	})
	shadows, err := e.split(w.ctx, items, true, func(_ int, t *term) bool { return t.shadow && !t.certain() })
	if err != nil {
		return false, err
	}
	turns = append(turns, shadows...)
	for i, p := range turns {
		p.lane.requeue(p.call) // the call was accepted when it read the buckets
		turn := turns[i : i+1]
		if err := w.all(turn); err != nil {
			e.undoLate(items, found, turn)
			return false, err
		}
		read(turn, items, found)
		// A part is charged whole or not at all.
		if first := found[p.at[0]]; p.call.items[0].term.vetoes() && (first.err != nil || !first.charged) {
			e.undo(w, items, found)
			return first.err == nil, first.err
		}
	}
	return false, e.complete(w, items, found)
}

// look reads all buckets without charging them, and reports whether one of them would refuse the call.
func (e *engine) look(w *waiter, items []item, found []answer, apart bool) (refused bool, err error) {
	parts, err := e.split(w.ctx, items, apart, func(_ int, t *term) bool {
		t.look()
		return true
	})
	if err != nil {
		return false, err
	}
	e.begin(parts)
	if err := w.all(parts); err != nil {
		abandon(parts)
		return false, err
	}
	read(parts, items, found)
	for i := range found {
		found[i].charged = items[i].term.pays(found[i].credits, found[i].blocked, 1) == 1 // as if it had been charged
	}
	refused, err = verdict(items, found)
	for i := range found {
		found[i].charged = false
	}
	return refused, err
}

// tightness returns how often the scarcest bucket of p can pay its item: now, and if all buckets are full.
func (p *part) tightness(found []answer) (now, full int64) {
	now, full = math.MaxInt64, math.MaxInt64
	for j, i := range p.at {
		t := &p.call.items[j].term
		now = min(now, t.pays(found[i].credits, found[i].blocked, math.MaxInt64))
		full = min(full, t.pays(t.limit.Capacity, 0, math.MaxInt64))
	}
	return now, full
}
