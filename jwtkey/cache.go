package jwtkey

import (
	"crypto/sha256"
	"encoding/json"
	"sync/atomic"
	"time"

	"github.com/golang-jwt/jwt/v5"
	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/go-tokenbucket/ratelimit/store"
)

const (
	// maxRemembered is for how long a signature is not checked again. It is short because keys are rotated and
	// revoked.
	maxRemembered = time.Minute

	defaultCacheSize = 4096

	// cachePlace bounds the memory of a remembered token, in bytes.
	cachePlace = 16 << 10

	// rememberedBytes is what a token takes besides its claims.
	rememberedBytes = 512
)

// A tokenCache remembers the claims of verified tokens by their digests. A reader of this memory finds no tokens in
// it. The token that was used least recently is forgotten first.
type tokenCache struct {
	tokens       *lru.Cache[digest, *remembered]
	size         int
	hits, misses atomic.Int64
	evicted      atomic.Int64 // tokens that were forgotten for lack of room, and had not ended
}

// A digest is the SHA-256 of a token.
type digest [sha256.Size]byte

func digestOf(token string) digest {
	var room [512]byte // what most tokens fit into, so that the copy is not on the heap
	return sha256.Sum256(append(room[:0], token...))
}

// A remembered token does not change.
type remembered struct {
	claims   jwt.MapClaims
	verified time.Time // before it was
	from     int64     // Unix nanoseconds
	until    int64     // Unix nanoseconds
}

func newTokenCache(size int) *tokenCache {
	c := &tokenCache{size: size}
	c.tokens, _ = lru.NewWithEvict(size, func(_ digest, m *remembered) { // fails if size is not positive
		if m.holds(time.Now()) {
			c.evicted.Add(1)
		}
	})
	return c
}

// get returns the claims of a token that was verified less than maxRemembered before now, if "nbf" and "exp" still
// allow it. They must not be changed.
func (c *tokenCache) get(d digest, now time.Time) (jwt.MapClaims, bool) {
	m, ok := c.tokens.Get(d)
	if !ok || !m.holds(now) {
		c.misses.Add(1)
		return nil, false
	}
	c.hits.Add(1)
	return m.claims, true
}

// peek is get for an explanation: it leaves no trace.
func (c *tokenCache) peek(d digest, now time.Time) (*remembered, bool) {
	m, ok := c.tokens.Peek(d)
	return m, ok && m.holds(now)
}

func (c *tokenCache) stats() store.CacheStats {
	return store.CacheStats{Entries: c.tokens.Len(), Max: c.size, Hits: c.hits.Load(), Misses: c.misses.Load(), Evicted: c.evicted.Load()}
}

// holds uses both clocks. The monotonic clock is right about the age of m after the wall clock was set back. The
// wall clock is right after the machine slept.
func (m *remembered) holds(now time.Time) bool {
	wall := now.UnixNano()
	return now.Sub(m.verified) < maxRemembered && wall >= m.from && wall < m.until
}

// put remembers a token that was verified between before and after, unless its claims are too large. Leeway is not
// added to its "exp": a token that is valid only by Leeway is verified each time.
func (c *tokenCache) put(d digest, claims jwt.MapClaims, before, after time.Time) {
	exp, err := claims.GetExpirationTime()
	if err != nil || exp == nil || !exp.After(after) || rememberedBytes+weigh(map[string]any(claims)) > cachePlace {
		return
	}
	until := before.Add(maxRemembered)
	if exp.Before(until) {
		until = exp.Time
	}
	c.tokens.Add(d, &remembered{claims, before, after.UnixNano(), until.UnixNano()})
}

// weigh estimates the memory of a claim in bytes, rather too high than too low. The claims of an 8 KiB token can
// take 60 times as much, in maps of one entry each.
func weigh(claim any) int {
	switch claim := claim.(type) {
	case string:
		return 32 + len(claim)
	case json.Number:
		return 32 + len(claim)
	case []any:
		bytes := 32 + 16*cap(claim)
		for _, value := range claim {
			bytes += weigh(value)
		}
		return bytes
	case map[string]any:
		bytes := 64
		switch n := len(claim); {
		case n > 8:
			bytes += 100 + 3*33*n
		case n > 0:
			bytes += 9 * 33
		}
		for name, value := range claim {
			bytes += 16 + len(name) + weigh(value)
		}
		return bytes
	default:
		return 0 // null, true and false take none of their own
	}
}

// cloneClaim returns a deep copy of a claim.
func cloneClaim(claim any) any {
	switch claim := claim.(type) {
	case []any:
		values := make([]any, len(claim))
		for i, value := range claim {
			values[i] = cloneClaim(value)
		}
		return values
	case map[string]any:
		return cloneClaims(claim)
	default:
		return claim
	}
}

func cloneClaims(claims map[string]any) map[string]any {
	values := make(map[string]any, len(claims))
	for name, value := range claims {
		values[name] = cloneClaim(value)
	}
	return values
}
