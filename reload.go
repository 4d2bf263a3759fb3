package ratelimit

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/fault"
	"github.com/go-tokenbucket/ratelimit/internal/policyname"
)

// Reload replaces policies by name while requests are served. Call it with all policies of the program, after the
// routes are mounted. Requests that begin after it has returned use the new policies.
//   - A policy that [Limiter.Limit] has mounted is replaced wherever it is mounted, with all fields. If policies leaves
//     it out, it stays.
//   - All other policies, and all with a name from [Config.Policies], are the new list of Handler and Decide. If there
//     are none, the list stays.
//
// Buckets keep their tokens, up to the new burst. Policies passed to Decide, Take, Wait or Admit are not replaced. If a
// policy is malformed, nothing is replaced, and the error names every wrong field. If Config.Policies is empty, a
// policy that [Limiter.Limit] has not mounted is an error, too.
func (l *Limiter) Reload(policies ...Policy) error {
	if err := l.mounts.reload(policies); err != nil {
		return fmt.Errorf("ratelimit: Reload: %w", err)
	}
	return nil
}

// reload is [Limiter.Reload].
func (ms *mounts) reload(policies []Policy) error {
	if len(policies) == 0 {
		return errors.New("policies: must not be empty: nothing would be limited")
	}
	compiled, err := compile("policies", policies, true)
	faults, _ := err.(fault.Faults)
	from := "Reload at " + time.Now().UTC().Format(time.RFC3339)
	ms.mu.Lock()
	defer ms.mu.Unlock()
	all := ms.inUse()
	mounted := ms.names
	if len(mounted) >= maxMountedNames { // not all names are remembered
		mounted = maps.Clone(mounted)
		for _, m := range all[1:] {
			for _, p := range m.policies() {
				mounted[p.Name] = true
			}
		}
	}
	var list []*policy
	for i, p := range compiled {
		p.limitFrom = from
		switch listed := indexOf(ms.handler.policies(), p.Name) >= 0 || indexOf(ms.configured, p.Name) >= 0; {
		case mounted[p.Name] && !listed:
		case len(ms.handler.policies()) > 0:
			list = append(list, p)
		case policyname.Valid(p.Name):
			faults = append(faults, fault.Fault{List: "policies", Index: i, Name: p.Name, Field: "Name",
				Text: fmt.Sprintf("must be the name of a policy that Limit has mounted (%s), because Config.Policies is empty", quoted(ms.names))})
		}
	}
	if len(faults) > 0 {
		return faults
	}
	for _, m := range all {
		m.replace(compiled, ms.overrides)
	}
	if len(list) > 0 {
		ms.handler.enforce(list, ms.overrides)
	}
	return nil
}

// quoted lists names, as in an error.
func quoted(names map[string]bool) string {
	if len(names) == 0 {
		return "none yet"
	}
	return `"` + strings.Join(slices.Sorted(maps.Keys(names)), `", "`) + `"`
}

// Override puts limits in force instead of those that the program sets, by policy name, wherever the policies are or will
// be mounted. Only Policy.Limit changes. A Reload changes the limits below, and the overrides stay in force. A name that
// limits leaves out is no longer overridden. why says for each name where the limit comes from, for [Limiter.Explain]. It
// may be nil.
//
// If a limit is malformed or Unlimited, or its policy has no Policy.Limit anywhere, nothing changes, and the error names
// it. A name that no policy has takes effect when a policy of that name is mounted. Package limits keeps overrides in
// Redis.
func (l *Limiter) Override(limits map[string]Limit, why map[string]string) error {
	if err := l.mounts.override(limits, why); err != nil {
		return fmt.Errorf("ratelimit: Override: %w", err)
	}
	return nil
}

// override is [Limiter.Override].
func (ms *mounts) override(limits map[string]Limit, why map[string]string) error {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	all := ms.inUse()
	overrides := make(map[string]override, len(limits))
	var faults []error
	for _, name := range slices.Sorted(maps.Keys(limits)) {
		limit := limits[name]
		compiled, err := limit.compile()
		switch {
		case !policyname.Valid(name):
			err = fmt.Errorf("must be the name of a policy: %s", policyname.Rule)
		case limit == Unlimited:
			err = errors.New("must not be Unlimited")
		case err == nil && !overridable(all, name):
			err = errors.New("the policy has no Policy.Limit to override: its LimitFunc chooses all limits")
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("limits[%q]: %w", name, err))
		}
		overrides[name] = override{limit, compiled, why[name]}
	}
	if len(faults) > 0 {
		return errors.Join(faults...)
	}
	ms.overrides = overrides
	for _, m := range all {
		m.enforce(m.policies(), overrides)
	}
	return nil
}

// overridable reports whether no policy of that name is mounted, or one that has a limit. One is enough: what is mounted
// elsewhere must not stop a change.
func overridable(mounts []*mount, name string) bool {
	mounted := false
	for _, m := range mounts {
		if i := indexOf(m.policies(), name); i >= 0 {
			if mounted = true; m.policies()[i].Limit != (Limit{}) {
				return true
			}
		}
	}
	return !mounted
}

// ProgramLimits returns the limits that the program sets, by policy name, whether they are overridden or not. A policy
// that is mounted with different limits has each of them once, that of Handler first. The zero Limit stands for a policy
// whose LimitFunc chooses all limits.
func (l *Limiter) ProgramLimits() map[string][]Limit {
	l.mounts.mu.Lock() // not between two steps of a Reload
	defer l.mounts.mu.Unlock()
	limits := make(map[string][]Limit)
	for _, m := range l.mounts.inUse() {
		for _, p := range m.policies() {
			if own := cmp.Or(p.program, p).Limit; !slices.Contains(limits[p.Name], own) {
				limits[p.Name] = append(limits[p.Name], own)
			}
		}
	}
	return limits
}

// Policies returns a copy of the policies that are in force: those of Handler, in their order, and then those that
// [Limiter.Limit] has mounted, by name. A name is listed once. If policies of one name differ, the list has the one of
// Handler, or the one that was mounted first. Middleware of Limit that the program no longer uses is left out once it is
// garbage collected.
func (l *Limiter) Policies() []Policy {
	l.mounts.mu.Lock() // not between two steps of a Reload
	defer l.mounts.mu.Unlock()
	var all []Policy
	listed := make(map[string]bool)
	for _, m := range l.mounts.inUse() {
		for _, p := range m.policies() {
			if !listed[p.Name] {
				listed[p.Name] = true
				all = append(all, p.Policy)
			}
		}
	}
	ofLimit := all[len(l.mounts.handler.policies()):]
	slices.SortFunc(ofLimit, func(a, b Policy) int { return strings.Compare(a.Name, b.Name) })
	return all
}
