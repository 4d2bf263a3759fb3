package policyfile

import (
	"fmt"
	"maps"
	"net/http"
	"slices"

	"go.yaml.in/yaml/v4"

	"github.com/go-tokenbucket/ratelimit"
)

// A Registry has the functions of the program that a file can name. Names of built-in keys, such as remote_ip, and
// failed_logins are reserved.
type Registry struct {
	Keys    map[string]ratelimit.KeyFunc                             // for `key`
	Limits  map[string]func(*http.Request) ratelimit.Limit           // for `limit_func`
	Costs   map[string]func(*http.Request) int64                     // for `cost`
	Settles map[string]func(*http.Request, ratelimit.Response) int64 // for `settle`

	// Unknown are names that a file may use although this Registry has no function for them. It is for tools that
	// read the file of another program. A policy that uses one is checked, but it is left out of everything except
	// [File.Mounts].
	Unknown []string
}

// fromRegistry returns the function of a name, and the name.
func fromRegistry[F any](r *reader, node *yaml.Node, path, kind string, functions map[string]F, m *Mount) (f F, name string) {
	name, ok := r.text(node, path)
	if !ok {
		return f, ""
	}
	if f, ok = functions[name]; !ok && !r.isUnknown(name, m) {
		text := fmt.Sprintf("%s: Registry.%s has no such name: %s", quote(name), kind, known(name, slices.Collect(maps.Keys(functions))))
		r.add(node, Fault{Field: path, Lacks: name, Text: text})
	}
	return f, name
}

// isUnknown reports whether name is in Registry.Unknown, and notes that m uses it.
func (r *reader) isUnknown(name string, m *Mount) bool {
	if !slices.Contains(r.reg.Unknown, name) {
		return false
	}
	if !slices.Contains(m.Unknown, name) {
		m.Unknown = append(m.Unknown, name)
	}
	return true
}

// checkRegistry notes names of the Registry that a file could not mean.
func (r *reader) checkRegistry() {
	check := func(kind, name string, isNil bool, builtIn []string) {
		field := fmt.Sprintf("Registry.%s[%q]", kind, name)
		switch {
		case slices.Contains(builtIn, name):
			r.fault(start, field, "is built in: the program must register its function under another name")
		case name == "":
			r.fault(start, field, "has no name: the program must register its function under one")
		case isNil:
			r.fault(start, field, "is nil: the program must register a function")
		}
	}
	for name, f := range r.reg.Keys {
		check("Keys", name, f == nil, builtIn)
	}
	for name, f := range r.reg.Limits {
		check("Limits", name, f == nil, nil)
	}
	for name, f := range r.reg.Costs {
		check("Costs", name, f == nil, nil)
	}
	for name, f := range r.reg.Settles {
		check("Settles", name, f == nil, []string{"failed_logins"})
	}
}
