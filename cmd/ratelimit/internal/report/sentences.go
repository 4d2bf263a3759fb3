package report

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/numbers"
)

// files names the logs.
func (r *Report) files() string {
	files := names(r.Files, 60)
	if len(r.Files) == 1 && r.Files[0] == "-" {
		files = "standard input"
	}
	if r.Format != "" {
		files += " (" + key(r.Format, 20) + ")"
	}
	return files
}

// BadLines returns how many lines could not be read.
func (r *Report) BadLines() (n int64) {
	for _, b := range r.Bad {
		n += b.Lines
	}
	return n
}

// Source says which requests the report is of.
func (r *Report) Source() string {
	if r.Requests == 0 {
		return "No request could be read."
	}
	return fmt.Sprintf("%s of %s, %s", numbers.Of(r.Requests, "request"), r.files(), r.period())
}

// BadText says how many lines could not be read, "" if all could.
func (r *Report) BadText() string {
	if r.BadLines() == 0 {
		return ""
	}
	return fmt.Sprintf("%s of %s could not be read", numbers.Of(r.BadLines(), "line"), numbers.Count(r.Lines))
}

// LeftOutNames names the policies that were left out, "" if there are none.
func (r *Report) LeftOutNames() string {
	if len(r.LeftOut) == 0 {
		return ""
	}
	return "Left out: " + names(r.LeftOut, 40)
}

// names writes names with commas between them, and of many only the first ones.
func names(list []string, columns int) string {
	const most = 10
	var all []string
	for _, name := range list[:min(len(list), most)] {
		all = append(all, key(name, columns))
	}
	if more := len(list) - most; more > 0 {
		all = append(all, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(all, ", ")
}

// Outcome says in a line what the policy would have done.
func (p *Policy) Outcome() string {
	denies := "Denies"
	if p.Shadow {
		denies = "Would deny"
	}
	switch {
	case p.Requests == 0:
		return "Decided about no request of this log."
	case p.RequestsDenied == 0:
		return fmt.Sprintf("%s nothing: %s, %s.", denies, numbers.Of(p.Requests, "request"), numbers.Of(p.Clients, "client"))
	case p.Shadow:
		denies = "A shadow. " + denies
	}
	return fmt.Sprintf("%s %s of %s requests (%s) and %s of %s clients (%s).", denies,
		numbers.Count(p.RequestsDenied), numbers.Count(p.Requests), share(p.RequestsDenied, p.Requests),
		numbers.Count(p.ClientsDenied), numbers.Count(p.Clients), share(p.ClientsDenied, p.Clients))
}

// Notes are sentences about what else happened.
func (p *Policy) Notes(bound int64) (notes []string) {
	note := func(n int64, format string, args ...any) {
		if n != 0 {
			notes = append(notes, fmt.Sprintf(format, args...))
		}
	}
	note(p.Waited, "Waited for their turn: %s, on average %s, the longest %s.", numbers.Of(p.Waited, "request"), numbers.Seconds(p.WaitMean), numbers.Seconds(p.WaitLongest))
	note(p.NoKey, "Without a key: %s.", numbers.Of(p.NoKey, "request"))
	note(p.BadKey, "With a malformed key, answered 400: %s.", numbers.Of(p.BadKey, "request"))
	note(p.Failed, "Failed: %s.", numbers.Of(p.Failed, "request"))
	note(p.ClientsBeyond, "%s of clients after the first %s are in the totals only. Raise -clients to see them.", numbers.Of(p.ClientsBeyond, "request"), numbers.Count(bound))
	return notes
}

// Denials says when requests were denied, "" if none was.
func (p *Policy) Denials(c clock) string {
	if p.FirstDenial.IsZero() {
		return ""
	}
	text := fmt.Sprintf("From %s to %s UTC", c.At(p.FirstDenial), c.At(p.LastDenial))
	if p.FirstDenial.Equal(p.LastDenial) {
		text = fmt.Sprintf("At %s UTC", c.At(p.FirstDenial))
	}
	if most, length := p.Peak(), p.Length(); most.Denied > 0 && p.RequestsDenied > 1 {
		until := ""
		if length > 0 {
			until = " to " + clock{}.Of(most.From.Add(length), length)
		}
		text += fmt.Sprintf(", most from %s%s: %s of %s", c.Of(most.From, length), until, numbers.Count(most.Denied), numbers.Of(most.Requests, "request"))
	}
	return text + "."
}

// Length is how long each of p.When is, 0 if there is only one.
func (p *Policy) Length() time.Duration {
	if len(p.When) < 2 {
		return 0
	}
	return p.When[1].From.Sub(p.When[0].From)
}

// End is the end of p.When.
func (p *Policy) End() time.Time { return p.When[len(p.When)-1].From.Add(p.Length()) }

// Peak returns the span with the most denied requests.
func (p *Policy) Peak() (most Span) {
	for _, s := range p.When {
		if s.Denied > most.Denied {
			most = s
		}
	}
	return most
}

// OwnSpare returns the smallest burst that spares enough clients at the rate of the policy, or nil.
func (p *Policy) OwnSpare() *SpareLimit {
	if p.Spare == nil {
		return nil
	}
	if i := slices.IndexFunc(p.Spare.Limits, func(l SpareLimit) bool { return l.Own }); i >= 0 {
		return &p.Spare.Limits[i]
	}
	return nil
}

// Spared says what the smallest burst is that spares enough clients.
func (p *Policy) Spared() string {
	own := p.OwnSpare()
	if own == nil {
		return ""
	}
	limit, has, rate := key(own.Limit, 36), "", " at this rate"
	if p.Quota {
		rate = ""
	} else if !strings.Contains(limit, " burst ") {
		limit += " burst " + numbers.Count(own.Burst)
	}
	if burst := p.ownBurst(); burst > 0 {
		has = fmt.Sprintf(" The policy has a %s of %s.", p.Capacity(), numbers.Count(burst))
	}
	return fmt.Sprintf("The smallest %s that spares %s of %s%s: %s.%s", p.Capacity(), numbers.Percent(p.Spare.Share), p.Others(), rate, limit, has)
}

// OwnRate marks the line of the policy among those of Spare.
func (p *Policy) OwnRate() string {
	if p.Quota {
		return "instead of the quota of the policy"
	}
	return "the rate of the policy"
}

// Capacity names what Spare is about.
func (p *Policy) Capacity() string {
	if p.Quota {
		return "quota"
	}
	return "burst"
}

// LongestWait is that of a denied client, in seconds.
func (p *Policy) LongestWait() (longest float64) {
	for _, c := range p.Worst {
		longest = max(longest, c.Longest)
	}
	return longest
}

// Wait writes a wait. A client has none if it asked for more than the burst: its request is never allowed.
func (c *Client) Wait(seconds float64) string {
	if c.Longest == 0 {
		return "never"
	}
	return numbers.Seconds(seconds)
}

// Reading says in sentences how the log was read.
func (r *Report) Reading() (all []string) {
	took := ""
	if r.Took > 0 {
		took = ", in " + numbers.Seconds(r.Took)
	}
	all = append(all, fmt.Sprintf("Read %s, %s%s.", numbers.Of(r.Lines, "line"), numbers.Size(r.Bytes), took))
	if r.Resolution > 0 {
		all = append(all, fmt.Sprintf("Times in the log have a resolution of %s.", numbers.Seconds(r.Resolution)))
	}
	if r.Backwards > 0 {
		all = append(all, fmt.Sprintf("%s earlier than the line before, by at most %s.", are(r.Backwards, "line"), numbers.Seconds(r.BackwardsMost)))
	}
	if r.Evicted > 0 {
		all = append(all, fmt.Sprintf("%s forgotten for lack of room, so that denials may be missing. Raise -clients.", are(r.Evicted, "bucket")))
	}
	return all
}

// are writes a number of things, and the verb.
func are(n int64, thing string) string {
	if n == 1 {
		return numbers.Of(n, thing) + " is"
	}
	return numbers.Of(n, thing) + " are"
}
