package otelratelimit

import (
	"errors"
	"time"

	"go.opentelemetry.io/otel/metric"
)

// instruments are all instruments of an Observer. The package comment lists them.
type instruments struct {
	duration, timeInQueue metric.Float64Histogram

	requests, degraded, decisions                          metric.Int64Observable
	operations, failedOperations                           metric.Int64Observable
	settlements, estimatedTokens, finalTokens              metric.Int64Observable
	queued, maxQueued                                      metric.Int64Observable
	calls, mergedCalls, batches, directBatches, charges    metric.Int64Observable
	storeErrors, redirects, scriptLoads                    metric.Int64Observable
	queueLength, inFlight                                  metric.Int64Observable
	queueAge                                               metric.Float64Observable
	cachedDenials, denialsKept, maxDenials                 metric.Int64Observable
	leases, maxLeases, heldTokens                          metric.Int64Observable
	drawnTokens, returnedTokens, lostTokens                metric.Int64Observable
	away, probes, answered, chargedTokens                  metric.Int64Observable
	pending, known, maxKnown                               metric.Int64Observable
	memory, buckets, maxBuckets, blocked, evictions        metric.Int64Observable
	cacheLookups, cacheEvictions, cacheEntries, maxEntries metric.Int64Observable

	observables []metric.Observable // all that are observed by a callback
}

// queueBounds are the bounds that OpenTelemetry's conventions have for aspnetcore.rate_limiting.request.time_in_queue, in
// seconds.
var queueBounds = []float64{0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10}

// newInstruments makes the instruments. decisionBounds are those of the durations that observe.Counts counts.
func newInstruments(meter metric.Meter, decisionBounds []time.Duration) (*instruments, error) {
	in := new(instruments)
	var faults []error
	histogram := func(into *metric.Float64Histogram, name, description string, bounds []float64) {
		made, err := meter.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(description), metric.WithExplicitBucketBoundaries(bounds...))
		*into, faults = made, append(faults, err)
	}
	counter := func(into *metric.Int64Observable, name, unit, description string) {
		made, err := meter.Int64ObservableCounter(name, metric.WithUnit(unit), metric.WithDescription(description))
		*into, faults, in.observables = made, append(faults, err), append(in.observables, made)
	}
	level := func(into *metric.Int64Observable, name, unit, description string) {
		made, err := meter.Int64ObservableUpDownCounter(name, metric.WithUnit(unit), metric.WithDescription(description))
		*into, faults, in.observables = made, append(faults, err), append(in.observables, made)
	}

	seconds := make([]float64, len(decisionBounds))
	for i, bound := range decisionBounds {
		seconds[i] = bound.Seconds()
	}
	histogram(&in.duration, "ratelimit.decision.duration", "How long decisions took, without the time in the queue.", seconds)
	histogram(&in.timeInQueue, "ratelimit.request.time_in_queue", "How long requests waited for their tokens, of those that waited.", queueBounds)

	counter(&in.requests, "ratelimit.requests", "{request}", "Requests under each policy.")
	counter(&in.degraded, "ratelimit.degraded_requests", "{request}", "Requests under each policy that a stand-in for the store decided.")
	counter(&in.decisions, "ratelimit.decisions", "{decision}", "Decisions, each under all its policies together.")
	counter(&in.operations, "ratelimit.operations", "{operation}", "Operations of limiters that are no decisions.")
	counter(&in.failedOperations, "ratelimit.failed_operations", "{operation}", "Operations that had an error, and are no decisions.")
	counter(&in.settlements, "ratelimit.settlements", "{settlement}", "Requests whose final cost was settled.")
	counter(&in.estimatedTokens, "ratelimit.settlement.estimated_tokens", "{token}", "Tokens that settled requests were charged before.")
	counter(&in.finalTokens, "ratelimit.settlement.final_tokens", "{token}", "Tokens that settled requests cost in the end.")
	level(&in.queued, "ratelimit.queued_requests", "{request}", "Requests and calls that wait for their tokens.")
	level(&in.maxQueued, "ratelimit.queued_requests.limit", "{request}", "Requests and calls that may wait at once.")

	counter(&in.calls, "ratelimit.redis.calls", "{call}", "Calls of the Redis store that were sent.")
	counter(&in.mergedCalls, "ratelimit.redis.merged_calls", "{call}", "Calls that were sent as one with an identical call.")
	counter(&in.batches, "ratelimit.redis.batches", "{batch}", "Batches of calls that were sent.")
	counter(&in.directBatches, "ratelimit.redis.direct_batches", "{batch}", "Batches that a lone caller sent itself.")
	counter(&in.charges, "ratelimit.redis.charges", "{charge}", "Charges of the calls that were sent.")
	counter(&in.storeErrors, "ratelimit.redis.errors", "{error}", "Calls of the Redis store that failed.")
	counter(&in.redirects, "ratelimit.redis.redirects", "{redirect}", "Batches that a Redis Cluster sent on to another master.")
	counter(&in.scriptLoads, "ratelimit.redis.script_loads", "{load}", "Loads of a script.")
	level(&in.queueLength, "ratelimit.redis.queue.length", "{call}", "Calls that wait to be sent.")
	level(&in.inFlight, "ratelimit.redis.in_flight", "{batch}", "Batches that wait for their answer.")
	age, err := meter.Float64ObservableGauge("ratelimit.redis.queue.age", metric.WithUnit("s"), metric.WithDescription("How long the oldest call has waited to be sent."))
	in.queueAge, faults, in.observables = age, append(faults, err), append(in.observables, age)

	counter(&in.cachedDenials, "ratelimit.denial_cache.denials", "{call}", "Calls that were denied without a call of the store.")
	level(&in.denialsKept, "ratelimit.denial_cache.usage", "{denial}", "Denials that are kept.")
	level(&in.maxDenials, "ratelimit.denial_cache.limit", "{denial}", "Denials that may be kept.")

	level(&in.leases, "ratelimit.lease.usage", "{bucket}", "Buckets that are leased.")
	level(&in.maxLeases, "ratelimit.lease.limit", "{bucket}", "Buckets that may be leased.")
	level(&in.heldTokens, "ratelimit.lease.token.held", "{token}", "Tokens that were drawn and not spent yet.")
	counter(&in.drawnTokens, "ratelimit.lease.drawn_tokens", "{token}", "Tokens that were drawn from the store.")
	counter(&in.returnedTokens, "ratelimit.lease.returned_tokens", "{token}", "Tokens that were returned to the store.")
	counter(&in.lostTokens, "ratelimit.lease.lost_tokens", "{token}", "Tokens that were neither spent nor returned.")

	level(&in.away, "ratelimit.fallback.away", "{store}", "Stores that are unavailable now, so that a stand-in decides.")
	counter(&in.probes, "ratelimit.fallback.probes", "{probe}", "Calls that looked whether the store is back.")
	counter(&in.answered, "ratelimit.fallback.calls", "{call}", "Calls that the stand-in answered.")
	counter(&in.chargedTokens, "ratelimit.fallback.charged_tokens", "{token}", "Tokens that were charged to the store after outages.")
	level(&in.pending, "ratelimit.fallback.pending", "{bucket}", "Buckets that are still to be charged after an outage.")
	level(&in.known, "ratelimit.fallback.usage", "{bucket}", "Buckets of the store that are remembered for an outage.")
	level(&in.maxKnown, "ratelimit.fallback.limit", "{bucket}", "Buckets of the store that may be remembered.")

	level(&in.memory, "ratelimit.memory.usage", "By", "Memory of the buckets of a memory store, estimated.")
	level(&in.buckets, "ratelimit.memory.bucket.usage", "{bucket}", "Buckets in a memory store.")
	level(&in.maxBuckets, "ratelimit.memory.bucket.limit", "{bucket}", "Buckets that a memory store may keep.")
	level(&in.blocked, "ratelimit.memory.bucket.blocked", "{bucket}", "Buckets in a memory store that are blocked.")
	counter(&in.evictions, "ratelimit.memory.evictions", "{bucket}", "Buckets that a memory store forgot for lack of room.")

	counter(&in.cacheLookups, "ratelimit.cache.lookups", "{lookup}", "Lookups in a cache.")
	counter(&in.cacheEvictions, "ratelimit.cache.evictions", "{entry}", "Entries that a cache forgot for lack of room.")
	level(&in.cacheEntries, "ratelimit.cache.usage", "{entry}", "Entries in a cache.")
	level(&in.maxEntries, "ratelimit.cache.limit", "{entry}", "Entries that a cache may keep.")
	return in, errors.Join(faults...)
}
