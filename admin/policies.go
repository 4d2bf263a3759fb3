package admin

import (
	"slices"
	"sync"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/fleet"
	"github.com/go-tokenbucket/ratelimit/internal/numbers"
	"github.com/go-tokenbucket/ratelimit/observe"
)

// policyFacts are a policy and what it has decided.
type policyFacts struct {
	fleet.Policy
	PerSecond policyRates `json:"per_second"`
	Refusing  bool        `json:"refusing"` // it fails closed, and the store of a replica does not answer

	f *facts
}

// policyRates are rates of about the last ten seconds.
type policyRates struct {
	Allowed   float64 `json:"allowed"`
	Denied    float64 `json:"denied"`
	WouldDeny float64 `json:"would_deny"`
	Refused   float64 `json:"refused"`
}

func (f *facts) addPolicies() {
	f.Policies = []policyFacts{} // [] rather than null in JSON
	outage := f.Store.State != "answers" || f.Shown == "" && len(f.inState(replicaOutage)) > 0
	for _, p := range f.Snapshot.Policies {
		if len(f.Policies) == maxPolicies {
			f.LeftOut.Policies++
			continue
		}
		perSecond := func(n int64) float64 { return float64(n) / fleet.LastFor.Seconds() }
		f.Policies = append(f.Policies, policyFacts{
			Policy:    p,
			PerSecond: policyRates{perSecond(p.Last.Allowed), perSecond(p.Last.Denied), perSecond(p.Last.WouldDeny), perSecond(p.Last.Refused)},
			Refusing:  outage && p.FailClosed && !p.Shadow && !p.Unmounted,
			f:         f,
		})
	}
}

// ChangedKeys is how many keys have a limit that operators have set.
func (f *facts) ChangedKeys() int {
	n := f.Overrides.Count
	for _, p := range f.Snapshot.Policies {
		if p.Program != "" {
			n--
		}
	}
	return max(0, n)
}

// policy returns a policy by its name, nil if there is none.
func (f *facts) policy(name string) *policyFacts {
	for i := range f.Policies {
		if f.Policies[i].Name == name {
			return &f.Policies[i]
		}
	}
	return nil
}

// Address is that of the page of the policy.
func (p *policyFacts) Address() string { return p.f.address("top", p.Name) }

// HasRates reports whether the rates of the policy are known.
func (p *policyFacts) HasRates() bool {
	return p.History.TenMinutes != nil || p.Last != (fleet.Counts{})
}

// HasCounts reports whether the policy is counted.
func (p *policyFacts) HasCounts() bool { return p.f.HasCounts }

// Unused reports whether there was no request so far.
func (p *policyFacts) Unused() bool { return p.Total == (fleet.Counts{}) }

// Refuses says that the policy refuses all requests, "" if it does not.
func (p *policyFacts) Refuses() string {
	if !p.Refusing {
		return ""
	}
	s, where := storeFacts{p.f.Store}, ""
	if s.State == "answers" {
		where = " on replicas that do not reach " + s.Name()
	}
	return "Refuses all requests" + where + ": " + numbers.Count(p.Total.Refused) + " so far."
}

// Words are the limit in words.
func (p *policyFacts) Words() string {
	limit, err := ratelimit.ParseLimit(p.Limit)
	switch {
	case p.Limit == "" && p.LimitFunc:
		return "LimitFunc chooses the limit"
	case err != nil:
		return p.Limit
	}
	return limitWords(limit)
}

// Slots is how many slots are held, in words, "" for a policy that has none.
func (p *policyFacts) Slots() string {
	limit, err := ratelimit.ParseLimit(p.Limit)
	if (err != nil || !limit.IsConcurrency()) && p.Held == 0 {
		return ""
	}
	return "Slots held by " + p.f.whose() + ": " + numbers.Count(p.Held) + "."
}

// Waits and Locks are durations of the policy.
func (p *policyFacts) Waits() time.Duration { return p.MaxWait.Duration() }
func (p *policyFacts) Locks() time.Duration { return p.LockFor.Duration() }

// lately is how many requests the policy had in the last d, 0 if that is not known.
func (p *policyFacts) lately(d time.Duration) (n int64) {
	h := p.History.TenMinutes
	if h == nil {
		return 0
	}
	steps := int(d / (time.Duration(h.Seconds) * time.Second))
	for _, list := range [][]int64{h.Allowed, h.Denied, h.WouldDeny, h.Refused} {
		n += sumOf(list[max(0, len(list)-steps):])
	}
	return n
}

func sumOf(counts []int64) (sum int64) {
	for _, n := range counts {
		sum += n
	}
	return sum
}

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
