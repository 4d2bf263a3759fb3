package policyfile

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"go.yaml.in/yaml/v4"

	"github.com/go-tokenbucket/ratelimit"
)

// A reader makes a File from a tree, and notes all faults.
type reader struct {
	file     *File
	reg      Registry
	settles  map[string]func(*http.Request, ratelimit.Response) int64
	patterns *patterns
	end      *yaml.Node // of the text, once that is read
	faults   Faults
}

// enough is what a reader panics with that has noted maxFaults. So no hostile file makes it say more.
type enough struct{}

func (r *reader) fault(at *yaml.Node, field, format string, args ...any) {
	r.add(at, Fault{Field: field, Text: fmt.Sprintf(format, args...)})
}

// add adds a fault at a node. Nodes and errors that come after the last line, such as an empty document, are at its end.
func (r *reader) add(at *yaml.Node, f Fault) {
	if r.end != nil && at.Line > r.end.Line {
		at = r.end
	}
	f.File, f.Line, f.Column = r.file.name, at.Line, at.Column
	r.faults = append(r.faults, f)
	if len(r.faults) == maxFaults {
		panic(enough{})
	}
}

// read reads text and returns what is wrong with it, by line.
func (r *reader) read(text []byte) Faults {
	func() {
		defer func() {
			if reason := recover(); reason != nil && reason != any(enough{}) {
				panic(reason)
			}
		}()
		r.settles = maps.Clone(r.reg.Settles)
		if r.settles == nil {
			r.settles = make(map[string]func(*http.Request, ratelimit.Response) int64)
		}
		r.settles["failed_logins"] = ratelimit.FailedLogins
		r.checkRegistry()
		if root := r.tree(text); root != nil {
			r.readFile(root)
		}
	}()
	slices.SortStableFunc(r.faults, func(a, b Fault) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return r.faults[:min(len(r.faults), maxFaults)]
}

// fileFields are the fields of a file. Names of [Registry] and patterns are in the schema's definitions.
var fileFields = []field{
	{"version", schema{"const": 1}.about("The version of this format: 1.")},
	{"policies", oneOrMore(definition("policy")).about("The policies, each with a name, a key and a limit.")},
	{"routes", listOf(route()).about("Patterns of further routes, for tools only.")},
	{"router", schema{"enum": []string{"servemux", "chi"}, "default": "servemux"}.about("The router of the program, whose form the patterns have. For tools only.")},
	{"removed", listOf(schema{"type": "string"}).about("Names of policies that the file had before.")},
}

func (r *reader) readFile(root *yaml.Node) {
	values := r.fields(root, "", fieldNames(fileFields))
	if values == nil {
		return
	}
	if version := values["version"]; version == nil {
		r.fault(root, "version", "must be set, to 1")
	} else if text, ok := r.text(version, "version"); ok && text != "1" {
		r.fault(version, "version", "%s: must be 1", quote(text))
	}
	if router := values["router"]; router != nil {
		text, ok := r.text(router, "router")
		if r.file.chi = text == "chi"; ok && !r.file.chi && text != "servemux" {
			r.fault(router, "router", "%s: must be servemux or chi", quote(text))
		}
	}
	r.patterns = newPatterns(r.file.chi)
	if policies := values["policies"]; policies == nil {
		r.fault(root, "policies", "must be set: a list of policies")
	} else {
		r.file.list = policies
		for i, item := range r.items(policies, "policies", "a list of policies, each with a name, a key and a limit", "must have a policy") {
			r.readPolicy(i, item)
		}
	}
	if routes := values["routes"]; routes != nil {
		r.each(routes, "routes", `a list of patterns, such as ["GET /items/{id}"]`, "", func(item *yaml.Node, at, text string) {
			if r.checkPattern(item, at, text) {
				r.file.routes = append(r.file.routes, text)
			}
		})
	}
	if removed := values["removed"]; removed != nil {
		r.each(removed, "removed", "a list of names of policies that the file had before", "", func(item *yaml.Node, at, text string) {
			if i, has := r.file.byName[text]; has {
				r.fault(item, at, "%s: is in policies[%d] on line %d: must be in one of the two", quote(text), i, r.file.mounts[i].Line)
			}
			r.file.removed[text] = true
		})
	}
	r.check()
}
