package ratelimit

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"weak"

	"github.com/go-tokenbucket/ratelimit/store"
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
// policy that Limit has not mounted is an error, too.
func (l *Limiter) Reload(policies ...Policy) error {
	if err := l.places.reload(policies); err != nil {
		return fmt.Errorf("ratelimit: Reload: %w", err)
	}
	return nil
}

// Policies returns a copy of the policies that are in force: those of Handler, in their order, and then those that Limit
// has mounted, by name. A name is listed once. If policies of one name differ, the list has the one of Handler, or the one
// that was mounted first. A place that the program no longer uses is left out once it is garbage collected.
func (l *Limiter) Policies() []Policy {
	var all []Policy
	for _, p := range l.places.inForce() {
		all = append(all, p.Policy)
	}
	return all
}

// A place is where some policies are enforced together, such as a route.
type place struct {
	now atomic.Pointer[[]*policy]
	nth int // of those of Limit
}

func (at *place) policies() []*policy { return *at.now.Load() }

// enforce replaces all policies of a place.
func (at *place) enforce(policies []*policy) {
	for _, p := range policies {
		p.at = at
	}
	at.now.Store(&policies)
}

// replace replaces policies of a place by those of policies that have the same name.
func (at *place) replace(policies []*policy) {
	replaced := slices.Clone(at.policies())
	for _, p := range policies {
		if i := indexOf(replaced, p.Name); i >= 0 {
			replaced[i] = &policy{Policy: p.Policy, limit: p.limit, at: at}
			watchSwings(replaced[i : i+1])
		}
	}
	at.now.Store(&replaced)
}

func indexOf(policies []*policy, name string) int {
	return slices.IndexFunc(policies, func(p *policy) bool { return p.Name == name })
}

// places are where a Limiter enforces policies.
type places struct {
	list       place     // the policies of Handler and Decide
	configured []*policy // the first policies of list

	mu     sync.Mutex                       // guards the fields below, and lets one Reload run at a time
	mounts map[weak.Pointer[place]]struct{} // weak: a program may call Limit for each request, or drop a router
	names  map[string]bool                  // of policies that were ever mounted: a policy of a route stays one
	count  int                              // of mounts, also of those that are gone
}

// maxMountedNames bounds the names that are remembered. The program chooses them, and clients cannot.
const maxMountedNames = 10_000

func (ps *places) begin(policies []*policy) {
	ps.configured = policies
	ps.list.enforce(policies)
}

// mount returns a place for policies of Limit.
func (ps *places) mount(policies []*policy) *place {
	at := new(place)
	at.enforce(policies)
	key := weak.Make(at)
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.mounts == nil {
		ps.mounts, ps.names = make(map[weak.Pointer[place]]struct{}), make(map[string]bool)
	}
	for _, p := range policies {
		if len(ps.names) < maxMountedNames {
			ps.names[p.Name] = true
		}
	}
	ps.count++
	at.nth = ps.count
	ps.mounts[key] = struct{}{}
	runtime.AddCleanup(at, ps.unmount, key)
	return at
}

// mounted returns the places of Limit that are still in use, in the order in which they were mounted. The caller holds
// mu.
func (ps *places) mounted() (mounts []*place) {
	for key := range ps.mounts {
		if at := key.Value(); at != nil {
			mounts = append(mounts, at)
		}
	}
	slices.SortFunc(mounts, func(a, b *place) int { return cmp.Compare(a.nth, b.nth) })
	return mounts
}

// inForce returns the policies of all places, the list first, then the others by name.
func (ps *places) inForce() []*policy {
	ps.mu.Lock() // not between two steps of a Reload
	defer ps.mu.Unlock()
	all := slices.Clone(ps.list.policies())
	listed := len(all)
	for _, at := range ps.mounted() {
		for _, p := range at.policies() {
			if indexOf(all, p.Name) < 0 {
				all = append(all, p)
			}
		}
	}
	slices.SortFunc(all[listed:], func(a, b *policy) int { return strings.Compare(a.Name, b.Name) })
	return all
}

func (ps *places) unmount(key weak.Pointer[place]) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	delete(ps.mounts, key)
}

// reload is Limiter.Reload.
func (ps *places) reload(policies []Policy) error {
	if len(policies) == 0 {
		return errors.New("policies: must not be empty: nothing would be limited")
	}
	compiled, err := compile("policies", policies, true)
	ps.mu.Lock()
	defer ps.mu.Unlock()
	mounts := ps.mounted()
	var list []*policy
	for i, p := range compiled {
		switch listed := indexOf(ps.list.policies(), p.Name) >= 0 || indexOf(ps.configured, p.Name) >= 0; {
		case ps.names[p.Name] && !listed:
		case len(ps.list.policies()) > 0:
			list = append(list, p)
		case validName(p.Name):
			err = errors.Join(err, fmt.Errorf("policies[%d] (%q): Name: must be the name of a policy that Limit has mounted (%s), because Config.Policies is empty", i, p.Name, quoted(ps.names)))
		}
	}
	if err != nil {
		return err
	}
	for _, at := range mounts {
		at.replace(compiled)
	}
	if len(list) > 0 {
		watchSwings(list)
		ps.list.enforce(list)
	}
	return nil
}

// quoted lists names, as in an error.
func quoted(names map[string]bool) string {
	if len(names) == 0 {
		return "none yet"
	}
	var list []string
	for name := range names {
		list = append(list, `"`+name+`"`)
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}

// inForce returns the limit for a later charge or refund of a request that p charged under charged: after a wait, or
// when the request is settled. If a Reload has replaced p meanwhile, it is the new limit. The old one would refill the
// bucket at the old rate, or cut it to the old burst.
//
// A limit that LimitFunc chose stays, as long as there is a LimitFunc.
func (p *policy) inForce(charged store.Limit) store.Limit {
	now := p.successor()
	tier := charged != p.limit && now.LimitFunc != nil
	if now == p || tier || now.limit == (store.Limit{}) {
		return charged
	}
	return now.limit
}

// successor returns the policy with p's name that is enforced now where p was. It returns p if there is none, or if
// Reload does not replace p.
func (p *policy) successor() *policy {
	if p.at == nil {
		return p
	}
	now := p.at.policies()
	if i := indexOf(now, p.Name); i >= 0 {
		return now[i]
	}
	return p
}
