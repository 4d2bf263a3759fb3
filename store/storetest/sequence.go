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

// RunSequence makes random calls and compares each answer, and each report of an Inspector, with exact rational numbers
// (math/big). The same seed makes the same calls.
//
// The calls are takes, peeks, refunds, resets, waits, shadows, Owed charges, settlements, locks, blocks, and sets of
// several charges. Limits range from 1 a month to 10^6 a second, some are quotas, and they change. Time moves forwards and backwards. For
// a [Forgetter], [RunForgetting] with a tenth of the steps follows.
func RunSequence(t *testing.T, open Open, steps int, seed uint64) {
	r := newRig(t, open)
	s := sequence{rig: r, limits: slices.Concat(quotas(r)[:3], slowToFill(r), quotas(r)[3:])}
	s.run(s.moveTime, steps, seed)
	if _, ok := r.store.(Forgetter); ok {
		RunForgetting(t, open, steps/10, seed)
	}
}

// RunForgetting is [RunSequence] for a [Forgetter]. Limits change often, and many fill within milliseconds. Time
// moves forwards only.
func RunForgetting(t *testing.T, open Open, steps int, seed uint64) {
	r := newRig(t, open)
	s := sequence{rig: r, limits: slices.Concat(quickToFill(r), slowToFill(r)), swings: true}
	s.run(s.moveOn, steps, seed)
	if s.forgotten < steps/100 {
		r.Errorf("only %d buckets were forgotten in %d calls", s.forgotten, steps)
	}
}

type sequence struct {
	*rig
	rand      *rand.Rand
	limits    []store.Limit
	swings    bool // the limits of buckets change often
	forgotten int
	retry     time.Duration // RetryAfter of the last denied call
}

func (s *sequence) run(move func(), steps int, seed uint64) {
	s.rand = rand.New(rand.NewPCG(seed, 0))
	s.Logf("seed %d", seed)
	for range steps {
		move()
		s.step()
	}
}

// upTo returns a random time below d.
func (s *sequence) upTo(d time.Duration) time.Duration { return time.Duration(s.rand.Int64N(int64(d))) }

// fill returns the time to full of one of the limits, or a small part of it.
func (s *sequence) fill(parts int) time.Duration {
	return fill(s.limits[s.rand.IntN(len(s.limits))]) / time.Duration(1+s.rand.IntN(parts))
}

// moveOn moves the clock by nothing, by a little, or by about the time that a quick limit takes to fill or a bucket
// to be forgotten.
func (s *sequence) moveOn() {
	d := []time.Duration{
		0, 0, 0, micro, min(minute, s.retry), min(minute, s.fill(1000)), s.upTo(3*min(minute, s.fill(1)) + second/200), s.upTo(second / 200),
	}[s.rand.IntN(8)]
	s.retry -= min(s.retry, d)
	s.forgotten += s.wait(d.Truncate(micro))
}

// moveTime moves the clock by an amount that may matter. That is nothing, a microsecond, a part of a fill time, or
// some time backwards. Or it moves to the RetryAfter of the last denied call, or to just before it.
func (s *sequence) moveTime() {
	d := []time.Duration{
		0, 0, 0, micro, micro, s.retry, max(0, s.retry-micro), s.upTo(second), s.upTo(second), s.fill(1000), -s.upTo(minute), -s.fill(1000) / 10,
	}[s.rand.IntN(12)]
	s.retry -= max(0, min(s.retry, d))
	before := s.nanos.Load()
	after := before + int64(d)
	if year := time.Unix(0, after).Year(); year > 2060 || year < 2000 {
		return // or the clock leaves the range of UnixNano
	}
	for n, e := range s.exact {
		if e.until <= before/1000 && e.until > after/1000 {
			// A Store may have dropped this block, which has ended. It would be in force again.
			s.take(store.Charge{Policy: n.policy, Key: n.key, Limit: s.limits[0], Cost: store.Reset})
		}
	}
	s.nanos.Store(after)
}

// step makes a call.
func (s *sequence) step() {
	key := fmt.Sprint("k", s.rand.IntN(3))
	charges := []store.Charge{s.charge(0, key), s.charge(1, key), s.charge(2, key)}
	charges = charges[:[]int{1, 1, 1, 1, 1, 1, 2, 3}[s.rand.IntN(8)]]
	first := &charges[0]
	switch n := s.rand.IntN(16); {
	case n == 0 && is[store.Blocker](s.rig):
		s.block(name{first.Policy, key}, store.Block{For: s.moment(first.Limit), Reason: "a reason"})
	case n == 1 && len(charges) == 1 && first.Cost > 0:
		*first = store.Charge{Policy: first.Policy, Key: key, Limit: first.Limit, Cost: first.Cost, Settles: true}
	}
	_, got := s.take(charges...)
	if retry := got[0].RetryAfter; retry > 0 && retry != store.Never {
		s.retry = retry
	}
}

// charge returns a charge of one of five policies, of which call has up to three.
func (s *sequence) charge(call int, key string) store.Charge {
	// Mostly the policy's own limit, so that buckets run dry, and now and then another.
	policy := call + 3*s.rand.IntN(5)
	limit := s.limits[policy%len(s.limits)]
	if s.rand.IntN(20) == 0 || s.swings && s.rand.IntN(4) == 0 {
		limit = s.limits[s.rand.IntN(len(s.limits))]
	}
	burst := burst(limit)
	c := store.Charge{Policy: fmt.Sprint("p", policy), Key: key, Limit: limit, Shadow: s.rand.IntN(6) == 0, Owed: s.rand.IntN(8) == 0}
	c.Cost = []int64{
		0, 1, 1, 1 + s.rand.Int64N(burst), 1 + s.rand.Int64N(burst), 1 + s.rand.Int64N(burst), 1 + s.rand.Int64N(burst),
		-1 - s.rand.Int64N(burst), burst - 1 + s.rand.Int64N(3), []int64{store.Reset, math.MaxInt64, burst}[s.rand.IntN(3)],
	}[s.rand.IntN(10)]
	if s.rand.IntN(4) == 0 {
		c.MaxWait = s.upTo(2 * fill(limit))
	}
	if c.Owed && c.Cost > 0 {
		c.Cost = 1 + s.rand.Int64N(2*burst)
		if s.rand.IntN(12) == 0 { // rarely, because the bucket denies all after it
			c.Cost = []int64{math.MaxInt64, deepest/limit.Unit - 1 + s.rand.Int64N(3)}[s.rand.IntN(2)]
		}
	}
	if s.rand.IntN(6) == 0 && c.Cost > 0 && (c.MaxWait == 0 || c.Owed) {
		c.Lock = s.moment(limit)
	}
	return c
}

// moment returns how long a block or lock is: not at all, for a moment, or for up to the time to full.
func (s *sequence) moment(l store.Limit) time.Duration {
	most := min(longest, fill(l))
	return []time.Duration{0, 1 + s.upTo(5*micro), 1 + s.upTo(most), 1 + s.upTo(most)/1000}[s.rand.IntN(4)]
}
