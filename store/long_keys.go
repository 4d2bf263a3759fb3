package store

import (
	"slices"

	"github.com/go-tokenbucket/ratelimit/internal/shortkey"
)

// shorten returns charges with short keys, which may be kept. They name the same buckets from here on: whoever
// charges a bucket later, by the key that was kept, must have charged it by that key before.
func shorten(charges []Charge) []Charge {
	for i := range charges {
		if shortkey.Is(charges[i].Key) {
			continue
		}
		charges = slices.Clone(charges)
		for ; i < len(charges); i++ {
			charges[i].Key = shortkey.Of(charges[i].Key)
		}
		break
	}
	return charges
}
