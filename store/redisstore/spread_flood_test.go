package redisstore_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/redistest"
	"github.com/go-tokenbucket/ratelimit/internal/test/testsize"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

// A distance is a proxy in front of each server, by which its replies can be delayed.
type distance struct {
	addrs   []string
	proxies map[string]*redistest.Proxy
}

func newDistance(t *testing.T, addrs ...string) distance {
	d := distance{addrs, make(map[string]*redistest.Proxy)}
	for _, addr := range addrs {
		d.proxies[addr] = redistest.NewProxy(t, addr)
	}
	return d
}

func (d distance) delay(by time.Duration) {
	for _, p := range d.proxies {
		p.Delay(by)
	}
}

func (d distance) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, network, d.proxies[addr].Addr())
}

func (d distance) cluster(t *testing.T) *redis.ClusterClient {
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: d.addrs, Dialer: d.dial})
	t.Cleanup(func() { client.Close() })
	return client
}

// A flood is many calls at once that charge the bucket of an address, which denies most of them, and a bucket
// that they share with honest calls.
type flood struct {
	callers    int
	limit      store.Limit // of an address
	every      int         // the number of honest calls after which the flood uses another address, or 0
	stores     int         // each is a process of its own
	maxDenials int
}

// Honest calls use half of a shared limit, and the admitted calls of the flood use less than the other half. So an
// honest call can only be refused because of calls that are denied.
func TestDeniedCallsRefuseNobodyWhoSharesABucketWithThem(t *testing.T) {
	masters := redistest.SharedCluster(t, 3).Addrs()
	one, five, ten := limit(t, 1, time.Hour, 1), limit(t, 1, time.Hour, 5), limit(t, 10, time.Second, 10)
	for name, f := range map[string]flood{
		"one address":                      {callers: 32, limit: one, stores: 1, maxDenials: -1},
		"many callers, two processes":      {callers: 256, limit: one, stores: 2, maxDenials: -1},
		"denials are remembered":           {callers: 32, limit: one, stores: 2},
		"it refills":                       {callers: 32, limit: ten, stores: 1, maxDenials: -1},
		"addresses of one":                 {callers: 32, limit: one, stores: 1, maxDenials: -1, every: 2},
		"addresses of five, two processes": {callers: 32, limit: five, stores: 2, maxDenials: -1, every: 10},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDistance(t, masters...)
			f.run(t, d, func() redisstore.Client { return d.cluster(t) })
		})
	}
	t.Run("ring", func(t *testing.T) {
		a, b := redistest.Start(t).Addr(), redistest.Start(t).Addr()
		d := newDistance(t, a, b)
		ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": a, "b": b}, Dialer: d.dial})
		t.Cleanup(func() { ring.Close() })
		f := flood{callers: 32, limit: one, stores: 1, maxDenials: -1, every: 2} // half of them on another server
		f.run(t, d, func() redisstore.Client { return ring })
	})
}

func (f flood) run(t *testing.T, d distance, client func() redisstore.Client) {
	honest := testsize.Of(30, 60)
	var micros, address, denied, admitted atomic.Int64
	micros.Store(time.Date(2026, 5, 23, 10, 0, 0, 0, time.UTC).UnixMicro())
	cfg := redisstore.Config{Prefix: prefix(), MaxDenials: f.maxDenials, Clock: func() time.Time { return time.UnixMicro(micros.Load()) }}
	shared := store.Charge{Policy: "all", Key: "all", Limit: limit(t, 100, time.Second, 10), Cost: 1}
	var stores []*redisstore.Store
	for range f.stores {
		s := ratelimit.Must(redisstore.New(client(), cfg))
		defer s.Close()
		stores = append(stores, s)
		take(t, s, charge(t, "connects"))
	}
	d.delay(time.Millisecond)

	ctx, stop := context.WithCancel(t.Context())
	var callers sync.WaitGroup
	tried := make([]atomic.Int64, f.callers) // by each caller: how many addresses, up to the one that denied it last
	for i := range tried {
		callers.Go(func() {
			for ctx.Err() == nil {
				at := address.Load()
				own := store.Charge{Policy: "address", Key: fmt.Sprint("a", at), Limit: f.limit, Cost: 1}
				ok, err := tryIn(t.Context(), stores[i%len(stores)], own, shared)
				switch {
				case err != nil:
					t.Error(err)
					return
				case ok:
					admitted.Add(1)
				default:
					denied.Add(1)
					tried[i].Store(at + 1)
				}
				time.Sleep(time.Duration(i) * 20 * time.Microsecond) // each at a pace of its own
			}
		})
	}
	allTry := func() { // until the whole flood has tried the address
		for i := range tried {
			for tried[i].Load() <= address.Load() && !t.Failed() {
				time.Sleep(100 * time.Microsecond)
			}
		}
	}
	allTry()
	micros.Add(200_000) // the shared bucket is full again
	before, refused := denied.Load(), 0
	for i := range honest {
		micros.Add(20_000)
		if f.every > 0 && i%f.every == 0 {
			address.Add(1)
			allTry()
		}
		own := store.Charge{Policy: "address", Key: "honest", Limit: limit(t, 1, time.Hour, 1000), Cost: 1}
		ok, err := tryIn(t.Context(), stores[i%len(stores)], own, shared)
		if err != nil {
			t.Error(err)
		} else if !ok {
			refused++
		}
	}
	during := denied.Load() - before
	stop()
	callers.Wait()
	t.Logf("%d of %d honest calls refused, beside %d that were denied and %d admitted", refused, honest, during, admitted.Load())
	if refused > honest/100 {
		t.Errorf("%d of %d honest calls were refused, want at most 1 %%", refused, honest)
	}
	if during < int64(honest) {
		t.Errorf("only %d calls were denied meanwhile: no flood", during)
	}
	if f.every > 0 && admitted.Load() < int64(honest/f.every) {
		t.Errorf("only %d calls of the flood were admitted: its addresses are not tried", admitted.Load())
	}
}
