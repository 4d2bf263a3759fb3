package policyfile

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/policyname"
)

// A policyField is a field of a policy, and reads it into a Mount.
type policyField struct {
	field
	read func(r *reader, value *yaml.Node, at string, m *Mount)
}

// policyFields are in the order in which they are read.
var policyFields = []policyField{
	{field{"name", text(policyname.Pattern).about("Identifies the policy in Redis, in logs and in responses: "+policyname.Rule+".", "api")}, (*reader).readName},
	{field{"on", unique(oneOrMore(route())).about("Patterns of the routes where the program mounts the policy. Default: all routes.")}, (*reader).readOn},
	{field{"key", definition("key").about("What requests are counted by, such as the client's address.")}, (*reader).readKey},
	{field{"limit", text(limitPattern).about("The rate and the burst of each key, a quota by the calendar, or how many requests may run at once.", "60/1m", "60/1m burst 10", "100/day", "100000 per month Europe/Berlin", "3 at once", "unlimited")}, func(r *reader, value *yaml.Node, at string, m *Mount) {
		m.Policy.Limit = r.limit(value, at)
	}},
	{field{"limit_func", definition("limits").about("The function of the program that chooses the limit of a request.")}, func(r *reader, value *yaml.Node, at string, m *Mount) {
		m.Policy.LimitFunc, m.LimitFunc = fromRegistry(r, value, at, "Limits", r.reg.Limits, m)
	}},
	{field{"cost", definition("costs").about("The function of the program that returns how many tokens a request takes. Default: 1 token.")}, func(r *reader, value *yaml.Node, at string, m *Mount) {
		m.Policy.Cost, m.Cost = fromRegistry(r, value, at, "Costs", r.reg.Costs, m)
	}},
	{field{"max_wait", text(durationPattern).about("How long a request waits for its tokens, or for a slot. Default: it does not wait.", "500ms")}, durationOf(func(p *ratelimit.Policy) *time.Duration { return &p.MaxWait })},
	{field{"lock_for", text(durationPattern).about("How long an empty bucket is locked. Default: it is not locked.", "15m")}, durationOf(func(p *ratelimit.Policy) *time.Duration { return &p.LockFor })},
	{field{"settle", definition("settles").about("What returns the final cost of a request when its response is known.")}, func(r *reader, value *yaml.Node, at string, m *Mount) {
		m.Policy.Settle, m.Settle = fromRegistry(r, value, at, "Settles", r.settles, m)
	}},
	{field{"optional", flag().about("Lets requests without a key through.")}, flagOf(func(p *ratelimit.Policy) *bool { return &p.Optional })},
	{field{"fail_closed", flag().about("Answers 503 while the store fails.")}, flagOf(func(p *ratelimit.Policy) *bool { return &p.FailClosed })},
	{field{"shadow", flag().about("Measures the policy, and never denies.")}, flagOf(func(p *ratelimit.Policy) *bool { return &p.Shadow })},
	{field{"hidden", flag().about("Keeps the policy out of headers and responses.")}, flagOf(func(p *ratelimit.Policy) *bool { return &p.Hidden })},
}

// missing is what to set where a policy lacks a field.
var missing = map[string]string{
	"name":  "must be set, to " + policyname.Rule,
	"key":   "must be set, such as remote_ip",
	"limit": "must be set, such as 60/1m burst 10",
}

func (r *reader) readPolicy(i int, node *yaml.Node) {
	path := fmt.Sprintf("policies[%d]", i)
	m := Mount{Line: node.Line, node: node, fields: r.fields(node, path, fieldNames(policyFields))}
	m.Policy.Name = standInName(i)
	for _, f := range policyFields {
		at, value := path+"."+f.name, m.fields[f.name]
		if value != nil {
			f.read(r, value, at, &m)
		} else if text := missing[f.name]; text != "" && m.fields != nil && (f.name != "limit" || m.fields["limit_func"] == nil) {
			r.fault(node, at, "%s", text)
		}
	}
	r.file.mounts = append(r.file.mounts, m)
}

func (r *reader) readName(value *yaml.Node, at string, m *Mount) {
	i, p := len(r.file.mounts), &m.Policy
	if text, ok := r.text(value, at); ok {
		p.Name = text
	}
	if first, taken := r.file.byName[p.Name]; taken {
		r.fault(value, at, "%s: policies[%d] on line %d has it already: must differ", quote(p.Name), first, r.file.mounts[first].Line)
		p.Name = standInName(i)
	}
	r.file.byName[p.Name] = i
}

func (r *reader) readOn(value *yaml.Node, path string, m *Mount) {
	r.each(value, path, `a list of patterns, such as ["POST /login"]`, "must have a pattern; remove the field for a policy of all routes", func(item *yaml.Node, at, text string) {
		if slices.Contains(m.On, text) {
			r.fault(item, at, "%s: is repeated: must stand once", quote(text))
		} else if r.checkPattern(item, at, text) {
			m.On = append(m.On, text)
		}
	})
}

func (r *reader) readKey(value *yaml.Node, at string, m *Mount) {
	m.Policy.Key, m.Key = r.key(value, at, m), flowText(value)
	if len(m.Unknown) > 0 {
		m.Policy.Key = nil
	}
}

func durationOf(field func(*ratelimit.Policy) *time.Duration) func(*reader, *yaml.Node, string, *Mount) {
	return func(r *reader, value *yaml.Node, at string, m *Mount) { *field(&m.Policy) = r.duration(value, at) }
}

func flagOf(field func(*ratelimit.Policy) *bool) func(*reader, *yaml.Node, string, *Mount) {
	return func(r *reader, value *yaml.Node, at string, m *Mount) { *field(&m.Policy) = r.flag(value, at) }
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
