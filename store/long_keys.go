package store

import "github.com/go-tokenbucket/ratelimit/internal/shortkey"

// shorten returns charges with short keys, which may be kept. They name the same buckets from here on: whoever
// charges a bucket later, by the key that was kept, must have charged it by that key before.
func shorten(charges []Charge) []Charge {
	return shortkey.In(charges, func(c *Charge) *string { return &c.Key })
}
