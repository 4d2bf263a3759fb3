package ratelimit

import (
	"net/http"
	"slices"
	"strings"

	"github.com/go-chi/chi/v5"

	"github.com/go-tokenbucket/ratelimit/explain"
	"github.com/go-tokenbucket/ratelimit/internal/deadline"
	"github.com/go-tokenbucket/ratelimit/internal/logtext"
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
// that no router has matched. It returns none if it cannot decide between some.
func (ps *places) way(pattern string) (way []*visit) {
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
			return nil
		}
		return ps.way("")
	}
	for _, innermost := range ends {
		way = nil
		for v := innermost; v != nil; v = v.outer() {
			way = append(way, v)
		}
		elsewhere := func(v *visit) bool {
			return !slices.ContainsFunc(way, func(on *visit) bool { return on.at == v.at })
		}
		if !slices.ContainsFunc(ends, elsewhere) {
			slices.Reverse(way)
			return way
		}
	}
	return nil
}

// outer returns the visit around v of the same Limiter, nil if there is none.
func (v *visit) outer() *visit {
	o := v.around
	for o != nil && o.of != v.of {
		o = o.around
	}
	return o
}

// all returns the place of Handler and those of Limit that are in use.
func (ps *places) all() []*place {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return append([]*place{&ps.list}, ps.mounted()...)
}

// A stop is a place as a request meets it.
type stop struct {
	explain.Limiter
	policies []*policy
	pattern  string // that Route sees there
	routed   bool   // the request has its path values
}

// stops returns the stops on the way of r, the outermost first, and all others. policies are those of the caller.
func (x *explaining) stops(r *http.Request, policies []Policy) (way, others []stop) {
	places := &x.l.places
	visits := places.way(r.Pattern)
	var on []*place
	if len(visits) == 0 && len(places.list.policies()) > 0 {
		way, on = append(way, x.stopAt(&places.list, r.Pattern, true)), append(on, &places.list)
	}
	for _, v := range visits {
		pattern := v.pattern
		if !v.sure {
			pattern = r.Pattern // which chi finds out there
		}
		way, on = append(way, x.stopAt(v.at, pattern, v.sure)), append(on, v.at)
	}
	if compiled, err := compile("policies", policies, true); err != nil {
		x.unknown("Explain was called with malformed policies: %v", err)
	} else if len(policies) > 0 {
		way = append(way, stop{explain.Limiter{Mounted: "Limit", Pattern: x.e.Route}, compiled, r.Pattern, true})
	}
	var perhaps []string
	for _, at := range places.all() {
		if slices.Contains(on, at) || len(at.policies()) == 0 {
			continue
		}
		if len(others) == maxOthers {
			x.unknown("more than %d places of Limit are not on the way of the request: the others are not listed", maxOthers)
			break
		}
		patterns, more := at.routes()
		pattern := r.Pattern
		if len(patterns) == 1 {
			pattern = patterns[0]
		}
		others = append(others, x.stopAt(at, pattern, true))
		if at != &places.list && (r.Pattern == "" || more || len(visits) == 0) { // otherwise requests have passed it by
			for _, p := range at.policies() {
				perhaps = append(perhaps, p.Name)
			}
		}
	}
	if slices.Sort(perhaps); len(perhaps) > 0 {
		x.unknown("it is not known whether these policies apply: %s: explain a request of a route that they have served", strings.Join(slices.Compact(perhaps), ", "))
	}
	return way, others
}

func (x *explaining) stopAt(at *place, pattern string, routed bool) stop {
	s := stop{explain.Limiter{Mounted: "Limit", Pattern: logtext.Show(pattern, maxExplained)}, at.policies(), pattern, routed}
	if at == &x.l.places.list {
		s.Mounted = "Handler"
	}
	patterns, _ := at.routes()
	for _, pattern := range patterns {
		s.Routes = append(s.Routes, logtext.Show(pattern, maxExplained))
	}
	return s
}
