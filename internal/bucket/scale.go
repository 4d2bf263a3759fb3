package bucket

import (
	"math"
	"math/bits"
)

// A Scale is about how long a limit takes to fill. It is for tables that keep many buckets and have to tell
// which of them has spent most. There are at most 212 of them, however many limits there are.
type Scale uint8

// Scale returns l's: limits of one scale fill within the same time, up to a quarter more.
func (l Limit) Scale() Scale {
	fill := uint64(max(1, l.Fill()))
	n := bits.Len64(fill)
	return Scale(n<<2) | Scale(bits.RotateLeft64(fill, 3-n)&3)
}

// Spent returns which part of a bucket of scale s is missing that is full in some microseconds: about 1 for an
// empty one, more in debt, and 0 or less for a full one.
func (s Scale) Spent(full int64) float64 {
	return float64(full) / math.Ldexp(float64(4|s&3), int(s>>2)-3)
}
