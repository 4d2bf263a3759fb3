package ratelimit

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"weak"

	"github.com/go-tokenbucket/ratelimit/store"
)

// A mount is a list of policies that are enforced together, on all requests or on a route.
type mount struct {
	now atomic.Pointer[[]*policy]

	visits     atomic.Pointer[[]*visit]
	visitCount atomic.Int32 // requests that looked for a new visit; see maxVisitCount
}

func (m *mount) policies() []*policy { return *m.now.Load() }

// enforce replaces all policies of a mount, and puts overrides above their limits.
func (m *mount) enforce(policies []*policy, overrides map[string]*overrides) {
	enforced := make([]*policy, len(policies))
	for i, p := range policies {
		if p.mount == nil {
			p.mount, p.swings = m, newLimitSwings(&p.Policy)
		}
		enforced[i] = p.withOverrides(overrides)
	}
	m.now.Store(&enforced)
}

// replace replaces policies of a mount by those of policies that have the same name.
func (m *mount) replace(policies []*policy, overrides map[string]*overrides) {
	replaced := slices.Clone(m.policies())
	for _, p := range policies {
		if i := indexOf(replaced, p.Name); i >= 0 {
			replaced[i] = &policy{Policy: p.Policy, limit: p.limit, slots: p.slots, limitFrom: p.limitFrom}
		}
	}
	m.enforce(replaced, overrides)
}

func indexOf(policies []*policy, name string) int {
	return slices.IndexFunc(policies, func(p *policy) bool { return p.Name == name })
}

// mounts are the lists of policies that a Limiter enforces.
type mounts struct {
	handler    mount     // the policies of Handler and Decide
	configured []*policy // Config.Policies; Reload does not change them

	mu        sync.Mutex            // guards the fields below, and lets one Reload or Override run at a time
	ofLimit   []weak.Pointer[mount] // weak: a program may call Limit for each request, or drop a router
	names     map[string]bool       // of policies that Limit ever mounted: a policy of a route stays one
	overrides map[string]*overrides // by policy; replaced as a whole
}

// maxMountedNames bounds the names that are remembered. The program chooses them, and clients cannot.
const maxMountedNames = 10_000

func (ms *mounts) begin(policies []*policy) {
	ms.configured, ms.names = policies, make(map[string]bool)
	ms.handler.visits.Store(new([]*visit))
	ms.handler.enforce(policies, nil)
}

// add returns a mount for policies of Limit.
func (ms *mounts) add(policies []*policy) *mount {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	m := new(mount)
	m.visits.Store(new([]*visit))
	m.enforce(policies, ms.overrides)
	for _, p := range policies {
		if len(ms.names) < maxMountedNames {
			ms.names[p.Name] = true
		}
	}
	if len(ms.ofLimit) == cap(ms.ofLimit) {
		ms.inUse() // which makes room
	}
	ms.ofLimit = append(ms.ofLimit, weak.Make(m))
	return m
}

// inUse returns the mount of Handler, and those of Limit that the program still uses, in the order in which they were
// mounted. It forgets the others. The caller holds mu.
func (ms *mounts) inUse() []*mount {
	all := []*mount{&ms.handler}
	ms.ofLimit = slices.DeleteFunc(ms.ofLimit, func(p weak.Pointer[mount]) bool {
		m := p.Value()
		if m != nil {
			all = append(all, m)
		}
		return m == nil
	})
	return all
}

// inForce returns the limit for a later charge or refund of a request that p charged under charged. That is after a wait, or
// when the request is settled. If a Reload or an Override has replaced p meanwhile, it is the new limit. The old one
// would refill the bucket at the old rate, or cut it to the old burst.
//
// A limit that LimitFunc may have chosen since stays: only a request can ask for it. limit and charged are the same limit, as
// are the results.
func (p *policy) inForce(key string, limit Limit, charged store.Limit) (Limit, store.Limit) {
	now := p.successor()
	chosen := charged != cmp.Or(p.program, p).limit && now.LimitFunc != nil
	switch o := now.override(key); {
	case now.slots != charged.IsConcurrency(): // slots are released as slots
		return limit, charged
	case o != nil && o.Limit != Unlimited:
		return o.Limit, o.compiled
	case o == nil && now != p && !chosen && now.limit != (store.Limit{}): // it has none for Unlimited
		return now.Limit, now.limit
	default:
		return limit, charged
	}
}

// successor returns the policy with p's name that is enforced now where p was. It returns p if there is none, or if
// Reload does not replace p.
func (p *policy) successor() *policy {
	if p.mount == nil {
		return p
	}
	now := p.mount.policies()
	if i := indexOf(now, p.Name); i >= 0 {
		return now[i]
	}
	return p
}
