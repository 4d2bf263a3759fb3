package simulate

import (
	"context"
	"crypto/sha256"
	"slices"

	"github.com/go-tokenbucket/ratelimit/store"
)

// maxKey is the longest key that is kept, in bytes. Longer ones are replaced by their hash, because clients choose the
// length of some keys.
const maxKey = 256

// short returns key, or another key of at most maxKey bytes that stands for it. No two keys have the same.
func short(key string) string {
	if isShort(key) {
		return key
	}
	hash := sha256.Sum256([]byte(key))
	return "\xff" + string(hash[:])
}

func isShort(key string) bool { return len(key) <= maxKey && (key == "" || key[0] != 0xff) }

// A shortening store shortens the keys of buckets.
type shortening struct{ store.Store }

func (s shortening) Take(ctx context.Context, charges []store.Charge, states []store.State) (bool, error) {
	for i := range charges {
		if !isShort(charges[i].Key) {
			charges = slices.Clone(charges)
			for ; i < len(charges); i++ {
				charges[i].Key = short(charges[i].Key)
			}
			break
		}
	}
	return s.Store.Take(ctx, charges, states)
}

// An open store allows everything. Its limiter reports what a request would be charged if nothing denied it.
type open struct{}

func (open) Take(_ context.Context, charges []store.Charge, states []store.State) (bool, error) {
	for i := range charges {
		states[i] = store.State{Allowed: true, Remaining: charges[i].Limit.Capacity / charges[i].Limit.Unit}
	}
	return true, nil
}
