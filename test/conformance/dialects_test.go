package conformance

import (
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/headers"
)

// A dialect is a HeaderFunc, and what a parser makes of its headers: nil for nothing that it could use.
type dialect struct {
	name   string
	write  ratelimit.HeaderFunc
	parsed func(r *ratelimit.Result, at time.Time) *parsed
}

// What is parsed is the same under each dialect. Reset is the Unix time in milliseconds.
type parsed struct {
	Limit     int64 `json:"limit"`
	Remaining int64 `json:"remaining"`
	Reset     int64 `json:"reset"`
}

// dialects are all of ours. A new one is a line here.
var dialects = []dialect{
	{"XRateLimit", ratelimit.XRateLimit, resetAtASecond},
	{"DeltaSeconds", headers.DeltaSeconds, resetInSeconds},
	{"IETF", headers.IETF, nil},                                                    // the parser knows the combined field of draft 7 only, "limit=10, remaining=9, reset=6"
	{"XRateLimit and IETF", headers.Join(ratelimit.XRateLimit, headers.IETF), nil}, // and looks no further once there is a RateLimit
	{"None", headers.None, nil},
}

func resetAtASecond(r *ratelimit.Result, at time.Time) *parsed {
	full := at.Add(r.ResetAfter + time.Second - 1).Unix()
	return &parsed{Limit: r.Limit.Burst, Remaining: r.Remaining, Reset: full * 1000}
}

func resetInSeconds(r *ratelimit.Result, at time.Time) *parsed {
	return &parsed{Limit: r.Limit.Burst, Remaining: r.Remaining, Reset: at.UnixMilli() + wholeSeconds(r.ResetAfter)*1000}
}

func wholeSeconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }
