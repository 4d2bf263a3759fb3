package command

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-tokenbucket/ratelimit/cmd/ratelimit/internal/report"
	"github.com/go-tokenbucket/ratelimit/policyfile"
)

func defineNames(f *flags) *string {
	return f.text("names", "`NAMES` of functions of the program that the file may use, with commas between them. This command does not have the functions")
}

// registry says which names of the program a file may use.
func registry(names string) policyfile.Registry { return policyfile.Registry{Unknown: words(names)} }

// words returns the parts of a list with commas.
func words(list string) (all []string) {
	for word := range strings.SplitSeq(list, ",") {
		if word = strings.TrimSpace(word); word != "" {
			all = append(all, word)
		}
	}
	return all
}

// lacksName reports whether a fault is a name that the registry does not have.
func lacksName(faults policyfile.Faults) bool {
	return slices.ContainsFunc(faults, func(f policyfile.Fault) bool { return f.Lacks != "" })
}

// loadPolicies reads the file of -policies. It says which policies are left out.
func loadPolicies(name, names string, e *env) (*policyfile.File, error) {
	if name == "" {
		return nil, wrongUsage("-policies: must be a file of policies, such as limits.yaml")
	}
	f, err := policyfile.Load(name, registry(names))
	var faults policyfile.Faults
	if err != nil {
		if !errors.As(err, &faults) {
			return nil, fmt.Errorf("-policies: %s", strings.TrimPrefix(err.Error(), "policyfile: "))
		}
		if names == "" && lacksName(faults) {
			return nil, fmt.Errorf("%w\n(if a name is a function of the program, list it with -names)", err)
		}
		return nil, err
	}
	for _, m := range f.Mounts() {
		if len(m.Unknown) > 0 {
			fmt.Fprintf(e.err, "%s policy %s, because it uses %s, which only the program has\n", e.paint.In(report.Yellow, "LEFT OUT:"), show(m.Policy.Name), show(strings.Join(m.Unknown, ", ")))
		}
	}
	if len(f.Policies()) == 0 {
		return nil, fmt.Errorf("-policies: %s: no policy is left that needs no function of the program", show(name))
	}
	return f, nil
}
