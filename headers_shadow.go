package ratelimit

import "net/http"

// ShadowPolicies writes what policies that are a Shadow say, in the form of IETF's RateLimit, so that a team can
// watch a candidate from outside. No other HeaderFunc shows a shadow; add it by Dialects:
//
//	X-RateLimit-Shadow: "candidate";r=0;t=3
//
// It tells clients of limits that do not hold, and may be meant for testing only.
func ShadowPolicies(h http.Header, d *Decision) {
	var room [128]byte
	text := room[:0]
	for i := range d.Results {
		if d.shows(i, true) && d.Results[i].known() {
			text = d.Results[i].appendServiceLimit(listNext(text, 0), maxInteger)
		}
	}
	if len(text) > 0 {
		values := d.room(1)
		values[0] = string(text)
		h[xShadow] = values
	}
}

// In the form in which http.Header has it.
const xShadow = "X-Ratelimit-Shadow"
