package command

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-tokenbucket/ratelimit/cmd/ratelimit/internal/report"
	"github.com/go-tokenbucket/ratelimit/internal/fleet"
	"github.com/go-tokenbucket/ratelimit/internal/logtext"
	"github.com/go-tokenbucket/ratelimit/internal/numbers"
	"github.com/go-tokenbucket/ratelimit/override"
)

// followed is the time within which all replicas know a change, and have published that.
const followed = 10 * time.Second

// writeDifferences says which replicas enforce other limits than those that Redis has, each difference in a sentence.
func writeDifferences(o *override.Overrides, replicas []fleet.Replica, e *env) {
	changed := make(map[string]bool) // the policies whose limit Redis changes
	for _, entry := range o.List(func(_, key string) bool { return key == "" }) {
		changed[entry.Policy] = !entry.At.IsZero()
	}
	n, last := o.InForce()
	var order []string
	lost := 0
	with := make(map[string][]string)
	say := func(replica, sentence string) {
		if with[sentence] == nil {
			order = append(order, sentence)
		}
		with[sentence] = append(with[sentence], replica)
	}
	for _, r := range replicas {
		if r.Silent || r.Newer || r.At.Sub(last) <= followed {
			continue
		}
		before := lost
		for _, p := range r.Policies {
			if p.Program != "" && p.Limit != "" && !changed[p.Name] {
				lost++
				say(r.Replica, fmt.Sprintf("%s is limited to %s in place of %s, and Redis does not have this change", p.Name, p.Limit, p.Program))
			}
		}
		switch more := r.Overrides.Count - n; {
		case lost == before && more > 0:
			lost++
			say(r.Replica, numbers.Of(int64(more), "changed limit")+" of single keys in force, which Redis does not have")
		case r.Overrides.Changed.IsZero() && !last.IsZero():
			say(r.Replica, "no change is known: the program must call override.Watch, and set admin.Config.Overrides")
		case r.Overrides.Changed.Before(last):
			say(r.Replica, "the last change is not followed")
		}
		if r.Overrides.Problem != "" {
			say(r.Replica, strings.TrimSuffix(r.Overrides.Problem, "."))
		}
	}
	for _, sentence := range order {
		names := with[sentence]
		slices.Sort(names)
		text := fmt.Sprintf("%s: %s: %s.", numbers.Of(int64(len(names)), "replica"), some(names), logtext.Printable(sentence))
		fmt.Fprintf(e.out, "%s %s\n", e.paint.In(report.Yellow, "-"), strings.Join(report.Wrap(text, e.sentences()-4), "\n  "))
	}
	if lost > 0 {
		fmt.Fprint(e.out, "Replicas keep changes that Redis has lost, and write them back within ten minutes.\n")
	}
	if len(order) > 0 {
		fmt.Fprint(e.out, "\n")
	}
}
