package storetest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit/store"
)

// RunSequence makes random calls and compares each answer with two models: package internal/bucket, and exact
// rational numbers (math/big). The same seed makes the same calls. Reports of an Inspector are compared, too.
//
// The calls are takes, peeks, refunds, resets, waits, shadows, Owed charges, blocks, locks, and sets of several charges.
// Limits range from 1 a month to 10^6 a second and change, and time moves forwards and backwards. For a [Forgetter],
// [RunForgetting] with a tenth of the steps follows.
func RunSequence(t *testing.T, open Open, steps int, seed uint64) {
	r := newRig(t, open)
	runSequence(r, slowToFill(r), nil, steps, seed)
	if _, ok := r.store.(Forgetter); ok {
		RunForgetting(t, open, steps/10, seed)
	}
}

// RunForgetting is [RunSequence] for a [Forgetter]. Limits change often, and many fill within milliseconds. Time
// moves forwards only.
func RunForgetting(t *testing.T, open Open, steps int, seed uint64) {
	r := newRig(t, open)
	runSequence(r, append(quickToFill(r), slowToFill(r)...), r.store.(Forgetter), steps, seed)
}

// A Forgetter is a Store that forgets full buckets when a test asks for it. Implement it for a Store that forgets
// by another clock than that of the test. It must be an Inspector.
type Forgetter interface {
	store.Store
	store.Inspector

	// Forget forgets the buckets that the Store would forget in the time d. The test has moved the clock forwards
	// by d since the last call.
	Forget(d time.Duration)
}

func runSequence(r *rig, limits []store.Limit, forgetter Forgetter, steps int, seed uint64) {
	exact := rationals{}
	s := sequence{
		rig:       r,
		rand:      rand.New(rand.NewPCG(seed, 0)),
		limits:    limits,
		forgetter: forgetter,
		models:    []model{integers{}, exact},
		exact:     exact,
	}
	for step := range steps {
		if forgetter == nil {
			s.moveTime()
		} else {
			s.moveOn()
		}
		s.step(step)
		if r.Failed() {
			r.Fatalf("step %d of seed %d", step, seed)
		}
	}
	if forgetter != nil && s.forgotten < steps/100 {
		r.Errorf("only %d buckets were forgotten in %d calls", s.forgotten, steps)
	}
}

// A model answers calls as a Store must.
type model interface {
	take(charges []store.Charge, now int64) (ok bool, states []store.State)

	// full returns the buckets that are full under the limits that they are kept under, and may be forgotten.
	full(now int64) []name

	forget(name)
}

type sequence struct {
	*rig
	rand      *rand.Rand
	limits    []store.Limit
	forgetter Forgetter
	forgotten int
	models    []model
	exact     rationals     // one of the models
	retry     time.Duration // RetryAfter of the last denied call
}

// moveOn moves the clock by nothing, by a little, or by about the time that a quick limit takes to fill or a bucket
// to be forgotten. The models forget only full buckets. So the answers show whether the Store has forgotten another
// one.
func (s *sequence) moveOn() {
	l := s.limits[s.rand.IntN(len(s.limits))]
	fill := min(time.Minute, time.Duration(l.Capacity/l.Refill)*time.Microsecond)
	var d time.Duration
	switch s.rand.IntN(8) {
	case 0, 1, 2:
		return
	case 3:
		d = time.Microsecond
	case 4:
		d, s.retry = min(time.Minute, s.retry), 0
	case 5, 6:
		d = time.Duration(s.rand.Int64N(3*int64(fill) + int64(5*time.Millisecond)))
	case 7:
		d = fill / time.Duration(1+s.rand.IntN(1000))
	}
	s.advance(d)
	s.forgetter.Forget(d)
	now := time.Unix(0, s.nanos.Load()).UnixMicro()
	full := s.models[0].full(now)
	for _, m := range s.models[1:] {
		if also := m.full(now); len(also) != len(full) {
			s.Fatalf("%v are full by %T, and %v by %T", full, s.models[0], also, m)
		}
	}
	for _, n := range full {
		if s.inspect(store.Charge{Policy: n.policy, Key: n.key}) == (store.Bucket{}) {
			s.forgotten++
			for _, m := range s.models {
				m.forget(n)
			}
		}
	}
}

// moveTime moves the clock by an amount that may matter. That is nothing, a microsecond, a part of a fill time, or
// some time backwards. Or it moves to the RetryAfter of the last denied call, or to just before it.
func (s *sequence) moveTime() {
	fill := func() time.Duration {
		l := s.limits[s.rand.IntN(len(s.limits))]
		return time.Duration(l.Capacity/l.Refill) * time.Microsecond
	}
	before := s.nanos.Load()
	switch s.rand.IntN(12) {
	case 0, 1, 2:
	case 3, 4:
		s.advance(time.Microsecond)
	case 5:
		s.advance(s.retry)
		s.retry = 0
	case 6:
		s.advance(max(0, s.retry-time.Microsecond))
		s.retry = min(s.retry, time.Microsecond)
	case 7, 8:
		s.advance(time.Duration(s.rand.Int64N(int64(time.Second))))
	case 9:
		s.advance(fill() / time.Duration(1+s.rand.IntN(1000)))
	case 10:
		s.advance(-time.Duration(s.rand.Int64N(int64(time.Minute))))
	case 11:
		s.advance(-fill() / time.Duration(10+s.rand.IntN(1000)))
	}
	// The longest fill times would move the clock out of the range of UnixNano.
	if year := time.Unix(0, s.nanos.Load()).Year(); year > 2060 || year < 2000 {
		s.nanos.Store(time.Date(2026, 5, 23, 0, 0, 0, 0, time.UTC).UnixNano())
	}
	if after := s.nanos.Load(); after < before {
		s.nanos.Store(before)
		s.unblockEnded(after)
		s.nanos.Store(after)
	}
}

// unblockEnded unblocks the buckets whose blocks have ended now, and would be in force again at a time before. A Store
// may have dropped such a block.
func (s *sequence) unblockEnded(before int64) {
	now := time.Unix(0, s.nanos.Load()).UnixMicro()
	for _, b := range s.exact.blocks() {
		if b.until > now || b.until <= time.Unix(0, before).UnixMicro() {
			continue
		}
		c := store.Charge{Policy: b.policy, Key: b.key, Limit: s.limits[0], Block: -1}
		_, got := s.take(c)
		for _, m := range s.models {
			if _, want := m.take([]store.Charge{c}, now); got[0] != want[0] {
				s.Fatalf("at %d of %+v\n\tgot  %+v\n\twant %+v by %T", now, c, got[0], want[0], m)
			}
		}
		s.forgetUnblocked([]store.Charge{c}, now)
	}
}

func (s *sequence) step(step int) {
	charges := make([]store.Charge, 1)
	if s.rand.IntN(4) == 0 {
		charges = make([]store.Charge, 2+s.rand.IntN(2))
	}
	key := fmt.Sprint("k", s.rand.IntN(3))
	for i := range charges {
		charges[i] = s.charge(i, key)
	}
	now := time.Unix(0, s.nanos.Load()).UnixMicro()
	ok, got := s.take(charges...)
	for _, m := range s.models {
		wantOK, want := m.take(charges, now)
		if ok != wantOK {
			s.Errorf("step %d: ok is %t, %T says %t, of %+v at %d\n\tgot  %+v\n\twant %+v", step, ok, m, wantOK, charges, now, got, want)
		}
		for i := range charges {
			if got[i] != want[i] {
				s.Errorf("step %d: at %d of %+v\n\tgot  %+v\n\twant %+v by %T", step, now, charges[i], got[i], want[i], m)
			}
		}
	}
	s.forgetUnblocked(charges, now)
	if _, ok := s.store.(store.Inspector); ok && s.rand.IntN(8) == 0 {
		c := charges[0]
		c.Cost, c.MaxWait, c.Shadow, c.Owed, c.Block = 0, 0, false, false, 0
		for _, c.Limit = range []store.Limit{c.Limit, s.limits[s.rand.IntN(len(s.limits))]} {
			for _, m := range s.models {
				_, want := m.take([]store.Charge{c}, now)
				s.want(s.inspect(c).State(c.Limit), want[0])
			}
		}
	}
	for i := range got {
		if retry := got[i].RetryAfter; retry > 0 && retry != store.Never {
			s.retry = retry
		}
	}
}

// forgetUnblocked lets the models forget full buckets that the Store has forgotten when their block was ended.
func (s *sequence) forgetUnblocked(charges []store.Charge, now int64) {
	if _, ok := s.store.(store.Inspector); !ok {
		return
	}
	for _, c := range charges {
		if c.Block == 0 && c.Cost >= 0 {
			continue
		}
		if n := (name{c.Policy, c.Key}); slices.Contains(s.models[0].full(now), n) && s.inspect(c) == (store.Bucket{}) {
			for _, m := range s.models {
				m.forget(n)
			}
		}
	}
}

// block blocks, unblocks or locks c's bucket now and then, if it may: for a moment, or for up to twice the time to full.
func (s *sequence) block(c *store.Charge) {
	if c.Cost < 0 || c.Cost == 0 && c.Owed || c.MaxWait > 0 {
		return
	}
	often := 2
	if c.Cost > 0 {
		often = 6
	}
	if s.rand.IntN(often) > 0 {
		return
	}
	fill := int64(time.Duration(c.Limit.Capacity/c.Limit.Refill+1) * time.Microsecond)
	switch s.rand.IntN(4) {
	case 0:
		if c.Cost == 0 {
			c.Block = -1
		}
	case 1:
		c.Block = time.Duration(1 + s.rand.IntN(5000))
	case 2:
		c.Block = time.Duration(1 + s.rand.Int64N(2*fill))
	case 3:
		c.Block = time.Duration(1 + s.rand.Int64N(2*fill)/1000)
	}
}

func (s *sequence) charge(i int, key string) store.Charge {
	// Mostly the policy's own limit, so that buckets run dry, and now and then another.
	policy := i + 3*s.rand.IntN(4)
	limit := s.limits[policy%len(s.limits)]
	if s.rand.IntN(20) == 0 || s.forgetter != nil && s.rand.IntN(4) == 0 {
		limit = s.limits[s.rand.IntN(len(s.limits))]
	}
	burst := limit.Capacity / limit.Unit
	c := store.Charge{Policy: fmt.Sprint("p", policy), Key: key, Limit: limit}
	switch s.rand.IntN(10) {
	case 0:
		c.Cost = 0
	case 1:
		c.Cost = -1 - s.rand.Int64N(burst)
	case 2:
		c.Cost = burst + s.rand.Int64N(3) - 1
	case 3, 4:
		c.Cost = 1
	case 5:
		c.Cost = []int64{math.MinInt64, math.MaxInt64, burst}[s.rand.IntN(3)]
	default:
		c.Cost = 1 + s.rand.Int64N(burst)
	}
	if s.rand.IntN(4) == 0 {
		c.MaxWait = time.Duration(s.rand.Int64N(int64(2 * time.Duration(limit.Capacity/limit.Refill) * time.Microsecond)))
	}
	c.Shadow = s.rand.IntN(6) == 0
	if c.Owed = s.rand.IntN(8) == 0; c.Owed && c.Cost > 0 {
		// Rarely so much that the bucket refuses all until it is filled.
		switch s.rand.IntN(24) {
		case 0:
			c.Cost = math.MaxInt64
		case 1:
			c.Cost = deepest/limit.Unit + s.rand.Int64N(3) - 1
		default:
			c.Cost = 1 + s.rand.Int64N(2*burst)
		}
	}
	s.block(&c)
	return c
}
