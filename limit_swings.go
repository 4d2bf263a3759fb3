package ratelimit

import (
	"hash/maphash"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// A limitSwings notices a limit of one key that goes back and forth, which a LimitFunc must not cause. A bucket has one
// limit at a time: under the fast limit it refills, and then allows what the strict limit would have denied. Only a few
// keys are looked at.
type limitSwings struct {
	seed maphash.Seed
	done atomic.Bool                             // a swing was noticed
	keys atomic.Pointer[[maxSwingKeys]keyLimits] // nil before the first request, and when done
}

// A keyLimits is a key and the last two limits that it had.
type keyLimits struct {
	mu        sync.Mutex
	hash      uint64
	others    int // number of requests of other keys that share its entry
	now, then Limit
	changed   time.Time // from then to now
}

const (
	// maxSwingKeys is the number of keys of a policy that are looked at.
	maxSwingKeys = 40

	// maxOtherRequests is the number of requests of other keys after which an entry is for another key.
	maxOtherRequests = 256

	// swingWithin is the time in which a limit has to come back. Members rarely change their tier twice
	// in that time.
	swingWithin = time.Minute
)

// newLimitSwings returns nil for a policy without a LimitFunc.
func newLimitSwings(p *Policy) *limitSwings {
	if p.LimitFunc == nil {
		return nil
	}
	return &limitSwings{seed: maphash.MakeSeed()}
}

// record records that key has that limit now. The first time that a limit goes back and forth, it returns true and the
// limit that key had in between.
func (s *limitSwings) record(key string, limit Limit) (between Limit, swung bool) {
	if s == nil || s.done.Load() {
		return Limit{}, false
	}
	keys := s.keys.Load()
	if keys == nil {
		s.keys.CompareAndSwap(nil, new([maxSwingKeys]keyLimits))
		if keys = s.keys.Load(); keys == nil {
			return Limit{}, false // a swing was noticed meanwhile
		}
	}
	hash := maphash.String(s.seed, key)
	w := &keys[hash%maxSwingKeys]
	if !w.mu.TryLock() {
		return Limit{}, false // the next request of the key is recorded instead
	}
	defer w.mu.Unlock()
	switch {
	case w.hash != hash:
		if w.others++; w.others > maxOtherRequests || w.now == (Limit{}) {
			w.hash, w.others, w.now, w.then = hash, 0, limit, Limit{}
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

// warnOfSwing logs that the limit of one key of p goes back and forth.
func (l *Limiter) warnOfSwing(p *policy, limit, between Limit) {
	l.refusals.Warn("ratelimit: LimitFunc must depend on the key alone: a bucket has one limit at a time. It refills at the rate of the fastest, and is full after each change between a rate and a quota; use two policies",
		slog.String("policy", p.Name),
		slog.String("limit", limit.String()),
		slog.String("other_limit", between.String()),
	)
}
