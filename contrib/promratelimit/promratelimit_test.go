package promratelimit_test

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/contrib/promratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/ratetest"
	"github.com/go-tokenbucket/ratelimit/observe"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/fallback"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
)

var update = flag.Bool("update", false, "write testdata/metrics.txt")

// The names, kinds and labels of all metrics are in testdata/metrics.txt, and in docs/operations.md.
func TestMetricNames(t *testing.T) {
	h, _, metrics := mounted(t, promratelimit.Config{})
	for range 3 {
		get(h, "a")
	}
	_, families := scrape(t, metrics)
	guide, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	var list strings.Builder
	for _, name := range slices.Sorted(maps.Keys(families)) {
		family := families[name]
		labels := map[string]bool{}
		for _, m := range family.Metric {
			for _, l := range m.Label {
				labels[l.GetName()] = true
			}
		}
		fmt.Fprintf(&list, "%s %s {%s}\n", name, strings.ToLower(family.GetType().String()), strings.Join(slices.Sorted(maps.Keys(labels)), ","))
		if !strings.Contains(string(guide), "`"+name) {
			t.Errorf("docs/operations.md does not have %s", name)
		}
	}
	if *update {
		if err := os.WriteFile("testdata/metrics.txt", []byte(list.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile("testdata/metrics.txt")
	if err != nil {
		t.Fatal(err)
	}
	if list.String() != string(want) {
		t.Errorf("the scrape has\n%swant testdata/metrics.txt:\n%s", list.String(), want)
	}
	described := make(chan *prometheus.Desc, 1000)
	metrics.Describe(described)
	if len(described) != len(families) {
		t.Errorf("Describe lists %d metrics, the scrape has %d", len(described), len(families))
	}
}

func TestLint(t *testing.T) {
	h, _, metrics := mounted(t, promratelimit.Config{})
	get(h, "a")
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(metrics)
	if found, err := testutil.GatherAndLint(registry); err != nil || len(found) > 0 {
		t.Errorf("%v, %v", found, err)
	}
	text, _ := scrape(t, metrics)
	if found, err := promlint.New(strings.NewReader(text)).Lint(); err != nil || len(found) > 0 {
		t.Errorf("%v, %v", found, err)
	}
}

func TestValues(t *testing.T) {
	h, limiter, metrics := mounted(t, promratelimit.Config{})
	for _, want := range []int{200, 200, 429} {
		if got := get(h, "canary-of-the-key"); got != want {
			t.Errorf("%d, want %d", got, want)
		}
	}
	if got := get(h, ""); got != 403 {
		t.Errorf("%d without a key, want 403", got)
	}
	if _, err := limiter.Refund(t.Context(), ratelimit.Policy{Name: "api", Limit: ratelimit.PerMinute(2)}, "canary-of-the-key", 1); err != nil {
		t.Fatal(err)
	}
	metrics.Observe(t.Context(), &ratelimit.Event{Op: "take", Refused: []string{"login"}, Err: store.ErrNotCharged})
	text, _ := scrape(t, metrics)
	wantLines(t, text,
		`ratelimit_requests_total{policy="login",result="refused",route=""} 1`,
		`ratelimit_requests_total{policy="api",result="allowed",route="GET /items/{id}"} 2`,
		`ratelimit_requests_total{policy="api",result="denied",route="GET /items/{id}"} 1`,
		`ratelimit_requests_total{policy="try",result="allowed",route="GET /items/{id}"} 1`,
		`ratelimit_requests_total{policy="try",result="would_deny",route="GET /items/{id}"} 2`,
		`ratelimit_requests_total{policy="login",result="not_charged",route="GET /items/{id}"} 1`,
		`ratelimit_decisions_total{outcome="allowed"} 2`,
		`ratelimit_decisions_total{outcome="denied"} 1`,
		`ratelimit_decisions_total{outcome="no_key"} 1`,
		`ratelimit_decisions_total{outcome="failed_open"} 0`,
		`ratelimit_decision_duration_seconds_count{outcome="allowed"} 2`,
		`ratelimit_decision_duration_seconds_bucket{outcome="allowed",le="+Inf"} 2`,
		`ratelimit_operations_total{operation="refund"} 1`,
		`ratelimit_operations_total{operation="settle"} 2`,
		`ratelimit_settlements_total{policy="login"} 2`,
		`ratelimit_settlement_estimated_tokens_total{policy="login"} 2`,
		`ratelimit_settlement_final_tokens_total{policy="login"} 6`,
		`ratelimit_waiting_requests{limiter="main"} 0`,
		`ratelimit_held_slots{limiter="main",policy="exports",store="primary"} 45`,
		`ratelimit_lost_slots_total{limiter="main",policy="exports",store="primary"} 46`,
		`ratelimit_lost_slots_total{limiter="main",policy="gone",store="primary"} 47`,
		`ratelimit_redis_calls_total{limiter="main",store="primary"} 1`,
		`ratelimit_redis_batches_total{limiter="main",store="primary"} 2`,
		`ratelimit_redis_charges_total{limiter="main",store="primary"} 3`,
		`ratelimit_redis_merged_calls_total{limiter="main",store="primary"} 4`,
		`ratelimit_redis_direct_batches_total{limiter="main",store="primary"} 5`,
		`ratelimit_redis_queued_calls{limiter="main",store="primary"} 6`,
		`ratelimit_redis_queue_age_seconds{limiter="main",store="primary"} 0.007`,
		`ratelimit_redis_in_flight_batches{limiter="main",store="primary"} 8`,
		`ratelimit_redis_errors_total{kind="timeout",limiter="main",store="primary"} 9`,
		`ratelimit_redis_errors_total{kind="network",limiter="main",store="primary"} 10`,
		"ratelimit_redis_errors_total{kind=\"\uFFFD\",limiter=\"main\",store=\"primary\"} 23",
		`ratelimit_redis_redirects_total{limiter="main",store="primary"} 13`,
		`ratelimit_redis_script_loads_total{limiter="main",store="primary"} 14`,
		`ratelimit_denial_cache_answered_calls_total{limiter="main",store="primary"} 15`,
		`ratelimit_denial_cache_denials{limiter="main",store="primary"} 16`,
		`ratelimit_denial_cache_denials_max{limiter="main",store="primary"} 17`,
		`ratelimit_lease_buckets{limiter="main",store="primary"} 18`,
		`ratelimit_lease_buckets_max{limiter="main",store="primary"} 19`,
		`ratelimit_lease_held_tokens{limiter="main",store="primary"} 20`,
		`ratelimit_lease_drawn_tokens_total{limiter="main",store="primary"} 21`,
		`ratelimit_lease_returned_tokens_total{limiter="main",store="primary"} 22`,
		`ratelimit_lease_lost_tokens_total{limiter="main",store="primary"} 23`,
		`ratelimit_fallback_away{limiter="main",store="primary"} 1`,
		`ratelimit_fallback_changed_timestamp_seconds{limiter="main",store="primary"} 1.80000000025e+09`,
		`ratelimit_fallback_probes_total{limiter="main",store="primary"} 24`,
		`ratelimit_fallback_answered_calls_total{limiter="main",store="primary"} 25`,
		`ratelimit_fallback_charged_tokens_total{limiter="main",store="primary"} 26`,
		`ratelimit_fallback_pending_buckets{limiter="main",store="primary"} 27`,
		`ratelimit_fallback_pending_buckets_max{limiter="main",store="primary"} 29`,
		`ratelimit_memory_buckets{limiter="main",store="secondary"} 30`,
		`ratelimit_memory_buckets_max{limiter="main",store="secondary"} 31`,
		`ratelimit_memory_bytes{limiter="main",store="secondary"} 32`,
		`ratelimit_memory_blocked_buckets{limiter="main",store="secondary"} 33`,
		`ratelimit_memory_evicted_buckets_total{limiter="main",policy="api",store="secondary"} 0`,
		`ratelimit_memory_buckets{limiter="main",store="primary"} 34`,
		`ratelimit_memory_buckets_max{limiter="main",store="primary"} 35`,
		`ratelimit_memory_bytes{limiter="main",store="primary"} 36`,
		`ratelimit_memory_blocked_buckets{limiter="main",store="primary"} 37`,
		`ratelimit_memory_evicted_buckets_total{limiter="main",policy="api",store="primary"} 38`,
		`ratelimit_memory_evicted_buckets_total{limiter="main",policy="_other",store="primary"} 39`,
		`ratelimit_cache_entries{cache="jwt"} 40`,
		`ratelimit_cache_entries_max{cache="jwt"} 41`,
		`ratelimit_cache_hits_total{cache="jwt"} 42`,
		`ratelimit_cache_misses_total{cache="jwt"} 43`,
		`ratelimit_cache_evicted_entries_total{cache="jwt"} 44`,
	)
	if strings.Contains(text, "canary") {
		t.Errorf("the scrape has parts of requests, or texts of the server:\n%s", text)
	}
}

// Buckets of histograms add up, in seconds.
func TestHistograms(t *testing.T) {
	metrics := promratelimit.New(promratelimit.Config{})
	for _, took := range []time.Duration{20 * time.Microsecond, time.Millisecond, 3 * time.Second} {
		metrics.Observe(t.Context(), &ratelimit.Event{Op: "request", Allowed: true, Took: took, Waited: 2 * took})
	}
	metrics.Observe(t.Context(), &ratelimit.Event{Op: "request", Waited: time.Second, Err: context.Canceled})
	text, _ := scrape(t, metrics)
	wantLines(t, text,
		`ratelimit_wait_duration_seconds_count{outcome="canceled"} 1`,
		`ratelimit_decision_duration_seconds_bucket{outcome="allowed",le="1e-05"} 0`,
		`ratelimit_decision_duration_seconds_bucket{outcome="allowed",le="2.5e-05"} 1`,
		`ratelimit_decision_duration_seconds_bucket{outcome="allowed",le="0.001"} 2`,
		`ratelimit_decision_duration_seconds_bucket{outcome="allowed",le="1"} 2`,
		`ratelimit_decision_duration_seconds_bucket{outcome="allowed",le="+Inf"} 3`,
		`ratelimit_decision_duration_seconds_sum{outcome="allowed"} 3.00102`,
		`ratelimit_decision_duration_seconds_count{outcome="allowed"} 3`,
		`ratelimit_wait_duration_seconds_bucket{outcome="allowed",le="0.005"} 2`,
		`ratelimit_wait_duration_seconds_bucket{outcome="allowed",le="7.5"} 3`,
		`ratelimit_wait_duration_seconds_sum{outcome="allowed"} 6.00204`,
	)
}

// The first scrape has the counts of each policy that may grow, so that the first denial is a change.
func TestZeros(t *testing.T) {
	_, limiter, metrics := mounted(t, promratelimit.Config{})
	defer runtime.KeepAlive(limiter.Limit(ratelimit.Policy{Name: "searches", Key: ratelimit.Static("all"), Limit: ratelimit.Concurrency(20)}))
	text, _ := scrape(t, metrics)
	wantLines(t, text,
		`ratelimit_held_slots{limiter="main",policy="searches",store="primary"} 0`,
		`ratelimit_lost_slots_total{limiter="main",policy="searches",store="primary"} 0`,
		`ratelimit_requests_total{policy="api",result="allowed",route=""} 0`,
		`ratelimit_requests_total{policy="api",result="denied",route=""} 0`,
		`ratelimit_requests_total{policy="try",result="allowed",route=""} 0`,
		`ratelimit_requests_total{policy="try",result="would_deny",route=""} 0`,
		`ratelimit_settlement_final_tokens_total{policy="login"} 0`,
		`ratelimit_decisions_total{outcome="no_key"} 0`,
		`ratelimit_operations_total{operation="reset"} 0`,
		`ratelimit_operation_errors_total{operation="reset"} 0`,
	)
	for _, unwanted := range []string{`policy="try",result="denied"`, `policy="api",result="would_deny"`, `settlements_total{policy="api"}`, `slots{limiter="main",policy="api"`} {
		if strings.Contains(text, unwanted) {
			t.Errorf("the scrape has %s", unwanted)
		}
	}
}

// Clients that choose routes, policies, errors and operations make no more series than the program allows.
func TestCardinality(t *testing.T) {
	metrics := promratelimit.New(promratelimit.Config{Counts: observe.NewCounts(observe.CountsConfig{MaxPolicies: 4, MaxRoutes: 16})})
	for i := range 10_000 {
		hostile := fmt.Sprintf("canary-%d \xff\n\"}{%s", i, "<script>")
		r := ratelimit.Result{Policy: cmp.Or(map[int]string{0: hostile}[i%7], "api"), Key: hostile, State: store.State{Allowed: i%2 == 0}}
		e := &ratelimit.Event{Op: "request", Allowed: i%2 == 0, Route: hostile, Results: []ratelimit.Result{r}}
		switch i % 5 {
		case 1:
			e.Err = errors.New(hostile)
		case 2:
			e.Err, e.Results = fmt.Errorf("%w: %s", ratelimit.ErrNoKey, hostile), nil
		case 3:
			e.Op = hostile
		}
		metrics.Observe(context.Background(), e)
	}
	text, _ := scrape(t, metrics)
	// (4+1) policies × (16+1) routes × 4 results, the histograms, and the rest.
	if series := strings.Count(text, "\nratelimit_"); series > 5*17*4+8*(20+16)+50 {
		t.Errorf("%d series", series)
	}
	for _, line := range strings.Split(text, "\n") {
		if strings.Contains(line, "canary") && !strings.Contains(line, "policy=") && !strings.Contains(line, "route=") {
			t.Errorf("%s: only policies and routes of the program may be shown", line)
		}
	}
}

func TestRegisteredOnce(t *testing.T) {
	metrics := promratelimit.New(promratelimit.Config{})
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics)
	var already prometheus.AlreadyRegisteredError
	if err := registry.Register(promratelimit.New(promratelimit.Config{})); !errors.As(err, &already) {
		t.Errorf("a second Collector: %v, want AlreadyRegisteredError", err)
	}
	if !registry.Unregister(metrics) {
		t.Error("not unregistered")
	}
}

func TestAddPanics(t *testing.T) {
	_, limiter, metrics := mounted(t, promratelimit.Config{})
	none := func() (s store.CacheStats) { return s }
	for want, add := range map[string]func(){
		`promratelimit: Add: name "main": is taken`:      func() { metrics.Add("main", limiter) },
		"promratelimit: Add: l must not be nil":          func() { metrics.Add("other", nil) },
		`promratelimit: AddCache: name "jwt": is taken`:  func() { metrics.AddCache("jwt", none) },
		"promratelimit: AddCache: stats must not be nil": func() { metrics.AddCache("other", nil) },
	} {
		ratetest.CheckPanic(t, add, want)
	}
}

// Several limiters add up in one Counts, and have Stats each.
func TestSeveralLimiters(t *testing.T) {
	metrics := promratelimit.New(promratelimit.Config{})
	for _, name := range []string{"a", "b"} {
		backed := ratelimit.Must(fallback.New(ratelimit.Must(memstore.New(memstore.Config{})), nil, fallback.Config{}))
		t.Cleanup(func() { backed.Close() })
		l := ratelimit.Must(ratelimit.New(ratelimit.Config{Store: backed, Observe: metrics.Observe}))
		metrics.Add(name, l)
		if _, err := l.Take(t.Context(), ratelimit.Policy{Name: "jobs", Limit: ratelimit.PerMinute(1)}, "k", 1); err != nil {
			t.Fatal(err)
		}
	}
	text, _ := scrape(t, metrics)
	wantLines(t, text,
		`ratelimit_requests_total{policy="jobs",result="allowed",route=""} 2`,
		`ratelimit_waiting_requests{limiter="a"} 0`,
		`ratelimit_waiting_requests{limiter="b"} 0`,
		`ratelimit_fallback_changed_timestamp_seconds{limiter="a",store="primary"} 0`,
	)
}

func TestConcurrently(t *testing.T) {
	h, limiter, metrics := mounted(t, promratelimit.Config{})
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(metrics)
	var done sync.WaitGroup
	for i := range 4 {
		done.Go(func() {
			for range 100 {
				get(h, fmt.Sprint(i))
			}
		})
		done.Go(func() {
			for n := range 3 {
				metrics.Add(fmt.Sprint(i, n), limiter)
				if _, err := registry.Gather(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	done.Wait()
}
