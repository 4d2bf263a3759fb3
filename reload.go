package ratelimit

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/go-tokenbucket/ratelimit/internal/fault"
	"github.com/go-tokenbucket/ratelimit/internal/policyname"
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

// Override puts limits in force instead of those that the program sets, by policy name, wherever the policies are or will
// be mounted. Only Policy.Limit changes. A Reload changes the limits below, and the overrides stay in force. A name that
// limits leaves out is no longer overridden. why says for each name where the limit comes from, for [Limiter.Explain]. It
// may be nil.
//
// If a limit is malformed or Unlimited, or its policy has no Policy.Limit anywhere, nothing changes, and the error names
// it. A name that no policy has takes effect when a policy of that name is mounted. Package limits keeps overrides in
// Redis.
func (l *Limiter) Override(limits map[string]Limit, why map[string]string) error {
	if err := l.places.override(limits, why); err != nil {
		return fmt.Errorf("ratelimit: Override: %w", err)
	}
	return nil
}

// ProgramLimits returns the limits that the program sets, by policy name, whether they are overridden or not. A policy
// that is mounted with different limits has each of them once, that of Handler first. The zero Limit stands for a policy
// whose LimitFunc chooses all limits.
func (l *Limiter) ProgramLimits() map[string][]Limit { return l.places.programLimits() }

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

	visits atomic.Pointer[[]*visit]
	looks  atomic.Int32 // of requests, for more visits
}

func (at *place) policies() []*policy { return *at.now.Load() }

// enforce replaces all policies of a place by those of the program, and puts overrides above their limits.
func (at *place) enforce(policies []*policy, over map[string]override) {
	for _, p := range policies {
		p.at = at
	}
	enforced := slices.Clone(policies)
	for i, p := range enforced {
		enforced[i] = p.below(over)
	}
	at.now.Store(&enforced)
}

// replace replaces policies of a place by those of policies that have the same name.
func (at *place) replace(policies []*policy, over map[string]override) {
	replaced := slices.Clone(at.policies())
	for _, p := range policies {
		if i := indexOf(replaced, p.Name); i >= 0 {
			own := &policy{Policy: p.Policy, limit: p.limit, from: p.from, at: at}
			watchSwings([]*policy{own})
			replaced[i] = own.below(over)
		}
	}
	at.now.Store(&replaced)
}

// override replaces the overrides of a place.
func (at *place) override(over map[string]override) {
	overridden := slices.Clone(at.policies())
	for i, p := range overridden {
		overridden[i] = p.below(over)
	}
	at.now.Store(&overridden)
}

// An override is a limit that is in force instead of Policy.Limit.
type override struct {
	limit    Limit
	compiled store.Limit
	why      string
}

// below returns what is enforced for p where over is above the limits of the program: a policy that differs in its limit,
// or that of the program. A policy that has no limit to override stays as it is.
func (p *policy) below(over map[string]override) *policy {
	own := p
	if p.program != nil {
		own = p.program
	}
	o, ok := over[own.Name]
	if !ok || own.Limit == (Limit{}) {
		return own
	}
	from := cmp.Or(o.why, "Override") + ", program: " + own.Limit.String()
	if p != own && p.Limit == o.limit && p.from == from {
		return p // with the tiers that it has compiled
	}
	overridden := &policy{Policy: own.Policy, limit: o.compiled, from: from, at: own.at, program: own}
	overridden.Limit = o.limit
	watchSwings([]*policy{overridden})
	return overridden
}

func indexOf(policies []*policy, name string) int {
	return slices.IndexFunc(policies, func(p *policy) bool { return p.Name == name })
}

// places are where a Limiter enforces policies.
type places struct {
	list       place     // the policies of Handler and Decide
	configured []*policy // the first policies of list

	mu     sync.Mutex                       // guards the fields below, and lets one Reload or Override run at a time
	mounts map[weak.Pointer[place]]struct{} // weak: a program may call Limit for each request, or drop a router
	names  map[string]bool                  // of policies that were ever mounted: a policy of a route stays one
	count  int                              // of mounts, also of those that are gone
	over   map[string]override              // by policy; replaced as a whole
}

// maxMountedNames bounds the names that are remembered. The program chooses them, and clients cannot.
const maxMountedNames = 10_000

func (ps *places) begin(policies []*policy) {
	ps.configured = policies
	ps.list.enforce(policies, nil)
}

// mount returns a place for policies of Limit.
func (ps *places) mount(policies []*policy) *place {
	at := new(place)
	key := weak.Make(at)
	ps.mu.Lock()
	defer ps.mu.Unlock()
	at.enforce(policies, ps.over)
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
	owner := weak.Make(ps) // a program may reach its handlers from Observe: a cleanup that kept ps would keep them all
	runtime.AddCleanup(at, func(key weak.Pointer[place]) {
		if ps := owner.Value(); ps != nil {
			ps.unmount(key)
		}
	}, key)
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

// programLimits is Limiter.ProgramLimits.
func (ps *places) programLimits() map[string][]Limit {
	ps.mu.Lock() // not between two steps of a Reload
	defer ps.mu.Unlock()
	limits := make(map[string][]Limit)
	for _, at := range append([]*place{&ps.list}, ps.mounted()...) {
		for _, p := range at.policies() {
			if own := cmp.Or(p.program, p).Limit; !slices.Contains(limits[p.Name], own) {
				limits[p.Name] = append(limits[p.Name], own)
			}
		}
	}
	return limits
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
	faults, _ := err.(fault.Faults)
	from := "Reload at " + time.Now().UTC().Format(time.RFC3339)
	for _, p := range compiled {
		p.from = from
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	mounts := ps.mounted()
	var list []*policy
	for i, p := range compiled {
		switch listed := indexOf(ps.list.policies(), p.Name) >= 0 || indexOf(ps.configured, p.Name) >= 0; {
		case ps.names[p.Name] && !listed:
		case len(ps.list.policies()) > 0:
			list = append(list, p)
		case policyname.Valid(p.Name):
			faults = append(faults, fault.Fault{List: "policies", Index: i, Name: p.Name, Field: "Name",
				Text: fmt.Sprintf("must be the name of a policy that Limit has mounted (%s), because Config.Policies is empty", quoted(ps.names))})
		}
	}
	if len(faults) > 0 {
		return faults
	}
	for _, at := range mounts {
		at.replace(compiled, ps.over)
	}
	if len(list) > 0 {
		watchSwings(list)
		ps.list.enforce(list, ps.over)
	}
	return nil
}

// override is Limiter.Override.
func (ps *places) override(limits map[string]Limit, why map[string]string) error {
	over := make(map[string]override, len(limits))
	var faults []error
	for _, name := range slices.Sorted(maps.Keys(limits)) {
		limit := limits[name]
		compiled, err := limit.compile()
		switch {
		case !policyname.Valid(name):
			faults = append(faults, fmt.Errorf("limits[%q]: must be the name of a policy: %s", name, policyname.Rule))
		case limit == Unlimited:
			faults = append(faults, fmt.Errorf("limits[%q]: must not be Unlimited", name))
		case err != nil:
			faults = append(faults, fmt.Errorf("limits[%q]: %w", name, err))
		}
		over[name] = override{limit, compiled, why[name]}
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	all := append(ps.mounted(), &ps.list)
	for _, name := range slices.Sorted(maps.Keys(limits)) {
		var mounted, has bool // one place with a limit is enough: what is mounted elsewhere must not stop a change
		for _, at := range all {
			if i := indexOf(at.policies(), name); i >= 0 {
				mounted, has = true, has || at.policies()[i].Limit != Limit{}
			}
		}
		if mounted && !has {
			faults = append(faults, fmt.Errorf("limits[%q]: the policy has no Policy.Limit to override: its LimitFunc chooses all limits", name))
		}
	}
	if len(faults) > 0 {
		return errors.Join(faults...)
	}
	ps.over = over
	for _, at := range all {
		at.override(over)
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
