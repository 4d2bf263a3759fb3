package simulate

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/policyfile"
)

// A setup is the policies of a simulation, and how they are mounted.
type setup struct {
	policies []ratelimit.Policy // all, in the order of the report
	listed   []ratelimit.Policy // those of Config.Policies
	on       map[string]string  // the patterns of the others, by name
	leftOut  []policyfile.Mount // policies with functions that only the program has
	mount    func(*ratelimit.Limiter, http.Handler) http.Handler
}

func setupOf(f *policyfile.File) setup {
	s := setup{policies: f.Policies(), listed: f.Everywhere(), on: make(map[string]string), mount: f.Handler}
	for _, m := range f.Mounts() {
		s.on[m.Policy.Name] = strings.Join(m.On, ", ")
		if len(m.Unknown) > 0 {
			s.leftOut = append(s.leftOut, m)
		}
	}
	return s
}

// check returns an error if there is nothing to simulate.
func (s *setup) check() error {
	switch {
	case len(s.policies) > 0:
		return nil
	case len(s.leftOut) == 0:
		return errors.New("simulate: there are no policies")
	}
	var reasons []string
	for _, m := range s.leftOut {
		reasons = append(reasons, m.Policy.Name+" uses "+strings.Join(m.Unknown, ", "))
	}
	return fmt.Errorf("simulate: all policies use functions that only the program has: %s: run them in the program as a Shadow, or give them here a key that the log has", strings.Join(reasons, "; "))
}
