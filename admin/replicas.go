package admin

import (
	"cmp"
	"net/url"
	"strings"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/fleet"
	"github.com/go-tokenbucket/ratelimit/internal/numbers"
)

// The states of a replica, the worst first.
const (
	replicaSilent = "silent" // it does not report any more
	replicaOutage = "outage" // it does not reach the store
	replicaOlder  = "behind" // it has an older limit or release than others
	replicaUp     = "up"
)

// replicaFacts are one replica in the list of all.
type replicaFacts struct {
	Name    string    `json:"name"`
	Host    string    `json:"host"`
	Release string    `json:"release,omitempty"`
	Started time.Time `json:"started"`
	At      time.Time `json:"at"` // of what is known
	State   string    `json:"state"`
	Why     string    `json:"why,omitempty"`
	Here    bool      `json:"here"` // it has answered this request

	PerSecond requestRates `json:"per_second"`
}

// Address is that of the first page with this replica alone.
func (r replicaFacts) Address() string { return "./?" + url.Values{"replica": {r.Name}}.Encode() }

func newReplicaFacts(r *fleet.Replica) replicaFacts {
	f := replicaFacts{Name: r.Replica, Host: r.Host, Release: r.Release, Started: r.Started, At: r.At, Here: r.Own, State: replicaUp}
	switch {
	case r.Silent:
		f.State, f.Why = replicaSilent, "The last report is "+span(r.Age.Round(time.Second))+" old."
	case r.Away():
		f.State, f.Why = replicaOutage, cmp.Or(r.Store.Reason, "Its store does not answer.")
	case len(r.Behind) > 0:
		f.State, f.Why = replicaOlder, strings.Join(r.Behind, " ")
	case r.Newer:
		f.Why = "It runs a release whose reports this one cannot read."
	}
	if !r.Silent {
		f.PerSecond = ratesOf(r.Last)
	}
	return f
}

// inState returns the names of the replicas in a state.
func (f *facts) inState(state string) (names []string) {
	for _, r := range f.Replicas {
		if r.State == state {
			names = append(names, r.Name)
		}
	}
	return names
}

// share says of how many replicas names are.
func (f *facts) share(names []string) string {
	return numbers.Count(len(names)) + " of " + numbers.Of(int64(len(f.Replicas)+f.More), "replica")
}

// alone says why the page knows only this replica, "" if it knows all.
func (k roster) alone() string {
	switch {
	case !k.Shared:
		return "This page shows this replica only: its store shares no data with others."
	case k.Err != nil && len(k.Replicas) == 1:
		return "This page shows this replica only: the reports of others cannot be read."
	}
	return ""
}

// store returns the state of the store for all replicas together: of one that reaches it, if there is one. What a replica has
// reported before this one lost the store does not count.
func (k roster) store() fleet.Store {
	lost := k.Own.Store.Since
	if lost.IsZero() { // it is not known
		lost = k.Own.At
	}
	for _, r := range k.Replicas {
		if !r.Silent && !r.Newer && !r.Away() && k.Own.Store.State != "answers" && r.At.After(lost) {
			return r.Store
		}
	}
	return k.Own.Store
}

// ReplicasTrouble reports whether a replica is not up, or a report cannot be read.
func (f *facts) ReplicasTrouble() bool {
	return len(f.inState(replicaUp)) < len(f.Replicas) || f.Unreadable > 0
}

// ReplicasWords say how many replicas there are in each state.
func (f *facts) ReplicasWords() string {
	var words []string
	for _, state := range []string{replicaUp, replicaOlder, replicaOutage, replicaSilent} {
		if n := len(f.inState(state)); n > 0 {
			words = append(words, numbers.Count(n)+" "+state)
		}
	}
	return strings.Join(words, ", ")
}
