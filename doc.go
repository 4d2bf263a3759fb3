// Package ratelimit limits HTTP requests with token buckets, exactly and across replicas.
//
// A [Limiter] wraps any handler. Each request takes a token from the bucket of its key, such as the client's
// address. If the bucket has too few tokens, the request is denied: 429 with Retry-After.
//
//	limiter, err := ratelimit.New(ratelimit.Config{
//		Policies: []ratelimit.Policy{{
//			Name:  "api",
//			Key:   ratelimit.RemoteIP(), // behind a proxy: ClientIP
//			Limit: ratelimit.PerMinute(60).WithBurst(10),
//		}},
//	})
//	if err != nil {
//		log.Fatal(err) // names every field that is wrong
//	}
//	log.Fatal(http.ListenAndServe(":8080", limiter.Handler(mux)))
//
// # Several replicas
//
// Without a Store, buckets are kept in the memory of this process. To share them between replicas, keep them in Redis.
// With a fallback, each replica enforces its share of the limits while Redis is unavailable:
//
//	options, err := redisstore.Options("redis://localhost:6379")
//	if err != nil {
//		log.Fatal(err)
//	}
//	buckets := ratelimit.Must(redisstore.New(redis.NewClient(options), redisstore.Config{}))
//	limiter, err := ratelimit.New(ratelimit.Config{
//		Store:    ratelimit.Must(fallback.New(buckets, nil, fallback.Config{Replicas: 3})),
//		Policies: policies,
//	})
//
// # Limits for each route
//
// [Limiter.Handler] enforces [Config.Policies] on all requests. [Limiter.Limit] adds policies to a route:
//
//	r := chi.NewRouter()
//	r.Use(limiter.Handler)
//	r.With(limiter.Limit(login)).Post("/login", h)
//	r.With(limiter.Limit(perMember, perOrg)).Get("/search", h) // takes from both buckets, or from neither
//
// For other routers, and for gin, echo, fiber, gRPC and Connect, see
// https://github.com/go-tokenbucket/ratelimit/blob/main/docs/routers.md.
//
// # Choosing a key
//
//   - [RemoteIP]: the address of the TCP peer
//   - [ClientIP]: the address of the client behind proxies
//   - [github.com/go-tokenbucket/ratelimit/jwtkey.New]: a claim of a verified token
//   - [ContextKey]: the identity that your authentication has found
//   - [Header]: the value of a header, such as an API key
//   - [Route]: the matched pattern
//   - [Static]: one key for all requests
//   - [FirstOf] and [Join] combine others: members by id and guests by address, or each client on each route
//
// See https://github.com/go-tokenbucket/ratelimit/blob/main/docs/client-ip.md and
// https://github.com/go-tokenbucket/ratelimit/blob/main/docs/identity.md.
//
// # Choosing a limit
//
// A bucket starts full. PerMinute(60) allows 60 requests at once, and one more each second. To allow fewer at once,
// lower the burst: PerMinute(60).WithBurst(10). See
// https://github.com/go-tokenbucket/ratelimit/blob/main/docs/choosing-a-limit.md.
//
// A [Quota] such as 100,000 a month is renewed by the calendar:
// https://github.com/go-tokenbucket/ratelimit/blob/main/docs/plans.md.
//
// To choose the limit by the member's tier, set [Policy.LimitFunc]. A key whose limit changes keeps its tokens, up to
// the new burst. If the LimitFunc returns a malformed Limit, [Policy.Limit] applies. Without one, or if that is
// [Unlimited], the request is answered 503.
//
// # Responses
//
// Allowed and denied responses have rate limit headers, see [XRateLimit] and [Config.Headers]. A request that does not
// reach the handler is answered with one of these:
//   - 429: a policy denied it. Retry-After says when to try again. [Config.Deny] changes this answer, and
//     [Config.Error] the others.
//   - 403: it has no key ([ErrNoKey]), and the policy is not Optional. The log says why.
//   - 400: its key is malformed or ambiguous ([ErrBadRequest]). The log says why.
//   - 503: the store failed and a policy sets FailClosed, a function of a policy failed, or the arguments of
//     [Limiter.Admit] are wrong. Or the request's own deadline has passed, it was cancelled while it waited, or this
//     process is overloaded.
//   - 499: the client has disconnected. Only logs show this status.
//
// # When the store fails
//
// If the store fails or does not answer within [Config.Timeout], requests are let through without rate limit headers.
// With a [github.com/go-tokenbucket/ratelimit/store/fallback.Store] they are limited from memory instead. A policy
// with [Policy.FailClosed] answers 503. If the error of a KeyFunc wraps [ErrOutage], its policy counts as failed, too.
// Failures that clients can cause, such as a passed deadline or an overloaded process, never let a request through. See
// https://github.com/go-tokenbucket/ratelimit/blob/main/docs/outages.md.
//
// # Waiting for tokens
//
// With [Policy.MaxWait], requests wait for their tokens instead of being denied, on all replicas in the order in which
// they came. In workers use [Limiter.Wait]. See
// https://github.com/go-tokenbucket/ratelimit/blob/main/docs/waiting.md.
//
// # Costs that the response decides
//
// With [Policy.Settle], the cost of a request depends on its response, as with [FailedLogins] or the bytes of a
// download. A handler that knows the cost can call [SetCost]. See
// https://github.com/go-tokenbucket/ratelimit/blob/main/docs/settling.md.
//
// # Which call
//
//   - [Limiter.Handler] and [Limiter.Limit]: requests
//   - [Limiter.Take]: anything else, such as a message, by a key that you name
//   - [Limiter.Wait]: workers, which block until their turn
//   - [Limiter.Acquire]: jobs and streams, of which at most n may run at once
//   - [Limiter.Admit]: a request whose key only its handler knows, such as the name in a login form
//   - [Limiter.Decide]: a request that you answer yourself
//   - [Limiter.TakeAll] and [Limiter.WaitAll]: several buckets in one step
//   - [Limiter.Peek], [Limiter.Refund], [Limiter.Reset] and [Limiter.Block]: a bucket, by hand
//   - [Limiter.Usage]: what callers have left, for them to see
//
// Take, TakeAll, Wait and WaitAll return what the bucket said, in a [Result] or in the Results of a [Decision]. The
// guide says which call answers a denied request, and what each does if the store fails:
// https://github.com/go-tokenbucket/ratelimit/blob/main/docs/recipes.md#which-call.
//
// # Knowing before, and changing later
//
// [Limiter.Explain] says which policies would apply to a request, how each key is found, and how the request would be
// answered. The command in cmd/ratelimit simulates policies on an access log. [Limiter.Reload] replaces policies, and
// [Limiter.Override] the limits of policies and of single keys, while the program runs. See
// https://github.com/go-tokenbucket/ratelimit/blob/main/docs/changing-limits.md.
//
// # Other packages
//
//   - [github.com/go-tokenbucket/ratelimit/headers]: other header formats
//   - [github.com/go-tokenbucket/ratelimit/denial]: answers with your own text or page, and for gRPC
//   - [github.com/go-tokenbucket/ratelimit/skip]: exemptions, such as health checks
//   - [github.com/go-tokenbucket/ratelimit/observe]: logs of denials
//   - [github.com/go-tokenbucket/ratelimit/policyfile]: policies in a file, as YAML or JSON
//   - [github.com/go-tokenbucket/ratelimit/override]: limits that operators change for a policy or a key, on all replicas
//   - [github.com/go-tokenbucket/ratelimit/store/redisstore] and [memstore]: stores
package ratelimit
