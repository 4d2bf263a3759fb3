package answer

import (
	"net/http"
	"strings"
)

// NoStore keeps every cache from storing the answer: a denial that is stored denies all. Something outside of
// the limiter may have set what some caches obey instead, for the answers that are served inside.
func NoStore(h http.Header) {
	for name := range h {
		if outranksCacheControl(name) {
			delete(h, name)
		}
	}
	h["Cache-Control"] = []string{"no-store"}
}

// outranksCacheControl reports whether a cache may obey the header name rather than Cache-Control. These are
// X-Accel-Expires (nginx), Surrogate-Control, Edge-Control, Expires (HTTP/1.0), and all that end in Cache-Control, such
// as CDN-Cache-Control (RFC 9213), Akamai's and LiteSpeed's. A Cache-Control that is written in another case is one,
// too: it has its own place in the map.
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
