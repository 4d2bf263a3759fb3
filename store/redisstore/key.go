package redisstore

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
)

// maxPlain is the length up to which a name may stand in a key as it is. It is below that of a hash, so
// that no name can be mistaken for the hash of another.
const maxPlain = sha256.Size*2 - 1

// key returns the Redis key of a bucket: "<prefix>:{<identity>}:<policy>". The braces put all policies
// of one identity into one cluster slot. No two buckets share a key: neither part can hold a brace.
func (s *Store) key(policy, identity string) string {
	if s.secret != nil {
		mac := hmac.New(sha256.New, s.secret)
		mac.Write([]byte(identity))
		identity = hex.EncodeToString(mac.Sum(nil))
	} else {
		identity = name(identity)
	}
	return s.prefix + ":{" + identity + "}:" + name(policy)
}

// name returns s, or where it is long or holds bytes that mean something to Redis, to a terminal or to
// a pattern, its SHA-256 in hex.
func name(s string) string {
	if plain(s) {
		return s
	}
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

func plain(s string) bool {
	if s == "" || len(s) > maxPlain {
		return false
	}
	for i := range len(s) {
		if !safe[s[i]] {
			return false
		}
	}
	return true
}

// safe are the letters, the digits, and the punctuation that addresses, e-mail addresses, paths and the
// like are written with.
var safe = func() (safe [256]bool) {
	const chars = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~:/@+=,%|#"
	for i := range len(chars) {
		safe[chars[i]] = true
	}
	return safe
}()
