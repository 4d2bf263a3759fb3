package otelratelimit_test

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/contrib/otelratelimit"
	"github.com/go-tokenbucket/ratelimit/jwtkey"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/fallback"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
)

var update = flag.Bool("update", false, "write testdata/day.txt")

// A redis stands for a redisstore, with counts that do not depend on a server.
type redis struct{ *broken }

func (r redis) Stats() store.Stats {
	return store.Stats{Redis: &store.RedisStats{
		Calls: 11, Batches: 12, Charges: 13, Merged: 14, Direct: 15, Queued: 16, InFlight: 17, OldestQueued: 18 * time.Millisecond,
		Errors:    map[string]int64{"timeout": 19, "network": 0, "other": 1},
		Redirects: 20, ScriptLoads: 21,
		LastError: "of " + canary, LastErrorAt: time.Now(),
	}, Memory: &store.MemoryStats{Buckets: 22, Max: 23, Bytes: 24, Blocked: 25, Evicted: map[string]int64{"api": 26, "_other": 0}}}
}

// decorators stands for a lease and a denialcache. What these and a fallback keep depends on a random seed.
type decorators struct{ *fallback.Store }

func (d decorators) Stats() store.Stats {
	stats := d.Store.Stats()
	stats.Denials = &store.DenialStats{Answered: 41, Kept: 42, Max: 43}
	stats.Leases = &store.LeaseStats{Leases: 44, Max: 45, Held: 46, Drawn: 47, Returned: 48, Lost: 49}
	stats.Slots = &store.SlotStats{Held: map[string]int64{"exports": 50}, Lost: map[string]int64{"exports": 51}}
	return stats
}

// The Stats of a jwtkey.Keys can be one of Config.Caches.
var _ func(*jwtkey.Keys) store.CacheStats = (*jwtkey.Keys).Stats

func cache() store.CacheStats {
	return store.CacheStats{Entries: 31, Max: 32, Hits: 33, Misses: 34, Evicted: 35}
}

// TestADay compares all that a reader gets, after a day on which everything happens, with testdata/day.txt.
func TestADay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reader := sdkmetric.NewManualReader()
		o := newObserver(t, otelratelimit.Config{
			MeterProvider: provider(t, reader),
			Caches:        map[string]func() store.CacheStats{"jwt": cache},
		})
		primary := redis{&broken{Store: ratelimit.Must(memstore.New(memstore.Config{}))}}
		behind := ratelimit.Must(fallback.New(primary, ratelimit.Must(memstore.New(memstore.Config{})), fallback.Config{}))
		t.Cleanup(func() { behind.Close() })
		l := newLimiter(t, ratelimit.Config{Store: decorators{behind}, Observe: o.Observe, Policies: []ratelimit.Policy{keyed("never-used", ratelimit.PerHour(1))}})
		o.Register("main", l)

		shadow := keyed("trial", ratelimit.PerHour(1))
		shadow.Shadow = true
		slow := keyed("slow", ratelimit.Every(time.Second))
		slow.MaxWait = time.Minute
		llm := keyed("llm", ratelimit.PerHour(100))
		llm.Cost = func(*http.Request) int64 { return 7 }
		llm.Settle = func(*http.Request, ratelimit.Response) int64 { return 3 }
		mux := http.NewServeMux()
		mux.Handle("GET /items/{id}", l.Limit(keyed("api", ratelimit.PerHour(2)), shadow)(ok))
		mux.Handle("/slow", l.Limit(slow)(ok))
		mux.Handle("POST example.com/llm", l.Limit(llm)(ok))
		ctx := t.Context()
		statuses := func(n int, method, path, key string) (all []int) {
			for range n {
				all = append(all, get(mux, ctx, method, path, key))
			}
			return all
		}
		check := func(got []int, want ...int) {
			t.Helper()
			if !slices.Equal(got, want) {
				t.Errorf("statuses %d, want %d", got, want)
			}
		}
		check(statuses(4, "GET", "/items/"+canary, canary), 200, 200, 429, 429)
		check(statuses(1, "GET", "/items/"+canary, ""), 403)
		check(statuses(3, "GET", "/slow", canary), 200, 200, 200) // the second and third wait for a second each
		leaving, leave := context.WithCancel(ctx)
		time.AfterFunc(500*time.Millisecond, leave)
		get(mux, leaving, "GET", "/slow", canary)
		check(statuses(2, "POST", "/llm", canary), 200, 200)

		api := keyed("api", ratelimit.PerHour(2))
		for _, err := range []error{
			err(l.Take(ctx, api, "worker", 1)),
			err(l.Peek(ctx, api, "worker")),
			err(l.Refund(ctx, api, "worker", 1)),
			err(l.Reset(ctx, api, "worker")),
		} {
			if err != nil {
				t.Error(err)
			}
		}

		primary.now.Store(true)
		check(statuses(7, "GET", "/items/5", "other-"+canary), 200, 200, 429, 429, 429, 429, 429)
		check(statuses(1, "GET", "/items/5", "third-"+canary), 200) // is to be charged, because the store was not asked

		nothing := &broken{Store: ratelimit.Must(memstore.New(memstore.Config{}))}
		nothing.now.Store(true)
		failing := newLimiter(t, ratelimit.Config{Store: nothing, Observe: o.Observe})
		o.Register("failing", failing)
		closed := keyed("closed", ratelimit.PerHour(1))
		closed.FailClosed = true
		open, shut := failing.Limit(keyed("open", ratelimit.PerHour(1)))(ok), failing.Limit(closed)(ok)
		check([]int{get(open, ctx, "GET", "/", canary), get(shut, ctx, "GET", "/", canary)}, 200, 503)
		got := dump(t, reader)
		runtime.KeepAlive([]http.Handler{mux, open, shut}) // what is not mounted any more is not in Limiter.Policies
		if *update {
			if err := os.WriteFile("testdata/day.txt", []byte(got), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile("testdata/day.txt")
		if err != nil {
			t.Fatal(err)
		}
		if got != string(want) {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
		if strings.Contains(got, canary) {
			t.Errorf("a text of a request is in\n%s", got)
		}
	})
}

func err[T any](_ T, err error) error { return err }

// dump returns all that reader collects, as text.
func dump(t *testing.T, reader sdkmetric.Reader) string {
	metrics := metricsOf(t, reader)
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(metrics)) {
		m := metrics[name]
		kind, points := values(t, m)
		fmt.Fprintf(&text, "%s %s %s: %s\n", name, kind, m.Unit, m.Description)
		for _, p := range points {
			if name == "ratelimit.memory.usage" && !strings.HasSuffix(p, ": 24") {
				p, _, _ = strings.Cut(p, ":") // the estimates are those of memstore
			}
			fmt.Fprintf(&text, "\t%s\n", p)
		}
	}
	return text.String()
}
