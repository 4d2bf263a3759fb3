package otelratelimit

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/observe"
	"github.com/go-tokenbucket/ratelimit/store"
)

// collect observes everything but the time in the queue. A reader calls it, and several may at once.
func (o *Observer) collect(ctx context.Context, to metric.Observer) error {
	s := sums{points: make(map[point]sum)}
	policies := make(map[string]traits)
	var oldest float64
	queues := false
	for _, l := range *o.limiters.Load() {
		for _, p := range l.Policies() {
			o.counts.Declare(p.Name)
			t := policies[p.Name]
			policies[p.Name] = traits{enforced: t.enforced || !p.Shadow, shadow: t.shadow || p.Shadow, settles: t.settles || p.Settle != nil}
		}
		stats := l.Stats()
		s.add(o.queued, int64(stats.Waiting))
		s.add(o.maxQueued, int64(stats.MaxWaiting))
		o.addStore(&s, stats, "primary", l.Policies())
		if stats.Redis != nil {
			queues, oldest = true, max(oldest, stats.Redis.OldestQueued.Seconds())
		}
	}
	counts := o.counts.Snapshot()
	o.addCounts(&s, counts, policies)
	o.durations.record(ctx, o.duration, counts.Decisions, time.Now().Add(patience))
	for name, cache := range o.caches {
		o.addCache(&s, cache.Stats(), cacheKey.String(name))
	}
	s.observe(to)
	if queues {
		to.ObserveFloat64(o.queueAge, oldest)
	}
	return nil
}

// traits are which counts a policy can have.
type traits struct{ enforced, shadow, settles bool }

// addCounts adds the counts of requests. Those that are 0 are there, too, for results that are to be expected: otherwise
// a monitoring system does not see the first denial as a change.
func (o *Observer) addCounts(s *sums, counts observe.Snapshot, policies map[string]traits) {
	for _, p := range counts.Policies {
		has, known := policies[p.Policy]
		if !known {
			has = traits{enforced: true}
		}
		policy := policyKey.String(p.Policy)
		for _, r := range p.Routes {
			at := []attribute.KeyValue{policy}
			if method, pattern := splitRoute(r.Route); r.Route != "" {
				at = append(at, routeKey.String(pattern))
				if method != "" {
					at = append(at, methodKey.String(method))
				}
			}
			with := func(result string, n int64, expected bool) {
				if n > 0 || expected {
					s.add(o.requests, n, append(at[:len(at):len(at)], resultKey.String(result))...)
				}
			}
			with("allowed", r.Allowed, true)
			with("denied", r.Denied, has.enforced)
			with("would_deny", r.WouldDeny, has.shadow)
			with("not_charged", r.NotCharged, false)
			s.add(o.degraded, r.Degraded, at...)
		}
		if p.Settlements > 0 || has.settles {
			s.add(o.settlements, p.Settlements, policy)
			s.add(o.estimatedTokens, p.Estimated, policy)
			s.add(o.finalTokens, p.Final, policy)
		}
	}
	for _, d := range counts.Decisions {
		s.add(o.decisions, d.Count, outcomeKey.String(d.Outcome))
	}
	for _, op := range counts.Operations {
		s.add(o.operations, op.Count, operationKey.String(op.Op))
		s.add(o.failedOperations, op.Failed, operationKey.String(op.Op))
	}
}

// addStore adds the Stats of a Store, which has a role in that of a Limiter: "primary", or "secondary" of a fallback.
// policies are those of the Limiter.
func (o *Observer) addStore(s *sums, stats store.Stats, role string, policies []ratelimit.Policy) {
	as := storeKey.String(role)
	if r := stats.Redis; r != nil {
		s.add(o.calls, r.Calls, as)
		s.add(o.mergedCalls, r.Merged, as)
		s.add(o.batches, r.Batches, as)
		s.add(o.directBatches, r.Direct, as)
		s.add(o.charges, r.Charges, as)
		s.add(o.redirects, r.Redirects, as)
		s.add(o.scriptLoads, r.ScriptLoads, as)
		s.add(o.queueLength, int64(r.Queued), as)
		s.add(o.inFlight, int64(r.InFlight), as)
		for kind, n := range r.Errors {
			s.add(o.storeErrors, n, as, errorKey.String(kind))
		}
	}
	if d := stats.Denials; d != nil {
		s.add(o.cachedDenials, d.Answered, as)
		s.add(o.denialsKept, int64(d.Kept), as)
		s.add(o.maxDenials, int64(d.Max), as)
	}
	if l := stats.Leases; l != nil {
		s.add(o.leases, int64(l.Leases), as)
		s.add(o.maxLeases, int64(l.Max), as)
		s.add(o.heldTokens, l.Held, as)
		s.add(o.drawnTokens, l.Drawn, as)
		s.add(o.returnedTokens, l.Returned, as)
		s.add(o.lostTokens, l.Lost, as)
	}
	if m := stats.Memory; m != nil {
		s.add(o.memory, m.Bytes, as)
		s.add(o.buckets, int64(m.Buckets), as)
		s.add(o.maxBuckets, int64(m.Max), as)
		s.add(o.blocked, int64(m.Blocked), as)
		for _, p := range policies {
			s.add(o.evictions, 0, as, policyKey.String(p.Name))
		}
		for policy, n := range m.Evicted {
			s.add(o.evictions, n, as, policyKey.String(policy))
		}
	}
	if f := stats.Fallback; f != nil {
		away := int64(0)
		if f.Away {
			away = 1
		}
		s.add(o.away, away)
		s.add(o.probes, f.Probes)
		s.add(o.answered, f.Answered)
		s.add(o.chargedTokens, f.Charged)
		s.add(o.pending, int64(f.Pending))
		s.add(o.known, int64(f.Known))
		s.add(o.maxKnown, int64(f.Max))
		o.addStore(s, f.Secondary, "secondary", policies)
	}
}

func (o *Observer) addCache(s *sums, stats store.CacheStats, of attribute.KeyValue) {
	s.add(o.cacheLookups, stats.Hits, of, lookupKey.String("hit"))
	s.add(o.cacheLookups, stats.Misses, of, lookupKey.String("miss"))
	s.add(o.cacheEvictions, stats.Evicted, of)
	s.add(o.cacheEntries, int64(stats.Entries), of)
	s.add(o.maxEntries, int64(stats.Max), of)
}

// sums adds up values with the same attributes. A callback must observe them once: what several observations come to
// depends on the SDK.
type sums struct {
	points map[point]sum
	order  []point
}

type point struct {
	of    metric.Int64Observable
	attrs attribute.Distinct
}

type sum struct {
	attrs attribute.Set
	value int64
}

func (s *sums) add(of metric.Int64Observable, value int64, attrs ...attribute.KeyValue) {
	set := attribute.NewSet(attrs...)
	p := point{of, set.Equivalent()}
	at, again := s.points[p]
	if !again {
		at.attrs = set
		s.order = append(s.order, p)
	}
	at.value += value
	s.points[p] = at
}

func (s *sums) observe(to metric.Observer) {
	for _, p := range s.order {
		at := s.points[p]
		to.ObserveInt64(p.of, at.value, metric.WithAttributeSet(at.attrs))
	}
}
