package observe

import (
	"maps"
	"strings"
	"sync"
	"sync/atomic"
)

// stripes is how often each count exists, so that cores do not wait for each other.
const (
	stripeBits = 3
	stripes    = 1 << stripeBits
)

// policyCounts are the counts of a policy.
type policyCounts struct {
	name    string
	routes  table[routeCounts]
	stripes [stripes]struct {
		settlements, estimated, final atomic.Int64
		_                             [64 - 8*3]byte
	}
	past [len(spans)]past // kept by the history
}

// routeCounts are the counts of a policy on a route.
type routeCounts struct {
	name    string
	stripes [stripes]struct {
		by       [results]atomic.Int64
		degraded atomic.Int64
		_        [64 - 8*(results+1)]byte
	}
}

// policy returns the counts of the policy of that name.
func (c *Counts) policy(name string) *policyCounts {
	if p := c.policies.get(name); p != nil {
		return p
	}
	return c.policies.add(name, c.cfg.MaxPolicies, func(shown string) *policyCounts { return &policyCounts{name: shown} })
}

// route returns the counts of p on a route.
func (p *policyCounts) route(route string, cfg *CountsConfig) *routeCounts {
	if cfg.NoRoutes {
		route = ""
	}
	if r := p.routes.get(route); r != nil {
		return r
	}
	return p.routes.add(route, cfg.MaxRoutes, func(shown string) *routeCounts { return &routeCounts{name: shown} })
}

// A table has entries by name. It is read without a lock. The zero value is ready to use.
type table[T any] struct {
	entries atomic.Pointer[entries[T]] // replaced, not changed
	growing sync.Mutex
}

type entries[T any] struct {
	by  map[string]*T
	all []*T // each once
}

func (t *table[T]) get(name string) *T {
	if e := t.entries.Load(); e != nil {
		return e.by[name]
	}
	return nil
}

func (t *table[T]) all() []*T {
	if e := t.entries.Load(); e != nil {
		return e.all
	}
	return nil
}

// add returns the entry of a name that t did not have a moment ago. Beyond most names, and for long ones, it is that of
// otherName. fresh makes an entry that is shown under a name.
func (t *table[T]) add(name string, most int, fresh func(shown string) *T) *T {
	if other := t.get(otherName); other != nil && (len(name) > maxRouteLen || len(t.entries.Load().by) >= most) {
		return other
	}
	t.growing.Lock()
	defer t.growing.Unlock()
	if known := t.get(name); known != nil {
		return known
	}
	var old entries[T]
	if e := t.entries.Load(); e != nil {
		old = *e
	}
	if len(name) > maxRouteLen || len(old.by) >= most {
		name = otherName
	}
	// Labels of metrics must be valid UTF-8, so several names may be shown as one. The names are copies, because a
	// router may use the memory of a route again.
	name = strings.Clone(name)
	shown := strings.ToValidUTF8(name, "\uFFFD")
	grown := entries[T]{make(map[string]*T, len(old.by)+1), old.all}
	maps.Copy(grown.by, old.by)
	entry := grown.by[shown]
	if entry == nil {
		entry = fresh(shown)
		grown.by[shown] = entry
		grown.all = append(old.all, entry) // beyond what readers of old have
	}
	grown.by[name] = entry
	t.entries.Store(&grown)
	return entry
}
