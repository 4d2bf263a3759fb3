package ratelimit

import (
	"hash/maphash"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// A swings notices where the limit of one key goes back and forth, which a LimitFunc must not cause: a bucket has one
// limit at a time, and refills under the fast one what the strict one has denied. It watches a few keys only.
type swings struct {
	seed maphash.Seed
	done atomic.Bool                             // it was noticed
	keys atomic.Pointer[[watchedKeys]watchedKey] // nil before the first request, and when it was noticed
}

// A watchedKey is a key and the last two limits that it had.
type watchedKey struct {
	mu        sync.Mutex
	hash      uint64
	strangers int // how often another key has come to this place
	now, then Limit
	changed   time.Time // from then to now
}

const (
	// watchedKeys is how many keys of a policy are watched.
	watchedKeys = 64

	// maxStrangers is after how many requests of other keys a place watches another key.
	maxStrangers = 256

	// swingWithin is how soon a limit must come back. A member who changes the tier twice in that time is rare.
	swingWithin = time.Minute
)

// watchSwings has policies with a LimitFunc watched.
func watchSwings(policies []*policy) {
	for _, p := range policies {
		if p.LimitFunc != nil {
			p.swings = &swings{seed: maphash.MakeSeed()}
		}
	}
}

// see notes that key has that limit now. It returns the limit that key had in between, and true, if that limit has
// gone back and forth: once.
func (s *swings) see(key string, limit Limit) (between Limit, swung bool) {
	if s == nil || s.done.Load() {
		return Limit{}, false
	}
	keys := s.keys.Load()
	if keys == nil {
		s.keys.CompareAndSwap(nil, new([watchedKeys]watchedKey))
		if keys = s.keys.Load(); keys == nil {
			return Limit{}, false // it was noticed meanwhile
		}
	}
	hash := maphash.String(s.seed, key)
	w := &keys[hash%watchedKeys]
	if !w.mu.TryLock() {
		return Limit{}, false // the next request of the key will do
	}
	defer w.mu.Unlock()
	switch {
	case w.hash != hash:
		if w.strangers++; w.strangers > maxStrangers || w.now == (Limit{}) {
			w.hash, w.strangers, w.now, w.then = hash, 0, limit, Limit{}
		}
	case w.now == limit:
	case w.then == limit && time.Since(w.changed) < swingWithin:
		swung = s.done.CompareAndSwap(false, true)
		s.keys.Store(nil)
		return w.now, swung
	default:
		w.then, w.now, w.changed = w.now, limit, time.Now()
	}
	return Limit{}, false
}

// warnOfSwings logs that the limit of one key of p goes back and forth.
func (l *Limiter) warnOfSwings(p *policy, limit, between Limit) {
	l.refusals.Warn("ratelimit: LimitFunc must depend on the key alone: a bucket has one limit at a time, and refills by the faster; use two policies",
		slog.String("policy", p.Name),
		slog.String("limit", limit.String()),
		slog.String("other_limit", between.String()),
	)
}
