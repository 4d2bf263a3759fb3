package promratelimit_test

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/contrib/promratelimit"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
)

// reporting is a Store with given Stats.
type reporting struct {
	store.Store
	stats store.Stats
}

func (r *reporting) Stats() store.Stats { return r.stats }

// fullStats are Stats with all parts, each count another.
func fullStats() store.Stats {
	return store.Stats{
		Redis: &store.RedisStats{
			Calls: 1, Batches: 2, Charges: 3, Merged: 4, Direct: 5, Queued: 6, OldestQueued: 7 * time.Millisecond, InFlight: 8,
			Errors: map[string]int64{"timeout": 9, "network": 10, "\xff": 11, "\xfe": 12}, Redirects: 13, ScriptLoads: 14,
			LastError: "canary-of-the-server",
		},
		Denials: &store.DenialStats{Answered: 15, Kept: 16, Max: 17},
		Leases:  &store.LeaseStats{Leases: 18, Max: 19, Held: 20, Drawn: 21, Returned: 22, Lost: 23},
		Fallback: &store.FallbackStats{
			Away: true, Since: time.UnixMilli(1_800_000_000_250), Reason: "canary-of-the-outage", Probes: 24, Answered: 25, Charged: 26,
			Pending: 27, Max: 29, Secondary: store.Stats{Memory: &store.MemoryStats{Buckets: 30, Max: 31, Bytes: 32, Blocked: 33}},
		},
		Slots:  &store.SlotStats{Held: map[string]int64{"exports": 45}, Lost: map[string]int64{"exports": 46, "gone": 47}},
		Memory: &store.MemoryStats{Buckets: 34, Max: 35, Bytes: 36, Blocked: 37, Evicted: map[string]int64{"api": 38, "_other": 39}},
	}
}

// mounted returns a handler of a limiter with Stats of all kinds, and the metrics' collector.
func mounted(t *testing.T, cfg promratelimit.Config) (http.Handler, *ratelimit.Limiter, *promratelimit.Collector) {
	t.Helper()
	metrics := promratelimit.New(cfg)
	memory := ratelimit.Must(memstore.New(memstore.Config{}))
	limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{
		Store:   &reporting{memory, fullStats()},
		Observe: metrics.Observe,
		Logger:  slog.New(slog.DiscardHandler),
		Policies: []ratelimit.Policy{
			{Name: "api", Key: ratelimit.Header("X-Key"), Limit: ratelimit.PerMinute(2)},
			{Name: "try", Key: ratelimit.Static("all"), Limit: ratelimit.PerMinute(1), Shadow: true},
			{Name: "login", Key: ratelimit.Static("all"), Limit: ratelimit.PerMinute(1000), Settle: func(*http.Request, ratelimit.Response) int64 { return 3 }},
		},
	}))
	metrics.Add("main", limiter)
	metrics.AddCache("jwt", func() store.CacheStats {
		return store.CacheStats{Entries: 40, Max: 41, Hits: 42, Misses: 43, Evicted: 44}
	})
	mux := http.NewServeMux()
	mux.Handle("GET /items/{id}", limiter.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	return mux, limiter, metrics
}

// get sends a request of a key.
func get(h http.Handler, key string) int {
	r := httptest.NewRequest("GET", "/items/canary-of-the-path", nil)
	if key != "" {
		r.Header.Set("X-Key", key)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code
}

// scrape reads metrics over HTTP, as Prometheus does.
func scrape(t *testing.T, metrics ...prometheus.Collector) (text string, families map[string]*dto.MetricFamily) {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(metrics...)
	server := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError}))
	defer server.Close()
	res, err := http.Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("%v, %v: %s", res.Status, err, body)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err = parser.TextToMetricFamilies(strings.NewReader(string(body)))
	if err != nil {
		t.Fatal(err)
	}
	return string(body), families
}

// wantLines checks that a scrape has lines.
func wantLines(t *testing.T, text string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("the scrape does not have %s", line)
		}
	}
}
