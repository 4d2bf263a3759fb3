package simulate

import (
	"cmp"
	"slices"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/cmd/ratelimit/internal/report"
	"github.com/go-tokenbucket/ratelimit/store"
)

// A tally is what is known about a policy.
type tally struct {
	policy  ratelimit.Policy
	on      string
	clients clients
	curve   *curve
	waits   waits

	requests, denied      int64
	noKey, badKey, failed int64
	beyond                int64
	first, last           int64 // denial
}

func newTally(p ratelimit.Policy, on string, most int) *tally {
	return &tally{policy: p, on: on, clients: clients{max: most, byKey: make(map[string]*cell)}, curve: newCurve(p.Limit)}
}

// decided counts a decision of the policy at now.
func (t *tally) decided(o *outcome, now int64) {
	t.requests++
	if !o.allowed {
		if t.denied == 0 {
			t.first, t.last = now, now
		}
		t.denied++
		t.first, t.last = min(t.first, now), max(t.last, now)
	}
	if o.allowed && o.wait > 0 && !o.shadow {
		t.waits.add(o.wait)
	}
	of := t.clients.cell(o.key)
	if of == nil {
		t.beyond++
		return
	}
	of.requests++
	if o.allowed {
		return
	}
	if of.denied == 0 {
		of.first, of.last = now, now
	}
	of.denied++
	of.first, of.last = min(of.first, now), max(of.last, now)
	if o.retryAfter == store.Never || o.retryAfter <= 0 {
		return
	}
	wait := o.retryAfter.Microseconds()
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
	if of := t.clients.cell(o.key); of != nil {
		t.curve.add(of, now, o.cost, o.final)
	}
}

func (t *tally) refused(kind string) {
	switch kind {
	case "no_key":
		t.noKey++
	case "bad_key":
		t.badKey++
	default:
		t.failed++
	}
}

// worst is how many clients are listed.
const worst = 10

func (t *tally) report(share float64, name func(key string) string) report.Policy {
	p := report.Policy{
		Name:           t.policy.Name,
		Limit:          t.policy.Limit.String(),
		On:             t.on,
		Shadow:         t.policy.Shadow,
		Requests:       t.requests,
		RequestsDenied: t.denied,
		NoKey:          t.noKey,
		BadKey:         t.badKey,
		Failed:         t.failed,
		Waited:         t.waits.count,
		WaitMedian:     t.waits.median().Seconds(),
		WaitLongest:    t.waits.longest.Seconds(),
		ClientsBeyond:  t.beyond,
	}
	if t.policy.Limit == (ratelimit.Limit{}) {
		p.Limit = "of LimitFunc"
	}
	if t.denied > 0 {
		p.FirstDenial, p.LastDenial = timeOf(t.first), timeOf(t.last)
	}
	var most []*cell
	for _, of := range t.clients.all {
		if of.requests > 0 {
			p.Clients++
		}
		if of.alone > 0 {
			p.AloneClients++
		}
		if of.denied == 0 {
			continue
		}
		p.ClientsDenied++
		if len(most) < worst || of.denied > most[worst-1].denied {
			at, _ := slices.BinarySearchFunc(most, of, func(a, b *cell) int { return cmp.Or(cmp.Compare(b.denied, a.denied), -1) })
			most = slices.Insert(most[:min(len(most), worst-1)], min(at, worst-1), of)
		}
	}
	for _, of := range most {
		p.Worst = append(p.Worst, report.Client{
			Key:      name(of.key),
			Requests: of.requests,
			Denied:   of.denied,
			First:    timeOf(of.first),
			Last:     timeOf(of.last),
			Longest:  seconds(of.longest),
			Total:    seconds(of.total),
		})
	}
	if t.curve != nil {
		p.AloneRequests = t.curve.requests
		p.Curve, p.Spare = t.curve.points(&t.clients), t.curve.spare(&t.clients, share)
	}
	return p
}

func timeOf(micros int64) time.Time { return time.UnixMicro(micros).UTC() }

func seconds(micros int64) float64 { return float64(micros) / 1e6 }
