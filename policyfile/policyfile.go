// Package policyfile reads the policies of a limiter from a file, in YAML or JSON, so that limits can change without a
// release.
//
//	version: 1
//	policies:
//	  - name: api
//	    key: {first_of: [members, remote_ip]} # members: a name of the Registry
//	    limit: 60/1m burst 10
//	  - name: login
//	    on: [POST /login] # the program mounts it there, with Limiter.Limit
//	    key: remote_ip
//	    limit: 1/15m burst 5
//	    settle: failed_logins
//
// All fields are in https://github.com/go-tokenbucket/ratelimit/blob/main/docs/policy-files.md.
//
// # Use a file
//
// Register the functions that the file names, mount its policies, and watch it:
//
//	registry := policyfile.Registry{Keys: map[string]ratelimit.KeyFunc{"members": members.Claim("sub")}}
//	file, err := policyfile.Load("limits.yaml", registry)
//	…
//	limiter, err := ratelimit.New(ratelimit.Config{Store: store, Policies: file.Everywhere()})
//	…
//	mux.Handle("POST /login", limiter.Limit(file.Named("login")...)(login))
//	err = policyfile.Watch(ctx, limiter, "limits.yaml", registry, policyfile.WatchConfig{})
//
// # Faults
//
// Every fault of a file is reported at once, with its line and what would be right. A file with a fault changes nothing. To
// check files in CI, run "ratelimit policies -check" of cmd/ratelimit, or call [Load] in a test.
package policyfile

import (
	"fmt"
	"io"
	"os"
	"slices"

	"go.yaml.in/yaml/v4"

	"github.com/go-tokenbucket/ratelimit"
)

// A File is what a file of policies says. Make it with [Parse] or [Load].
type File struct {
	name    string
	list    *yaml.Node     // the policies
	mounts  []Mount        // the policies
	byName  map[string]int // the indexes of mounts
	routes  []string
	chi     bool
	removed map[string]bool
}

// A Mount is one policy of a file, and where the file says that it is mounted.
type Mount struct {
	Policy ratelimit.Policy

	// On are the patterns of the routes that the policy limits. If there are none, Handler enforces it on all routes.
	On []string

	// Unknown are the names of [Registry.Unknown] that the policy uses. If there are any, Policy lacks their
	// functions, and the policy is left out of Policies, Everywhere, Named and Handler.
	Unknown []string

	// Key, LimitFunc, Cost and Settle are what the file says for these fields, "" if it says nothing. Key is in the
	// form of YAML on one line.
	Key, LimitFunc, Cost, Settle string

	Line int // of the policy in the file

	byRoute bool // the key may be made of the pattern, which is known only behind the router
	node    *yaml.Node
	fields  map[string]*yaml.Node // of node, by name
}

// Parse reads text. file is its name, for errors. If it ends in ".json", text must be JSON. The error is [Faults], all
// that are found at once.
func Parse(file string, text []byte, reg Registry) (*File, error) {
	r := &reader{file: &File{name: file, byName: make(map[string]int), removed: make(map[string]bool)}, reg: reg}
	if faults := r.read(text); len(faults) > 0 {
		return nil, faults
	}
	return r.file, nil
}

// Load reads the file at path. The error is [Faults], or that of reading.
func Load(path string, reg Registry) (*File, error) {
	text, err := readFile(path)
	if err != nil {
		return nil, fmt.Errorf("policyfile: %w", err)
	}
	return Parse(path, text, reg)
}

// readFile reads the file at path, and no more of it than is needed to see that it is too long.
func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxBytes+1))
}

// Policies returns all policies in the order of the file, for [ratelimit.Limiter.Reload].
func (f *File) Policies() []ratelimit.Policy {
	return f.choose(func(Mount) bool { return true })
}

// Everywhere returns the policies without `on`, for [ratelimit.Config.Policies].
func (f *File) Everywhere() []ratelimit.Policy {
	return f.choose(func(m Mount) bool { return len(m.On) == 0 })
}

// Named returns the policies with these names, for [ratelimit.Limiter.Limit]. It panics if f has no policy of a name.
func (f *File) Named(names ...string) []ratelimit.Policy {
	var policies []ratelimit.Policy
	for _, name := range names {
		named := f.choose(func(m Mount) bool { return m.Policy.Name == name })
		if len(named) == 0 {
			panic(fmt.Sprintf("policyfile: Named: %s has no policy %q", f.name, name))
		}
		policies = append(policies, named...)
	}
	return policies
}

func (f *File) choose(want func(Mount) bool) (policies []ratelimit.Policy) {
	for _, m := range f.mounts {
		if len(m.Unknown) == 0 && want(m) {
			policies = append(policies, m.Policy)
		}
	}
	return policies
}

// Mounts returns all policies in the order of the file, with the patterns that they limit. It has the policies that use a
// name of [Registry.Unknown], too.
func (f *File) Mounts() []Mount { return slices.Clone(f.mounts) }
