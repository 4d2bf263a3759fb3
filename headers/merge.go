package headers

import (
	"net/http"

	"github.com/go-tokenbucket/ratelimit/internal/rateheader"
)

// Merge wraps a handler that sets rate limit headers itself, such as an httputil.ReverseProxy in front of another
// limited server. It merges them with those of the limiters around it. It panics if next is nil.
//   - X-RateLimit-*: the set with the lower X-RateLimit-Remaining. A set without that number loses.
//   - X-RateLimit-Waited: that of the limiter around next, if it has one.
//   - RateLimit and RateLimit-Policy: one line with both, the outer policies first, even if two have the same name.
//   - Retry-After: the later one.
//
// next does not see the outer headers. They are in the final response, also if next panics.
func Merge(next http.Handler) http.Handler {
	if next == nil {
		panic("headers: Merge: next must not be nil")
	}
	return rateheader.Handler(next)
}
