// Package report holds what a simulation finds out, and writes it as text, JSON and HTML.
package report

import "time"

// Version is the version of the JSON.
const Version = 1

// MaxSpans is how many spans a policy has at most.
const MaxSpans = 72

// A Report is the result of a simulation.
type Report struct {
	Version    int  `json:"version"`
	Incomplete bool `json:"incomplete,omitempty"` // it was interrupted

	Files      []string   `json:"files"`
	Format     string     `json:"format"` // "common", "combined" or "json"
	Lines      int64      `json:"lines"`
	Requests   int64      `json:"requests"` // good lines
	Bad        []BadLines `json:"bad,omitempty"`
	From       time.Time  `json:"from"`
	To         time.Time  `json:"to"`
	Resolution float64    `json:"resolution_seconds"` // of the times in the log

	Backwards     int64   `json:"backwards,omitempty"` // lines that are earlier than the line before
	BackwardsMost float64 `json:"backwards_most_seconds,omitempty"`

	Bytes   int64   `json:"bytes"` // read, after decompression
	Took    float64 `json:"took_seconds"`
	Clients int64   `json:"clients_bound"` // -clients: how many keys of each policy have lines, curves and a share
	Evicted int64   `json:"evicted,omitempty"`

	Policies []Policy `json:"policies"`
	LeftOut  []string `json:"left_out,omitempty"` // names of policies that need functions of the program, or have slots

	// Unknown says in sentences what the simulation cannot know about this log and these policies.
	Unknown []string `json:"unknown"`
}

// BadLines counts lines that could not be read, by reason.
type BadLines struct {
	Reason   string    `json:"reason"`
	Remedy   string    `json:"remedy,omitempty"`
	Lines    int64     `json:"lines"`
	Examples []BadLine `json:"examples"` // the first three
}

// A BadLine is a line that could not be read.
type BadLine struct {
	File string `json:"file"`
	Line int64  `json:"line"`
	Text string `json:"text"` // cut and escaped
}

// A Policy is what one policy would have done.
type Policy struct {
	Name   string `json:"name"`
	Limit  string `json:"limit"`
	Quota  bool   `json:"quota,omitempty"` // Limit is a quota of a period of the calendar
	On     string `json:"on,omitempty"`    // the patterns that it is mounted on
	Shadow bool   `json:"shadow,omitempty"`

	Requests       int64   `json:"requests"`        // that it decided about
	RequestsDenied int64   `json:"requests_denied"` // for a Shadow: that it would have denied
	NoKey          int64   `json:"no_key,omitempty"`
	BadKey         int64   `json:"bad_key,omitempty"`
	Failed         int64   `json:"failed,omitempty"`
	Waited         int64   `json:"waited,omitempty"`
	WaitMean       float64 `json:"wait_mean_seconds,omitempty"`
	WaitLongest    float64 `json:"wait_longest_seconds,omitempty"`

	Clients       int64     `json:"clients"`                  // keys
	ClientsDenied int64     `json:"clients_denied"`           // keys with at least one denied request
	ClientsBeyond int64     `json:"clients_beyond,omitempty"` // requests of keys beyond Report.Clients, which are in the totals only
	FirstDenial   time.Time `json:"first_denial,omitzero"`
	LastDenial    time.Time `json:"last_denial,omitzero"`

	// What the policy would have decided about if it were alone: all of Curve and Spare. Others may deny requests before it.
	AloneRequests int64 `json:"alone_requests,omitempty"`
	AloneClients  int64 `json:"alone_clients,omitempty"`

	Verdict *Verdict `json:"verdict,omitempty"` // nil: as for Spare

	Worst []Client `json:"worst,omitempty"` // the ten with the most denied requests
	When  []Span   `json:"when,omitempty"`  // requests and denials over time
	Curve []Point  `json:"curve,omitempty"`
	Spare *Spare   `json:"spare,omitempty"` // nil: the policy has no Limit of its own, or no request

	Unknown []string `json:"unknown,omitempty"` // what cannot be known about this policy
}

// A Client is a key that was denied.
type Client struct {
	Key      string    `json:"key"`
	Requests int64     `json:"requests"`
	Denied   int64     `json:"denied"`
	First    time.Time `json:"first"`
	Last     time.Time `json:"last"`
	Longest  float64   `json:"longest_wait_seconds"` // the longest RetryAfter that it was given
	Total    float64   `json:"total_wait_seconds"`   // the time in which it had too few tokens, in all
}

// A Span is a part of the time of the log. All have the same length.
type Span struct {
	From     time.Time `json:"from"`
	Requests int64     `json:"requests"`
	Denied   int64     `json:"denied"`
}

// A Point is what another limit would have done, alone.
type Point struct {
	Limit          string  `json:"limit"`
	PerSecond      float64 `json:"per_second"`    // 0 for a quota
	Burst          int64   `json:"burst"`         // or the tokens of a quota
	Own            bool    `json:"own,omitempty"` // it is the policy's limit
	RequestsDenied int64   `json:"requests_denied"`
	ClientsDenied  int64   `json:"clients_denied"`
}

// OutlierFactor is how many times the burst that spares 95 % of the clients an outlier needs, at least.
const OutlierFactor = 10

// A Verdict is what to do about a policy. It is for all clients but the outliers, and those that were excluded.
type Verdict struct {
	Keep  bool   `json:"keep"`            // the policy's own limit spares all others
	Limit string `json:"limit,omitempty"` // the smallest round limit that spares all others, "" if none does
	Burst int64  `json:"burst,omitempty"` // of Limit, or the tokens of a quota

	Others  int64 `json:"others"`                   // clients that are not left out
	Typical int64 `json:"typical_burst,omitempty"`  // the burst that spares 95 % of them and the outliers
	Above   int64 `json:"outliers_above,omitempty"` // an outlier needs a larger burst; 0 if too few clients are there to tell

	Apart    bool      `json:"outliers_apart,omitempty"` // each outlier needs at least twice the burst of any other client
	Outliers []Outlier `json:"outliers,omitempty"`       // the one that needs most first
	Excluded []Outlier `json:"excluded,omitempty"`
}

// An Outlier is a client that is left out.
type Outlier struct {
	Key      string `json:"key"`
	Requests int64  `json:"requests"`
	Burst    int64  `json:"burst"` // that would spare it, at the rate of the policy
}

// A Spare has the smallest limits that deny nothing to a share of the clients that are not left out by the verdict.
type Spare struct {
	Share   float64      `json:"share"`   // of clients, such as 0.999
	Touched int64        `json:"touched"` // how many of these may be denied something
	Limits  []SpareLimit `json:"limits"`
}

// A SpareLimit is a rate, and the smallest burst that spares enough clients at that rate. For a quota it is the smallest
// quota that does.
type SpareLimit struct {
	Limit         string `json:"limit"`
	Burst         int64  `json:"burst"`         // or the tokens of a quota
	Own           bool   `json:"own,omitempty"` // it has the rate of the policy
	ClientsDenied int64  `json:"clients_denied"`
}
