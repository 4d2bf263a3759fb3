package simulate

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/cmd/ratelimit/internal/report"
	"github.com/go-tokenbucket/ratelimit/store"
)

// A tally is what is known about a policy.
type tally struct {
	report.Policy
	policy ratelimit.Policy
	curve  *curve

	most  int // clients
	byKey map[string]*client
	all   []*client // in the order of their first requests

	denials denials
	waits   float64       // seconds that all requests waited
	longest time.Duration // wait
}

// A client is what is known about a key.
type client struct {
	key      string // a short one
	requests int64  // decided about
	denials  denials
	longest  int64 // wait
	total    int64 // of all waits
	until    int64 // the end of the last wait
	alone          // what it would have met if the policy were alone
}

// denials are the number of denied requests, and the times of the first and the last one.
type denials struct{ count, first, last int64 }

func (d *denials) add(now int64) {
	if d.count == 0 {
		d.first, d.last = now, now
	}
	d.count++
	d.first, d.last = min(d.first, now), max(d.last, now)
}

func newTally(p ratelimit.Policy, on string, most int) *tally {
	return &tally{
		Policy: report.Policy{Name: p.Name, Limit: p.Limit.String(), Quota: p.Limit.Period() != 0, On: on, Shadow: p.Shadow},
		policy: p, curve: newCurve(p.Limit), most: most,
		byKey: make(map[string]*client),
	}
}

// client returns the client of a short key, nil if it is new and there is no room for it.
func (t *tally) client(key string) *client {
	of := t.byKey[key]
	if of == nil && len(t.all) < t.most {
		of = &client{key: strings.Clone(key)} // the key may be a part of a long line
		t.byKey[of.key] = of
		t.all = append(t.all, of)
	}
	return of
}

// decided counts a decision of the policy at now.
func (t *tally) decided(o *outcome, now int64) {
	t.Requests++
	if !o.Allowed {
		t.denials.add(now)
	}
	if o.Allowed && o.Wait > 0 && !o.Shadow {
		t.Waited++
		t.waits += o.Wait.Seconds()
		t.longest = max(t.longest, o.Wait)
	}
	of := t.client(o.Key)
	if of == nil {
		t.ClientsBeyond++
		return
	}
	of.requests++
	if o.Allowed {
		return
	}
	of.denials.add(now)
	if o.RetryAfter == store.Never || o.RetryAfter <= 0 {
		return
	}
	wait := o.RetryAfter.Microseconds()
	of.longest = max(of.longest, wait)
	if end := o.at + wait; end > of.until {
		of.total += end - max(o.at, of.until)
		of.until = end
	}
}

// alone counts a request as the policy alone would see it.
func (t *tally) alone(o *outcome, now int64) {
	if t.curve == nil {
		return
	}
	if of := t.client(o.Key); of != nil {
		t.curve.add(&of.alone, now, o.Cost, o.final)
	}
}

func (t *tally) refused(kind string) {
	switch kind {
	case "no_key":
		t.NoKey++
	case "bad_key":
		t.BadKey++
	default:
		t.Failed++
	}
}

// worst is how many clients are listed.
const worst = 10

// report completes what is reported.
func (t *tally) report(share float64, excluded map[string]bool, name func(key string) string) report.Policy {
	p := &t.Policy
	p.RequestsDenied = t.denials.count
	p.WaitMean, p.WaitLongest = t.waits/float64(max(1, p.Waited)), t.longest.Seconds()
	if t.denials.count > 0 {
		p.FirstDenial, p.LastDenial = timeOf(t.denials.first), timeOf(t.denials.last)
	}
	var denied []*client
	for _, of := range t.all {
		if of.requests > 0 {
			p.Clients++
		}
		if of.denials.count > 0 {
			denied = append(denied, of)
		}
	}
	p.ClientsDenied = int64(len(denied))
	slices.SortStableFunc(denied, func(a, b *client) int { return cmp.Compare(b.denials.count, a.denials.count) })
	for _, of := range denied[:min(len(denied), worst)] {
		p.Worst = append(p.Worst, report.Client{
			Key:      name(of.key),
			Requests: of.requests,
			Denied:   of.denials.count,
			First:    timeOf(of.denials.first),
			Last:     timeOf(of.denials.last),
			Longest:  seconds(of.longest),
			Total:    seconds(of.total),
		})
	}
	if t.curve != nil && t.curve.requests > 0 { // a limit that is found without a request is no advice
		p.AloneRequests, p.AloneClients = t.curve.requests, t.curve.clients
		p.Curve = t.curve.points()
		e, v := t.curve.except(t.all, excluded)
		t.curve.verdict(v, e, t.all, name)
		p.Verdict, p.Spare = v, t.curve.spare(t.all, share, e.leaves)
	}
	return *p
}

func timeOf(micros int64) time.Time { return time.UnixMicro(micros).UTC() }

func seconds(micros int64) float64 { return float64(micros) / 1e6 }
