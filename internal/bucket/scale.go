package bucket

import (
	"math"
	"math/bits"
)

// A Scale is the approximate time in which a limit fills. Tables with many buckets use it to find those with the most
// spent. There are at most 212 Scales, for any number of limits.
type Scale uint8

// Scale returns the Scale of l. Limits of one Scale fill within the same time, or up to a quarter more.
func (l Limit) Scale() Scale {
	fill := uint64(max(1, l.Fill()))
	n := bits.Len64(fill)
	return Scale(n<<2) | Scale(bits.RotateLeft64(fill, 3-n)&3)
}

// Spent returns the missing part of a bucket of scale s that will be full in full microseconds. It is about 1 for an
// empty bucket, more in debt, and 0 or less for a full one.
func (s Scale) Spent(full int64) float64 {
	return float64(full) / math.Ldexp(float64(4|s&3), int(s>>2)-3)
}
