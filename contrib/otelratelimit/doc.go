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
//	registration, err := observer.Register(limiter)
//	if err != nil {
//		return err
//	}
//	defer registration.Unregister()
//
// A program to try is in https://github.com/go-tokenbucket/ratelimit/tree/main/contrib/otelratelimit/example.
//
// Mount the limiter inside of the middleware that starts spans, such as otelhttp.NewHandler.
//
// # Metrics of requests
//
//	ratelimit.requests                     counter    {request}     ratelimit.policy, ratelimit.result, http.route, http.request.method
//	ratelimit.degraded_requests            counter    {request}     ratelimit.policy, http.route, http.request.method
//	ratelimit.decisions                    counter    {decision}    ratelimit.outcome
//	ratelimit.decision.duration            histogram  s             ratelimit.outcome
//	ratelimit.request.time_in_queue        histogram  s             ratelimit.policy, ratelimit.result
//	ratelimit.queued_requests              level      {request}
//	ratelimit.queued_requests.limit        level      {request}
//	ratelimit.operations                   counter    {operation}   ratelimit.operation
//	ratelimit.failed_operations            counter    {operation}   ratelimit.operation
//	ratelimit.settlements                  counter    {settlement}  ratelimit.policy
//	ratelimit.settlement.estimated_tokens  counter    {token}       ratelimit.policy
//	ratelimit.settlement.final_tokens      counter    {token}       ratelimit.policy
//
// A level is an UpDownCounter: it goes up and down, and those of replicas add up. Except for the time in the queue,
// requests are only counted, and all is read when a reader collects it.
//
// A request counts once under each of its policies. Its ratelimit.result is "allowed", "denied", "would_deny" (by a
// Shadow) or "not_charged" (the bucket could pay, and the request was refused for another reason). A request counts in
// ratelimit.decisions once for each limiter that decided about it. [observe.DecisionCounts] lists the outcomes.
//
// The value of ratelimit.operation is an Op of [ratelimit.Event] that is no decision, such as "peek" or "settle". In the
// time in the queue, ratelimit.policy is the policy with the longest wait, and ratelimit.result is "allowed" or
// "canceled".
//
// http.route and http.request.method are those of [ratelimit.Event.Route]. They are missing for calls without a request,
// and if no router had matched the request yet.
//
// ratelimit.decision.duration is recorded when a reader collects, from the buckets of [observe.Counts]. Its counts and its
// sum are exact. Within a bucket the values are not known, so min and max are about right, a View with other bounds is
// less exact, and there are no exemplars. Each decision costs the reader 0.2 to 0.4 µs then, in all at most a second:
// the rest comes with the next collection. A View that drops the metric saves that.
//
// # Metrics of stores and caches
//
// Only the parts exist that the Limiter's Store has. See [store.Stats] for their meaning. They have an attribute
// ratelimit.store, except for ratelimit.fallback and ratelimit.redis.queue.age. It is "primary", or "secondary" for
// the stand-in of a fallback.
//
//	ratelimit.redis.calls                counter  {call}
//	ratelimit.redis.merged_calls         counter  {call}
//	ratelimit.redis.batches              counter  {batch}
//	ratelimit.redis.direct_batches       counter  {batch}
//	ratelimit.redis.charges              counter  {charge}
//	ratelimit.redis.errors               counter  {error}     error.type: the kind, as in store.RedisStats
//	ratelimit.redis.redirects            counter  {redirect}
//	ratelimit.redis.script_loads         counter  {load}
//	ratelimit.redis.queue.length         level    {call}
//	ratelimit.redis.queue.age            gauge    s           of the oldest call
//	ratelimit.redis.in_flight            level    {batch}
//	ratelimit.denial_cache.denials       counter  {call}
//	ratelimit.denial_cache.usage         level    {denial}
//	ratelimit.denial_cache.limit         level    {denial}
//	ratelimit.lease.usage                level    {bucket}
//	ratelimit.lease.limit                level    {bucket}
//	ratelimit.lease.token.held           level    {token}
//	ratelimit.lease.drawn_tokens         counter  {token}
//	ratelimit.lease.returned_tokens      counter  {token}
//	ratelimit.lease.lost_tokens          counter  {token}
//	ratelimit.fallback.away              level    {store}     1 while a stand-in decides
//	ratelimit.fallback.probes            counter  {probe}
//	ratelimit.fallback.calls             counter  {call}
//	ratelimit.fallback.charged_tokens    counter  {token}
//	ratelimit.fallback.pending           level    {bucket}
//	ratelimit.fallback.usage             level    {bucket}
//	ratelimit.fallback.limit             level    {bucket}
//	ratelimit.memory.usage               level    By
//	ratelimit.memory.bucket.usage        level    {bucket}
//	ratelimit.memory.bucket.limit        level    {bucket}
//	ratelimit.memory.bucket.blocked      level    {bucket}
//	ratelimit.memory.evictions           counter  {bucket}    ratelimit.policy
//	ratelimit.cache.lookups              counter  {lookup}    ratelimit.cache.name, ratelimit.cache.result: hit or miss
//	ratelimit.cache.evictions            counter  {entry}     ratelimit.cache.name
//	ratelimit.cache.usage                level    {entry}     ratelimit.cache.name
//	ratelimit.cache.limit                level    {entry}     ratelimit.cache.name
//
// # Cardinality
//
// Clients cannot add series without bound: [observe.CountsConfig] bounds policies and routes, and all other attributes
// have fixed values. No metric has a key, a path or the text of an error. The SDK has another bound, 2,000 series for
// each instrument: see WithCardinalityLimit in go.opentelemetry.io/otel/sdk/metric. A program with more policies and
// routes must raise it, or set observe.CountsConfig.NoRoutes.
//
// The series of all policies of registered Limiters exist from the start, with a value of 0.
//
// # Traces
//
// If the span in the context of a decision is recording, it gets these attributes. They are those of its last decision:
// a Take in a handler replaces what the middleware set.
//
//	ratelimit.operation      as in ratelimit.Event
//	ratelimit.allowed        whether the request goes on
//	ratelimit.policy         the policy that denied it, or came nearest to it
//	ratelimit.remaining      the tokens left under that policy
//	ratelimit.time_in_queue  in seconds, if it waited
//	ratelimit.degraded       true if a stand-in for the store decided
//	ratelimit.key            only with Config.KeySecret, as an HMAC
//
// It also gets an event for each denial, for a decision that failed, and for each policy that was settled:
//
//	ratelimit.denied, ratelimit.would_deny  operation, policy, limit, cost, retry_after (s), blocked
//	ratelimit.failed                        operation, error.type: bad_request, no_key, overloaded, timeout, canceled, _OTHER
//	ratelimit.settled                       policy, estimate, cost; error.type if it failed, and the estimate stays
//
// A span that is not recording costs nothing. This package starts no spans.
package otelratelimit
