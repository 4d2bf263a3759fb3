package headers

import (
	"net/http"

	"github.com/go-tokenbucket/ratelimit/internal/rateheader"
)

// Merge wraps a handler that brings rate limit headers of its own, such as an httputil.ReverseProxy in
// front of a server that is limited too: it would add them to those of the limiter around it. They become one set.
//
//   - X-RateLimit-*: all of them are of the set whose X-RateLimit-Remaining is the lesser number. One without loses.
//     X-RateLimit-Waited is that of the limiter around next, if it has one.
//   - RateLimit and RateLimit-Policy: one line of both, the outer policies first, even if two have the same name.
//   - Retry-After: the later one.
//
// [ratelimit.Limiter.Handler] and [ratelimit.Limiter.Limit] do this for an *httputil.ReverseProxy that they wrap
// directly. In a router it belongs around the proxy itself, inside of every limiter:
//
//	r.With(limiter.Limit(login)).Handle("/auth/*", headers.Merge(proxy))
//
// next does not see the headers that are set already. They are in the response's header when it is written, or
// when next returns or panics, but not in informational ones (1xx), after which a ReverseProxy forgets what was
// set before. The http.ResponseWriter of next has the methods that it has without Merge. It panics if next
// is nil.
func Merge(next http.Handler) http.Handler {
	if next == nil {
		panic("headers: Merge: next must not be nil")
	}
	return rateheader.Handler(next)
}
