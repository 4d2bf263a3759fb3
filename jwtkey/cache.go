package jwtkey

import (
	"container/list"
	"crypto/sha256"
	"encoding/json"
	"sync"
	"sync/atomic"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/go-tokenbucket/ratelimit/internal/counter"
	"github.com/go-tokenbucket/ratelimit/store"
)

const (
	// maxRemembered is for how long a signature is not checked again. It is short because keys are rotated and
	// revoked.
	maxRemembered = time.Minute

	defaultCacheSize = 4096

	// cachePlace is the memory that Config.CacheSize allows for each token, in bytes.
	cachePlace = 4 << 10

	// rememberedBytes is what a token takes besides its claims.
	rememberedBytes = 512

	// maxSteps bounds the work of a put besides making room.
	maxSteps = 8
)

// A tokenCache remembers the claims of verified tokens by their digests. A reader of this memory finds no tokens in
// it. Readers take no lock.
type tokenCache struct {
	tokens       sync.Map // of digest to *remembered
	hits, misses counter.Counter

	mu      sync.Mutex
	size    int       // in places
	free    int       // of these
	queue   list.List // of *remembered, the next to be forgotten first
	evicted int64     // tokens that were forgotten for lack of room
}

// A digest is the SHA-256 of a token.
type digest [sha256.Size]byte

func digestOf(token string) digest {
	var room [512]byte // what most tokens fit into, so that the copy is not on the heap
	return sha256.Sum256(append(room[:0], token...))
}

// A remembered token does not change while it is in a tokenCache, except for used and its place in the queue.
type remembered struct {
	digest   digest
	claims   jwt.MapClaims
	places   int
	verified time.Time // before it was
	from     int64     // Unix nanoseconds
	until    int64     // Unix nanoseconds
	used     atomic.Bool
	queued   *list.Element
}

func newTokenCache(size int) *tokenCache { return &tokenCache{size: size, free: size} }

// get returns the claims of a token that was verified less than maxRemembered before now, if "nbf" and "exp" still
// allow it. They must not be changed.
func (c *tokenCache) get(d digest, now time.Time) (jwt.MapClaims, bool) {
	value, ok := c.tokens.Load(d)
	if !ok {
		c.misses.Add(1)
		return nil, false
	}
	m := value.(*remembered)
	if !m.holds(now) {
		c.misses.Add(1)
		return nil, false
	}
	if !m.used.Load() { // written once, not by each reader
		m.used.Store(true)
	}
	c.hits.Add(1)
	return m.claims, true
}

// peek is get for an explanation: it leaves no trace.
func (c *tokenCache) peek(d digest, now time.Time) (*remembered, bool) {
	value, ok := c.tokens.Load(d)
	if !ok {
		return nil, false
	}
	m := value.(*remembered)
	return m, m.holds(now)
}

func (c *tokenCache) stats() store.CacheStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return store.CacheStats{Entries: c.queue.Len(), Max: c.size, Hits: c.hits.Load(), Misses: c.misses.Load(), Evicted: c.evicted}
}

// holds uses both clocks. The monotonic clock is right about the age of m after the wall clock was set back. The
// wall clock is right after the machine slept.
func (m *remembered) holds(now time.Time) bool {
	wall := now.UnixNano()
	return now.Sub(m.verified) < maxRemembered && wall >= m.from && wall < m.until
}

// put remembers a token that was verified between before and after. Leeway is not added to its "exp": a token that
// is valid only by Leeway is verified each time.
func (c *tokenCache) put(d digest, claims jwt.MapClaims, before, after time.Time) {
	exp, err := claims.GetExpirationTime()
	if err != nil || exp == nil || !exp.After(after) {
		return
	}
	until := before.Add(maxRemembered)
	if exp.Before(until) {
		until = exp.Time
	}
	m := &remembered{
		digest:   d,
		claims:   claims,
		places:   (rememberedBytes+weigh(map[string]any(claims)))/cachePlace + 1,
		verified: before,
		from:     after.UnixNano(),
		until:    until.UnixNano(),
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forget(m, after)
	if m.places > c.free {
		return
	}
	c.free -= m.places
	m.queued = c.queue.PushBack(m)
	c.tokens.Store(m.digest, m)
}

// forget makes room for m if there can be enough. It removes the old entry of m's token, some expired tokens, and
// then the first tokens of the queue. A few that were used since they came, or since they were last spared, move to
// the back instead. So tokens that are seen once do not push out tokens that are in constant use.
func (c *tokenCache) forget(m *remembered, now time.Time) {
	if old, ok := c.tokens.Load(m.digest); ok {
		c.remove(old.(*remembered))
	}
	if m.places > c.size {
		return
	}
	for steps := 0; c.queue.Len() > 0; steps++ {
		first := c.queue.Front().Value.(*remembered)
		ended, room := !first.holds(now), c.free >= m.places
		if room && (!ended || steps >= maxSteps) {
			return
		}
		if !ended && first.used.Load() && steps < maxSteps {
			first.used.Store(false)
			c.queue.MoveToBack(first.queued)
			continue
		}
		if !ended {
			c.evicted++
		}
		c.remove(first)
	}
}

func (c *tokenCache) remove(m *remembered) {
	c.tokens.Delete(m.digest)
	c.queue.Remove(m.queued)
	c.free += m.places
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
