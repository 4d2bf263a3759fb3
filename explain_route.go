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

// A visit is how requests of a route reach a mount. Explain knows from it which mounts a request of that route meets.
type visit struct {
	terms   deadline.Terms // of the requests, which lead from an exchange to its visit
	of      *Limiter
	mount   *mount
	around  *visit // of the mount around this one, of any Limiter; nil: there is none
	pattern string // as Route sees it at the mount, "" if no router has set one

	raw, method string // of the Request, if they determine the pattern; method is "" if all methods have it
	exact       bool   // they do
}

type visitKey struct{}

const (
	// maxVisits bounds the visits of a mount.
	maxVisits = 16

	// maxVisitCount bounds the requests of a mount whose pattern is found out before chi sets it, which takes long.
	maxVisitCount = 1000
)

// visitOf returns the visit of r. If the mount has no room for it, that is another one.
func (m *mount) visitOf(l *Limiter, r *http.Request) *visit {
	noted := m.visits.Load()
	for _, v := range *noted {
		if v.exact && v.raw == r.Pattern && (v.method == "" || v.method == r.Method) {
			return v
		}
	}
	if len(*noted) == 0 || m.notes(*noted) {
		return m.newVisit(l, r, noted)
	}
	return (*noted)[0]
}

// notes reports whether a mount still notes new visits.
func (m *mount) notes(noted []*visit) bool {
	return len(noted) < maxVisits && m.visitCount.Load() < maxVisitCount
}

// newVisit notes the visit of r, unless it is noted.
func (m *mount) newVisit(l *Limiter, r *http.Request, noted *[]*visit) *visit {
	m.visitCount.Add(1)
	v := &visit{terms: l.ofRequests, of: l, mount: m, pattern: new(subRouters).pattern(r), raw: r.Pattern, exact: true}
	v.terms.Owner = v
	v.around, _ = r.Context().Value(visitKey{}).(*visit)
	if rctx := chi.RouteContext(r.Context()); rctx != nil && rctx.Routes != nil {
		v.method = r.Method
		v.exact = v.pattern == r.Method+" "+r.Pattern // otherwise chi has not set it yet
	}
	for _, n := range *noted {
		if !n.exact && n.pattern == v.pattern && n.around == v.around {
			return n
		}
	}
	all := append(slices.Clip(*noted), v)
	m.visits.CompareAndSwap(noted, &all) // if another request was faster, the next one is noted
	return v
}

// routes returns the patterns of the visits of a mount, and whether there may be others.
func (m *mount) routes() (patterns []string, more bool) {
	noted := *m.visits.Load()
	for _, v := range noted {
		if v.pattern != "" && !slices.Contains(patterns, v.pattern) {
			patterns = append(patterns, v.pattern)
		}
	}
	return patterns, len(noted) == 0 || !m.notes(noted)
}

// path returns the visits of a request of a route, the outermost first. If nobody has seen one, it returns those of a request
// that no router has matched. It returns none if it cannot decide between some.
func path(mounts []*mount, pattern string) []*visit {
	var ends []*visit
	for _, m := range mounts {
		for _, v := range *m.visits.Load() {
			if v.pattern == pattern {
				ends = append(ends, v)
			}
		}
	}
	if len(ends) == 0 && pattern != "" {
		return path(mounts, "")
	}
	for _, innermost := range ends {
		var visits []*visit
		for v := innermost; v != nil; v = v.outer() {
			visits = append(visits, v)
		}
		if !slices.ContainsFunc(ends, func(end *visit) bool { return !meets(visits, end.mount) }) {
			slices.Reverse(visits)
			return visits
		}
	}
	return nil
}

func meets(visits []*visit, m *mount) bool {
	return slices.ContainsFunc(visits, func(v *visit) bool { return v.mount == m })
}

// outer returns the visit around v of the same Limiter, nil if there is none.
func (v *visit) outer() *visit {
	o := v.around
	for o != nil && o.of != v.of {
		o = o.around
	}
	return o
}

// An explainedMount is a mount as a request meets it.
type explainedMount struct {
	explain.Limiter
	policies []*policy
	pattern  string // that Route sees there
	routed   bool   // the request has its path values
}

// mountsFor returns the mounts on the path of r, the outermost first, and all others. policies are those of the caller.
func (x *explanation) mountsFor(r *http.Request, policies []Policy) (met, others []explainedMount) {
	handler := &x.l.mounts.handler
	x.l.mounts.mu.Lock()
	mounts := x.l.mounts.inUse()
	x.l.mounts.mu.Unlock()
	visits := path(mounts, r.Pattern)
	seen := len(visits) > 0
	if !seen && len(handler.policies()) > 0 {
		visits = append(visits, &visit{mount: handler}) // its pattern is that of r
	}
	for _, v := range visits {
		pattern := v.pattern
		if !v.exact {
			pattern = r.Pattern // which chi finds out there
		}
		met = append(met, x.mountFor(v.mount, pattern, v.exact || !seen))
	}
	if compiled, err := compile("policies", policies, true); err != nil {
		x.unknown("Explain was called with malformed policies: %v", err)
	} else if len(policies) > 0 {
		met = append(met, explainedMount{explain.Limiter{Mounted: "Limit", Pattern: x.e.Route}, compiled, r.Pattern, true})
	}
	var perhaps []string
	for _, m := range mounts {
		if meets(visits, m) || len(m.policies()) == 0 {
			continue
		}
		if len(others) == maxOthers {
			x.unknown("more than %d places of Limit are not on the way of the request: the others are not listed", maxOthers)
			break
		}
		patterns, more := m.routes()
		pattern := r.Pattern
		if len(patterns) == 1 {
			pattern = patterns[0]
		}
		others = append(others, x.mountFor(m, pattern, true))
		if m != handler && (r.Pattern == "" || more || !seen) { // otherwise requests have passed it by
			for _, p := range m.policies() {
				perhaps = append(perhaps, p.Name)
			}
		}
	}
	if slices.Sort(perhaps); len(perhaps) > 0 {
		x.unknown("it is not known whether these policies apply: %s: explain a request of a route that they have served", strings.Join(slices.Compact(perhaps), ", "))
	}
	return met, others
}

func (x *explanation) mountFor(m *mount, pattern string, routed bool) explainedMount {
	e := explainedMount{explain.Limiter{Mounted: "Limit", Pattern: logtext.Show(pattern, maxExplained)}, m.policies(), pattern, routed}
	if m == &x.l.mounts.handler {
		e.Mounted = "Handler"
	}
	patterns, _ := m.routes()
	for _, pattern := range patterns {
		e.Routes = append(e.Routes, logtext.Show(pattern, maxExplained))
	}
	return e
}
