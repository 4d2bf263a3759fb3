package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"runtime"
	"testing"

	"github.com/go-chi/httprate"
	"github.com/sony/gobreaker/v2"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/fallback"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
)

func openMemory(b *testing.B) *memstore.Store {
	s := ratelimit.Must(memstore.New(memstore.Config{MaxKeys: 20_000_000}))
	b.Cleanup(func() { s.Close() })
	return s
}

// BenchmarkMemory compares decisions in memory, with a caller on each core.
func BenchmarkMemory(b *testing.B) {
	for _, w := range []struct {
		name  string
		limit ratelimit.Limit
	}{
		{"10,000 keys, all allowed", endless},
		{"10,000 keys, all denied", exhausted},
	} {
		b.Run(w.name, func(b *testing.B) {
			load{callers: runtime.GOMAXPROCS(0), keys: 10_000, denied: w.limit == exhausted}.run(b,
				side{"memstore.Take", storeTake(b, openMemory(b), w.limit)}, xTimeRate(w.limit))
		})
	}
}

// BenchmarkMemoryOfKeys reports the heap for each of a million keys.
func BenchmarkMemoryOfKeys(b *testing.B) {
	b.Run("a million keys of 15 bytes", func(b *testing.B) {
		for _, s := range []side{{"memstore", storeTake(b, openMemory(b), endless)}, xTimeRate(endless)} {
			perKey := heapOfKeys(b, s.open(), 1_000_000)
			b.Run(s.name, func(b *testing.B) {
				b.ReportMetric(perKey, "B/key")
				b.ReportMetric(0, "ns/op") // it is not measured here
			})
		}
	})
}

// heapOfKeys takes a token of each of n new keys, and returns by how much the heap grows for each.
func heapOfKeys(b *testing.B, t take, n int) float64 {
	before := heap()
	for i := range n { // keys are made here, so that only the limiter's copies stay
		if ok, err := t(context.Background(), memberKey(i)); !ok || err != nil {
			b.Fatalf("the first token of key %d: allowed %v, %v", i, ok, err)
		}
	}
	after := heap()
	runtime.KeepAlive(t)
	return float64(after-before) / float64(n)
}

// heap returns the size of the objects on the heap.
func heap() int64 {
	runtime.GC() // twice, because after the first one, a sync.Pool or a finalizer can still hold objects
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

var generous = ratelimit.PerHour(1_000_000_000)

// BenchmarkMiddleware compares requests of 32 clients, with limits by address that allow all. The handlers are called
// directly, because a server and a network would cost more than all of them.
func BenchmarkMiddleware(b *testing.B) {
	behind := ratelimit.IPConfig{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}
	for _, w := range []struct {
		name   string
		ours   ratelimit.KeyFunc
		theirs httprate.KeyFunc
		proxy  bool
	}{
		// Deprecated, but cheaper than its replacement, a middleware of chi in front.
		{"RemoteIP", ratelimit.RemoteIP(), httprate.KeyByIP, false},                           //lint:ignore SA1019 see above
		{"ClientIP behind one proxy", ratelimit.ClientIP(behind), httprate.KeyByRealIP, true}, //lint:ignore SA1019 see above
	} {
		b.Run(w.name, func(b *testing.B) {
			next := http.HandlerFunc(greet)
			policy := ratelimit.Policy{Name: "bench", Key: w.ours, Limit: generous}
			load{callers: runtime.GOMAXPROCS(0), keys: 1}.run(b,
				side{"Limiter.Handler on memstore", ofClients(openLimiter(b, openMemory(b), policy).Handler(next), w.proxy, true)},
				side{version("httprate", "github.com/go-chi/httprate"), ofClients(httprate.LimitBy(int(generous.Rate), generous.Per, w.theirs)(next), w.proxy, true)},
				side{"a handler written by hand", ofClients(newByHand(w.proxy, false, next), w.proxy, true)},
				side{"a handler by hand, with a context", ofClients(newByHand(w.proxy, true, next), w.proxy, true)},
				side{"no limiter", ofClients(next, w.proxy, false)})
		})
	}
}

// ofClients returns functions that serve requests of clients in turn. Each function has its own clients.
func ofClients(h http.Handler, proxy, limited bool) func() take {
	callers := 0
	return func() take {
		callers++
		var clients []func(context.Context) (int, bool)
		for i := range 16 {
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			address := fmt.Sprintf("192.0.%d.%d", callers%256, 1+i)
			r.RemoteAddr = address + ":34567"
			if proxy {
				r.RemoteAddr = "10.0.0.1:34567"
				r.Header.Set("X-Forwarded-For", address)
			}
			clients = append(clients, serving(h, r))
		}
		n := 0
		return func(ctx context.Context, _ string) (bool, error) {
			n++
			status, was := clients[n%len(clients)](ctx)
			if was != limited {
				return false, errNotLimited
			}
			return status == http.StatusOK, nil
		}
	}
}

// BenchmarkFallback shows what a fallback adds to a decision in memory, beside a circuit breaker, and what a decision
// takes while the primary is unavailable.
func BenchmarkFallback(b *testing.B) {
	quiet := fallback.Config{Logger: slog.New(slog.DiscardHandler)}
	open := func(primary store.Store) store.Store {
		s := ratelimit.Must(fallback.New(primary, nil, quiet))
		b.Cleanup(func() { s.Close() })
		return s
	}
	b.Run("10,000 keys", func(b *testing.B) {
		load{callers: runtime.GOMAXPROCS(0), keys: 10_000}.run(b,
			side{"fallback.Store on memstore", storeTake(b, open(openMemory(b)), endless)},
			side{"sony/gobreaker v2 on memstore", storeTake(b, breaking{openMemory(b), gobreaker.NewCircuitBreaker[bool](gobreaker.Settings{})}, endless)},
			side{"memstore.Take", storeTake(b, openMemory(b), endless)},
			side{"fallback.Store, primary unavailable", storeTake(b, open(gone{}), endless)})
	})
}

// gone is a Store that is unavailable.
type gone struct{}

func (gone) Take(context.Context, []store.Charge, []store.State) (bool, error) {
	return false, errors.New("gone")
}

// breaking is a Store behind a circuit breaker.
type breaking struct {
	store.Store
	breaker *gobreaker.CircuitBreaker[bool]
}

func (s breaking) Take(ctx context.Context, charges []store.Charge, states []store.State) (bool, error) {
	return s.breaker.Execute(func() (bool, error) { return s.Store.Take(ctx, charges, states) })
}
