package ratelimit

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/configfault"
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
	faults, _ := err.(configfault.Faults)
	from := "Reload at " + time.Now().UTC().Format(time.RFC3339)
	ms.mu.Lock()
	defer ms.mu.Unlock()
	mounted := ms.inUse()
	var list []*policy
	for i, p := range compiled {
		p.limitFrom = from
		switch listed := indexOf(ms.handler.policies(), p.Name) >= 0 || indexOf(ms.configured, p.Name) >= 0; {
		case !listed && (ms.names[p.Name] || slices.ContainsFunc(mounted, func(m *mount) bool { return indexOf(m.policies(), p.Name) >= 0 })):
		case len(ms.handler.policies()) > 0:
			list = append(list, p)
		case policyname.Valid(p.Name):
			faults = append(faults, configfault.Fault{List: "policies", Index: i, Name: p.Name, Field: "Name",
				Text: fmt.Sprintf("must be the name of a policy that Limit has mounted (%s), because Config.Policies is empty", quoted(ms.names))})
		}
	}
	if len(faults) > 0 {
		return faults
	}
	for _, m := range mounted {
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

// Policies returns a copy of the policies that are in force: those of Handler, in their order, and then those that
// [Limiter.Limit] has mounted, by name. A name is listed once. If policies of one name differ, the list has the one of
// Handler, or the one that was mounted first. A policy with an [Override] has its Limit, and no LimitFunc. An Override of a
// single key is not shown. Middleware of Limit that the program no longer uses is left out once it is
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
