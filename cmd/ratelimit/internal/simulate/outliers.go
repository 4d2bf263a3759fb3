package simulate

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/cmd/ratelimit/internal/report"
	"github.com/go-tokenbucket/ratelimit/internal/keyname"
	"github.com/go-tokenbucket/ratelimit/internal/logtext"
)

// A client is an outlier if it needs more than the burst of the policy, and more than report.OutlierFactor times the burst
// that spares all clients but one of outlierPart. So at most one client of outlierPart is an outlier. The clients that are
// some cannot raise the bound, however much they send.
const outlierPart = 20

// ErrExclude is wrapped by the error of [Run] if no client has a key of [Config.Exclude].
var ErrExclude = errors.New("no client has this key: write it as the report does, such as ip:192.0.2.1")

// excluded returns the short keys of Config.Exclude.
func (s *simulation) excluded() (map[string]bool, error) {
	keys := make(map[string]bool)
	for _, text := range s.cfg.Exclude {
		found := false
		for _, t := range s.tallies {
			if short := keyname.Short(text); t.byKey[short] != nil {
				keys[short], found = true, true
				continue
			}
			for key := range t.byKey { // escaped, or a long one
				if name := printed(key); text == logtext.Show(name, len(name)) {
					keys[key], found = true, true
				}
			}
		}
		if !found {
			return nil, fmt.Errorf("%s: %w", logtext.Show(text, 200), ErrExclude)
		}
	}
	return keys, nil
}

// An exception tells the clients that set a limit from those that are left out.
type exception struct {
	excluded map[string]bool // by short key
	own      int             // the rate of the policy
	above    int64           // what an outlier needs more than, in credits of that rate
}

// leaves reports whether a client is left out.
func (e *exception) leaves(of *client) bool {
	return e.excluded[of.key] || e.isOutlier(of)
}

func (e *exception) isOutlier(of *client) bool {
	return !e.excluded[of.key] && of.levels[e.own].need > e.above
}

// needs returns what the clients need at a rate that are not left out, in order.
func (c *curve) needs(rate int, all []*client, leaves func(*client) bool) []int64 {
	needs := make([]int64, 0, c.clients)
	for _, of := range all {
		if of.counted && !leaves(of) {
			needs = append(needs, of.levels[rate].need)
		}
	}
	slices.Sort(needs)
	return needs
}

// tokens returns how many tokens a need of credits is, at least 1.
func (r *rate) tokens(need int64) int64 { return max(1, (need-1)/r.unit+1) }

// except finds the outliers among the clients that are not excluded.
func (c *curve) except(all []*client, excluded map[string]bool) (e *exception, v *report.Verdict) {
	e = &exception{excluded: excluded, own: slices.IndexFunc(c.rates, func(r rate) bool { return r.own })}
	own := &c.rates[e.own]
	needs := c.needs(e.own, all, func(of *client) bool { return excluded[of.key] })
	v = &report.Verdict{Others: int64(len(needs))}
	e.above = math.MaxInt64
	if n := len(needs); n >= outlierPart {
		v.Typical = own.tokens(needs[n-1-n/outlierPart])
		v.Above = max(report.OutlierFactor*v.Typical, cmp.Or(c.own.Burst, c.own.Rate))
		e.above = mulCapped(v.Above, own.unit)
	}
	return e, v
}

// verdict completes what to do.
func (c *curve) verdict(v *report.Verdict, e *exception, all []*client, name func(key string) string) {
	own := &c.rates[e.own]
	for _, of := range all {
		left := report.Outlier{Key: of.key, Requests: of.requests, Burst: own.tokens(of.levels[e.own].need)}
		switch {
		case !of.counted:
		case e.excluded[of.key]:
			v.Excluded = append(v.Excluded, left)
		case e.isOutlier(of):
			v.Others--
			v.Outliers = append(v.Outliers, left)
		}
	}
	slices.SortStableFunc(v.Outliers, func(a, b report.Outlier) int { return cmp.Compare(b.Burst, a.Burst) })
	for _, list := range [][]report.Outlier{v.Outliers, v.Excluded} {
		for i := range list {
			list[i].Key = name(list[i].Key)
		}
	}
	if needs := c.needs(e.own, all, e.leaves); len(needs) > 0 {
		most := needs[len(needs)-1]
		if n := len(v.Outliers); n > 0 {
			v.Apart = v.Outliers[n-1].Burst >= 2*own.tokens(most)
		}
		v.Keep = most <= mulCapped(cmp.Or(c.own.Burst, c.own.Rate), own.unit)
		v.Limit, v.Burst = c.smallest(e, all, v.Keep)
	}
}

// smallest returns the smallest round limit that spares all clients but those that are left out, and its burst. Its rate is
// that of the policy, or a doubled one if that takes less than half of the burst. It denies each outlier something.
func (c *curve) smallest(e *exception, all []*client, ownRate bool) (text string, burst int64) {
	least := math.Inf(1)
	for i, r := range c.rates[e.own:] {
		if i > 0 && ownRate {
			break
		}
		need, outlier := int64(0), int64(math.MaxInt64)
		for _, of := range all {
			switch {
			case !of.counted || e.excluded[of.key]:
			case e.isOutlier(of):
				outlier = min(outlier, of.levels[e.own+i].need)
			default:
				need = max(need, of.levels[e.own+i].need)
			}
		}
		exact := r.tokens(need)
		size, n := math.Ldexp(float64(exact), i), roundUp(exact)
		if mulCapped(n, r.unit) >= outlier {
			n = exact
		}
		limit := withCapacity(r.limit, n)
		if size >= least || mulCapped(n, r.unit) >= outlier || !r.has(limit) {
			continue
		}
		least, text, burst = size, short(limit), n
	}
	return text, burst
}

// has reports whether a limit of r's rate, with another burst, counts in the same credits. Limits that do not fit do not.
func (r *rate) has(limit ratelimit.Limit) bool {
	compiled, err := compile(limit)
	return err == nil && (limit.Period() != 0 || compiled.Unit == r.unit && compiled.Refill == r.refill)
}

// short writes a limit without the burst that it has anyway.
func short(limit ratelimit.Limit) string {
	if limit.Burst == limit.Rate {
		limit.Burst = 0
	}
	return limit.String()
}

// roundUp returns the next number with two digits that people choose, such as 12, 15, 20, 25 or 300.
func roundUp(n int64) int64 {
	if n <= 10 || n > math.MaxInt64/100 {
		return n
	}
	for power := int64(1); ; power *= 10 {
		for _, digits := range []int64{10, 12, 15, 20, 25, 30, 40, 50, 60, 80} {
			if digits*power >= n {
				return digits * power
			}
		}
	}
}
