package admin

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/numbers"
)

// A headline says how the service is, and what to do.
type headline struct {
	Level string   `json:"level"` // "green", "amber" or "red"
	Text  string   `json:"text"`  // what is so
	Do    string   `json:"do"`    // what to do
	Also  []string `json:"also"`  // what else is not well
	Link  *link    `json:"-"`     // where to do it
}

// A finding is what a rule has found. Without a text it is nothing.
type finding struct {
	text, do string
	link     *link
}

// rules are what can be wrong, the worst first. The first finding is the headline, and the others follow it.
var rules = []struct {
	level string
	find  func(*facts) finding
}{
	{"red", noLimits},
	{"red", standInsDecide},
	{"red", callsFail},
	{"amber", cutOffReplicas},
	{"amber", limitsUnknown},
	{"amber", silentReplicas},
	{"amber", olderReplicas},
	{"amber", flood},
	{"amber", manyDenied},
}

func newHeadline(f *facts) headline {
	h := headline{Level: "green", Text: "All is well.", Do: "Nothing to do.", Also: []string{}}
	for i, first := 0, true; i < len(rules); i++ {
		switch found := rules[i].find(f); {
		case found.text == "":
		case first:
			h.Level, h.Text, h.Do, h.Link, first = rules[i].level, found.text, found.do, found.link, false
		default:
			h.Also = append(h.Also, found.text+" "+found.do)
		}
	}
	return h
}

// The bounds of the rules.
const (
	manyShare  = 0.2 // of the requests that are denied
	manyRate   = 1.0 // denials per second below which nobody is told
	floodShare = 0.5 // of the denials that are those of one key
	maxNames   = 3   // in a sentence

	failsFor       = 5 * time.Second  // calls of a store fail after the last error
	replacedWithin = 30 * time.Second // a replica may start before the one that it replaces ends
)

func noLimits(f *facts) finding {
	if f.Store.State != "fails" {
		return finding{}
	}
	s, rest := storeFacts{f.Store}, "Requests go on without limits."
	if refused := f.refusing(""); refused != "" {
		rest = refused + " All others go on without limits."
	}
	return finding{s.Begin() + " does not answer. " + rest, "Bring " + s.Name() + " back: " + s.Reason + ". To have limits in an outage, use a fallback.Store.", nil}
}

func standInsDecide(f *facts) finding {
	if f.Store.State != "stand_in" {
		return finding{}
	}
	s, rest := storeFacts{f.Store}, "A stand-in limits all requests."
	if refused := f.refusing(""); refused != "" {
		rest = refused + " A stand-in limits all others."
	}
	state, since, reason := " is unavailable", " has been unavailable since ", ""
	if f.Alone != "" { // it may answer the others
		state, since = " does not answer this replica", " has not answered this replica since "
	}
	if !s.Since.IsZero() { // without requests, a fallback.Store does not know it
		state = since + day(s.Since)
	}
	if s.Reason != "" {
		reason = ": " + s.Reason
	}
	return finding{s.Begin() + state + ". " + rest, "Bring " + s.Name() + " back" + reason + ". The replicas notice it within seconds.", nil}
}

// callsFail finds requests that no bucket has decided, although Redis answers looks into buckets. Redis may be full, be a
// read-only replica, or not permit a command.
func callsFail(f *facts) finding {
	s := storeFacts{f.Store}
	share := min(1, finite(float64(f.Last.Degraded+f.Last.Refused)/float64(f.Last.Requests()))) // several decisions of a request may fail
	if s.State != "answers" || share < manyShare || s.LastErrorAt.IsZero() || f.At.Sub(s.LastErrorAt) > failsFor {
		return finding{}
	}
	return finding{numbers.Share(share) + " of the requests were not decided, because calls of " + s.Name() + " fail.", "Mend what its last error says: " + s.LastError, nil}
}

// refusing names the policies that refuse all requests, "" if there is none.
func (f *facts) refusing(where string) string {
	var names []string
	refused := int64(0)
	for _, p := range f.Policies {
		if p.Refusing {
			names = append(names, p.Name)
			refused += p.Total.Refused
		}
	}
	if len(names) == 0 {
		return ""
	}
	return plural(names, "Policy ", "Policies ") + listed(names) + plural(names, " refuses", " refuse") + " all requests" + where + ", " + numbers.Count(refused) + " so far."
}

func plural(names []string, one, many string) string {
	if len(names) == 1 {
		return one
	}
	return many
}

func listed(names []string) string {
	if len(names) > maxNames {
		return strings.Join(names[:maxNames-1], ", ") + " and " + numbers.Count(len(names)-maxNames+1) + " more"
	}
	return strings.Join(names, ", ")
}

func cutOffReplicas(f *facts) finding {
	names := f.inState(replicaOutage)
	if f.Store.State != "answers" || len(names) == 0 {
		return finding{}
	}
	rest := cmp.Or(f.refusing(" there"), plural(names, "Its stand-in limits", "Their stand-ins limit")+" alone.")
	return finding{
		f.share(names) + plural(names, " does", " do") + " not reach Redis: " + listed(names) + ". " + rest,
		"Check the network between " + plural(names, "it", "them") + " and Redis.", &link{"Show replicas", "#replicas"},
	}
}

func limitsUnknown(f *facts) finding {
	if f.Overrides.Problem == "" || f.Store.State != "answers" {
		return finding{}
	}
	return finding{f.Overrides.Problem, "Do not restart replicas until Redis has the limits again.", &link{"Show limits", "overrides"}}
}

func silentReplicas(f *facts) finding {
	names := f.inState(replicaSilent)
	if len(names) <= f.replacements() {
		return finding{}
	}
	return finding{
		f.share(names) + plural(names, " has", " have") + " stopped reporting: " + listed(names) + ". " + plural(names, "It has ended, or does", "They have ended, or do") + " not reach " + storeFacts{f.Store}.Name() + ".",
		"See whether " + plural(names, "it runs", "they run") + ". A replica that has ended leaves the list after a minute.", &link{"Show replicas", "#replicas"},
	}
}

// replacements is how many replicas have started since shortly before the first silent one went silent. In a deployment each
// of them replaces one.
func (f *facts) replacements() (n int) {
	first := f.At
	for _, r := range f.Replicas {
		if r.State == replicaSilent && r.At.Before(first) {
			first = r.At
		}
	}
	for _, r := range f.Replicas {
		if r.State != replicaSilent && first.Sub(r.Started) < replacedWithin {
			n++
		}
	}
	return n
}

func olderReplicas(f *facts) finding {
	names := f.inState(replicaOlder)
	if len(names) == 0 {
		return finding{}
	}
	return finding{
		f.share(names) + plural(names, " is", " are") + " behind: " + listed(names) + ".",
		"If no deployment is under way, restart " + plural(names, "it", "them") + ".", &link{"Show replicas", "#replicas"},
	}
}

// deniesMany reports whether so many requests are denied that an operator should know.
func (f *facts) deniesMany() bool {
	return f.PerSecond.Denied >= manyRate && f.PerSecond.DeniedShare() >= manyShare
}

// worstKey returns the key with the most denials lately, under the policy that denies it most, and its part of all denials.
// Some may be those of keys that are not listed.
func (f *facts) worstKey() (worst topKeyFacts, share float64) {
	var listed, all int64
	steps := 0
	of := make(map[string]int64) // of a key under all policies
	for _, k := range f.Keys {
		if !k.Shadow {
			n := sumOf(k.DeniedLately)
			listed, steps = listed+n, max(steps, len(k.DeniedLately))
			of[k.Key] += n
		}
	}
	for _, k := range f.Keys {
		if more := of[k.Key] - of[worst.Key]; !k.Shadow && (more > 0 || more == 0 && sumOf(k.DeniedLately) > sumOf(worst.DeniedLately)) {
			worst = k
		}
	}
	if h := f.History.TenMinutes; h != nil {
		all = sumOf(h.Denied[max(0, len(h.Denied)-steps*f.KeySteps.Seconds/h.Seconds):])
	}
	return worst, finite(float64(of[worst.Key]) / float64(max(listed, all)))
}

func flood(f *facts) finding {
	worst, share := f.worstKey()
	if !f.deniesMany() || share < floodShare {
		return finding{}
	}
	found := finding{
		"A flood: " + worst.Shown() + " has " + numbers.Share(share) + " of the denials.",
		"Policy " + worst.Policy + " holds. If the flood goes on, block the key.", nil,
	}
	if worst.State == "blocked" {
		found.do = "It is blocked. Nothing to do."
	} else if worst.Link() != "" {
		found.link = &link{"Show the key", worst.Link()}
	}
	return found
}

func manyDenied(f *facts) finding {
	if _, share := f.worstKey(); !f.deniesMany() || share >= floodShare {
		return finding{}
	}
	if len(f.Policies) == 0 { // a snapshot had no room for them
		return finding{numbers.Share(f.PerSecond.DeniedShare()) + " of the requests are denied.", "If the clients are customers, raise their limit.", nil}
	}
	busiest := slices.MaxFunc(f.Policies, func(a, b policyFacts) int { return cmp.Compare(a.PerSecond.Denied, b.PerSecond.Denied) })
	return finding{
		numbers.Share(f.PerSecond.DeniedShare()) + " of the requests are denied, most by policy " + busiest.Name + ".",
		"If the clients are customers, raise its limit.", &link{"Show the policy", busiest.Address()},
	}
}
