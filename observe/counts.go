package observe

import (
	"context"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/counter"
)

// CountsConfig configures [NewCounts]. The zero value is ready to use.
type CountsConfig struct {
	// MaxPolicies is how many policies have their own counts. Further ones count together as "_other". Default: 128.
	MaxPolicies int

	// MaxRoutes is how many routes have their own counts under each policy. Further ones count together as
	// "_other", and so do routes longer than 256 bytes. Default: 512.
	MaxRoutes int

	// NoRoutes counts all routes together, as route "".
	NoRoutes bool

	// History keeps the last ten minutes, hour and six hours of each policy, for a page that draws them.
	History bool

	// Clock returns the time for the History. Default: [ratelimit.Decision.At], or time.Now if there is none.
	Clock func() time.Time
}

const (
	otherName = "_other" // of the policies or routes beyond the bound

	defaultMaxPolicies = 128
	defaultMaxRoutes   = 512

	// maxRouteLen bounds the memory of a table of routes, where clients choose them.
	maxRouteLen = 256
)

// Counts counts what limiters decide, for metrics and for a page. Its method Observe is an observer for
// [ratelimit.Config.Observe]; [Counts.Snapshot] returns the counts. The packages contrib/promratelimit and
// contrib/otelratelimit export them.
//
// It counts by policy, route and result. It never sees keys, error texts, methods or paths of requests. Its
// memory is bounded by [CountsConfig], whatever clients send.
//
// A Counts is safe for concurrent use, also by several Limiters, whose counts add up. It needs no closing.
type Counts struct {
	cfg     CountsConfig
	stripes [stripes]stripe

	policies table[policyCounts]
	history  *history // nil without CountsConfig.History
}

// NewCounts returns Counts that are all 0.
func NewCounts(cfg CountsConfig) *Counts {
	if cfg.MaxPolicies <= 0 {
		cfg.MaxPolicies = defaultMaxPolicies
	}
	if cfg.MaxRoutes <= 0 {
		cfg.MaxRoutes = defaultMaxRoutes
	}
	c := &Counts{cfg: cfg}
	if cfg.History {
		c.history = newHistory(cfg.Clock)
	}
	return c
}

// Observe counts e. It is an observer for [ratelimit.Config.Observe]; see also [Join].
func (c *Counts) Observe(ctx context.Context, e *ratelimit.Event) {
	n := counter.Stripe(stripeBits)
	s := &c.stripes[n]
	op := opOf(e.Op)
	if op != opDecision {
		s.operated(op, e)
		if op == opSettle && e.Err == nil {
			c.settled(n, e)
		}
		return
	}
	if c.history != nil {
		c.history.proceed(ctx, c)
	}
	s.decided(e, c.isInner(ctx, e))
	for _, policy := range e.Refused {
		c.policy(policy).route(e.Route, &c.cfg).stripes[n].by[refused].Add(1)
	}
	for i := range e.Results {
		r := &e.Results[i]
		counts := &c.policy(r.Policy).route(e.Route, &c.cfg).stripes[n]
		counts.by[resultOf(e, r)].Add(1)
		if r.Degraded {
			counts.degraded.Add(1)
		}
	}
}

// isInner reports whether e is about a request that was counted before, because a limiter around this one let it through. The
// Decision of the context then begins with the results of that limiter.
func (c *Counts) isInner(ctx context.Context, e *ratelimit.Event) bool {
	switch e.Op {
	case "request", "decide", "admit":
		d, ok := ratelimit.FromContext(ctx)
		return ok && len(d.Results) > len(e.Results) && c.policies.get(d.Results[0].Policy) != nil
	}
	return false
}

func (c *Counts) settled(n int, e *ratelimit.Event) {
	for i := range min(len(e.Results), len(e.Estimates)) {
		counts := &c.policy(e.Results[i].Policy).stripes[n]
		counts.settlements.Add(1)
		counts.estimated.Add(e.Estimates[i])
		counts.final.Add(e.Results[i].Cost)
	}
}

// Declare makes the counts of policies appear in Snapshots before their first request. Otherwise a monitoring system
// would not see the first one as a change.
func (c *Counts) Declare(policies ...string) {
	for _, name := range policies {
		c.policy(name).route("", &c.cfg)
	}
}

// resultOf returns the index of r's count. e is a decision.
func resultOf(e *ratelimit.Event, r *ratelimit.Result) int {
	switch {
	case !r.Allowed && r.Shadow:
		return wouldDeny
	case !r.Allowed:
		return denied
	case !e.Allowed:
		return notCharged
	default:
		return allowed
	}
}

// The results of a policy.
const (
	allowed = iota
	denied
	wouldDeny
	refused
	notCharged // not in the history
	results
)
