package policyfile

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/configfault"
	"github.com/go-tokenbucket/ratelimit/store"
)

// Stand-ins take the place of what had a fault, so that the rest of a policy can be checked. A File never has them.
var standInLimit = ratelimit.PerMinute(60)

func standInKey(*http.Request) (string, error) { return "", ratelimit.ErrNoKey }

func standInName(i int) string { return fmt.Sprintf("stand-in:%d", i) }

// noStore is a Store that is never asked.
type noStore struct{}

func (noStore) Take(context.Context, []store.Charge, []store.State) (bool, error) { return false, nil }

// check checks the policies by the rules of the limiter, which are in ratelimit.New. Fields that a policy lacks are
// noted already, or are names of Registry.Unknown.
func (r *reader) check() {
	policies := make([]ratelimit.Policy, len(r.file.mounts))
	for i, m := range r.file.mounts {
		p := m.Policy
		if p.Key == nil {
			p.Key = standInKey
		}
		if p.Limit == (ratelimit.Limit{}) && p.LimitFunc == nil {
			p.Limit = standInLimit
		}
		policies[i] = p
	}
	if _, err := ratelimit.New(ratelimit.Config{Store: noStore{}, Policies: policies}); err != nil {
		r.faults = append(r.faults, r.file.faults(err, nil)...)
	}
}

// goFields are the fields of ratelimit.Policy that its check names, and how files name them.
var goFields = map[string]string{
	"Name":    "name",
	"Key":     "key",
	"Limit":   "limit",
	"Cost":    "cost",
	"Settle":  "settle",
	"MaxWait": "max_wait",
	"LockFor": "lock_for",
}

// faults returns an error of package ratelimit about policies as faults, at their lines. The error is about the policies of
// f with the indexes in order, or about all if order is nil.
func (f *File) faults(err error, order []int) (faults Faults) {
	var fields configfault.Faults
	if !errors.As(err, &fields) {
		return Faults{{File: f.name, Line: 1, Column: 1, Text: shown(err.Error())}}
	}
	for _, wrong := range fields[:min(len(fields), maxFaults)] {
		i := wrong.Index
		if order != nil {
			i = order[i]
		}
		m, name := f.mounts[i], goFields[wrong.Field]
		at, value := m.node, wrong.Value
		if field := m.fields[name]; field != nil {
			at = field
		}
		if name == "name" {
			value = quote(m.Policy.Name)
		}
		text := strings.ReplaceAll(wrong.Text, "MaxWait", "max_wait")
		if value != "" {
			text = value + ": " + text
		}
		faults = append(faults, Fault{File: f.name, Line: at.Line, Column: at.Column, Field: fmt.Sprintf("policies[%d].%s", i, name), Text: text})
	}
	return faults
}
