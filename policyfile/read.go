package policyfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/yamltree"
)

// A reader makes a File from a tree, and notes all faults.
type reader struct {
	file   *File
	reg    Registry
	faults Faults
}

func (r *reader) fault(at *yamltree.Node, field, format string, args ...any) {
	r.faults = append(r.faults, Fault{File: r.file.name, Line: at.Line, Column: at.Column, Field: field, Text: fmt.Sprintf(format, args...)})
}

func (r *reader) read(text []byte) {
	r.checkRegistry()
	root, faults := yamltree.Parse(text)
	if strict := checkJSON(r.file.name, text); strict != nil {
		faults = []yamltree.Fault{*strict}
	}
	for _, f := range faults {
		r.fault(&yamltree.Node{Line: f.Line, Column: f.Column}, "", "%s", f.Text)
	}
	if root == nil {
		return
	}
	r.file.root, r.file.inBraces = root, bytes.HasPrefix(bytes.TrimSpace(text), []byte("{"))
	r.readFile(root)
}

// checkJSON returns the first fault of text if the name of its file says that it is JSON.
func checkJSON(name string, text []byte) *yamltree.Fault {
	if !strings.HasSuffix(strings.ToLower(name), ".json") {
		return nil
	}
	var syntax *json.SyntaxError
	var value json.RawMessage
	if err := json.Unmarshal(bytes.TrimPrefix(text, []byte("\ufeff")), &value); !errors.As(err, &syntax) {
		return nil
	}
	before := text[:min(max(int(syntax.Offset)-1, 0), len(text))]
	line := before[bytes.LastIndexByte(before, '\n')+1:]
	return &yamltree.Fault{
		Line:   bytes.Count(before, []byte("\n")) + 1,
		Column: utf8.RuneCount(line) + 1,
		Text:   syntax.Error() + ": must be JSON, because the name of the file ends in .json; for YAML, name it .yaml",
	}
}

// The fields of a file and of a policy.
var (
	fileFields   = []string{"version", "policies", "routes", "router", "removed"}
	policyFields = []string{"name", "on", "key", "limit", "limit_func", "cost", "max_wait", "lock_for", "settle", "optional", "fail_closed", "shadow", "hidden"}
)

func (r *reader) readFile(root *yamltree.Node) {
	values := r.fields(root, "", fileFields)
	if values == nil {
		return
	}
	if version := values["version"]; version != nil {
		if text, ok := r.text(version, "version"); ok && text != "1" {
			r.fault(version, "version", "%s: must be 1", quote(text))
		}
	} else if !root.Cut {
		r.fault(root, "version", "must be set, to 1")
	}
	if router := values["router"]; router != nil {
		switch text, ok := r.text(router, "router"); {
		case ok && text == "chi":
			r.file.chi = true
		case ok && text != "servemux":
			r.fault(router, "router", "%s: must be servemux or chi", quote(text))
		}
	}
	patterns := r.newPatterns()
	policies := values["policies"]
	switch {
	case policies == nil && !root.Cut:
		r.fault(root, "policies", "must be set: a list of policies")
	case policies != nil:
		items := r.items(policies, "policies", "a list of policies, each with a name, a key and a limit")
		if len(items) == 0 && policies.Kind == yamltree.Sequence && !policies.Cut {
			r.fault(policies, "policies", "must have a policy")
		}
		for i, item := range items {
			r.readPolicy(i, item, patterns)
		}
	}
	if routes := values["routes"]; routes != nil {
		for i, item := range r.items(routes, "routes", `a list of patterns, such as ["GET /items/{id}"]`) {
			path := fmt.Sprintf("routes[%d]", i)
			if text, ok := r.text(item, path); ok && patterns.check(r, item, path, text) {
				r.file.routes = append(r.file.routes, text)
			}
		}
	}
	if removed := values["removed"]; removed != nil {
		for i, item := range r.items(removed, "removed", "a list of names of policies that the file had before") {
			path := fmt.Sprintf("removed[%d]", i)
			if text, ok := r.text(item, path); ok {
				if at := slices.IndexFunc(r.file.mounts, func(m Mount) bool { return m.Policy.Name == text }); at >= 0 {
					r.fault(item, path, "%s: is in policies[%d] on line %d: must be in one of the two", quote(text), at, r.file.mounts[at].Line)
				}
				r.file.removed = append(r.file.removed, text)
			}
		}
	}
	r.compile()
}

func (r *reader) readPolicy(i int, node *yamltree.Node, patterns *patterns) {
	path := fmt.Sprintf("policies[%d]", i)
	at := func(field string) string { return path + "." + field }
	m := Mount{Line: node.Line}
	p := &m.Policy
	values := r.fields(node, path, policyFields)
	for _, f := range policyFields {
		value := values[f]
		if value == nil {
			continue
		}
		switch f {
		case "name":
			if text, ok := r.text(value, at(f)); ok {
				p.Name = text
			} else {
				p.Name = standInName(i)
			}
		case "on":
			m.On = r.readOn(value, at(f), patterns)
		case "key":
			p.Key, m.Key = r.key(value, at(f), &m), flowText(value)
			if len(m.Unknown) > 0 {
				p.Key = nil
			}
		case "limit":
			p.Limit = r.limit(value, at(f))
		case "limit_func":
			p.LimitFunc, m.LimitFunc = fromRegistry(r, value, at(f), "Limits", r.reg.Limits, &m)
		case "cost":
			p.Cost, m.Cost = fromRegistry(r, value, at(f), "Costs", r.reg.Costs, &m)
		case "settle":
			p.Settle, m.Settle = fromRegistry(r, value, at(f), "Settles", r.settles(), &m)
		case "max_wait":
			p.MaxWait = r.duration(value, at(f))
		case "lock_for":
			p.LockFor = r.duration(value, at(f))
		case "optional":
			p.Optional = r.flag(value, at(f))
		case "fail_closed":
			p.FailClosed = r.flag(value, at(f))
		case "shadow":
			p.Shadow = r.flag(value, at(f))
		case "hidden":
			p.Hidden = r.flag(value, at(f))
		}
	}
	r.file.mounts = append(r.file.mounts, m)
	r.file.nodes = append(r.file.nodes, node)
}

func (r *reader) readOn(node *yamltree.Node, path string, patterns *patterns) (on []string) {
	const want = `a list of patterns, such as ["POST /login"]`
	texts, nodes := r.texts(node, path, want)
	for i, text := range texts {
		at := fmt.Sprintf("%s[%d]", path, i)
		if slices.Contains(on, text) {
			r.fault(nodes[i], at, "%s: is repeated: must stand once", quote(text))
		} else if patterns.check(r, nodes[i], at, text) {
			on = append(on, text)
		}
	}
	if node.Kind == yamltree.Sequence && len(node.Items) == 0 && !node.Cut {
		r.fault(node, path, "must have a pattern; remove the field for a policy of all routes")
	}
	return on
}

func (r *reader) limit(node *yamltree.Node, path string) ratelimit.Limit {
	text, ok := r.text(node, path)
	if !ok {
		return standInLimit
	}
	limit, err := ratelimit.ParseLimit(text)
	if err != nil {
		limit = standInLimit
		reason := strings.TrimPrefix(err.Error(), fmt.Sprintf("ratelimit: limit %q: ", text))
		r.fault(node, path, "%s: %s", quote(text), shown(reason))
	}
	return limit
}
