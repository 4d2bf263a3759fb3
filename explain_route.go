package ratelimit

import (
	"cmp"
	"net/http"
	"slices"

	"github.com/go-chi/chi/v5"

	"github.com/go-tokenbucket/ratelimit/internal/deadline"
)

// A visit is how requests of a route come to a place. Explain knows from it which places a request of that route meets.
type visit struct {
	terms   deadline.Terms // of the requests, which lead from an exchange to its visit
	of      *Limiter
	at      *place
	around  *visit // at the place around this one, of any Limiter; nil: there is none
	pattern string // as Route sees it at the place, "" if no router has set one

	raw, method string // of the Request, if they determine the pattern; method is "" if all methods have it
	sure        bool   // they do
}

type visitKey struct{}

const (
	// maxVisits bounds the visits of a place.
	maxVisits = 16

	// maxLooks bounds the requests of a place whose pattern is found out before chi sets it, which takes long.
	maxLooks = 1000
)

// visited returns the visit of r. If the place has no room for it, that is another one.
func (at *place) visited(l *Limiter, r *http.Request) *visit {
	known := at.visits.Load()
	if known == nil {
		return at.newVisit(l, r, nil)
	}
	for _, v := range *known {
		if v.sure && v.raw == r.Pattern && (v.method == "" || v.method == r.Method) {
			return v
		}
	}
	if at.visitsAll(*known) {
		return at.newVisit(l, r, known)
	}
	return (*known)[0]
}

// visitsAll reports whether a place still notes all visits.
func (at *place) visitsAll(known []*visit) bool {
	return len(known) < maxVisits && at.looks.Load() < maxLooks
}

// newVisit notes the visit of r, unless known has it.
func (at *place) newVisit(l *Limiter, r *http.Request, known *[]*visit) *visit {
	at.looks.Add(1)
	v := &visit{terms: l.ofRequests, of: l, at: at, pattern: new(subRouters).pattern(r), raw: r.Pattern, sure: true}
	v.terms.Owner = v
	v.around, _ = r.Context().Value(visitKey{}).(*visit)
	if rctx := chi.RouteContext(r.Context()); rctx != nil && rctx.Routes != nil {
		v.method = r.Method
		v.sure = v.pattern == r.Method+" "+r.Pattern // otherwise chi has not set it yet
	}
	var all []*visit
	if known != nil {
		all = *known
	}
	if i := slices.IndexFunc(all, func(k *visit) bool { return k.pattern == v.pattern && k.around == v.around && !k.sure }); i >= 0 {
		return all[i]
	}
	all = append(slices.Clip(all), v)
	at.visits.CompareAndSwap(known, &all) // if another request was faster, the next one is noted
	return v
}

// routes returns the patterns of the visits of a place, and whether there may be others.
func (at *place) routes() (patterns []string, more bool) {
	known := at.visits.Load()
	if known == nil {
		return nil, true
	}
	for _, v := range *known {
		if v.pattern != "" && !slices.Contains(patterns, v.pattern) {
			patterns = append(patterns, v.pattern)
		}
	}
	return patterns, !at.visitsAll(*known)
}

// way returns the visits of a request of a route, the outermost first. If nobody has seen one, it returns those of a request
// that no router has matched. If it cannot decide between some places, it returns these.
func (ps *places) way(pattern string) (way []*visit, unclear []*place) {
	var ends []*visit
	for _, at := range ps.all() {
		if known := at.visits.Load(); known != nil {
			for _, v := range *known {
				if v.pattern == pattern {
					ends = append(ends, v)
				}
			}
		}
	}
	if len(ends) == 0 {
		if pattern == "" {
			return nil, nil
		}
		return ps.way("")
	}
	slices.SortStableFunc(ends, func(a, b *visit) int { return cmp.Compare(b.depth(), a.depth()) })
	for v := ends[0]; v != nil; v = v.outer() {
		way = append(way, v)
	}
	slices.Reverse(way)
	for _, v := range ends {
		if !slices.ContainsFunc(way, func(on *visit) bool { return on.at == v.at }) {
			unclear = append(unclear, v.at)
		}
	}
	if len(unclear) > 0 {
		return nil, append(unclear, ends[0].at)
	}
	return way, nil
}

// outer returns the visit around v of the same Limiter, nil if there is none.
func (v *visit) outer() *visit {
	o := v.around
	for o != nil && o.of != v.of {
		o = o.around
	}
	return o
}

// depth returns how many visits are around v.
func (v *visit) depth() (n int) {
	for o := v.outer(); o != nil; o = o.outer() {
		n++
	}
	return n
}

// all returns the place of Handler and those of Limit that are in use.
func (ps *places) all() []*place {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return append([]*place{&ps.list}, ps.mounted()...)
}
