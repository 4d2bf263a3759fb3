// Package keyname makes the names of keys: short ones, for memory, because clients choose the keys, and secret ones, for what
// people see. All places that show keys use the same secret names, so that an operator finds a key of a log in a list of keys.
package keyname

import (
	"crypto/sha256"
	"slices"

	"github.com/go-tokenbucket/ratelimit/store"
)

const (
	// MaxShort is the maximum length, in bytes, of a key that is kept unchanged.
	MaxShort = 256

	// marker is the first byte of a key that replaces a long one. It occurs in no UTF-8 text.
	marker = 0xff
)

// IsShort reports whether key is kept unchanged.
func IsShort(key string) bool {
	return len(key) <= MaxShort && (key == "" || key[0] != marker || IsHash(key))
}

// IsHash reports whether key is a result of Short for another key: the marker and a SHA-256.
func IsHash(key string) bool { return len(key) == 1+sha256.Size && key[0] == marker }

// Short returns key, or a short key that replaces it: the marker and the SHA-256 of key. Short returns its own results
// unchanged, so that a bucket has one name whatever decorators its Store has. Other short keys that begin with the marker are
// hashed, too. So two keys have the same short key only if one is made from the hash of the other. To make it, a client must
// know the other key.
func Short(key string) string {
	if IsShort(key) {
		return key
	}
	return hashed(key)
}

// ShortCharges returns charges with short keys, which may be kept. It returns a copy if a key was long. From here on,
// every charge of these buckets must use the short key: a later charge by a kept key must find the same bucket.
func ShortCharges(charges []store.Charge) []store.Charge {
	for i := range charges {
		if IsShort(charges[i].Key) {
			continue
		}
		charges = slices.Clone(charges)
		for ; i < len(charges); i++ {
			charges[i].Key = Short(charges[i].Key)
		}
		break
	}
	return charges
}

func hashed(key string) string {
	hash := sha256.New()
	for room := make([]byte, 4<<10); key != ""; { // a copy of the whole key may take a megabyte
		n := copy(room, key)
		hash.Write(room[:n])
		key = key[n:]
	}
	return string(hash.Sum([]byte{marker}))
}
