package lease

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/infer"
	"github.com/go-tokenbucket/ratelimit/internal/teststore"
	"github.com/go-tokenbucket/ratelimit/store"
)

// Between finding its lot and taking its slot, a call may find that others have changed both.
func TestWhoOwnsASlot(t *testing.T) {
	type changed struct {
		*Store
		t *testing.T
		c store.Charge
		v *visit
	}
	take := func(ch *changed, c store.Charge) {
		for range 2 { // so that one is leased
			teststore.Must(ch.t, ch.Store, c)
		}
	}
	for name, tt := range map[string]struct {
		change             func(ch *changed)
		paid, owns, hasLot bool
		drawing            bool // afterwards, by another call
	}{
		"nothing":                      {func(*changed) {}, false, true, false, false},
		"a lot came":                   {func(ch *changed) { take(ch, ch.c) }, true, false, true, false},
		"a lot came, of another limit": {func(ch *changed) { take(ch, ch.c); ch.c.Limit = teststore.Limit(ch.t, 1, time.Hour, 9) }, false, true, true, false},
		"a lot came, too small":        {func(ch *changed) { take(ch, ch.c); ch.c.Cost = 50 }, false, true, true, false},
		"a lot of another bucket came": {func(ch *changed) { other := ch.c; other.Key = "other"; take(ch, other) }, false, false, false, false},
		"the lot went":                 {func(ch *changed) { ch.v.lot = new(lot) }, false, true, false, false},
		"the lot of another bucket is useless": {func(ch *changed) {
			ch.v.lot = new(lot)
			ch.v.slot.lot.Store(&lot{Line: infer.Line{Policy: "p", Key: "other", Sent: -2 * ch.hold.Microseconds()}})
		}, false, true, false, false},
		"a reset began":           {func(ch *changed) { ch.v.slot.stamp.Add(1) }, false, false, false, false},
		"another call is at it":   {func(ch *changed) { ch.v.slot.drawing.Store(true) }, false, false, false, true},
		"a reset began and ended": {func(ch *changed) { ch.v.slot.stamp.Add(resetDone) }, false, true, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := New(teststore.OpenMemory(t, nil), Config{MaxKeys: 1, Hold: time.Hour})
				defer s.Close()
				ch := &changed{Store: s, t: t, c: teststore.Months(t, 1)}
				v := s.look(&ch.c)
				ch.v = &v
				tt.change(ch)
				var state store.State
				v.own(s, &ch.c, &state)
				if v.paid != tt.paid || v.owns != tt.owns || (v.lot != nil) != tt.hasLot {
					t.Errorf("paid %t, owns %t, has a lot %t; want %t, %t, %t", v.paid, v.owns, v.lot != nil, tt.paid, tt.owns, tt.hasLot)
				}
				if drawing := v.slot.drawing.Load(); drawing != (tt.owns || tt.drawing) {
					t.Errorf("the slot is taken: %t", drawing)
				}
				if v.lot != nil && v.lot != v.slot.lot.Load() {
					t.Error("its lot is not that of the slot")
				}
				if v.release(); tt.owns && v.slot.drawing.Load() {
					t.Error("the slot is taken after release")
				}
				v.slot.drawing.Store(false)
			})
		})
	}
}

// A draw takes what its call costs, and more of a bucket whose tokens were used up in time.
func TestHowManyTokensADrawTakes(t *testing.T) {
	for name, tt := range map[string]struct {
		unspent, next, cost int64
		stale               bool
		wish, rest, back    int64
	}{
		"as many as the lot says":              {unspent: 0, next: 8, cost: 2, wish: 8},
		"at least twice the cost":              {unspent: 0, next: 2, cost: 5, wish: 10},
		"at most the fraction":                 {unspent: 0, next: 100, cost: 5, wish: 60},
		"with what is left":                    {unspent: 3, next: 8, cost: 5, wish: 10, rest: 3},
		"what would have paid is given back":   {unspent: 5, next: 8, cost: 5, wish: 5, back: 5},
		"what is too old is given back":        {unspent: 3, next: 8, cost: 5, stale: true, wish: 5, back: 3},
		"nothing of an old lot":                {unspent: 0, next: 8, cost: 5, stale: true, wish: 5},
		"no more than the cost if it is large": {unspent: 0, next: 8, cost: 70, wish: 70},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := New(teststore.OpenMemory(t, nil), Config{Hold: time.Minute})
				defer s.Close()
				time.Sleep(time.Hour)
				c, now := teststore.Months(t, tt.cost), s.now()
				l := &lot{Line: infer.Line{Policy: c.Policy, Key: c.Key, Limit: c.Limit, Sent: now, Received: now}, next: tt.next, instant: true, fate: new(fate)}
				l.Least, l.Most = 500*c.Limit.Unit, 500*c.Limit.Unit
				l.fate.use(c.Limit)
				l.unspent.Store(tt.unspent)
				if tt.stale {
					l.Sent -= 2 * s.hold.Microseconds()
				}
				v := s.look(&c)
				v.lot = l
				v.note(s, &c, true, now) // so that it was charged a moment ago
				back := v.plan(s, &c, now)
				if v.wish != tt.wish || v.rest != tt.rest || back.Cost != -tt.back {
					t.Errorf("takes %d with %d that are left, gives back %d; want %d, %d, %d", v.wish, v.rest, -back.Cost, tt.wish, tt.rest, tt.back)
				}
			})
		})
	}
}
