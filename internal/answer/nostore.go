package answer

import (
	"net/http"
	"strings"
)

// NoStore prevents every cache from storing the response, because a stored denial would be sent to all clients. It
// also removes headers that some caches obey instead. Outer middleware may have set them for the responses of inner
// handlers.
func NoStore(h http.Header) {
	for name := range h {
		if outranksCacheControl(name) {
			delete(h, name)
		}
	}
	h["Cache-Control"] = []string{"no-store"}
}

// outranksCacheControl reports whether a cache may obey the header name instead of Cache-Control. These are
// X-Accel-Expires (nginx), Surrogate-Control, Edge-Control, Expires (HTTP/1.0), and all names that end in
// Cache-Control, such as CDN-Cache-Control (RFC 9213) and those of Akamai and LiteSpeed. A Cache-Control in another
// case is one of them, too, because it has its own place in the map.
func outranksCacheControl(name string) bool {
	const suffix = "cache-control"
	switch n := len(name); {
	case n < len("expires"):
		return false
	case name[n-1]|0x20 == 'l':
		return n >= len(suffix) && strings.EqualFold(name[n-len(suffix):], suffix) && name != "Cache-Control" ||
			strings.EqualFold(name, "Surrogate-Control") || strings.EqualFold(name, "Edge-Control")
	case name[n-1]|0x20 == 's':
		return strings.EqualFold(name, "X-Accel-Expires") || strings.EqualFold(name, "Expires")
	}
	return false
}
