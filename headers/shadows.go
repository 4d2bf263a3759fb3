package headers

import (
	"net/http"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/rateheader"
)

// Shadows writes what policies that are a Shadow say, in the form of the RateLimit header of [IETF], so that
// a team can watch a candidate from outside. No other HeaderFunc shows a shadow. Add it with [Join]:
//
//	X-RateLimit-Shadow: "candidate";r=0;t=3
//
// It tells clients of limits that do not hold, and may be meant for testing only.
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
