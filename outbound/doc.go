// Package outbound keeps the calls that a service makes to an API within the quota of that API, across all replicas. Wrap
// the transport of a client:
//
//	transport, err := outbound.New(outbound.Config{
//		Limiter: limiter, // its Store is shared by all replicas
//		Policy: ratelimit.Policy{
//			Name:    "github",
//			Limit:   ratelimit.PerHour(5000),
//			MaxWait: time.Minute,
//		},
//	})
//	client := &http.Client{Transport: transport}
//
// A request waits until the quota of its host has room, or fails with an [Error] that says when to try again.
// Config.Policy has the longest wait and can count by another key than the host.
//
// # What it learns
//
// Responses correct the bucket for all replicas:
//   - RateLimit, X-RateLimit-Remaining and X-RateLimit-Reset say what is left. The bucket holds no more than that. When
//     little is left, it gets no more until the window of the API ends. So the replicas also notice what others use of
//     the same quota.
//   - A 429, or a 403 or 503 with Retry-After, stops all replicas until the time that it names.
//
// Learning only takes tokens away. The limit that you configure is never exceeded, whatever a server responds. See
// [Headers] for the header fields, and [Config] for others.
//
// # Choose the limit
//
// Use the quota that the API documents: GitHub's 5,000 requests an hour are PerHour(5000). The burst decides how the
// quota is spent. By default it is the whole quota. The service can then use it up at once and wait for the next
// window. After a pause, the API may refuse calls that come at once late in its window: the bucket has filled in the
// pause, the window has not. A small burst, such as PerHour(5000).WithBurst(50), spreads the calls over the hour.
//
// # Retries
//
// Put a client that retries around the Transport: each try is then charged and waits for its turn. If it is inside, as
// Config.Base, the Transport does not see its tries. They are noticed only when a response says how much is left.
//
// # If Redis is unavailable
//
// Calls are let through, except that a replica that was told to stop obeys. With Policy.FailClosed calls fail. Over a
// [github.com/go-tokenbucket/ratelimit/store/fallback] store, each replica keeps a local limit.
package outbound
