package redisstore

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit/internal/logtext"
	"github.com/go-tokenbucket/ratelimit/store"
)

// Stats implements [store.StatsReporter].
func (s *Store) Stats() store.Stats { return store.StatsOf(s.front) }

// A kind of errors. Metrics have one series for each, so their number is fixed and no server chooses them.
type kind uint8

const (
	timeout kind = iota
	network
	pool
	readOnly
	loading
	outOfMemory
	noPermission
	busy
	redirect
	clusterDown
	crossSlots
	noScript
	noBucket
	queueFull
	overload
	canceled
	closed
	other
	kinds // how many there are
)

// kindNames are the keys of store.RedisStats.Errors.
var kindNames = [kinds]string{
	"timeout", "network", "pool", "readonly", "loading", "oom", "noperm", "busy", "redirect", "clusterdown", "crossslot",
	"noscript", "no_bucket", "queue_full", "overloaded", "canceled", "closed", "other",
}

// kindOf returns the kind of err, the error of a call.
func kindOf(err error) kind {
	switch {
	case errors.Is(err, ErrQueueFull):
		return queueFull
	case errors.Is(err, ErrClosed), errors.Is(err, redis.ErrClosed):
		return closed
	case errors.Is(err, store.ErrOverloaded):
		return overload
	case errors.Is(err, context.Canceled):
		return canceled
	case errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted):
		return pool
	case errors.Is(err, errNoBucket):
		return noBucket
	case isRedis(err):
		return kindOfReply(err)
	case errors.Is(err, context.DeadlineExceeded):
		return timeout
	}
	var n net.Error
	if errors.As(err, &n) {
		if n.Timeout() {
			return timeout
		}
		return network
	}
	var number syscall.Errno
	if errors.As(err, &number) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) {
		return network
	}
	return other
}

// replies are the first words of the errors of servers, and their kinds.
var replies = [...]struct {
	prefix string
	kind   kind
}{
	{"READONLY", readOnly}, {"MISCONF", readOnly}, {"NOREPLICAS", readOnly}, {"MASTERDOWN", readOnly},
	{"LOADING", loading}, {"OOM", outOfMemory}, {"BUSY", busy},
	{"NOPERM", noPermission}, {"NOAUTH", noPermission}, {"WRONGPASS", noPermission},
	{"MOVED", redirect}, {"ASK", redirect}, {"TRYAGAIN", redirect},
	{"CLUSTERDOWN", clusterDown}, {"CROSSSLOT", crossSlots}, {"NOSCRIPT", noScript}, {"WRONGTYPE", noBucket},
}

// kindOfReply is kindOf for an error that a server replied.
func kindOfReply(err error) kind {
	for i := range replies {
		if redis.HasErrorPrefix(err, replies[i].prefix) {
			return replies[i].kind
		}
	}
	text := strings.ToLower(err.Error())
	if strings.Contains(text, "acl failure") || strings.Contains(text, "permission") || strings.Contains(text, "the user executing the script") {
		return noPermission
	}
	return other
}

// counts are the counts of an engine. They are written once for each script call, and where a call fails.
type counts struct {
	calls, charges, merged atomic.Int64
	batches, direct        atomic.Int64
	redirects, loads       atomic.Int64
	errors                 [kinds]atomic.Int64
	mu                     sync.Mutex
	last                   string
	lastAt                 time.Time
}

// mostErrorText is how many bytes of the text of an error are kept.
const mostErrorText = 256

// fail counts the error of a call.
func (c *counts) fail(err error) {
	if errors.Is(err, store.ErrInvalidCall) {
		return
	}
	c.errors[kindOf(err)].Add(1)
	text := logtext.Show(err.Error(), mostErrorText)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last, c.lastAt = text, time.Now()
}

// sent counts the calls of entries that are sent for the first time.
func (c *counts) sent(entries []entry) {
	var calls, charges, merged int64
	for i := range entries {
		e := &entries[i]
		fresh := e.count - e.resent
		calls += fresh
		charges += fresh * int64(len(e.first.items))
		merged += fresh
		if e.resent == 0 {
			merged-- // the first is with none before it
		}
	}
	c.charges.Add(charges)
	c.calls.Add(calls)
	if merged > 0 {
		c.merged.Add(merged)
	}
}

// Stats implements store.StatsReporter.
func (e *engine) Stats() store.Stats {
	c := &e.counts
	s := &store.RedisStats{
		Secret:      e.keys.secret != nil,
		Merged:      c.merged.Load(), // in the opposite order of sent, so that calls that are sent meanwhile are not merged only
		Calls:       c.calls.Load(),
		Charges:     c.charges.Load(),
		Batches:     c.batches.Load(),
		Direct:      c.direct.Load(),
		Redirects:   c.redirects.Load(),
		ScriptLoads: c.loads.Load(),
		Errors:      make(map[string]int64, kinds),
	}
	for k := range kinds {
		s.Errors[kindNames[k]] = c.errors[k].Load()
	}
	c.mu.Lock()
	s.LastError, s.LastErrorAt = c.last, c.lastAt
	c.mu.Unlock()
	var oldest time.Time
	e.routes.each(func(l *lane) {
		l.mu.Lock()
		defer l.mu.Unlock()
		s.Queued += l.queued
		s.InFlight += len(l.out) + l.overdue
		if len(l.waiting) > 0 && (oldest.IsZero() || l.waiting[0].since.Before(oldest)) {
			oldest = l.waiting[0].since
		}
	})
	if !oldest.IsZero() {
		s.OldestQueued = time.Since(oldest)
	}
	return store.Stats{Redis: s, Slots: e.holdings.stats()}
}
