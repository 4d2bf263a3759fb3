package bucket

import (
	"math"
	"time"
)

// A Block denies all charges that pay until its time. The zero value blocks nothing.
type Block struct {
	Until int64 // the time at which it ends, in microseconds
	Lock  bool  // a charge made it, and a refund may end it
}

// Left returns how much longer b denies in microseconds, and 0 if it has ended. It fits a Duration.
func (b Block) Left(now int64) int64 {
	if b == (Block{}) || b.Until <= now {
		return 0
	}
	return int64(min(uint64(b.Until-now), math.MaxInt64/1000))
}

// Passes reports whether a blocked bucket carries out a charge of need and debt, if it can pay. It carries out
// refunds, looks, resets, owed charges and settlements. A charge that may wait is denied, too. If several waited for the
// end of a block, all would go on at that moment, also those whose tokens came one after another.
func Passes(need, debt int64) bool { return need <= 0 || debt < 0 }

// After returns the block of a bucket after a charge that was carried out at now. Before it, the block was b. The charge
// asked for need credits and locks for lock microseconds, or 0. The bucket holds tokens after it.
//
// A charge locks a bucket that it leaves with less than a token. It changes no block that is in force. A refund ends a
// lock, but no other block, if it leaves a token.
func (l Limit) After(b Block, need, lock, tokens, now int64) Block {
	if b.Left(now) > 0 {
		if need == Reset || need < 0 && b.Lock && tokens >= l.Unit {
			return Block{}
		}
		return b
	}
	if need > 0 && lock > 0 && tokens < l.Unit {
		return Block{Until: now + lock, Lock: true}
	}
	return Block{}
}

// Microseconds returns the length of a block or lock of d, rounded up and at most MaxWait.
func Microseconds(d time.Duration) int64 {
	if d >= MaxWait*time.Microsecond {
		return MaxWait
	}
	return int64((max(0, d) + time.Microsecond - 1) / time.Microsecond)
}
