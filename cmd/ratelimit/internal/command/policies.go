package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/logtext"
	"github.com/go-tokenbucket/ratelimit/internal/numbers"
	"github.com/go-tokenbucket/ratelimit/policyfile"
)

var policiesCommand = &command{
	name:  "policies",
	args:  "FILE…",
	short: "Shows the policies of files as JSON, or checks the files.",
	long: `Every fault is written with its file, line and column, and what would be right. A file can name functions
of the program, such as its keys: list these names with -names.`,
	examples: []string{"ratelimit policies -check -names members,tier deploy/*.yaml", "ratelimit policies limits.yaml"},
	prepare: func(f *flags) func(context.Context, *env) error {
		check := f.is("check", "write only faults")
		names := defineNames(f)
		return func(_ context.Context, e *env) error {
			if len(e.args) == 0 {
				return wrongUsage("FILE is missing, such as limits.yaml")
			}
			reg, status, to := registry(*names), done, e.err
			unnamed := false // a file uses a name that it may not use
			if *check {
				to = e.out
			}
			for _, name := range e.args {
				file, err := policyfile.Load(name, reg)
				var faults policyfile.Faults
				switch {
				case errors.As(err, &faults):
					status = max(status, found)
					unnamed = unnamed || lacksName(faults)
					for _, fault := range faults {
						fmt.Fprintln(to, logtext.Printable(fault.String()))
					}
				case err != nil:
					fmt.Fprintf(to, "%s\n", strings.TrimPrefix(plain(err), "policyfile: "))
					if status = max(status, found); !*check {
						status = failed
					}
				case !*check:
					if err := writeJSON(e.out, policiesJSON(name, file)); err != nil {
						return err
					}
				}
			}
			if unnamed && *names == "" {
				fmt.Fprint(e.err, "ratelimit policies: if a name is a function of the program, list it with -names\n")
			}
			return ended(status)
		}
	},
}

// policyJSON is a policy as a file has it.
type policyJSON struct {
	Name       string   `json:"name"`
	On         []string `json:"on,omitempty"`
	Key        string   `json:"key"`
	Limit      string   `json:"limit,omitempty"`
	Burst      int64    `json:"burst,omitempty"`
	LimitFunc  string   `json:"limit_func,omitempty"`
	Cost       string   `json:"cost,omitempty"`
	Settle     string   `json:"settle,omitempty"`
	MaxWait    string   `json:"max_wait,omitempty"`
	LockFor    string   `json:"lock_for,omitempty"`
	Optional   bool     `json:"optional,omitempty"`
	FailClosed bool     `json:"fail_closed,omitempty"`
	Shadow     bool     `json:"shadow,omitempty"`
	Hidden     bool     `json:"hidden,omitempty"`
	Unknown    []string `json:"unknown,omitempty"` // functions of the program that it uses
	Line       int      `json:"line"`
}

func policiesJSON(name string, f *policyfile.File) any {
	list := []policyJSON{}
	for _, m := range f.Mounts() {
		p := m.Policy
		j := policyJSON{
			Name: p.Name, On: m.On, Key: m.Key, LimitFunc: m.LimitFunc, Cost: m.Cost, Settle: m.Settle,
			Optional: p.Optional, FailClosed: p.FailClosed, Shadow: p.Shadow, Hidden: p.Hidden, Unknown: m.Unknown, Line: m.Line,
		}
		if p.Limit != (ratelimit.Limit{}) {
			j.Limit = p.Limit.String()
		}
		if p.Limit.Period() == 0 && !p.Limit.IsConcurrency() {
			j.Burst = burstOf(p.Limit)
		}
		if p.MaxWait > 0 {
			j.MaxWait = numbers.Short(p.MaxWait)
		}
		if p.LockFor > 0 {
			j.LockFor = numbers.Short(p.LockFor)
		}
		list = append(list, j)
	}
	return struct {
		File     string       `json:"file"`
		Policies []policyJSON `json:"policies"`
	}{name, list}
}

func burstOf(l ratelimit.Limit) int64 { return cmp.Or(l.Burst, l.Rate) }
