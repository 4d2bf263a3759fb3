package admin

import (
	"slices"
	"sync"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/observe"
)

// policyFacts are a policy and what it decided in this process.
type policyFacts struct {
	Name       string  `json:"name"`
	Limit      string  `json:"limit"` // "" if LimitFunc alone chooses it
	LimitFunc  bool    `json:"limit_func"`
	Shadow     bool    `json:"shadow"`
	Hidden     bool    `json:"hidden"`
	FailClosed bool    `json:"fail_closed"`
	Optional   bool    `json:"optional"`
	Settles    bool    `json:"settles"`
	MaxWait    seconds `json:"max_wait_seconds"`
	LockFor    seconds `json:"lock_for_seconds"`
	Mounted    bool    `json:"mounted"` // requests have it

	Counts *policyCounts `json:"counts"`

	limit ratelimit.Limit
}

// policyCounts are what a policy decided since the process started, and lately.
type policyCounts struct {
	Allowed    int64 `json:"allowed"`
	Denied     int64 `json:"denied"`
	WouldDeny  int64 `json:"would_deny"`
	NotCharged int64 `json:"not_charged"`
	Degraded   int64 `json:"degraded"`

	Settlements int64 `json:"settlements"`
	Estimated   int64 `json:"settled_estimated"`
	Final       int64 `json:"settled_final"`

	// Rates are per second, over the last whole steps of the history.
	Rates   *rates   `json:"per_second"`
	History *history `json:"history"`

	unused bool
}

// Unused reports whether there was no request so far.
func (p *policyCounts) Unused() bool { return p.unused }

// policies returns all policies that the page knows: those that requests have, those of Config.Policies, and those
// that were counted. A change is possible for all of them.
func (h *handler) policies() []ratelimit.Policy { return h.policiesIn(h.snapshot()) }

func (h *handler) policiesIn(counted observe.Snapshot) []ratelimit.Policy {
	all := slices.Concat(h.limiter.Policies(), h.cfg.Policies)
	for _, c := range counted.Policies {
		all = append(all, ratelimit.Policy{Name: c.Policy})
	}
	seen := map[string]bool{"": true, "_other": true}
	return slices.DeleteFunc(all, func(p ratelimit.Policy) bool {
		was := seen[p.Name]
		seen[p.Name] = true
		return was
	})
}

// A snapshotCache keeps the counts for factsAge. With many routes they are large.
type snapshotCache struct {
	mu    sync.Mutex
	taken time.Time
	kept  observe.Snapshot
}

// snapshot returns the counts, at most factsAge old, or none without Config.Counts.
func (h *handler) snapshot() observe.Snapshot {
	if h.cfg.Counts == nil {
		return observe.Snapshot{}
	}
	h.counted.mu.Lock()
	defer h.counted.mu.Unlock()
	if time.Since(h.counted.taken) >= factsAge {
		h.counted.kept, h.counted.taken = h.cfg.Counts.Snapshot(), time.Now()
	}
	return h.counted.kept
}

func (f *facts) addPolicies(h *handler) {
	counts := make(map[string]observe.PolicyCounts)
	if h.cfg.Counts != nil {
		snapshot := h.snapshot()
		for _, c := range snapshot.Policies {
			counts[c.Policy] = c
		}
		f.Traffic = trafficFacts{make(map[string]int64), make(map[string]int64)}
		for _, d := range snapshot.Decisions {
			f.Traffic.Decisions[d.Outcome] = d.Count
		}
		for _, o := range snapshot.Operations {
			f.Traffic.Operations[o.Op] = o.Count
		}
	}
	mounted := make(map[string]bool)
	for _, p := range h.limiter.Policies() {
		mounted[p.Name] = true
	}
	f.Policies = []policyFacts{} // [] rather than null in JSON
	for _, p := range h.policies() {
		if len(f.Policies) == maxPolicies {
			f.PoliciesLeftOut++
			continue
		}
		facts := policyFacts{
			Name:       p.Name,
			LimitFunc:  p.LimitFunc != nil,
			Shadow:     p.Shadow,
			Hidden:     p.Hidden,
			FailClosed: p.FailClosed,
			Optional:   p.Optional,
			Settles:    p.Settle != nil,
			MaxWait:    seconds(p.MaxWait),
			LockFor:    seconds(p.LockFor),
			Mounted:    mounted[p.Name],
			limit:      p.Limit,
		}
		if p.Limit != (ratelimit.Limit{}) {
			facts.Limit = p.Limit.String()
		}
		if c, ok := counts[p.Name]; ok {
			total := c.Total()
			facts.Counts = &policyCounts{
				Allowed: total.Allowed, Denied: total.Denied, WouldDeny: total.WouldDeny, NotCharged: total.NotCharged, Degraded: total.Degraded,
				Settlements: c.Settlements, Estimated: c.Estimated, Final: c.Final,
			}
			facts.Counts.History, facts.Counts.Rates = newHistory(c.History)
		} else if h.cfg.Counts != nil {
			facts.Counts = &policyCounts{unused: true}
		}
		f.Policies = append(f.Policies, facts)
	}
}
