package redisstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-tokenbucket/ratelimit/store"
)

// errSpread is the error of a call whose keys turn out to be in several places.
var errSpread = errors.New("redisstore: keys of several hash slots")

// errNoBucket is the error for a key that holds no bucket, if Redis returns no error of its type.
var errNoBucket = fmt.Errorf("redisstore: %w", store.ErrNoBucket)

// sameSlot reports whether all items have one hash slot.
func sameSlot(items []item) bool {
	for i := range items {
		if items[i].slot != items[0].slot {
			return false
		}
	}
	return true
}

// together reports whether items can be taken in one script call.
func (e *engine) together(items []item) bool {
	switch {
	case sameSlot(items):
		return true
	case e.bySlot.Load() && e.crossSlot == CrossSlotNever:
		return false
	}
	first, _ := e.routes.lane(items[0].name)
	for i := range items {
		if l, err := e.routes.lane(items[i].name); l != first || err != nil {
			return false
		}
	}
	return !e.bySlot.Load() || first.crosses()
}

// followTime bounds the time to give back tokens after a refusal.
const followTime = time.Second

// takeSpread charges buckets in several places: at once, or in turn if a call of these policies was refused lately.
// Until a call is decided, other calls may find fewer tokens than there are, but never more. Tokens that cannot be
// given back are missing until they are refilled.
//
// A call that ends in an error, or whose caller leaves, gives back what its buckets paid.
//
// Refunds and owed charges, which no bucket can refuse, are sent after all buckets have allowed the call. So they
// never have to be undone: other calls might have spent a refund, and the bound of a debt might have cut it.
//
// The slots of one master are one place if it takes them in one script and apart is not set.
func (e *engine) takeSpread(ctx context.Context, charges []store.Charge, states []store.State, apart bool) (bool, error) {
	if !e.enter() {
		return false, ErrClosed
	}
	defer e.flying.Done()
	items := make([]item, len(charges))
	for i := range charges {
		items[i] = e.newItem(&charges[i])
	}
	e.keys.name(items)
	found := make([]answer, len(items))
	takeParts, begin := e.takeAtOnce, time.Now()
	if e.caution.due(items) {
		takeParts = e.takeInTurn
	}
	w := &waiter{ctx: ctx}
	refused, err := takeParts(w, items, found, apart)
	if err == errSpread { // a slot has left its master; tokens taken elsewhere are given back
		clear(found)
		refused, err = takeParts(w, items, found, true)
	}
	if refused || err != nil {
		e.caution.note(items, time.Since(begin))
	}
	switch {
	case refused:
	case errors.Is(err, errOver):
		return false, late(ctx.Err())
	case err != nil:
		return false, err
	}
	for i := range charges {
		if found[i].err != nil {
			states[i] = unanswered
		} else {
			charges[i].Fill(&states[i], found[i].credits, microseconds(found[i].rest), microseconds(found[i].blocked), found[i].charged)
		}
	}
	return !refused, nil
}

// takeAtOnce charges all places in one round trip. If one of them refuses or fails, it gives back what the others
// charged. Until then other calls find too few tokens, so it is for calls that are seldom refused.
func (e *engine) takeAtOnce(w *waiter, items []item, found []answer, apart bool) (refused bool, err error) {
	parts, err := e.split(w.ctx, items, apart, func(_ int, t *term) bool {
		if t.certain() {
			t.look() // only reads the bucket
		}
		return true
	})
	if err != nil {
		return false, err
	}
	e.begin(parts)
	if err := w.all(parts); err != nil {
		e.undoLate(items, found, parts)
		return false, err
	}
	read(parts, items, found)
	if refused, err := verdict(items, found); refused || err != nil {
		e.undo(w, items, found)
		return refused, err
	}
	return false, e.complete(w, items, found)
}

// begin sends the first parts of a call. A full queue or Close can refuse them.
func (e *engine) begin(parts []*part) {
	for _, p := range parts {
		if err := p.lane.enqueue(p.call); err != nil {
			p.call.finish(nil, 0, err)
		}
	}
}

// enter makes close wait until flying.Done. It reports false if the engine is closed. The lock orders it against close,
// which locks every lane after it sets closed.
func (e *engine) enter() bool {
	e.routes.only.mu.Lock()
	defer e.routes.only.mu.Unlock()
	if e.closed.Load() {
		return false
	}
	e.flying.Add(1)
	return true
}

// A part is the items of a call that are in one place.
type part struct {
	server, lane *lane // of the server, and of the call
	call         *call
	at           []int // their indexes in the call
	done         bool
}

// split returns the parts of the items that pick accepts. pick may change their terms. If apart is set, each part has
// one hash slot, if the server has slots.
func (e *engine) split(ctx context.Context, items []item, apart bool, pick func(i int, t *term) bool) ([]*part, error) {
	var parts []*part
next:
	for i, it := range items {
		if !pick(i, &it.term) {
			continue
		}
		l, err := e.routes.lane(it.name)
		if err != nil {
			return nil, err
		}
		for _, p := range parts {
			if p.server == l && (p.call.items[0].slot == it.slot || !e.bySlot.Load() || !apart && l.crosses()) {
				p.call.items = append(p.call.items, it)
				p.at = append(p.at, i)
				continue next
			}
		}
		c := e.newCall(ctx)
		c.items = append(c.items, it)
		parts = append(parts, &part{server: l, lane: l, call: c, at: []int{i}})
	}
	for _, p := range parts {
		if p.call.acquires() {
			p.lane = p.server.acquiring
		}
	}
	return parts, nil
}

// all waits until all parts are done. It returns an error if it gives up before.
func (w *waiter) all(parts []*part) error {
	for _, p := range parts {
		if p.done {
			continue
		}
		if err := w.await(p.call, p.lane); err != nil {
			p.lane.relieve(w.ctx, err)
			return err
		}
		p.done = true
	}
	return nil
}

// forever waits until all parts are done.
func forever(parts []*part) { _ = (&waiter{ctx: context.Background()}).all(parts) }

// abandon notes that no caller waits for the parts that are not done. They need not be sent any more.
func abandon(parts []*part) {
	for _, p := range parts {
		if !p.done && p.call.stage.Swap(left) == credited {
			p.call.stage.Store(credited)
		}
	}
}

// An answer is the result of an item.
type answer struct {
	credits int64 // of the bucket, after the charge
	rest    int64 // how many microseconds are left of the period of a quota
	blocked int64 // for how many microseconds it is blocked then
	charged bool
	err     error
}

// verdict reports whether an item refuses the call. err is the error of an item that could have refused it. It is
// errSpread if items must still be asked slot by slot.
func verdict(items []item, found []answer) (refused bool, err error) {
	for i := range items {
		switch {
		case found[i].err == errSpread:
			return false, errSpread
		case items[i].term.shadow:
		case found[i].err != nil:
			err = found[i].err
		case !found[i].charged:
			refused = true
		}
	}
	return refused, err
}

// undoLate waits for the parts that were under way when the caller left, and undoes the call.
func (e *engine) undoLate(items []item, found []answer, parts []*part) {
	abandon(parts)
	e.flying.Add(1)
	go func() {
		defer e.flying.Done()
		forever(parts)
		read(parts, items, found)
		e.undo(&waiter{ctx: context.Background()}, items, found)
	}()
}

// undo gives back what was taken, and updates found.
func (e *engine) undo(w *waiter, items []item, found []answer) {
	e.caution.note(items, 0) // at once, so that fewer further calls have to be undone
	taken := make([]bool, len(items))
	for i := range found {
		t := items[i].term
		if taken[i] = found[i].charged && !t.certain(); taken[i] {
			found[i].credits, found[i].blocked = min(t.limit.Capacity, found[i].credits+t.need), 0 // if the answer is missing
		}
		if taken[i] && t.acquires() {
			e.holdings.giveBack(items[i].policy, items[i].key, t.limit, t.need)
			taken[i] = false
		}
	}
	_ = e.follow(w, items, found, func(i int, t *term) bool {
		t.need, t.debt, t.lock = -t.need, 0, 0
		return taken[i]
	})
	for i := range found {
		found[i].charged = false
	}
}

// complete sends the rest of a call that no bucket refuses: its refunds and owed charges. If that fails, or the caller
// leaves, it gives back what the other items paid. The rest is still sent.
func (e *engine) complete(w *waiter, items []item, found []answer) error {
	err := e.follow(w, items, found, func(_ int, t *term) bool { return t.need != 0 && t.certain() })
	if err == nil {
		_, err = verdict(items, found)
	}
	if err != nil {
		e.undo(w, items, found)
	}
	return err
}

// follow sends the items that pick accepts, and puts the answers into found. It continues after ctx has ended.
func (e *engine) follow(w *waiter, items []item, found []answer, pick func(int, *term) bool) error {
	limited, cancel := context.WithTimeout(context.Background(), followTime)
	parts, err := e.split(limited, items, true, pick)
	if err != nil {
		cancel()
		return err
	}
	for _, p := range parts {
		p.lane.requeue(p.call)
	}
	finish := func() {
		defer cancel()
		forever(parts)
		for _, p := range parts {
			for _, i := range p.at {
				e.forget(items[i].policy, items[i].key) // others may have been refused meanwhile
			}
		}
	}
	if err := w.all(parts); err != nil {
		e.flying.Add(1)
		go func() {
			defer e.flying.Done()
			finish()
		}()
		return err
	}
	finish()
	read(parts, items, found)
	return nil
}

// read puts the results of parts into found.
func read(parts []*part, items []item, found []answer) {
	for _, p := range parts {
		for j, i := range p.at {
			found[i].err = p.call.err
			switch {
			case p.call.err != nil:
			case p.call.unknown(j):
				found[i].err = errNoBucket
			default:
				found[i].credits, found[i].charged = p.call.answer(j)
				if items[i].term.acquires() && p.call.stage.Load() == left {
					found[i].charged = false // the slots were given back
				}
				found[i].rest, found[i].blocked = p.call.rest(j), p.call.blocked(j)
			}
		}
	}
}
