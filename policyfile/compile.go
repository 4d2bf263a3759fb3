package policyfile

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/policyname"
	"github.com/go-tokenbucket/ratelimit/internal/yamltree"
	"github.com/go-tokenbucket/ratelimit/store"
)

// Stand-ins take the place of what had a fault, so that the rest of a policy can be checked. A File never has them.
var standInLimit = ratelimit.PerMinute(60)

func standInKey(*http.Request) (string, error) { return "", ratelimit.ErrNoKey }

func standInName(i int) string { return fmt.Sprintf("stand-in:%d", i) }

// goFields are the fields of ratelimit.Policy that its check names, and how files name them.
var goFields = map[string]string{
	"Name":    "name",
	"Key":     "key",
	"Limit":   "limit",
	"MaxWait": "max_wait",
	"LockFor": "lock_for",
}

// missing is what to set where a field is missing. The check of ratelimit.New says it in terms of Go.
var missing = map[string]string{
	"name":  "must be set, to " + policyname.Rule,
	"key":   "must be set, such as remote_ip",
	"limit": "must be set, such as 60/1m burst 10",
}

// noStore is a Store that is never asked.
type noStore struct{}

func (noStore) Take(context.Context, []store.Charge, []store.State) (bool, error) { return false, nil }

// compile checks the policies by the rules of the limiter, which are in ratelimit.New and nowhere else.
func (r *reader) compile() {
	policies := make([]ratelimit.Policy, len(r.file.mounts))
	order := make([]int, len(policies))
	for i, m := range r.file.mounts {
		order[i], policies[i] = i, checkable(i, m, r.file.nodes[i])
	}
	if _, err := ratelimit.New(ratelimit.Config{Store: noStore{}, Policies: policies}); err != nil {
		r.faults = append(r.faults, r.file.explain(err, order)...)
	}
}

// checkable returns the policy of m with stand-ins for unknown functions. Fields that may stand in a part of the file with a
// fault get one, too.
func checkable(i int, m Mount, node *yamltree.Node) ratelimit.Policy {
	p := m.Policy
	unread := node.Kind != yamltree.Mapping || node.Cut
	if p.Name == "" && unread && node.Field("name") == nil {
		p.Name = standInName(i)
	}
	if p.Key == nil && (unread || node.Field("key") != nil) {
		p.Key = standInKey
	}
	if p.LimitFunc == nil && (unread || node.Field("limit_func") != nil) {
		p.LimitFunc = func(*http.Request) ratelimit.Limit { return standInLimit }
	}
	return p
}

var (
	policyFault = regexp.MustCompile(`^(?:ratelimit: \w+: )?[Pp]olicies\[(\d+)\] \("(?:[^"\\]|\\.)*"\): (\w+)(.*)$`)
	repeated    = regexp.MustCompile(`^: [Pp]olicies\[(\d+)\] has it already`)
)

// explain returns the faults that an error of package ratelimit names, at their lines. order has the indexes in f of the
// policies that the error is about.
func (f *File) explain(err error, order []int) (faults Faults) {
	index := func(digits string) int {
		i, _ := strconv.Atoi(digits)
		return order[min(i, len(order)-1)]
	}
	for _, line := range strings.Split(err.Error(), "\n") {
		match := policyFault.FindStringSubmatch(line)
		if match == nil {
			faults = append(faults, Fault{File: f.name, Line: 1, Column: 1, Text: shown(line)})
			continue
		}
		i, name, text := index(match[1]), goFields[match[2]], match[3]
		at := f.nodes[i]
		value := at.Field(name)
		if value != nil {
			at = value.Value
		}
		switch first := repeated.FindStringSubmatch(text); {
		case first != nil:
			j := index(first[1])
			text = fmt.Sprintf("%s: policies[%d] on line %d has it already: must differ", quote(f.mounts[i].Policy.Name), j, f.mounts[j].Line)
		case value == nil && missing[name] != "":
			text = missing[name]
		case name == "name" && value != nil:
			text = quote(f.mounts[i].Policy.Name) + text
		default:
			text = inFileWords(text, goFields)
		}
		faults = append(faults, Fault{File: f.name, Line: at.Line, Column: at.Column, Field: fmt.Sprintf("policies[%d].%s", i, name), Text: text})
	}
	return faults
}

// inFileWords replaces names of Go fields in a text by those of files. It removes what separated the text from its field.
func inFileWords(text string, words map[string]string) string {
	for goName, name := range words {
		if strings.Contains(text, goName) {
			text = regexp.MustCompile(`\b`+goName+`\b`).ReplaceAllString(text, name)
		}
	}
	return shown(strings.TrimPrefix(strings.TrimPrefix(text, ":"), " "))
}
