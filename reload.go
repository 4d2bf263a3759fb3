package ratelimit

import (
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

// Reload replaces policies by their names while requests are served. Requests that begin after it has returned are
// decided by the new ones. Pass all policies of the program, and call it after the routes were mounted:
//   - A policy that Limit has mounted is replaced wherever it is mounted by then, with all its fields. So policies with
//     different keys need different names. Mounted policies that are not among policies stay.
//   - All others become the list of Handler and Decide, in place of Config.Policies: also new ones, and not those that
//     are left out. A name that Config.Policies has belongs to the list even if Limit has mounted it, too. If none of
//     policies belongs to the list, it stays.
//
// Policies passed to Decide, Take, Wait or Admit are not replaced. Buckets keep their tokens, up to the new burst, so a
// larger limit fills a bucket that was empty at the new rate. Requests that are under way are settled under the new
// limit, or refunded if they leave the queue of MaxWait.
//
// If a policy is malformed, nothing is replaced, and the error names every field at fault. If Config.Policies is empty,
// a policy that Limit has not mounted is an error, too.
func (l *Limiter) Reload(policies ...Policy) error {
	if err := l.places.reload(policies); err != nil {
		return fmt.Errorf("ratelimit: Reload: %w", err)
	}
	return nil
}

// A place is where some policies are enforced together, such as a route.
type place struct{ now atomic.Pointer[[]*policy] }

func (at *place) policies() []*policy { return *at.now.Load() }

// enforce puts new policies in force in place of all others.
func (at *place) enforce(policies []*policy) {
	for _, p := range policies {
		p.at = at
	}
	at.now.Store(&policies)
}

// replace puts those of policies in force that have the name of a policy which is in force there.
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
	list       place     // of Handler and Decide
	configured []*policy // what list had at first

	mu     sync.Mutex                       // of what follows, and for one Reload at a time
	mounts map[weak.Pointer[place]]struct{} // weak: a program may call Limit for each request, or drop a router
	names  map[string]bool                  // of policies that were ever mounted: a policy of a route stays one
}

// maxMountedNames bounds the names that are remembered. They are the program's, and clients cannot choose them.
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
	ps.mounts[key] = struct{}{}
	runtime.AddCleanup(at, ps.unmount, key)
	return at
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
	var mounts []*place
	for key := range ps.mounts {
		if at := key.Value(); at != nil {
			mounts = append(mounts, at)
		}
	}
	var list []*policy
	for i, p := range compiled {
		switch listed := indexOf(ps.list.policies(), p.Name) >= 0 || indexOf(ps.configured, p.Name) >= 0; {
		case ps.names[p.Name] && !listed:
		case len(ps.list.policies()) > 0:
			list = append(list, p)
		case validName(p.Name):
			err = errors.Join(err, fmt.Errorf("policies[%d] (%q): Name: must be that of a policy that Limit has mounted (%s), as Config.Policies is empty", i, p.Name, quoted(ps.names)))
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

// inForce returns the limit for a charge or refund that is made some time after p was charged under charged: after a
// wait, or when the request is settled. A Reload meanwhile may have put another policy of that name in place of p. The
// old limit would refill the bucket at the old rate, or cut it to the old burst.
//
// A tier, which LimitFunc chose, keeps its limit as long as there is a LimitFunc.
func (p *policy) inForce(charged store.Limit) store.Limit {
	now := p.successor()
	tier := charged != p.limit && now.LimitFunc != nil
	if now == p || tier || now.limit == (store.Limit{}) {
		return charged
	}
	return now.limit
}

// successor returns the policy of p's name that is in force where p was, and p if Reload has taken it out or does not
// replace it.
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
