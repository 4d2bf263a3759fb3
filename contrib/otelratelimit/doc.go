// Package otelratelimit reports what Limiters of package ratelimit do to OpenTelemetry: metrics of requests and stores,
// and what was decided on the span of each request. It needs the OpenTelemetry API only; the program chooses the SDK.
//
//	observer, err := otelratelimit.New(otelratelimit.Config{})
//	if err != nil {
//		return err
//	}
//	limiter, err := ratelimit.New(ratelimit.Config{Policies: policies, Observe: observer.Observe})
//	if err != nil {
//		return err
//	}
//	observer.Register("api", limiter)
//
// Mount the limiter inside of the middleware that starts spans, such as otelhttp.NewHandler. A program to try is in
// https://github.com/go-tokenbucket/ratelimit/tree/main/contrib/otelratelimit/example.
//
// # Metrics
//
// METRICS.md lists the metrics with their units and attributes:
// https://github.com/go-tokenbucket/ratelimit/blob/main/contrib/otelratelimit/METRICS.md
//
// A request counts once under each of its policies in ratelimit.requests. Its ratelimit.result is "allowed", "denied",
// "would_deny" (by a Shadow), "not_charged" (the request was refused for another reason) or "refused" (by FailClosed,
// in an outage).
// http.route and http.request.method are those of [ratelimit.Event.Route]. They are missing for calls without a request,
// and if no router had matched the request yet.
//
// A request counts in ratelimit.decisions once for each limiter that decided about it. [observe.DecisionCounts] lists the
// values of ratelimit.outcome. The value of ratelimit.operation is an Op of [ratelimit.Event] that is no decision, such as
// "peek", "settle" or "expired".
//
// The durations are recorded as they happen, with an exemplar if the span is sampled. Everything else is counted, and
// read when a reader collects it. A View that drops ratelimit.decision.duration makes a decision cheaper.
//
// See [store.Stats] for the metrics of stores. Their ratelimit.store is "primary", or "secondary" for the stand-in of a
// fallback. The error.type of ratelimit.redis.errors is the kind, as in [store.RedisStats].
//
// # Cardinality
//
// Clients cannot add series without bound: [observe.CountsConfig] bounds policies and routes, and all other attributes
// have fixed values. No metric has a key, a path or the text of an error. The SDK has another bound, 2,000 series for
// each instrument: see WithCardinalityLimit in go.opentelemetry.io/otel/sdk/metric. A program with more policies and
// routes must raise it, or set observe.CountsConfig.NoRoutes. The series of all policies of registered Limiters exist
// from the start, with a value of 0.
//
// # Traces
//
// If the span in the context of a decision is recording, it gets these attributes. They are those of its last decision:
// a Take in a handler replaces what the middleware set.
//
//	ratelimit.operation      as in ratelimit.Event
//	ratelimit.outcome        as in metrics
//	ratelimit.allowed        whether the request goes on
//	ratelimit.policy         the policy that denied it, or came nearest to it
//	ratelimit.remaining      the tokens left under that policy
//	ratelimit.time_in_queue  in seconds, if it waited
//	ratelimit.degraded       true if a stand-in for the store decided
//	ratelimit.key            only with Config.KeySecret, as an HMAC
//
// It also gets an event for each denial, and for each policy that was settled:
//
//	ratelimit.denied, ratelimit.would_deny  operation, policy, limit, cost, retry_after (s), blocked
//	ratelimit.settled                       policy, estimate, cost; failed if the estimate stays
//
// A span that is not recording costs nothing. This package starts no spans.
package otelratelimit
