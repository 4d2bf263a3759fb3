package ratelimit

import (
	"time"

	"github.com/go-tokenbucket/ratelimit/store"
)

// A LimitFunc may return a rate of 0, a quota of nothing. No bucket has such a limit, and so the Store is not asked.

// isZero reports whether l allows nothing. The zero Limit is not such a limit: it stands for Policy.Limit.
func (l Limit) isZero() bool { return l.Rate == 0 && l != Limit{} }

// A barred is what a policy with a rate of 0 says of a request.
type barred struct {
	at     int // how many charges come before it
	result Result
}

// bar notes that p denies a request by a rate of 0.
func (c *call) bar(p *policy, limit Limit, key string, cost int64) {
	c.barred = append(c.barred, barred{len(c.charges), Result{
		Policy: p.Name,
		Key:    key,
		Limit:  limit,
		Cost:   cost,
		Shadow: p.Shadow,
		State:  store.State{RetryAfter: store.Never},
	}})
}

// isBarred reports whether a policy that is no Shadow has a rate of 0.
func (c *call) isBarred() bool {
	for i := range c.barred {
		if !c.barred[i].result.Shadow {
			return true
		}
	}
	return false
}

// insertBarred inserts bars among the results of the charges, which begin at before, and returns all of these.
func (d *Decision) insertBarred(before int, bars []barred) []Result {
	own := make([]Result, 0, len(d.Results)-before+len(bars))
	from := before
	for _, b := range bars {
		own = append(own, d.Results[from:before+b.at]...)
		own = append(own, b.result)
		from = before + b.at
	}
	own = append(own, d.Results[from:]...)
	d.Results = append(d.Results[:before:before], own...)
	return d.Results[before:]
}

// concludeBarred concludes a decision for which no bucket is charged. The request is denied if it is barred.
func (l *Limiter) concludeBarred(x *exchange, c *call, leftOut error, start time.Time) error {
	if len(c.barred) == 0 {
		return l.pass(x, leftOut, start)
	}
	d := &x.decision
	d.Allowed, d.At = !c.isBarred(), time.Now()
	if outer, stacked := FromContext(x.came()); stacked {
		d.Results = append(d.Results, outer.Results...)
		d.Waited = outer.Waited
	}
	before := len(d.Results)
	for i := range c.barred {
		d.Results = append(d.Results, c.barred[i].result)
	}
	l.report(x, d.Results[before:], 0, leftOut, start)
	return leftOut
}
