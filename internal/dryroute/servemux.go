package dryroute

import (
	"net/http"
	"strings"
)

// A serveMux stands for an http.ServeMux. It asks for the pattern that the request matches, and serves the request by
// another ServeMux with this pattern alone. That one sets what a request has after a match.
type serveMux struct {
	b     *Builder
	mux   *http.ServeMux
	depth int
}

func (s *serveMux) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h, pattern := s.mux.Handler(r)
	if pattern == "" || r.RequestURI == "*" {
		s.b.notFound().ServeHTTP(w, r)
		return
	}
	outside := s.b.depth
	s.b.depth = s.depth
	inside := &struct{ http.Handler }{s.b.of(h, !strings.HasSuffix(pattern, "/") && !strings.HasSuffix(pattern, "...}"))}
	s.b.depth = outside
	one := http.NewServeMux()
	one.Handle(pattern, inside)
	if matched, _ := one.Handler(r); matched != http.Handler(inside) { // the mux redirects the request
		s.b.notFound().ServeHTTP(w, r)
		return
	}
	one.ServeHTTP(w, r)
}
