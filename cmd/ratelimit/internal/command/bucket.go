package command

import (
	"fmt"
	"math"
	"text/tabwriter"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/cmd/ratelimit/internal/report"
	"github.com/go-tokenbucket/ratelimit/internal/numbers"
)

// A bucket is what Peek returned, as peek -json has it.
type bucket struct {
	Policy string `json:"policy"`
	Key    string `json:"key"`

	// State is "full" (the bucket was never used, or has refilled), "ready" (it holds a token), "empty", "debt", "blocked"
	// or "locked".
	State string `json:"state"`

	Limit      string    `json:"limit,omitempty"` // that of the last charge, "" if the bucket is full
	Burst      int64     `json:"burst,omitempty"` // or the tokens of a quota, or the slots of a concurrency limit
	Tokens     *int64    `json:"tokens"`          // below 0 in debt; null while it is blocked or full, and for slots
	Held       *int64    `json:"held,omitempty"`  // slots, as Free; missing while it is blocked
	Free       *int64    `json:"free,omitempty"`
	NextIn     float64   `json:"next_in_seconds"`       // until a request of cost 1 can be allowed, or the block ends
	FullIn     float64   `json:"full_in_seconds"`       // until no token is missing
	PeriodEnds time.Time `json:"period_ends,omitzero"`  // of a quota, in its time zone
	Since      float64   `json:"blocked_since_seconds"` // 0 if it is not known
	Reason     string    `json:"reason,omitempty"`      // who has blocked it, and why

	next, full, since time.Duration
	quota             bool
}

func newBucket(r *ratelimit.Bucket, now time.Time) *bucket {
	b := &bucket{Policy: r.Policy, Key: r.Key, Reason: r.Reason, quota: r.Limit.Period() != 0, full: r.ResetAfter, since: r.BlockedSince}
	if r.Limit != (ratelimit.Limit{}) {
		b.Limit, b.Burst = r.Limit.String(), burstOf(r.Limit)
		tokens, held := r.Remaining-debt(r, b.Burst), b.Burst-r.Remaining
		switch {
		case r.Blocked:
		case r.Limit.IsConcurrency():
			b.Held, b.Free = &held, &r.Remaining
		default:
			b.Tokens = &tokens
		}
	}
	if r.Used && !r.Blocked && r.Remaining <= 0 {
		b.next = r.Until(1)
	}
	switch {
	case r.Locked:
		b.State, b.next = "locked", r.RetryAfter
	case r.Blocked:
		b.State, b.next = "blocked", r.RetryAfter
	case !r.Used:
		b.State, b.full = "full", 0
	case r.Remaining > 0:
		b.State = "ready"
	case b.Tokens != nil && *b.Tokens < 0:
		b.State = "debt"
	default:
		b.State = "empty"
	}
	if zone, err := time.LoadLocation(r.Limit.Zone()); err == nil && b.quota && r.Used && !r.Blocked {
		b.PeriodEnds = now.Add(r.ResetAfter).Round(time.Second).In(zone)
	}
	b.NextIn, b.FullIn, b.Since = b.next.Seconds(), b.full.Seconds(), b.since.Seconds()
	return b
}

// write writes b as text.
func (b *bucket) write(e *env) {
	table := tabwriter.NewWriter(e.out, 0, 0, 3, ' ', 0)
	row := func(name, text string) { fmt.Fprintf(table, "%s\t%s\n", name, text) }
	const names = 14 // columns
	row("policy", show(b.Policy))
	row("key", e.fit(b.Key, names))
	switch b.State {
	case "locked", "blocked":
		row("state", e.paint.In(report.Red, b.State)+" for "+numbers.Span(b.next))
	case "full", "ready":
		row("state", e.paint.In(report.Green, b.State))
	case "debt":
		row("state", e.paint.In(report.Yellow, "in debt"))
	default:
		row("state", e.paint.In(report.Yellow, b.State))
	}
	if b.Held != nil {
		row("slots", fmt.Sprintf("%d of %d held, %d free", *b.Held, b.Burst, *b.Free))
	}
	if b.since > 0 {
		row("since", numbers.Span(b.since)+" ago")
	}
	if b.Reason != "" {
		row("by", show(b.Reason))
	}
	if b.Tokens != nil && b.quota {
		row("used", fmt.Sprintf("%d of %d", b.Burst-*b.Tokens, b.Burst))
	} else if b.Tokens != nil {
		row("tokens", fmt.Sprintf("%d of %d", *b.Tokens, b.Burst))
	}
	if b.Limit != "" {
		row("limit", b.Limit)
	}
	switch {
	case b.Held != nil: // nobody knows when they are free
	case b.State == "ready":
		row("full in", numbers.Span(b.full))
	case b.State == "empty", b.State == "debt":
		row("next in", numbers.Span(b.next))
		row("full in", numbers.Span(b.full))
	}
	if !b.PeriodEnds.IsZero() {
		row("period ends", b.PeriodEnds.Format("2006-01-02 15:04 MST"))
	}
	_ = table.Flush()
}

// debt returns how many tokens a bucket has below 0, rounded up. It is not known of a quota, and slots have none.
func debt(r *ratelimit.Bucket, burst int64) int64 {
	if r.Remaining > 0 || r.Limit.Rate == 0 || r.Limit.Per == 0 {
		return 0
	}
	missing := r.ResetAfter.Seconds() * float64(r.Limit.Rate) / r.Limit.Per.Seconds()
	return max(0, int64(math.Ceil(missing-1e-4))-burst)
}
