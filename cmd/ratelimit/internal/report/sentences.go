package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/go-tokenbucket/ratelimit/internal/numbers"
)

// files names the logs.
func (r *Report) files() string {
	names := []string{}
	for _, f := range r.Files {
		if f == "-" {
			f = "standard input"
		}
		names = append(names, key(f, 60))
	}
	if len(names) > 3 {
		names = append(names[:2], numbers.Of(int64(len(names)-2), "more file"))
	}
	if r.Format == "" {
		return strings.Join(names, ", ")
	}
	return strings.Join(names, ", ") + " (" + key(r.Format, 20) + ")"
}

func (r *Report) badLines() (n int64) {
	for _, b := range r.Bad {
		n += b.Lines
	}
	return n
}

// leftOut names the policies that were left out.
func (r *Report) leftOut() string {
	if len(r.LeftOut) == 0 {
		return ""
	}
	names := []string{}
	for _, name := range r.LeftOut {
		names = append(names, key(name, 40))
	}
	if len(names) > 10 {
		names = append(names[:9], fmt.Sprintf("and %d more", len(names)-9))
	}
	return "Left out: " + strings.Join(names, ", ")
}

// verdict says in a line what the policy would have done.
func (p *Policy) verdict() string {
	switch {
	case p.Requests == 0:
		return "Decided about no request of this log."
	case p.RequestsDenied == 0 && p.Shadow:
		return fmt.Sprintf("Would deny nothing: %s, %s.", numbers.Of(p.Requests, "request"), numbers.Of(p.Clients, "client"))
	case p.RequestsDenied == 0:
		return fmt.Sprintf("Denies nothing: %s, %s.", numbers.Of(p.Requests, "request"), numbers.Of(p.Clients, "client"))
	}
	denies := "Denies"
	if p.Shadow {
		denies = "A shadow. Would deny"
	}
	return fmt.Sprintf("%s %s of %s requests (%s) and %s of %s clients (%s).", denies,
		numbers.Count(p.RequestsDenied), numbers.Count(p.Requests), share(p.RequestsDenied, p.Requests),
		numbers.Count(p.ClientsDenied), numbers.Count(p.Clients), share(p.ClientsDenied, p.Clients))
}

// notes are sentences about what else happened.
func (p *Policy) notes(bound int64) (notes []string) {
	note := func(n int64, format string, args ...any) {
		if n != 0 {
			notes = append(notes, fmt.Sprintf(format, args...))
		}
	}
	note(p.Waited, "Waited for their turn: %s, half of them at most %s, the longest %s.", numbers.Of(p.Waited, "request"), numbers.Seconds(p.WaitMedian), numbers.Seconds(p.WaitLongest))
	note(p.NoKey, "Without a key: %s.", numbers.Of(p.NoKey, "request"))
	note(p.BadKey, "With a malformed key, answered 400: %s.", numbers.Of(p.BadKey, "request"))
	note(p.Failed, "Failed: %s.", numbers.Of(p.Failed, "request"))
	note(p.ClientsBeyond, "%s of clients after the first %s are in the totals only. Raise -clients to see them.", numbers.Of(p.ClientsBeyond, "request"), numbers.Count(bound))
	return notes
}

// when says when requests were denied.
func (p *Policy) when(c clock, zone string) string {
	if p.FirstDenial.IsZero() {
		return ""
	}
	text := fmt.Sprintf("From %s to %s %s", c.at(p.FirstDenial), c.at(p.LastDenial), zone)
	if p.FirstDenial.Equal(p.LastDenial) {
		text = fmt.Sprintf("At %s %s", c.at(p.FirstDenial), zone)
	}
	if most := peak(p.When); most.Denied > 0 && p.RequestsDenied > 1 {
		length := p.step()
		until := ""
		if length > 0 {
			until = " to " + clock{zone: c.zone}.of(most.From.Add(length), length)
		}
		text += fmt.Sprintf(", most from %s%s: %s of %s", c.of(most.From, length), until, numbers.Count(most.Denied), numbers.Of(most.Requests, "request"))
	}
	return text + "."
}

// sentence says what the smallest burst is that spares enough clients.
func (p *Policy) sentence() string {
	for _, l := range p.Spare.Limits {
		if !l.Own {
			continue
		}
		limit := key(l.Limit, 36)
		if !strings.Contains(limit, " burst ") {
			limit += " burst " + numbers.Count(l.Burst)
		}
		has := ""
		if i := slices.IndexFunc(p.Curve, func(at Point) bool { return at.Own }); i >= 0 {
			has = fmt.Sprintf(" The policy has a burst of %s.", numbers.Count(p.Curve[i].Burst))
		}
		all := ""
		if _, clients := p.alone(); p.Spare.Touched == 0 && p.Spare.Share < 1 && clients > 0 {
			all = fmt.Sprintf(" Of %s, that is every one, also one that you want to deny: see -spare.", numbers.Of(clients, "client"))
		}
		return fmt.Sprintf("The smallest burst that spares %s of clients at this rate: %s.%s%s", numbers.Percent(p.Spare.Share), limit, has, all)
	}
	return ""
}

// alone returns how many requests and clients the curve is of.
func (p *Policy) alone() (requests, clients int64) {
	if p.AloneRequests == 0 {
		return p.Requests, p.Clients
	}
	return p.AloneRequests, p.AloneClients
}

// unjudged reports that the log has no request for the policy. A limit that is found without one is no advice.
func (p *Policy) unjudged() bool {
	requests, _ := p.alone()
	return requests == 0
}

// wait writes a wait. A client has none if it asked for more than the burst: its request is never allowed.
func (c *Client) wait(seconds float64) string {
	if c.Longest == 0 {
		return "never"
	}
	return numbers.Seconds(seconds)
}

// reading says in sentences how the log was read.
func (r *Report) reading() (all []string) {
	if r.Took > 0 {
		all = append(all, fmt.Sprintf("Read %s, %s, in %s.", numbers.Of(r.Lines, "line"), numbers.Size(r.Bytes), numbers.Seconds(r.Took)))
	} else {
		all = append(all, fmt.Sprintf("Read %s, %s.", numbers.Of(r.Lines, "line"), numbers.Size(r.Bytes)))
	}
	resolution := r.Resolution.Seconds()
	if resolution == 0 {
		resolution = r.Seconds
	}
	if resolution > 0 {
		all = append(all, fmt.Sprintf("Times in the log have a resolution of %s.", numbers.Seconds(resolution)))
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
