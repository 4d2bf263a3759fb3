package redisstore

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"

	"github.com/go-tokenbucket/ratelimit/internal/shortkey"
)

// maxPlain is the length up to which a name may stand in a key as it is. It is below that of a hash, so
// that no name can be mistaken for the hash of another.
const maxPlain = sha256.Size*2 - 1

// keys makes the names of buckets in Redis.
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

// identity returns how a short key appears in Redis.
func (k keys) identity(key string) string {
	if k.secret == nil && !shortkey.Is(key) {
		return hex.EncodeToString([]byte(key[1:])) // the SHA-256 that it was shortened to, as of plain
	}
	if k.secret == nil {
		return plain(key)
	}
	mac := hmac.New(sha256.New, k.secret)
	mac.Write([]byte(key))
	return hex.EncodeToString(mac.Sum(nil))
}

// plain returns s, or where it is long or holds bytes that mean something to Redis, to a terminal or to
// a pattern, its SHA-256 in hex.
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

// safe are the letters, the digits, and the punctuation that addresses, e-mail addresses, paths and the
// like are written with.
var safe = func() (safe [256]bool) {
	const chars = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~:/@+=,%|#"
	for i := range len(chars) {
		safe[chars[i]] = true
	}
	return safe
}()
