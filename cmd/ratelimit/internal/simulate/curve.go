package simulate

import (
	"cmp"
	"math"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/cmd/ratelimit/internal/report"
	"github.com/go-tokenbucket/ratelimit/internal/bucket"
)

const (
	maxRows  = 16 // limits of a curve, from 2^-4 to 2^3.5 times the policy's
	ownRow   = 8
	maxRates = 7 // rates of a spare, from 1/8 to 8 times the policy's
	ownRate  = 3
)

// A row is a limit of the curve, and what it denied.
type row struct {
	limit             ratelimit.Limit
	bucket            bucket.Limit
	requests, clients int64
}

// A rowState is the bucket of a client under the limit of a row: its tokens, and the time of the last charge or the end of
// the period. The client's first charge sets it.
type rowState struct{ tokens, at int64 }

// A rate is a rate of the spare. At this rate, each client has a leaky bucket, to which a charge adds and from which time
// takes. The highest level of a bucket is the smallest capacity that denies the client nothing. A quota has one rate: its
// buckets leak nothing in a period, and all when it ends.
type rate struct {
	limit        ratelimit.Limit // with a burst of 1
	unit, refill int64
	own          bool
}

// A levelState is the level of a client's leaky bucket, and its highest one so far, in credits.
type levelState struct{ level, need int64 }

// A curve finds out what other limits would have done, each alone.
type curve struct {
	own               ratelimit.Limit
	rows              []row
	rates             []rate
	requests, clients int64

	from, until int64 // of a quota: the period that was looked up last
}

// alone is what a curve knows about a client.
type alone struct {
	counted bool
	touched uint16 // the rows that denied it something
	rows    [maxRows]rowState
	levels  [maxRates]levelState
	at      int64 // of levels: the time of the last charge
}

// newCurve returns the curve of a policy's limit, nil if that is not set. Limits that no bucket can have are left out.
func newCurve(own ratelimit.Limit) *curve {
	if own == (ratelimit.Limit{}) || own == ratelimit.Unlimited {
		return nil
	}
	c := &curve{own: own}
	capacity := cmp.Or(own.Burst, own.Rate)
	for i := range maxRows {
		factor := math.Exp2(float64(i-ownRow) / 2)
		limit := own
		if i != ownRow {
			limit = withCapacity(scaled(own, factor), int64(min(math.Ceil(float64(capacity)*factor), bucket.MaxCredits)))
		}
		repeated := len(c.rows) > 0 && c.rows[len(c.rows)-1].limit == limit // of a small quota
		if compiled, err := compile(limit); err == nil && !repeated {
			c.rows = append(c.rows, row{limit: limit, bucket: compiled})
		}
	}
	if own.Period() != 0 {
		c.rates = []rate{{limit: own, unit: 1, refill: 1, own: true}} // see passed
		return c
	}
	for i := range maxRates {
		limit := scaled(own, math.Exp2(float64(i-ownRate)))
		limit.Burst = 1
		if compiled, err := compile(limit); err == nil {
			c.rates = append(c.rates, rate{limit: limit, unit: compiled.Unit, refill: compiled.Refill, own: i == ownRate})
		}
	}
	return c
}

// compile compiles a limit that New has accepted, or one of the same Zone.
func compile(l ratelimit.Limit) (bucket.Limit, error) {
	if l.Period() != 0 {
		period, err := bucket.NewPeriod(l.Period(), l.Zone())
		if err != nil {
			return bucket.Limit{}, err
		}
		return bucket.NewQuota(l.Rate, period)
	}
	return bucket.NewLimit(l.Rate, l.Per, cmp.Or(l.Burst, l.Rate))
}

// withCapacity returns l with a burst of n, or as a quota of n.
func withCapacity(l ratelimit.Limit, n int64) ratelimit.Limit {
	if l.Period() != 0 {
		l.Rate = n
		return l
	}
	return l.WithBurst(n)
}

// scaled returns l with about factor times the rate. The numbers are round ones, so the rate differs by up to 1 %. It leaves
// a quota as it is.
func scaled(l ratelimit.Limit, factor float64) ratelimit.Limit {
	if factor == 1 || l.Period() != 0 {
		return l
	}
	exact := float64(l.Rate) * factor
	if rounded := math.Round(exact); rounded >= 1 && rounded < 1<<52 && math.Abs(rounded-exact) <= exact/100 {
		l.Rate = int64(rounded)
		return l
	}
	l.Per = roundDuration(float64(l.Per) / factor)
	return l
}

// roundDuration returns a duration with a few digits, at most 1 % from d.
func roundDuration(d float64) time.Duration {
	if d >= math.MaxInt64 {
		return math.MaxInt64
	}
	steps := []time.Duration{24 * time.Hour, time.Hour, time.Minute, time.Second}
	for unit := 100 * time.Millisecond; unit > 0; unit /= 10 {
		steps = append(steps, unit)
	}
	for _, unit := range steps {
		if rounded := math.Round(d/float64(unit)) * float64(unit); math.Abs(rounded-d) <= d/100 {
			return time.Duration(rounded)
		}
	}
	return max(1, time.Duration(d))
}

// add charges a request at now to all rows and rates. cost is what it is charged, and final what it costs in the end.
func (c *curve) add(of *alone, now, cost, final int64) {
	if !of.counted {
		of.counted = true
		c.clients++
		for i := range c.rows {
			of.rows[i] = rowState{c.rows[i].bucket.Capacity, math.MinInt64}
		}
	}
	c.requests++
	if cost < 0 {
		cost = math.MaxInt64
	}
	for i := range c.rows {
		r := &c.rows[i]
		if r.charge(&of.rows[i], now, cost, final) {
			continue
		}
		r.requests++
		if of.touched&(1<<i) == 0 {
			of.touched |= 1 << i
			r.clients++
		}
	}
	if cost == 0 && final == 0 {
		return
	}
	passed := c.passed(of.at, now) // of the first charge it does not matter
	of.at = max(of.at, now)
	for i := range c.rates {
		c.rates[i].charge(&of.levels[i], passed, cost, final)
	}
}

// passed returns the time in which buckets have leaked since the last charge of a client. For a quota it is none, or enough
// for all if a period has ended.
func (c *curve) passed(last, now int64) int64 {
	switch {
	case now <= last:
		return 0
	case c.own.Period() == 0:
		return now - last
	}
	if last < c.from || last >= c.until {
		c.from, c.until = c.rows[0].bucket.Period.Bounds(last)
	}
	if now < c.until {
		return 0
	}
	return math.MaxInt64
}

// charge charges a bucket as memstore does, and reports whether that allows it.
func (r *row) charge(s *rowState, now, cost, final int64) bool {
	l := &r.bucket
	b := l.Advance(l, bucket.Bucket{Tokens: s.tokens, At: s.at}, now)
	need := l.Need(cost)
	if l.Grants(b.Tokens, need, 0, 1) != 1 {
		return false
	}
	left := l.Charge(b.Tokens, need, 0, 1)
	if left != b.Tokens {
		*s = rowState{left, b.At}
	}
	if final == cost {
		return true
	}
	b = l.Advance(l, bucket.Bucket{Tokens: s.tokens, At: s.at}, now)
	need, debt := l.Ask(final-cost, 0, final > cost, false)
	if left := l.Charge(b.Tokens, need, debt, 1); left != b.Tokens {
		*s = rowState{left, b.At}
	}
	return true
}

// maxLevel is above all levels that a bucket can have.
const maxLevel = 4 * bucket.MaxCredits

func (r *rate) charge(s *levelState, passed, cost, final int64) {
	s.level -= min(s.level, mulCapped(passed, r.refill))
	s.level = min(maxLevel, s.level+mulCapped(cost, r.unit))
	if cost > 0 {
		s.need = max(s.need, s.level)
	}
	if final > cost {
		s.level = min(maxLevel, s.level+mulCapped(final-cost, r.unit))
	} else {
		s.level = max(0, s.level-mulCapped(cost-final, r.unit))
	}
}

// mulCapped returns a*b, at most maxLevel. Both are not negative.
func mulCapped(a, b int64) int64 {
	if b != 0 && a > maxLevel/b {
		return maxLevel
	}
	return a * b
}

// points returns the curve.
func (c *curve) points() (points []report.Point) {
	for _, r := range c.rows {
		perSecond := 0.0
		if r.limit.Period() == 0 {
			perSecond = float64(r.limit.Rate) / r.limit.Per.Seconds()
		}
		points = append(points, report.Point{
			Limit:          r.limit.String(),
			PerSecond:      perSecond,
			Burst:          cmp.Or(r.limit.Burst, r.limit.Rate),
			Own:            r.limit == c.own,
			RequestsDenied: r.requests,
			ClientsDenied:  r.clients,
		})
	}
	return points
}

// spare returns the smallest bursts that deny nothing to a share of the clients that are not left out.
func (c *curve) spare(all []*client, share float64, leaves func(*client) bool) *report.Spare {
	spare := &report.Spare{Share: share}
	for i, r := range c.rates {
		needs := c.needs(i, all, leaves)
		n := len(needs)
		may := min(n, int(math.Floor((1-share)*float64(n)+1e-6)))
		spare.Touched = int64(may)
		burst := int64(1)
		if may < n {
			burst = r.tokens(needs[n-1-may])
		}
		limit := withCapacity(r.limit, burst)
		if !r.has(limit) {
			continue // no limit of that rate is as large
		}
		denied := int64(0)
		for _, of := range all {
			if of.counted && of.levels[i].need > burst*r.unit {
				denied++
			}
		}
		spare.Limits = append(spare.Limits, report.SpareLimit{Limit: short(limit), Burst: burst, Own: r.own, ClientsDenied: denied})
	}
	return spare
}
