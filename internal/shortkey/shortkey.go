// Package shortkey bounds how long the keys are that are kept in memory. Clients choose keys.
package shortkey

import (
	"crypto/sha256"
	"slices"

	"github.com/go-tokenbucket/ratelimit/store"
)

const (
	// Max is the length in bytes up to which a key is kept as it is.
	Max = 256

	// marker begins a key that stands for a long one. No UTF-8 text holds this byte.
	marker = 0xff
)

// Is reports whether key is kept as it is.
func Is(key string) bool { return len(key) <= Max && (key == "" || key[0] != marker) }

// Of returns key, or a short key that stands for it: the marker and the key's SHA-256. A short key that
// begins with the marker is hashed, too. So no two keys share a short one.
//
// It is not for keys that went through it already: those would be hashed again.
func Of(key string) string {
	if Is(key) {
		return key
	}
	return hashed(key)
}

// Charges returns charges with short keys, which may be kept: in a copy, if one was long. They name the same buckets from
// here on: whoever charges a bucket later, by the key that was kept, must have charged it by that key before.
func Charges(charges []store.Charge) []store.Charge {
	for i := range charges {
		if Is(charges[i].Key) {
			continue
		}
		charges = slices.Clone(charges)
		for ; i < len(charges); i++ {
			charges[i].Key = Of(charges[i].Key)
		}
		break
	}
	return charges
}

func hashed(key string) string {
	hash := sha256.New()
	for room := make([]byte, 4<<10); key != ""; { // a copy of it all may take a megabyte
		n := copy(room, key)
		hash.Write(room[:n])
		key = key[n:]
	}
	return string(hash.Sum([]byte{marker}))
}
