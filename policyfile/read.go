package policyfile

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"go.yaml.in/yaml/v4"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/policyname"
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

// The fields of a file and of a policy.
var (
	fileFields   = []string{"version", "policies", "routes", "router", "removed"}
	policyFields = []string{"name", "on", "key", "limit", "limit_func", "cost", "max_wait", "lock_for", "settle", "optional", "fail_closed", "shadow", "hidden"}
)

func (r *reader) readFile(root *yaml.Node) {
	values := r.fields(root, "", fileFields)
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

// missing is what to set where a policy lacks a field.
var missing = map[string]string{
	"name":  "must be set, to " + policyname.Rule,
	"key":   "must be set, such as remote_ip",
	"limit": "must be set, such as 60/1m burst 10",
}

func (r *reader) readPolicy(i int, node *yaml.Node) {
	path := fmt.Sprintf("policies[%d]", i)
	m := Mount{Line: node.Line, node: node, fields: r.fields(node, path, policyFields)}
	p := &m.Policy
	p.Name = standInName(i)
	for _, f := range policyFields {
		at, value := path+"."+f, m.fields[f]
		if value == nil {
			if text := missing[f]; text != "" && m.fields != nil && (f != "limit" || m.fields["limit_func"] == nil) {
				r.fault(node, at, "%s", text)
			}
			continue
		}
		switch f {
		case "name":
			if text, ok := r.text(value, at); ok {
				p.Name = text
			}
			if first, taken := r.file.byName[p.Name]; taken {
				r.fault(value, at, "%s: policies[%d] on line %d has it already: must differ", quote(p.Name), first, r.file.mounts[first].Line)
				p.Name = standInName(i)
			}
			r.file.byName[p.Name] = i
		case "on":
			m.On = r.readOn(value, at)
		case "key":
			p.Key, m.Key = r.key(value, at, &m), flowText(value)
			if len(m.Unknown) > 0 {
				p.Key = nil
			}
		case "limit":
			p.Limit = r.limit(value, at)
		case "limit_func":
			p.LimitFunc, m.LimitFunc = fromRegistry(r, value, at, "Limits", r.reg.Limits, &m)
		case "cost":
			p.Cost, m.Cost = fromRegistry(r, value, at, "Costs", r.reg.Costs, &m)
		case "settle":
			p.Settle, m.Settle = fromRegistry(r, value, at, "Settles", r.settles, &m)
		case "max_wait":
			p.MaxWait = r.duration(value, at)
		case "lock_for":
			p.LockFor = r.duration(value, at)
		case "optional":
			p.Optional = r.flag(value, at)
		case "fail_closed":
			p.FailClosed = r.flag(value, at)
		case "shadow":
			p.Shadow = r.flag(value, at)
		case "hidden":
			p.Hidden = r.flag(value, at)
		}
	}
	r.file.mounts = append(r.file.mounts, m)
}

func (r *reader) readOn(node *yaml.Node, path string) (on []string) {
	r.each(node, path, `a list of patterns, such as ["POST /login"]`, "must have a pattern; remove the field for a policy of all routes", func(item *yaml.Node, at, text string) {
		if slices.Contains(on, text) {
			r.fault(item, at, "%s: is repeated: must stand once", quote(text))
		} else if r.checkPattern(item, at, text) {
			on = append(on, text)
		}
	})
	return on
}

func (r *reader) limit(node *yaml.Node, path string) ratelimit.Limit {
	text, ok := r.text(node, path)
	if !ok {
		return standInLimit
	}
	limit, err := ratelimit.ParseLimit(text)
	if err != nil {
		r.fault(node, path, "%s: %s", quote(text), shown(errors.Unwrap(err).Error())) // without the limit, which it quotes whole
		return standInLimit
	}
	return limit
}
