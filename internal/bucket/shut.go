package bucket

import (
	"math"
	"time"
)

// A Shut is a block of a bucket. The zero value blocks nothing.
type Shut struct {
	Until int64 // the time at which it ends, in microseconds
	For   int64 // how long it was made for, in microseconds
	Lock  bool  // a charge made it, and a refund may end it
}

// Left returns how much longer s blocks in microseconds, and 0 if it has ended. It fits a Duration.
func (s Shut) Left(now int64) int64 {
	if s.Until <= now || s == (Shut{}) {
		return 0
	}
	return int64(min(uint64(s.Until-now), math.MaxInt64/1000))
}

// Reanchor returns s with an end at most For after now. It would only be later if the clock was set back. Use it where
// Limit.Reanchor is used: with a single clock. With the clocks of callers, a Shut ends when they reach Until.
func (s Shut) Reanchor(now int64) Shut {
	if s.Until-now > s.For {
		s.Until = now + s.For
	}
	return s
}

// Block returns the microseconds of a block of d, rounded up and at most MaxWait. They are below 0 if d is: that ends
// a block.
func Block(d time.Duration) int64 {
	switch {
	case d < 0:
		return -1
	case d >= MaxWait*time.Microsecond:
		return MaxWait
	default:
		return int64((d + time.Microsecond - 1) / time.Microsecond)
	}
}

// Passes reports whether a blocked bucket carries out a charge of need and debt, if it can pay. It carries out
// refunds, looks, resets and owed charges. A charge that may wait is refused, too. If several waited for the end of a
// block, all would go on at that moment, also those whose tokens came one after another.
func Passes(need, debt int64) bool { return need <= 0 || debt == AnyDebt }

// Shut returns what is left of s at now after a charge that was carried out. Ask has made need of its cost. Block has
// made block, or it is 0. The bucket holds tokens after the charge.
//
// A lock never shortens s. If it is longer than a block that is no lock, it makes that longer, so that no refund ends
// the block.
func (l Limit) Shut(s Shut, need, block, tokens, now int64) Shut {
	left := s.Left(now)
	switch {
	case left == 0:
		s = Shut{}
	case need == Reset, need < 0 && s.Lock && tokens >= l.Unit:
		return Shut{}
	}
	switch {
	case need == 0 && block < 0:
		return Shut{}
	case need == 0 && block > 0:
		return Shut{Until: now + block, For: block}
	case need > 0 && block > left && tokens < l.Unit:
		return Shut{Until: now + block, For: block, Lock: left == 0 || s.Lock}
	}
	return s
}
