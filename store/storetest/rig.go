package storetest

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit/store"
)

// A rig is a Store under test, its clock, and the model that each of its answers is compared with.
type rig struct {
	*testing.T
	store store.Store
	nanos atomic.Int64
	exact rationals
}

func newRig(t *testing.T, open Open) *rig {
	r := &rig{T: t, exact: rationals{}}
	// A day with nothing special about it, to the microsecond.
	r.nanos.Store(time.Date(2026, 5, 23, 10, 20, 30, 123_456_000, time.UTC).UnixNano())
	r.store = open(t, func() time.Time { return time.Unix(0, r.nanos.Load()) })
	return r
}

func (r *rig) now() int64 { return r.nanos.Load() / 1000 }

// wait moves the clock forwards, and lets a Forgetter forget. It returns how many buckets were forgotten.
func (r *rig) wait(d time.Duration) (forgotten int) {
	r.Helper()
	r.nanos.Add(int64(d))
	if f, ok := r.store.(Forgetter); ok {
		f.Forget(d)
		for n := range r.exact {
			forgotten += r.follow(n)
		}
	}
	return forgotten
}

// call makes a call that must not fail.
func (r *rig) call(charges ...store.Charge) (bool, []store.State) {
	states := make([]store.State, len(charges))
	ok, err := r.store.Take(context.Background(), charges, states)
	if err != nil {
		r.Errorf("Take(%+v): %v", charges, err)
	}
	return ok, states
}

// take makes a call that must not fail, and whose answer must be that of the model.
func (r *rig) take(charges ...store.Charge) (bool, []store.State) {
	r.Helper()
	ok, got := r.call(charges...)
	wantOK, want := r.exact.take(charges, r.now())
	compared := slices.Clone(got)
	for i, c := range charges {
		if releases(c) {
			compared[i], want[i] = store.State{Allowed: got[i].Allowed, Lost: got[i].Lost}, store.State{Allowed: true, Lost: want[i].Lost}
		}
	}
	if ok != wantOK || !slices.Equal(compared, want) {
		r.Fatalf("at %d of %+v\n\tgot  %t %+v\n\twant %t %+v", r.now(), charges, ok, got, wantOK, want)
	}
	for _, c := range charges {
		if releases(c) {
			r.awaitRelease(c)
		}
		r.follow(name{c.Policy, c.Key})
	}
	return ok, got
}

// block blocks a bucket, or unblocks it.
func (r *rig) block(n name, b store.Block) {
	r.Helper()
	if degraded, err := store.SetBlock(context.Background(), r.store, n.policy, n.key, b); degraded || err != nil {
		r.Fatalf("Block(%+v): degraded %t, error %v", b, degraded, err)
	}
	r.exact.block(n, b, r.now())
	r.follow(n)
}

// inspect returns what an Inspector reports of a bucket.
func (r *rig) inspect(n name) store.Bucket {
	r.Helper()
	b, err := store.Inspect(context.Background(), r.store, n.policy, n.key)
	if err != nil {
		r.Fatal(err)
	}
	return b
}

// follow compares what an Inspector reports of a bucket. If the Store has forgotten it, as it may, so does the model.
func (r *rig) follow(n name) (forgotten int) {
	r.Helper()
	e, known := r.exact[n]
	if !known || !is[store.Inspector](r) {
		return 0
	}
	b := r.inspect(n)
	if b == (store.Bucket{}) {
		if !r.exact.forgettable(n, r.now()) {
			r.Fatalf("at %d %+v is forgotten, want %+v", r.now(), n, e)
		}
		if e.limit == (store.Limit{}) {
			return 0 // only its block has ended, which a clock set back could begin again
		}
		delete(r.exact, n)
		return 1
	}
	if b.Limit == e.limit && e.tokens != nil && e.limit.Refill > 0 { // so that its last charge is that of the Store
		r.exact[n] = r.exact.at(store.Charge{Policy: n.policy, Key: n.key, Limit: e.limit}, r.now()-b.Age.Microseconds())
	}
	want := store.Bucket{Limit: e.limit, Credits: b.Credits, Age: b.Age}
	switch {
	case slotsOrNone(e.limit) && slotsOrNone(b.Limit) && heldOf(b) == e.held(): // the limit need not be that of a denied charge
		want.Limit, want.Age = b.Limit, 0
	case e.limit.IsConcurrency():
		want.Credits = floor(e.tokens).Int64()
	case e.limit.IsQuota():
		want.Credits, want.Age, want.Rest = floor(e.tokens).Int64(), 0, time.Duration(e.ends-r.now())*micro
	}
	if left := e.until - r.now(); left > 0 {
		want.Blocked, want.BlockedSince = time.Duration(left)*micro, time.Duration(max(0, r.now()-e.since))*micro
		want.Locked, want.Reason = e.lock, e.reason
	}
	if b != want {
		r.Fatalf("at %d of %+v\n\tkept %+v\n\twant %+v", r.now(), n, b, want)
	}
	for _, l := range []store.Limit{e.limit, {Unit: 7, Refill: 3, Capacity: 70}} {
		if l == (store.Limit{}) || l.IsQuota() && b.Rest <= 0 { // the next period is that of another clock
			continue
		}
		_, want := r.exact.take([]store.Charge{{Policy: n.policy, Key: n.key, Limit: l}}, r.now())
		if got := b.State(l); got != want[0] {
			r.Fatalf("at %d of %+v under %+v\n\tkept %+v\n\tgot  %+v\n\twant %+v", r.now(), n, l, b, got, want[0])
		}
	}
	return 0
}

// is reports whether the Store under test is an S.
func is[S any](r *rig) bool {
	_, ok := r.store.(S)
	return ok
}

// limit compiles a limit that must fit.
func (r *rig) limit(rate int64, per time.Duration, burst int64) store.Limit {
	l, err := store.NewLimit(rate, per, burst)
	if err != nil {
		r.Fatal(err)
	}
	return l
}
