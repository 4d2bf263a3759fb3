package observe

import (
	"cmp"
	"context"
	"slices"
	"time"
)

// A Snapshot is what a [Counts] has counted since it was made. Counts only grow. While requests are counted, the parts of
// a Snapshot may be from slightly different moments.
type Snapshot struct {
	// Policies are sorted by name.
	Policies []PolicyCounts

	// Decisions has an entry for each outcome, in a fixed order.
	Decisions []DecisionCounts

	// Operations has an entry for each [ratelimit.Event.Op] that is no decision, and "_other", in a fixed order.
	Operations []OperationCounts
}

// PolicyCounts are the counts of a policy.
type PolicyCounts struct {
	Policy string // or "_other"
	Routes []RouteCounts

	// Settlements is how many requests were settled, Estimated how many tokens they were charged before, and Final
	// how many they cost in the end. Failed settlements do not count here: see OperationCounts.
	Settlements, Estimated, Final int64

	// History has the last ten minutes in steps of 5 s, Hour in steps of 1 min, and SixHours in steps of 6 min.
	// The oldest step is the first. The last one is not over yet. All are nil without [CountsConfig.History].
	History, Hour, SixHours []Step
}

// Total returns the counts of all routes together, with an empty Route.
func (p PolicyCounts) Total() (total RouteCounts) {
	for _, r := range p.Routes {
		total.Allowed += r.Allowed
		total.Denied += r.Denied
		total.WouldDeny += r.WouldDeny
		total.NotCharged += r.NotCharged
		total.Refused += r.Refused
		total.Degraded += r.Degraded
	}
	return total
}

// RouteCounts are the counts of a policy on a route. Each decision counts once under each of its policies: as Allowed,
// Denied, WouldDeny, NotCharged or Refused.
type RouteCounts struct {
	Route string // as [ratelimit.Event.Route], in valid UTF-8; or "_other"

	Allowed    int64
	Denied     int64
	WouldDeny  int64 // a Shadow would have denied it
	NotCharged int64 // the bucket could pay, and the request was refused for another reason
	Refused    int64 // because of an outage, as the policy fails closed: see [ratelimit.Event.Refused]

	Degraded int64 // how many of these a stand-in for the store answered
}

// DecisionCounts are the decisions with one outcome. A request through several limiters, or through Handler and Limit,
// has several decisions. Calls of Decide, Admit, Take, TakeAll, Wait, WaitAll and Acquire are decisions, too. Peek, Refund,
// Reset, Block, Unblock, settlements and expired slots are not.
type DecisionCounts struct {
	// Outcome is one of:
	//	allowed        denied by no policy
	//	denied         denied by a policy
	//	failed_open    let through although the store failed, or a policy was left out for ErrOutage
	//	failed_closed  refused because the store, or a function of a policy, failed, or time was up
	//	no_key         refused: no key
	//	bad_request    refused: ErrBadRequest
	//	canceled       it ended while it waited for its tokens, or its caller had left
	//	overloaded     refused: store.ErrOverloaded
	Outcome string

	Count  int64
	Inner  int64     // how many of them are about requests that these Counts have as allowed by an outer limiter
	Took   Histogram // without the time that it waited for its tokens
	Waited Histogram // of those that waited
}

// A Histogram counts durations by size.
type Histogram struct {
	// Bounds are the upper bounds of the buckets, which include them.
	Bounds []time.Duration

	// Buckets has one entry more than Bounds: the last is for what is above all bounds. They do not add up.
	Buckets []int64

	Count int64
	Sum   time.Duration
}

// OperationCounts are the Events with one [ratelimit.Event.Op].
type OperationCounts struct {
	Op     string
	Count  int64
	Failed int64 // how many of them had an [ratelimit.Event.Err]
}

// A Step is a period of the history of a policy.
type Step struct {
	Start time.Time

	// As in RouteCounts. What another policy denied is in none of them.
	Allowed, Denied, WouldDeny, Refused int64
}

// Snapshot returns the counts so far.
func (c *Counts) Snapshot() Snapshot {
	var s Snapshot
	for op := opDecision + 1; op < operations; op++ {
		o := OperationCounts{Op: opNames[op]}
		for n := range c.stripes {
			o.Count += c.stripes[n].ops[op].Load()
			o.Failed += c.stripes[n].failed[op].Load()
		}
		s.Operations = append(s.Operations, o)
	}
	for out := range outcomes {
		d := DecisionCounts{Outcome: outcomeNames[out], Took: newHistogram(tookBounds[:]), Waited: newHistogram(waitedBounds[:])}
		for n := range c.stripes {
			d.Inner += c.stripes[n].inner[out].Load()
			took, waited := &c.stripes[n].took[out], &c.stripes[n].waited[out]
			for i := range took.buckets {
				d.Took.add(i, took.buckets[i].Load())
			}
			for i := range waited.buckets {
				d.Waited.add(i, waited.buckets[i].Load())
			}
			d.Took.Sum += time.Duration(took.sum.Load())
			d.Waited.Sum += time.Duration(waited.sum.Load())
		}
		d.Count = d.Took.Count
		s.Decisions = append(s.Decisions, d)
	}
	if c.history != nil {
		c.history.mu.Lock()
		defer c.history.mu.Unlock()
		c.history.moveTo(c.history.stepAt(c.history.now(context.Background())), c)
	}
	for _, p := range c.policies.all() {
		s.Policies = append(s.Policies, p.snapshot(c.history))
	}
	slices.SortFunc(s.Policies, func(a, b PolicyCounts) int { return cmp.Compare(a.Policy, b.Policy) })
	return s
}

func (p *policyCounts) snapshot(h *history) PolicyCounts {
	s := PolicyCounts{Policy: p.name}
	for n := range p.stripes {
		counts := &p.stripes[n]
		s.Settlements += counts.settlements.Load()
		s.Estimated += counts.estimated.Load()
		s.Final += counts.final.Load()
	}
	for _, r := range p.routes.all() {
		s.Routes = append(s.Routes, r.snapshot())
	}
	slices.SortFunc(s.Routes, func(a, b RouteCounts) int { return cmp.Compare(a.Route, b.Route) })
	if h != nil {
		total := p.total()
		s.History, s.Hour, s.SixHours = h.steps(p, 0, total), h.steps(p, 1, total), h.steps(p, 2, total)
	}
	return s
}

func (r *routeCounts) snapshot() RouteCounts {
	s := RouteCounts{Route: r.name}
	for n := range r.stripes {
		counts := &r.stripes[n]
		s.Allowed += counts.by[allowed].Load()
		s.Denied += counts.by[denied].Load()
		s.WouldDeny += counts.by[wouldDeny].Load()
		s.Refused += counts.by[refused].Load()
		s.NotCharged += counts.by[notCharged].Load()
		s.Degraded += counts.degraded.Load()
	}
	return s
}

func newHistogram(bounds []time.Duration) Histogram {
	return Histogram{Bounds: slices.Clone(bounds), Buckets: make([]int64, len(bounds)+1)}
}

func (h *Histogram) add(bucket int, n int64) {
	h.Buckets[bucket] += n
	h.Count += n
}
