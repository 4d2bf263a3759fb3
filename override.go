package ratelimit

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/go-tokenbucket/ratelimit/internal/keyname"
	"github.com/go-tokenbucket/ratelimit/internal/logtext"
	"github.com/go-tokenbucket/ratelimit/internal/policyname"
	"github.com/go-tokenbucket/ratelimit/store"
)

// An Override is a limit that is in force instead of those that the program sets: for all keys of a policy, or for one.
type Override struct {
	// Policy is the name of the policy. Required.
	Policy string

	// Key is the key that gets the limit, as the KeyFunc of the policy returns it, such as "ip:192.0.2.1" or "member:7".
	// Default: all keys without such an Override.
	Key string

	// Limit is the limit, also a [Quota] or [Unlimited]. Required. To deny all requests of a key, use
	// [Limiter.Block]. If it is a [Concurrency] and the limit of the policy is none, or the other way
	// round, the override has no effect.
	Limit Limit

	// Why says where the limit comes from, such as "set by alice", for [Limiter.Explain]. Default "Override".
	Why string
}

// Override puts limits in force instead of those that the program sets, wherever the policies are or will be mounted. It
// replaces all overrides that were there before. [Limiter.Reload] changes the limits below, and the overrides stay in force.
//
// The limit of a request is the first of these that there is: the Override of its key, that of its policy,
// [Policy.LimitFunc], [Policy.Limit]. So under an Override of a policy, its LimitFunc is not called, and exempts nobody.
// Nothing else of a policy changes. Buckets keep their tokens, up to the new burst. Policies passed to Decide, Take, Wait
// or Admit keep the limit that the caller gives them.
//
// If an override is malformed, nothing changes, and the error names every wrong field. Two of one policy and key are an
// error. One for a policy that is not mounted takes effect when it is. Overrides are those of this process: package override
// keeps them in Redis for all replicas.
func (l *Limiter) Override(overrides []Override) error {
	if err := l.mounts.override(overrides); err != nil {
		return fmt.Errorf("ratelimit: Override: %w", err)
	}
	return nil
}

// An override is a compiled Override. It is small, because there may be one for each of many customers.
type override struct {
	limit *overrideLimit // one for all overrides that are equal; nil: there is no override
	why   string
}

// An overrideLimit is the limit of overrides.
type overrideLimit struct {
	Limit
	compiled store.Limit // zero if Limit is Unlimited
}

// overrides are those of a policy.
type overrides struct {
	all  override            // of the policy
	keys map[string]override // of single keys; nil: none
}

// override is [Limiter.Override].
func (ms *mounts) override(list []Override) error {
	byPolicy, err := compileOverrides(list)
	if err != nil {
		return err
	}
	ms.mu.Lock()
	defer ms.mu.Unlock()
	ms.overrides = byPolicy
	for _, m := range ms.inUse() {
		m.enforce(m.policies(), byPolicy)
	}
	return nil
}

// compileOverrides returns overrides by policy, or an error that names every fault.
func compileOverrides(list []Override) (map[string]*overrides, error) {
	byPolicy, limits := make(map[string]*overrides), make(map[Limit]*overrideLimit)
	var faults []error
	for i, o := range list {
		wrong := func(field string, err error) {
			faults = append(faults, fmt.Errorf("overrides[%d].%s: %w", i, field, err))
		}
		if !policyname.Valid(o.Policy) {
			wrong("Policy", fmt.Errorf("must be the name of a policy: %s", policyname.Rule))
		}
		if !keyname.CanBe(o.Key) {
			wrong("Key", fmt.Errorf(`"%s": must be a kind, a colon and an identity, such as "ip:192.0.2.1" or "member:7"`, logtext.Show(o.Key, maxShownKey)))
		}
		limit := limits[o.Limit]
		if limit == nil {
			var err error
			if limit, err = newOverrideLimit(o.Limit); err != nil {
				wrong("Limit", err)
			} else {
				limits[o.Limit] = limit
			}
		}
		of := byPolicy[o.Policy]
		if of == nil {
			of = new(overrides)
			byPolicy[o.Policy] = of
		}
		if !of.add(o.Key, override{limit, cmp.Or(o.Why, "Override")}) {
			wrong("Key", fmt.Errorf(`"%s": policy "%s" has an override for it already: must be another one`, logtext.Show(o.Key, maxShownKey), logtext.Show(o.Policy, maxShownKey)))
		}
	}
	return byPolicy, errors.Join(faults...)
}

// newOverrideLimit compiles the limit of an override. It returns one also with an error.
func newOverrideLimit(l Limit) (*overrideLimit, error) {
	compiled := &overrideLimit{Limit: l}
	var err error
	switch {
	case l == Unlimited:
	case l.Rate == 0:
		err = errors.New("must have a Rate above 0: use Block to deny all requests of a key")
	default:
		compiled.compiled, err = l.compile()
	}
	return compiled, err
}

// fits reports whether l is a limit that can be in force for p.
func (l *overrideLimit) fits(p *policy) bool {
	return l != nil && (l.Limit == Unlimited || l.compiled.IsConcurrency() == p.slots)
}

// override returns the limit of the override of a key, nil if there is none.
func (p *policy) override(key string) *overrideLimit {
	if l := p.keys[key].limit; l.fits(p) {
		return l
	}
	return nil
}

// maxShownKey is how much of a key or a name an error shows, in bytes.
const maxShownKey = 64

// add adds the override of a key, or of the policy if key is empty. It returns false if there is one.
func (o *overrides) add(key string, added override) bool {
	if key == "" {
		if o.all.limit != nil {
			return false
		}
		o.all = added
		return true
	}
	if o.keys == nil {
		o.keys = make(map[string]override)
	}
	if o.keys[key].limit != nil {
		return false
	}
	o.keys[key] = added
	return true
}

// withOverrides returns what is enforced for p: a policy with overrides, or that of the program.
func (p *policy) withOverrides(byPolicy map[string]*overrides) *policy {
	own := cmp.Or(p.program, p)
	o := byPolicy[own.Name]
	if o == nil {
		return own
	}
	overridden := &policy{
		Policy:    own.Policy,
		limit:     own.limit,
		swings:    own.swings,
		slots:     own.slots,
		mount:     own.mount,
		limitFrom: own.limitFrom,
		program:   own,
		keys:      o.keys,
	}
	if over := o.all.limit; over.fits(own) {
		overridden.LimitFunc, overridden.swings = nil, nil
		overridden.Limit, overridden.limit = over.Limit, over.compiled
		overridden.limitFrom = own.insteadOf(o.all)
	}
	return overridden
}

// insteadOf says where the limit of o comes from, and which limit of the program it replaces.
func (p *policy) insteadOf(o override) string {
	program := cmp.Or(p.program, p)
	switch {
	case program.LimitFunc == nil:
		return o.why + ", program: " + program.Limit.String()
	case program.Limit == Limit{}:
		return o.why + ", program: LimitFunc"
	default:
		return o.why + ", program: LimitFunc, or " + program.Limit.String()
	}
}

// overriddenLimit returns the limit of the override in force for a key of a policy. It returns nil if there is none, and if no
// policy of that name is mounted.
func (ms *mounts) overriddenLimit(name, key string) *overrideLimit {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	o := ms.overrides[name]
	if o == nil {
		return nil
	}
	for _, m := range ms.inUse() {
		if i := indexOf(m.policies(), name); i >= 0 {
			p := m.policies()[i]
			if all := o.all.limit; all.fits(p) {
				return cmp.Or(p.override(key), all)
			}
			return p.override(key)
		}
	}
	return nil
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
