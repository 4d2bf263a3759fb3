package skip

import (
	"net/http"

	"github.com/go-tokenbucket/ratelimit/internal/requestheader"
)

// Preflights exempts CORS preflights. Handlers inside the limiter then run for such requests
// uncounted, and anybody can send one. So it is only for a router that answers preflights itself, inside the
// limiter, and passes none of them on. Without it preflights are limited as other requests are. To limit
// nothing that a browser needs, mount CORS outside the limiter: it answers preflights before they get here.
//
// A preflight is an OPTIONS request with one Origin and one Access-Control-Request-Method, which is a method. It
// has no body, no Authorization, Proxy-Authorization or Cookie, no Upgrade and no header that overrides its
// method or path. Other credentials, such as an API key in a header of its own or in the query, are not looked for.
func Preflights() func(*http.Request) bool {
	return isPreflight
}

func isPreflight(r *http.Request) bool {
	if r.Method != http.MethodOptions || r.ContentLength != 0 || len(r.TransferEncoding) > 0 || r.ProtoMajor < 2 && r.Body != nil && r.Body != http.NoBody {
		return false
	}
	origin, method := r.Header["Origin"], r.Header["Access-Control-Request-Method"]
	if len(origin) != 1 || origin[0] == "" || len(method) != 1 || !requestheader.IsToken(method[0]) {
		return false
	}
	return !requestheader.HasAny(r, notInPreflights[:]) && !requestheader.HasAny(r, overriding[:])
}

// notInPreflights are headers that a browser puts into no preflight, and by which a handler would do more than
// answer one.
var notInPreflights = [...]string{
	"Authorization", "Proxy-Authorization", "Cookie", // guesses
	"Upgrade", // a connection on which more requests follow
}
