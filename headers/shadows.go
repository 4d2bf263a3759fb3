package headers

import (
	"net/http"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/rateheader"
)

// Shadows writes the state of the policies that are a Shadow, in the form of the RateLimit header of [IETF]. Use it
// to watch a candidate limit from outside. No other HeaderFunc shows a shadow. Add it with [Join]:
//
//	X-RateLimit-Shadow: "candidate";r=0;t=3
//
// Clients then see limits that are not enforced, so it may be for testing only.
func Shadows(h http.Header, d *ratelimit.Decision) {
	var room [128]byte
	text := room[:0]
	for r := range d.ShadowQuotas() {
		if r.Known() {
			text = appendServiceLimit(listNext(text, 0), r, maxInteger)
		}
	}
	if len(text) > 0 {
		h[rateheader.XShadow] = []string{string(text)}
	}
}
