package skip

import (
	"net/http"

	"github.com/go-tokenbucket/ratelimit/internal/requestheader"
)

// Preflights exempts CORS preflights: OPTIONS requests with one Origin and one valid Access-Control-Request-Method.
// Anybody can send them, so everything that handles them inside the limiter runs without a limit. Use it only for a
// router that answers preflights itself and passes none on. It is better to mount CORS outside the limiter.
//
// A request is no preflight if it has a body, Authorization, Proxy-Authorization, Cookie, Upgrade, or a header that
// overrides its method or path. Other credentials, such as an API key in another header or in the query, are not
// checked.
func Preflights() func(*http.Request) bool {
	return isPreflight
}

func isPreflight(r *http.Request) bool {
	if r.Method != http.MethodOptions || r.ContentLength != 0 || len(r.TransferEncoding) > 0 || r.ProtoMajor < 2 && r.Body != nil && r.Body != http.NoBody {
		return false
	}
	origin, method := r.Header["Origin"], r.Header["Access-Control-Request-Method"]
	if len(origin) != 1 || origin[0] == "" || len(method) != 1 || len(method[0]) > maxMethod || !requestheader.IsToken(method[0]) {
		return false
	}
	return !requestheader.HasAny(r, notInPreflights[:]) && !requestheader.HasAny(r, overriding[:])
}

// maxMethod bounds the method of a preflight, in bytes, because to look at a megabyte takes milliseconds.
const maxMethod = 256

// notInPreflights are headers that no browser sends in a preflight. With them a handler may do more than answer a
// preflight.
var notInPreflights = [...]string{
	"Authorization", "Proxy-Authorization", "Cookie", // guesses
	"Upgrade", // a connection on which more requests follow
}
