package fleet

import (
	"cmp"
	"slices"
	"time"

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
	all.History = sumHistories(histories)
	for i := range all.Policies {
		all.Policies[i].History = sumHistories(byPolicy[all.Policies[i].Name])
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

// A named is what a key or block is added up by. Sealed keys are equal if the keys are.
type named struct {
	policy, sealed string
	name           Text
}

func (all *Snapshot) mergeKeys(of []*Snapshot) {
	var steps []Steps
	for _, s := range of {
		steps = append(steps, s.KeySteps)
	}
	var shifts []int
	all.KeySteps, shifts = commonSteps(steps)
	at := make(map[named]int)
	for i, s := range of {
		for _, k := range s.Keys {
			k.Requests, k.Denials = shifted(k.Requests, shifts[i]), shifted(k.Denials, shifts[i])
			id := named{k.Policy, string(k.Sealed), k.Name}
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
			id := named{b.Policy, string(b.Sealed), b.Name}
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

func sumHistories(of []Histories) Histories {
	var ten, hour, six []*History
	for _, h := range of {
		ten, hour, six = append(ten, h.TenMinutes), append(hour, h.Hour), append(six, h.SixHours)
	}
	return Histories{sumHistory(ten), sumHistory(hour), sumHistory(six)}
}

// sumHistory adds histories by time. The sum ends when the first of them ends, so that its last step is complete.
func sumHistory(of []*History) *History {
	var steps []Steps
	for _, h := range of {
		if h != nil {
			steps = append(steps, h.Steps)
		} else {
			steps = append(steps, Steps{})
		}
	}
	sum := new(History)
	var shifts []int
	if sum.Steps, shifts = commonSteps(steps); sum.Seconds == 0 {
		return nil
	}
	for i, h := range of {
		if h == nil || h.Seconds != sum.Seconds {
			sum.Without++
			continue
		}
		sum.Allowed = added(sum.Allowed, shifted(h.Allowed, shifts[i]))
		sum.Denied = added(sum.Denied, shifted(h.Denied, shifts[i]))
		sum.WouldDeny = added(sum.WouldDeny, shifted(h.WouldDeny, shifts[i]))
		sum.Refused = added(sum.Refused, shifted(h.Refused, shifts[i]))
	}
	sum.align()
	return sum
}

// commonSteps returns the steps of a sum, and by how many steps each part ends later. A part that ends more than a step
// before the last one comes from a replica that is silent. The sum does not wait for it.
func commonSteps(of []Steps) (common Steps, shifts []int) {
	for _, s := range of {
		if common.Seconds == 0 || s.Seconds == common.Seconds && s.End.After(common.End) {
			common = s
		}
	}
	shifts = make([]int, len(of))
	if common.Seconds == 0 {
		return common, shifts
	}
	step := time.Duration(common.Seconds) * time.Second
	early := common
	for i, s := range of {
		if s.Seconds == common.Seconds {
			shifts[i] = int(max(-maxList, s.End.Sub(common.End).Round(step)/step))
			if shifts[i] == -1 {
				early.End = common.End.Add(-step)
			}
		}
	}
	for i := range shifts {
		if early != common {
			shifts[i]++
		}
	}
	return early, shifts
}

// shifted returns counts that end later by a number of steps, or earlier if it is negative.
func shifted(counts []int64, by int) []int64 {
	switch {
	case by <= -len(counts) || by >= len(counts):
		return nil
	case by < 0:
		return slices.Concat(counts[-by:], make([]int64, -by))
	}
	return counts[:len(counts)-by]
}

// added adds counts whose last steps are the same.
func added(a, b []int64) []int64 {
	if len(a) < len(b) {
		a, b = b, a
	}
	sum := slices.Clone(a)
	for i, n := range b {
		sum[len(a)-len(b)+i] += n
	}
	return sum
}
