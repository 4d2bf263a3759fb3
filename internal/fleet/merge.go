package fleet

import (
	"cmp"
	"slices"

	"github.com/go-tokenbucket/ratelimit/internal/distinct"
)

// Merge adds up the snapshots of several replicas. Counts are added by policy, keys by policy and key. A policy has the limit
// of the first snapshot that has the policy; other limits are in Others. Snapshots of a newer format are left out. Merge
// changes none of them.
func Merge(of []*Snapshot) *Snapshot {
	all := &Snapshot{Format: format, Traffic: map[string]int64{}, Operations: map[string]int64{}, Engine: map[string]int64{}}
	of = slices.DeleteFunc(slices.Clone(of), func(s *Snapshot) bool { return s.Newer })
	policies := make(map[string]int)
	var histories []Histories
	byPolicy := make(map[string][]Histories)
	for _, s := range of {
		all.mergeOne(s)
		histories = append(histories, s.History)
		for _, p := range s.Policies {
			byPolicy[p.Name] = append(byPolicy[p.Name], p.History)
			at, ok := policies[p.Name]
			if !ok {
				policies[p.Name] = len(all.Policies)
				p.Others = nil
				all.Policies = append(all.Policies, p)
				continue
			}
			all.Policies[at].add(p)
		}
	}
	all.History = sum(histories)
	for i := range all.Policies {
		all.Policies[i].History = sum(byPolicy[all.Policies[i].Name])
	}
	all.mergeKeys(of)
	all.mergeBlocks(of)
	return all
}

// mergeOne adds what is neither a policy, nor a key, nor a history.
func (all *Snapshot) mergeOne(s *Snapshot) {
	if all.Started.IsZero() || s.Started.Before(all.Started) {
		all.Started = s.Started
	}
	if s.At.After(all.At) {
		all.At = s.At
	}
	all.Last = all.Last.plus(s.Last)
	addCounts(all.Traffic, s.Traffic)
	addCounts(all.Operations, s.Operations)
	addCounts(all.Engine, s.Engine)
	for _, kind := range s.Kinds {
		if !slices.Contains(all.Kinds, kind) && len(all.Kinds) < maxList {
			all.Kinds = append(all.Kinds, kind)
		}
	}
	all.Limited = mergeSketches(all.Limited, s.Limited)
	all.NoKeys = all.NoKeys || s.NoKeys
	all.LeftOut.Histories += s.LeftOut.Histories
	all.LeftOut.Keys += s.LeftOut.Keys
	all.LeftOut.Blocks += s.LeftOut.Blocks
	all.LeftOut.Policies += s.LeftOut.Policies
	all.Overrides.Count = max(all.Overrides.Count, s.Overrides.Count)
	if s.Overrides.Changed.After(all.Overrides.Changed) {
		all.Overrides.Changed = s.Overrides.Changed
	}
	all.Overrides.Problem = cmp.Or(all.Overrides.Problem, s.Overrides.Problem)
}

// mergeSketches merges two sketches. One that is none is left out.
func mergeSketches(a, b string) string {
	sum, err := distinct.Parse(a)
	if err != nil {
		return b
	}
	if other, err := distinct.Parse(b); err == nil {
		sum.Merge(other)
	}
	return sum.String()
}

func addCounts(to, counts map[string]int64) {
	for name, n := range counts {
		to[name] += n
	}
}

// add adds the counts of another replica's policy.
func (p *Policy) add(other Policy) {
	if other.Limit != p.Limit && !slices.Contains(p.Others, other.Limit) {
		p.Others = append(p.Others, other.Limit)
	}
	p.LimitFunc = p.LimitFunc || other.LimitFunc
	p.Shadow = p.Shadow || other.Shadow
	p.Hidden = p.Hidden || other.Hidden
	p.FailClosed = p.FailClosed || other.FailClosed
	p.Optional = p.Optional || other.Optional
	p.Settles = p.Settles || other.Settles
	p.Unmounted = p.Unmounted && other.Unmounted
	p.MaxWait, p.LockFor = max(p.MaxWait, other.MaxWait), max(p.LockFor, other.LockFor)
	p.Program = cmp.Or(p.Program, other.Program)
	p.Total, p.Last = p.Total.plus(other.Total), p.Last.plus(other.Last)
	p.Held += other.Held
	p.Settlements += other.Settlements
	p.Estimated += other.Estimated
	p.Final += other.Final
}

func (c Counts) plus(d Counts) Counts {
	return Counts{c.Allowed + d.Allowed, c.Denied + d.Denied, c.WouldDeny + d.WouldDeny, c.NotCharged + d.NotCharged, c.Refused + d.Refused, c.Degraded + d.Degraded}
}

// Minus returns what came after d.
func (c Counts) Minus(d Counts) Counts {
	return Counts{c.Allowed - d.Allowed, c.Denied - d.Denied, c.WouldDeny - d.WouldDeny, c.NotCharged - d.NotCharged, c.Refused - d.Refused, c.Degraded - d.Degraded}
}

// A named is what a key or block is added up by.
type named struct {
	policy string
	name   Text
}

func (all *Snapshot) mergeKeys(of []*Snapshot) {
	var steps []Steps
	for _, s := range of {
		steps = append(steps, s.KeySteps)
	}
	var later []int
	all.KeySteps, later = commonSteps(steps)
	at := make(map[named]int)
	for i, s := range of {
		for _, k := range s.Keys {
			k.Requests, k.Denials = moved(k.Requests, later[i]), moved(k.Denials, later[i])
			id := named{k.Policy, k.Name}
			j, ok := at[id]
			if !ok {
				at[id] = len(all.Keys)
				all.Keys = append(all.Keys, k)
				continue
			}
			sum := &all.Keys[j]
			sum.Count += k.Count
			sum.Denied += k.Denied
			sum.Error += k.Error
			sum.Requests, sum.Denials = added(sum.Requests, k.Requests), added(sum.Denials, k.Denials)
		}
	}
	slices.SortStableFunc(all.Keys, func(a, b Key) int { return cmp.Compare(b.Count-b.Error, a.Count-a.Error) })
}

func (all *Snapshot) mergeBlocks(of []*Snapshot) {
	at := make(map[named]int)
	for _, s := range of {
		for _, b := range s.Blocks {
			id := named{b.Policy, b.Name}
			if j, ok := at[id]; !ok {
				at[id] = len(all.Blocks)
				all.Blocks = append(all.Blocks, b)
			} else if b.Until.After(all.Blocks[j].Until) {
				all.Blocks[j] = b
			}
		}
	}
	slices.SortStableFunc(all.Blocks, func(a, b Block) int { return a.Until.Compare(b.Until) })
}
