package redisstore

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"

	"github.com/go-tokenbucket/ratelimit/internal/keyname"
)

// maxPlain is the longest name that appears unchanged in a key. It is shorter than a hash, so that no name can equal
// the hash of another.
const maxPlain = sha256.Size*2 - 1

// keys makes the keys of buckets in Redis.
type keys struct {
	prefix string
	secret []byte
}

// name names the buckets of items: "<prefix>:{<identity>}:<policy>". The braces put all policies of one
// identity into one cluster slot. No two buckets share a name: neither part can hold a brace.
func (k keys) name(items []item) {
	for i := range items {
		if it := &items[i]; it.name == "" {
			identity := k.identity(it.key)
			it.name = k.prefix + ":{" + identity + "}:" + plain(it.policy)
			it.slot = slot(identity)
		}
	}
}

// identity returns the form of a short key in Redis.
func (k keys) identity(key string) string {
	if k.secret == nil && keyname.IsHash(key) {
		return hex.EncodeToString([]byte(key[1:])) // already shortened to its SHA-256, so written in the same form as by plain
	}
	if k.secret == nil {
		return plain(key)
	}
	mac := hmac.New(sha256.New, k.secret)
	mac.Write([]byte(key))
	return hex.EncodeToString(mac.Sum(nil))
}

// plain returns s. It returns the SHA-256 of s in hex if s is long, or if it contains bytes that are special in
// Redis, a terminal or a pattern.
func plain(s string) string {
	if isPlain(s) {
		return s
	}
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

func isPlain(s string) bool {
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

// safe are the letters, the digits, and the punctuation that is usual in addresses, e-mail addresses and paths.
var safe = func() (safe [256]bool) {
	const chars = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~:/@+=,%|#"
	for i := range len(chars) {
		safe[chars[i]] = true
	}
	return safe
}()
