package redisstore

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"

	"github.com/go-tokenbucket/ratelimit/store"
)

// maxPlain is the length up to which a name may stand in a key as it is. It is below that of a hash, so
// that no name can be mistaken for the hash of another.
const maxPlain = sha256.Size*2 - 1

// keys makes the names of buckets in Redis.
type keys struct {
	prefix string
	secret []byte
}

// item returns c on its way.
func (k keys) item(c *store.Charge) item {
	identity := k.identity(c.Key)
	return item{k.key(identity, c.Policy), slot(identity), newTerm(c)}
}

// key returns the key of a bucket: "<prefix>:{<identity>}:<policy>". The braces put all policies of one
// identity into one cluster slot. No two buckets share a key: neither part can hold a brace.
func (k keys) key(identity, policy string) string {
	return k.prefix + ":{" + identity + "}:" + name(policy)
}

func (k keys) identity(key string) string {
	if k.secret == nil {
		return name(key)
	}
	mac := hmac.New(sha256.New, k.secret)
	mac.Write([]byte(key))
	return hex.EncodeToString(mac.Sum(nil))
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
