package otelratelimit

import (
	"maps"
	"slices"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/observe"
	"github.com/go-tokenbucket/ratelimit/store"
)

// collect observes all but the histograms, each series once. A reader calls it, and several may at once.
func (o *Observer) collect(to observer) {
	o.mu.Lock()
	defer o.mu.Unlock()
	policies := make(map[string]traits)
	for name, l := range o.limiters {
		for _, p := range l.Policies() {
			o.counts.Declare(p.Name)
			t := policies[p.Name]
			policies[p.Name] = traits{enforced: t.enforced || !p.Shadow, shadow: t.shadow || p.Shadow, settles: t.settles || p.Settle != nil}
		}
		of, stats := limiterKey.String(name), l.Stats()
		to.count("ratelimit.queued_requests", int64(stats.Waiting), of)
		to.count("ratelimit.queued_requests.limit", int64(stats.MaxWaiting), of)
		to.countStore(stats, l.Policies(), of, storeKey.String("primary"))
		if r := stats.Redis; r != nil {
			to.ObserveFloat64(to.observed["ratelimit.redis.queue.age"].(metric.Float64Observable), r.OldestQueued.Seconds(), metric.WithAttributes(of))
		}
		if f := stats.Fallback; f != nil {
			away := int64(0)
			if f.Away {
				away = 1
			}
			to.count("ratelimit.fallback.away", away, of)
			to.count("ratelimit.fallback.probes", f.Probes, of)
			to.count("ratelimit.fallback.calls", f.Answered, of)
			to.count("ratelimit.fallback.charged_tokens", f.Charged, of)
			to.count("ratelimit.fallback.pending", int64(f.Pending), of)
			to.count("ratelimit.fallback.limit", int64(f.Max), of)
			to.countStore(f.Secondary, l.Policies(), of, storeKey.String("secondary"))
		}
	}
	to.countRequests(o.counts.Snapshot(), policies)
	for name, statsOf := range o.caches {
		of, stats := cacheKey.String(name), statsOf()
		to.count("ratelimit.cache.lookups", stats.Hits, of, lookupKey.String("hit"))
		to.count("ratelimit.cache.lookups", stats.Misses, of, lookupKey.String("miss"))
		to.count("ratelimit.cache.evictions", stats.Evicted, of)
		to.count("ratelimit.cache.usage", int64(stats.Entries), of)
		to.count("ratelimit.cache.limit", int64(stats.Max), of)
	}
}

// An observer observes instruments by name.
type observer struct {
	metric.Observer
	observed map[string]metric.Observable
}

func (to observer) count(name string, value int64, attrs ...attribute.KeyValue) {
	to.ObserveInt64(to.observed[name].(metric.Int64Observable), value, metric.WithAttributes(attrs...))
}

// traits are which counts a policy can have.
type traits struct{ enforced, shadow, settles bool }

// countRequests counts requests. Counts that are 0 are there, too, for results that are to be expected: otherwise a
// monitoring system does not see the first denial as a change.
func (to observer) countRequests(counts observe.Snapshot, policies map[string]traits) {
	for _, p := range counts.Policies {
		has, known := policies[p.Policy]
		if !known {
			has = traits{enforced: true}
		}
		policy := policyKey.String(p.Policy)
		for _, r := range p.Routes {
			at := []attribute.KeyValue{policy}
			if method, pattern := splitRoute(r.Route); r.Route != "" {
				at = append(at, attribute.String("http.route", pattern))
				if method != "" {
					at = append(at, attribute.String("http.request.method", method))
				}
			}
			with := func(result string, n int64, expected bool) {
				if n > 0 || expected {
					to.count("ratelimit.requests", n, append(at[:len(at):len(at)], resultKey.String(result))...)
				}
			}
			with("allowed", r.Allowed, true)
			with("denied", r.Denied, has.enforced)
			with("would_deny", r.WouldDeny, has.shadow)
			with("not_charged", r.NotCharged, false)
			with("refused", r.Refused, false)
			to.count("ratelimit.degraded_requests", r.Degraded, at...)
		}
		if p.Settlements > 0 || has.settles {
			to.count("ratelimit.settlements", p.Settlements, policy)
			to.count("ratelimit.settlement.estimated_tokens", p.Estimated, policy)
			to.count("ratelimit.settlement.final_tokens", p.Final, policy)
		}
	}
	for _, d := range counts.Decisions {
		to.count("ratelimit.decisions", d.Count, outcomeKey.String(d.Outcome))
	}
	for _, op := range counts.Operations {
		to.count("ratelimit.operations", op.Count, operationKey.String(op.Op))
		to.count("ratelimit.failed_operations", op.Failed, operationKey.String(op.Op))
	}
}

// countStore counts the numbers of a Store, for a Limiter with these policies.
func (to observer) countStore(stats store.Stats, policies []ratelimit.Policy, of ...attribute.KeyValue) {
	held, lost, evicted := make(map[string]int64), make(map[string]int64), make(map[string]int64)
	for _, p := range policies { // also those at 0, so that their first change is seen
		if evicted[p.Name] = 0; p.Limit.IsConcurrency() {
			held[p.Name], lost[p.Name] = 0, 0
		}
	}
	if slots := stats.Slots; slots != nil {
		maps.Copy(held, slots.Held)
		maps.Copy(lost, slots.Lost)
	}
	each := func(name string, counts map[string]int64) {
		for policy, n := range counts {
			to.count(name, n, append(slices.Clone(of), policyKey.String(policy))...)
		}
	}
	each("ratelimit.slot.held", held)
	each("ratelimit.lost_slots", lost)
	if r := stats.Redis; r != nil {
		to.count("ratelimit.redis.calls", r.Calls, of...)
		to.count("ratelimit.redis.merged_calls", r.Merged, of...)
		to.count("ratelimit.redis.batches", r.Batches, of...)
		to.count("ratelimit.redis.direct_batches", r.Direct, of...)
		to.count("ratelimit.redis.charges", r.Charges, of...)
		to.count("ratelimit.redis.redirects", r.Redirects, of...)
		to.count("ratelimit.redis.script_loads", r.ScriptLoads, of...)
		to.count("ratelimit.redis.queue.length", int64(r.Queued), of...)
		to.count("ratelimit.redis.in_flight", int64(r.InFlight), of...)
		for kind, n := range r.Errors {
			to.count("ratelimit.redis.errors", n, append(slices.Clone(of), attribute.String("error.type", kind))...)
		}
	}
	if d := stats.Denials; d != nil {
		to.count("ratelimit.denial_cache.denials", d.Answered, of...)
		to.count("ratelimit.denial_cache.usage", int64(d.Kept), of...)
		to.count("ratelimit.denial_cache.limit", int64(d.Max), of...)
	}
	if l := stats.Leases; l != nil {
		to.count("ratelimit.lease.usage", int64(l.Leases), of...)
		to.count("ratelimit.lease.limit", int64(l.Max), of...)
		to.count("ratelimit.lease.token.held", l.Held, of...)
		to.count("ratelimit.lease.drawn_tokens", l.Drawn, of...)
		to.count("ratelimit.lease.returned_tokens", l.Returned, of...)
		to.count("ratelimit.lease.lost_tokens", l.Lost, of...)
	}
	if m := stats.Memory; m != nil {
		to.count("ratelimit.memory.usage", m.Bytes, of...)
		to.count("ratelimit.memory.bucket.usage", int64(m.Buckets), of...)
		to.count("ratelimit.memory.bucket.limit", int64(m.Max), of...)
		to.count("ratelimit.memory.bucket.blocked", int64(m.Blocked), of...)
		maps.Copy(evicted, m.Evicted)
		each("ratelimit.memory.evictions", evicted)
	}
}

// splitRoute returns the method and the rest of a route such as "GET /items/{id}". A method that is none of HTTP's stays
// with the rest, since a router might take it from a request.
func splitRoute(route string) (method, pattern string) {
	method, pattern, _ = strings.Cut(route, " ")
	switch method {
	case "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE":
		return method, pattern
	}
	return "", route
}
