// Package headers provides other rate limit headers than X-RateLimit, which is the default
// ([ratelimit.XRateLimit]). Choose a format with [ratelimit.Config.Headers]:
//
//	limiter, err := ratelimit.New(ratelimit.Config{
//		Headers: headers.IETF,
//	})
//
// The formats:
//
//	ratelimit.XRateLimit  X-RateLimit-Limit, -Remaining and -Reset (Unix time); the default
//	headers.DeltaSeconds  the same, with X-RateLimit-Reset in seconds from now
//	headers.IETF          RateLimit and RateLimit-Policy, of the IETF draft
//	headers.Spring        the headers of Spring Cloud Gateway
//	headers.Shadows       X-RateLimit-Shadow, for the policies that only measure
//	headers.None          none
//	headers.Join          several of them
//
// A denial has Retry-After, whatever the format. The guide [headers] compares the formats and shows the responses.
//
// # The IETF draft
//
// [IETF] writes one list member for each policy:
//
//	RateLimit-Policy: "login";q=5;w=15
//	RateLimit: "login";r=0;t=3
//
// All units are tokens, which are requests if a request costs 1.
//   - q is the burst. w is how many seconds an empty bucket takes to refill.
//   - q of a calendar quota is its tokens in a period. w is the length of the present period, and t the time to its end,
//     until which r requests are allowed.
//   - q of a concurrency limit is its slots, and qu is "concurrent-requests". It has no w. It has a t only in a denial,
//     because nobody knows when other requests end.
//   - r is how many tokens are left. It is 0 for a policy that denied the request.
//   - t is in seconds. A client that spreads r requests over t seconds is allowed, and can go on like that.
//   - If r is 0, t is when the next token comes. In a denial, t is when the same request would be allowed. There no
//     t is longer than Retry-After. A request that costs more than the burst is never allowed, and its policy has
//     no t.
//
// If stacked calls of Limit have policies of the same name, the tighter one is shown, see [ratelimit.Decision.Tightest].
// While the store is unavailable, a policy whose state is not known is missing in RateLimit.
//
// # Rates below one per second
//
// In Spring, the rate is a whole number per second. For other rates, [Spring] counts all four numbers in parts of a
// token, and uses the fewest parts that make the rate whole. One request a minute has a rate of 1, a capacity of
// 60, and requests that cost 60, as in a Spring configuration.
//
// A calendar quota has a rate of 0, because none of its tokens come within its period. A concurrency limit has a rate of 0,
// too, because slots do not refill.
//
// No number is above 2^53, because JavaScript would misread it. If exact parts need larger numbers, the rate is
// rounded down, by less than a millionth. A number that is still larger is written as 2^53.
//
// # Behind a proxy of your own
//
// If a handler proxies to a server that sets rate limit headers, too, the response would have both. [Merge] makes
// them one set. [ratelimit.Limiter.Handler] and [ratelimit.Limiter.Limit] do so for an *httputil.ReverseProxy that
// they wrap directly. In a router, wrap the proxy itself, inside all limiters:
//
//	r.With(limiter.Limit(login)).Handle("/auth/*", headers.Merge(proxy))
//
// The proxy's http.ResponseWriter keeps its optional methods. Informational responses (1xx) do not have the headers
// of the limiters, because a ReverseProxy removes all headers after it wrote one.
//
// # Browsers
//
// A script of another origin can read these headers only if Access-Control-Expose-Headers lists them:
//
//	cors.Options{ExposedHeaders: headers.Exposed}
//
// [headers]: https://github.com/go-tokenbucket/ratelimit/blob/main/docs/headers.md
package headers

import (
	"cmp"
	"net/http"
	"slices"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/rateheader"
)

// None writes no headers. Use it for APIs that do not publish their limits. A denial still has Retry-After.
func None(http.Header, *ratelimit.Decision) {}

// Join writes the headers of all fs, in their order, for example [IETF] beside [ratelimit.XRateLimit] while clients
// move from one to the other. If two write the same header, the last one counts. [ratelimit.XRateLimit] and
// [DeltaSeconds] differ in X-RateLimit-Reset. If [Spring] counts in parts of a token, it removes X-RateLimit-Limit
// and X-RateLimit-Reset of an earlier format. A later format with these headers removes those of Spring. Join
// panics if fs is empty or has a nil.
func Join(fs ...ratelimit.HeaderFunc) ratelimit.HeaderFunc {
	if len(fs) == 0 {
		panic("headers: Join: must have at least one HeaderFunc; see None")
	}
	for _, f := range fs {
		if f == nil {
			panic("headers: Join: no HeaderFunc may be nil")
		}
	}
	fs = slices.Clone(fs)
	return func(h http.Header, d *ratelimit.Decision) {
		for _, f := range fs {
			f(h, d)
		}
	}
}

// DeltaSeconds is [ratelimit.XRateLimit] with X-RateLimit-Reset in seconds from now, rounded up, and 0 if the
// bucket is full. Clients need no correct clock for it.
func DeltaSeconds(h http.Header, d *ratelimit.Decision) {
	if r := d.Tightest(); r != nil {
		reset := int64(rateheader.NoReset)
		if !r.Limit.IsConcurrency() {
			reset = int64((r.ResetAfter + time.Second - 1) / time.Second)
		}
		rateheader.SetXRateLimit(h, make([]string, 3), burstOf(r.Limit), r.Remaining, reset)
		rateheader.SetWaited(h, d.VisibleWait())
	}
}

// Exposed are the names of all headers by which limiters report limits, in any format, and on denials. Add them to
// Access-Control-Expose-Headers, so that scripts of other origins can read them.
var Exposed = []string{
	"RateLimit", "RateLimit-Policy", "Retry-After",
	"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset", "X-RateLimit-Waited",
	"X-RateLimit-Replenish-Rate", "X-RateLimit-Burst-Capacity", "X-RateLimit-Requested-Tokens",
	"X-RateLimit-Shadow",
}

// burstOf returns the capacity of l, with its default. It is 0 if the rate is 0.
func burstOf(l ratelimit.Limit) int64 {
	if l.Rate == 0 {
		return 0
	}
	return cmp.Or(l.Burst, l.Rate)
}
