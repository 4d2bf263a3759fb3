package main

import (
	"context"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"github.com/go-tokenbucket/ratelimit/store"
)

// A byHand does only the work that every middleware must do. It finds the client's address, charges a bucket by the
// arithmetic of memstore, and sets three headers. It has one lock, never forgets a bucket, and its limit never changes.
// withContext also puts its decision into the context of the request, which net/http copies for that.
type byHand struct {
	proxy       bool
	next        http.Handler
	withContext bool
	limit       store.Limit
	start       time.Time

	mu      sync.Mutex
	buckets map[netip.Addr]*byHandBucket
}

type byHandBucket struct{ tokens, lastRefill int64 }

func newByHand(proxy, withContext bool, next http.Handler) *byHand {
	limit, err := store.NewLimit(generous.Rate, generous.Per, generous.Rate)
	if err != nil {
		panic(err) // a mistake of the comparison
	}
	return &byHand{proxy: proxy, next: next, withContext: withContext, limit: limit, start: time.Now(), buckets: make(map[netip.Addr]*byHandBucket)}
}

func (h *byHand) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	address, err := h.address(r)
	if err != nil {
		http.Error(w, "no address", http.StatusForbidden)
		return
	}
	now := time.Now()
	tokens, allowed := h.take(address, now.Sub(h.start).Microseconds())
	untilFull := time.Duration((h.limit.Capacity-tokens+h.limit.Refill-1)/h.limit.Refill) * time.Microsecond
	reset := now.Add(untilFull + time.Second - 1).Unix()
	header, values := w.Header(), make([]string, 3)
	for i, n := range [...]int64{generous.Rate, tokens / h.limit.Unit, reset} {
		values[i] = strconv.FormatInt(n, 10)
		header[rateHeaders[i]] = values[i : i+1 : i+1]
	}
	if !allowed {
		http.Error(w, "too many requests", http.StatusTooManyRequests)
		return
	}
	if h.withContext {
		r = r.WithContext(&decided{Context: r.Context(), decision: decision{true, tokens, now}})
	}
	h.next.ServeHTTP(w, r)
}

var rateHeaders = [...]string{"X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset"}

func (h *byHand) address(r *http.Request) (netip.Addr, error) {
	if h.proxy {
		return netip.ParseAddr(r.Header.Get("X-Forwarded-For"))
	}
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	return peer.Addr(), err
}

// take charges the bucket of the address if it has the tokens, and returns its content.
func (h *byHand) take(address netip.Addr, now int64) (tokens int64, allowed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	b := h.buckets[address]
	if b == nil {
		b = &byHandBucket{h.limit.Capacity, now}
		h.buckets[address] = b
	}
	if elapsed := now - b.lastRefill; elapsed > 0 {
		b.tokens = min(h.limit.Capacity, b.tokens+elapsed*h.limit.Refill)
		b.lastRefill = now
	}
	if b.tokens < h.limit.Unit {
		return b.tokens, false
	}
	b.tokens -= h.limit.Unit
	return b.tokens, true
}

// decided is a context that holds a decision.
type decided struct {
	context.Context
	decision decision
}

type decision struct {
	allowed bool
	tokens  int64
	at      time.Time
}

type decidedKey struct{}

func (d *decided) Value(key any) any {
	if key == (decidedKey{}) {
		return &d.decision
	}
	return d.Context.Value(key)
}
