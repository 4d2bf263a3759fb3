package bucket_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/go-tokenbucket/ratelimit/internal/bucket"
	"github.com/go-tokenbucket/ratelimit/internal/test/testsize"
)

// ticking is a bucket that can be blocked, in the plainest way: it counts each microsecond.
type ticking struct {
	limit  bucket.Limit
	tokens int64
	ahead  int64 // microseconds until the clock is where it was before it was set back
	left   int64 // of a block; below 0 since it has ended
	lock   bool
	marked bool // a block is kept, also one that has ended, until a charge finds that it has
}

func (t *ticking) tick() {
	if t.ahead > 0 {
		t.ahead--
	} else {
		t.tokens = min(t.limit.Capacity, t.tokens+t.limit.Refill)
	}
	t.left--
}

// written is what a charge that is carried out does first: it forgets a block that has ended.
func (t *ticking) written() {
	if t.left <= 0 {
		t.block(0)
	}
}

// setBack sets the clock back. A block is in force for as much longer, also one that had ended and is kept.
func (t *ticking) setBack(by int64) {
	t.ahead += by
	if t.ahead > t.limit.Fill() {
		t.ahead = 0
	}
	if t.marked {
		t.left += by
	}
}

func (t *ticking) charge(cost, wait int64, owed bool, lock int64) (allowed bool) {
	need := cost * t.limit.Unit
	if !owed && (t.left > 0 || need > t.limit.Capacity || t.tokens+wait*t.limit.Refill < need) {
		return false
	}
	t.written()
	t.tokens -= need
	if lock > 0 && !t.marked && t.tokens < t.limit.Unit {
		t.block(lock)
		t.lock = true
	}
	return true
}

func (t *ticking) settle(cost int64) {
	t.written()
	for range cost * t.limit.Unit {
		if t.tokens > 0 {
			t.tokens--
		}
	}
}

func (t *ticking) refund(cost int64) {
	t.written()
	t.tokens = min(t.limit.Capacity, t.tokens+cost*t.limit.Unit)
	if t.lock && t.tokens >= t.limit.Unit {
		t.block(0)
	}
}

func (t *ticking) block(d int64) { t.left, t.lock, t.marked = d, false, d > 0 }

// pair is a bucket by the arithmetic, and the same ticking.
type pair struct {
	limit bucket.Limit
	now   int64
	kept  bucket.Bucket
	block bucket.Block
	slow  ticking
}

// call is what a charge asks for.
type call struct {
	cost, wait, lock int64
	owed, settles    bool
}

// take makes a call as a Store does.
func (p *pair) take(c call) (allowed bool, retry int64) {
	l := p.limit
	b := l.Reanchor(l.Advance(&l, p.kept, p.now), p.now)
	need, debt := l.Ask(c.cost, c.wait, c.owed, c.settles)
	left := p.block.Left(p.now)
	if l.Grants(b.Tokens, need, debt, 1) == 1 && (left == 0 || bucket.Passes(need, debt)) {
		b.Tokens = l.Charge(b.Tokens, need, debt, 1)
		p.block = l.After(p.block, need, c.lock, b.Tokens, p.now)
		allowed = true
	} else if retry = l.RetryAfter(b.Tokens, need, debt, 0); retry != bucket.Never {
		retry = max(retry, left)
	}
	p.kept = b
	return allowed, retry
}

// run carries out the steps that are in bytes on both, and returns how they differ.
func (p *pair) run(steps []byte) string {
	for i := 0; i+2 < len(steps); i += 3 {
		a, b := int64(steps[i+1]), int64(steps[i+2])
		switch what := steps[i] % 11; what {
		case 0, 1, 2: // time passes
			for range a {
				p.now++
				p.slow.tick()
			}
		case 3, 4, 5, 6: // a charge, one that locks, one that may wait, and one that is owed and locks
			c := call{cost: 1 + a%16, owed: what == 6}
			switch what {
			case 4, 6:
				c.lock = b
			case 5:
				c.wait = b
			}
			before := p.slow
			allowed, retry := p.take(c)
			if slow := p.slow.charge(c.cost, c.wait, c.owed, c.lock); allowed != slow {
				return fmt.Sprintf("step %d: %d of %d allowed: %t, ticking: %t", i/3, c.cost, before.tokens, allowed, slow)
			}
			if !allowed {
				if want := before.until(c.cost, c.wait); retry != want {
					return fmt.Sprintf("step %d: retry after %d, ticking after %d", i/3, retry, want)
				}
			}
		case 7: // a refund
			p.take(call{cost: -1 - a%16})
			p.slow.refund(1 + a%16)
		case 8: // a block, an end of it, a look or a reset
			switch {
			case b%4 == 0:
				p.block = bucket.Block{}
				p.slow.block(0)
			case b%16 == 1:
				p.take(call{cost: -1 << 63})
				p.slow.tokens = p.limit.Capacity
				p.slow.block(0)
			case a == 0:
				p.take(call{})
				p.slow.written()
			default:
				p.block = bucket.Block{Until: p.now + a}
				p.slow.block(a)
			}
		case 9: // the clock is set back, and a look finds it so
			p.kept = p.limit.Advance(&p.limit, p.kept, p.now)
			p.now -= a
			p.slow.setBack(a)
			p.take(call{})
			p.slow.written()
		case 10: // a settlement
			if allowed, _ := p.take(call{cost: 1 + a%16, settles: true}); !allowed {
				return fmt.Sprintf("step %d: a settlement of %d was denied", i/3, 1+a%16)
			}
			p.slow.settle(1 + a%16)
		}
		tokens := p.limit.Advance(&p.limit, p.kept, p.now).Tokens
		left := p.block.Left(p.now)
		if lock := left > 0 && p.block.Lock; tokens != p.slow.tokens || left != max(0, p.slow.left) || lock != (left > 0 && p.slow.lock) {
			return fmt.Sprintf("step %d (%d %d %d): %d, blocked for %d, lock %t, ticking: %+v", i/3, steps[i]%11, a, b, tokens, left, lock, p.slow)
		}
	}
	return ""
}

// until returns the microseconds until a charge is allowed.
func (t ticking) until(cost, wait int64) (n int64) {
	if cost*t.limit.Unit > t.limit.Capacity {
		return bucket.Never
	}
	t.ahead = 0
	for !t.charge(cost, wait, false, 0) {
		t.tick()
		n++
	}
	return n
}

func newPair(unit, refill, burst uint8, now int64) *pair {
	l := bucket.Limit{Unit: 1 + int64(unit%16)}
	l.Capacity = l.Unit * (1 + int64(burst%12))
	l.Refill = 1 + int64(refill)%l.Capacity
	return &pair{limit: l, now: now, kept: bucket.Bucket{Tokens: l.Capacity, At: now}, slow: ticking{limit: l, tokens: l.Capacity}}
}

func FuzzBlock(f *testing.F) {
	f.Add(uint8(5), uint8(0), uint8(4), []byte{4, 4, 90, 3, 0, 0, 0, 60, 0, 7, 0, 0, 3, 0, 0})
	f.Add(uint8(3), uint8(1), uint8(1), []byte{8, 50, 2, 6, 3, 99, 0, 20, 0, 7, 9, 0, 9, 30, 0, 0, 255, 0, 3, 0, 0})
	f.Fuzz(func(t *testing.T, unit, refill, burst uint8, steps []byte) {
		for _, now := range []int64{1_780_000_000_000_000, 0, -62_135_596_800_000_000} {
			if fault := newPair(unit, refill, burst, now).run(steps); fault != "" {
				t.Fatal(fault)
			}
		}
	})
}

func TestBlockIsThatOfATickingBucket(t *testing.T) {
	r := rand.New(rand.NewPCG(17, 1))
	for seed := range testsize.Of(3_000, 200_000) {
		steps := make([]byte, 0, 300)
		for len(steps) < 288 {
			steps = binary.LittleEndian.AppendUint64(steps, r.Uint64())
		}
		for i := 0; i < len(steps); i += 3 { // mostly short, so that much happens within a block
			if r.IntN(3) > 0 {
				steps[i+1] %= 16
			}
		}
		if fault := newPair(uint8(r.Uint64()), uint8(r.Uint64()), uint8(r.Uint64()), int64(seed)).run(steps); fault != "" {
			t.Fatalf("seed %d: %s", seed, fault)
		}
	}
}
