// Package shortkey bounds how long the keys are that are kept in memory. Clients choose keys.
package shortkey

import (
	"crypto/sha256"
	"slices"
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

// In returns charges with short keys, of which key finds one: in a copy, if one was long.
func In[C any](charges []C, key func(*C) *string) []C {
	for i := range charges {
		if Is(*key(&charges[i])) {
			continue
		}
		charges = slices.Clone(charges)
		for ; i < len(charges); i++ {
			k := key(&charges[i])
			*k = Of(*k)
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
