// Package promratelimit exports metrics of rate limiters to Prometheus.
//
//	metrics := promratelimit.New(promratelimit.Config{})
//	limiter, err := ratelimit.New(ratelimit.Config{
//		Policies: policies,
//		Store:    buckets,
//		Observe:  metrics.Observe,
//	})
//	if err != nil {
//		log.Fatal(err)
//	}
//	metrics.Add("api", limiter)
//	prometheus.MustRegister(metrics)
//	http.Handle("GET /metrics", promhttp.Handler())
//
// A program to try is in https://github.com/go-tokenbucket/ratelimit/tree/main/contrib/promratelimit/example.
//
// It counts requests by policy, route and result. It exports [ratelimit.Limiter.Stats], too: of the engine of Redis, of
// leases, of a fallback, of buckets in memory, of slots and so on. [Collector.AddCache] adds a cache, such as that of jwtkey.
//
// Beside the package are a dashboard for Grafana, dashboard.json, and alert rules for Prometheus, alerts.yml. See
// https://github.com/go-tokenbucket/ratelimit/blob/main/docs/operations.md for what each metric and alert means.
//
// # Cardinality
//
// The program bounds how many series there are, whatever clients send. [observe.CountsConfig] has the bounds: 128
// policies and 512 routes of each. Keys, error texts, methods and paths are in no metric. A route is the pattern that
// the router has matched.
package promratelimit

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/observe"
	"github.com/go-tokenbucket/ratelimit/store"
)

// Config configures [New]. The zero value is ready to use.
type Config struct {
	// Counts are the counts to export. They may be those of another observer, such as the page of package admin:
	// then only one of both is to observe the limiter. Default: new ones.
	Counts *observe.Counts
}

// A Collector exports the metrics of limiters. It is a [prometheus.Collector]. It is safe for concurrent use.
type Collector struct {
	counts *observe.Counts

	mu       sync.Mutex
	limiters []limiter
	caches   []cache
}

type limiter struct {
	name string
	*ratelimit.Limiter
}

type cache struct {
	name  string
	stats func() store.CacheStats
}

// New returns a Collector. Register it once, and mount its Observe.
func New(cfg Config) *Collector {
	if cfg.Counts == nil {
		cfg.Counts = observe.NewCounts(observe.CountsConfig{})
	}
	return &Collector{counts: cfg.Counts}
}

// Observe counts e in [Config.Counts]. It is an observer for [ratelimit.Config.Observe]; see also [observe.Join]. Several
// limiters may have it: their counts add up.
func (c *Collector) Observe(ctx context.Context, e *ratelimit.Event) { c.counts.Observe(ctx, e) }

// Add exports the Stats of l under a name, the label limiter. Of limiters with the same Store, add one. The policies of l
// appear before their first request. Add panics if the name is taken or l is nil.
func (c *Collector) Add(name string, l *ratelimit.Limiter) {
	if l == nil {
		panic("promratelimit: Add: l must not be nil")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if slices.ContainsFunc(c.limiters, func(has limiter) bool { return has.name == name }) {
		panic(fmt.Sprintf("promratelimit: Add: name %q: is taken", name))
	}
	c.limiters = append(c.limiters, limiter{name, l})
}

// AddCache exports the counts of a cache under a name, the label cache, such as those of the cache of verified tokens:
//
//	metrics.AddCache("jwt", members.Stats)
//
// It panics if the name is taken or stats is nil.
func (c *Collector) AddCache(name string, stats func() store.CacheStats) {
	if stats == nil {
		panic("promratelimit: AddCache: stats must not be nil")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if slices.ContainsFunc(c.caches, func(has cache) bool { return has.name == name }) {
		panic(fmt.Sprintf("promratelimit: AddCache: name %q: is taken", name))
	}
	c.caches = append(c.caches, cache{name, stats})
}

// Describe is called by a [prometheus.Registry].
func (c *Collector) Describe(to chan<- *prometheus.Desc) {
	for _, m := range all {
		to <- m.desc
	}
}

// Collect is called by a [prometheus.Registry] for each scrape.
func (c *Collector) Collect(to chan<- prometheus.Metric) {
	c.mu.Lock()
	limiters, caches := slices.Clone(c.limiters), slices.Clone(c.caches)
	c.mu.Unlock()
	policies := make(map[string]traits)
	for _, l := range limiters {
		for _, p := range l.Policies() {
			c.counts.Declare(p.Name)
			t := policies[p.Name]
			policies[p.Name] = traits{enforced: t.enforced || !p.Shadow, shadow: t.shadow || p.Shadow, settles: t.settles || p.Settle != nil}
		}
	}
	collectCounts(to, c.counts.Snapshot(), policies)
	for _, l := range limiters {
		collectStats(to, l)
	}
	for _, cache := range caches {
		collectCache(to, cache.name, cache.stats())
	}
}

// traits are which counts a policy can have. Those are exported while they are 0, so that their first change is seen.
type traits struct{ enforced, shadow, settles bool }
