package admin

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/fleet"
)

// A service as it is on a good day: three replicas, and 2 of 100 requests are denied.
func goodDay() *facts {
	f := &facts{
		HasCounts: true, HasTop: true,
		PerSecond: requestRates{100, 2},
		Snapshot:  &fleet.Snapshot{At: time.Date(2027, 3, 4, 5, 6, 7, 0, time.UTC), Store: fleet.Store{Kind: "redis", State: "answers"}},
		Replicas:  []replicaFacts{{Name: "a", State: replicaUp}, {Name: "b", State: replicaUp}, {Name: "c", State: replicaUp}},
		Keys:      []topKeyFacts{{Policy: "api", keyFacts: keyFacts{Key: "ip:192.0.2.1"}, DeniedLately: []int64{1, 1}}, {Policy: "api", keyFacts: keyFacts{Key: "ip:192.0.2.2"}, DeniedLately: []int64{1, 2}}},
	}
	f.History.TenMinutes = &fleet.History{Steps: fleet.Steps{Seconds: 10}, Denied: []int64{1000, 5, 5}}
	f.KeySteps.Seconds = 10
	for i := range f.Replicas {
		f.Replicas[i].At, f.Replicas[i].Started = f.At, f.At.Add(-time.Hour)
	}
	f.Policies = []policyFacts{{Policy: fleet.Policy{Name: "api"}, PerSecond: policyRates{Denied: 2}, f: f}, {Policy: fleet.Policy{Name: "login", FailClosed: true, Total: fleet.Counts{Refused: 1240}}, f: f}}
	return f
}

func TestHeadline(t *testing.T) {
	since := time.Date(2027, 3, 4, 5, 6, 7, 0, time.UTC)
	away := func(state string) func(*facts) {
		return func(f *facts) {
			f.Store.State, f.Store.Since, f.Store.Reason = state, since, "connection refused"
		}
	}
	refuses := func(f *facts) { f.Policies[1].Refusing = true }
	is := func(state string, replicas ...int) func(*facts) {
		return func(f *facts) {
			for _, i := range replicas {
				f.Replicas[i].State = state
			}
		}
	}
	fails := func(requests int64, before time.Duration) func(*facts) {
		return func(f *facts) {
			f.At, f.Last = since, fleet.Counts{Allowed: 90, Refused: 10, Degraded: requests - 10}
			f.Store.LastError, f.Store.LastErrorAt = "OOM", since.Add(-before)
		}
	}
	starts := func(f *facts) { // 20 s before the replica that ends
		f.Replicas[0].Started, f.Replicas[1].At, f.Replicas[2].At = since.Add(-time.Minute), since.Add(-40*time.Second), since.Add(-40*time.Second)
	}
	many := func(f *facts) { f.PerSecond = requestRates{100, 30} }
	flooded := func(f *facts) { f.Keys[0].DeniedLately = []int64{100, 200} }
	twice := func(f *facts) {
		f.Keys[0].DeniedLately, f.Keys[1].DeniedLately = []int64{0, 200}, []int64{0, 400}
		f.Keys = append(f.Keys, topKeyFacts{Policy: "login", keyFacts: f.Keys[0].keyFacts, DeniedLately: []int64{0, 400}})
	}
	lost := func(f *facts) { f.Overrides.Problem = "2 overrides have disappeared." }
	for name, of := range map[string]struct {
		is       []func(*facts)
		level    string
		text, do string
		also     int
	}{
		"all is well":             {nil, "green", "All is well.", "Nothing to do.", 0},
		"few requests":            {[]func(*facts){func(f *facts) { f.PerSecond = requestRates{1, 0.9} }}, "green", "All is well.", "", 0},
		"no fallback":             {[]func(*facts){away("fails")}, "red", "Redis does not answer. Requests go on without limits.", "Bring Redis back: connection refused. To have limits in an outage, use a fallback.Store.", 0},
		"no fallback, closed":     {[]func(*facts){away("fails"), refuses}, "red", "Redis does not answer. Policy login refuses all requests, 1,240 so far. All others go on without limits.", "", 0},
		"an outage":               {[]func(*facts){away("stand_in")}, "red", "Redis has been unavailable since 4 Mar 05:06:07. A stand-in limits all requests.", "Bring Redis back: connection refused.", 0},
		"others cannot be read":   {[]func(*facts){away("stand_in"), func(f *facts) { f.Alone = "This page shows this replica only." }}, "red", "Redis has not answered this replica since 4 Mar 05:06:07. A stand-in limits all requests.", "", 0},
		"no reason is known":      {[]func(*facts){func(f *facts) { f.Store.State = "stand_in" }}, "red", "Redis is unavailable. A stand-in limits all requests.", "Bring Redis back. The", 0},
		"an outage, closed":       {[]func(*facts){away("stand_in"), refuses}, "red", "Policy login refuses all requests, 1,240 so far. A stand-in limits all others.", "", 0},
		"calls fail":              {[]func(*facts){fails(30, time.Second)}, "red", "30 % of the requests were not decided, because calls of Redis fail.", "Mend what its last error says: OOM", 0},
		"few calls fail":          {[]func(*facts){fails(15, time.Second)}, "green", "All is well.", "", 0},
		"calls have failed":       {[]func(*facts){fails(30, 6*time.Second)}, "green", "All is well.", "", 0},
		"one is cut off":          {[]func(*facts){is(replicaOutage, 1)}, "amber", "1 of 3 replicas does not reach Redis: b. Its stand-in limits alone.", "Check the network between it and Redis.", 0},
		"two are cut off":         {[]func(*facts){is(replicaOutage, 0, 1), refuses}, "amber", "2 of 3 replicas do not reach Redis: a, b. Policy login refuses all requests there, 1,240 so far.", "Check the network between them and Redis.", 0},
		"limits are lost":         {[]func(*facts){lost}, "amber", "2 overrides have disappeared.", "Do not restart replicas", 0},
		"lost in an outage":       {[]func(*facts){lost, away("stand_in")}, "red", "Redis has been unavailable", "", 0},
		"one is silent":           {[]func(*facts){is(replicaSilent, 2)}, "amber", "1 of 3 replicas has stopped reporting: c.", "See whether it runs.", 0},
		"one is replaced":         {[]func(*facts){is(replicaSilent, 2), starts}, "green", "All is well.", "", 0},
		"one of two is replaced":  {[]func(*facts){is(replicaSilent, 1, 2), starts}, "amber", "2 of 3 replicas have stopped reporting: b, c.", "", 0},
		"one is older":            {[]func(*facts){is(replicaOlder, 2)}, "amber", "1 of 3 replicas is behind: c.", "If no deployment is under way, restart it.", 0},
		"a flood":                 {[]func(*facts){many, flooded}, "amber", "A flood: ip:192.0.2.1 has 99 % of the denials.", "Policy api holds. If the flood goes on, block the key.", 0},
		"under two policies":      {[]func(*facts){many, twice}, "amber", "A flood: ip:192.0.2.1 has 60 % of the denials.", "Policy login holds.", 0},
		"a flood that is blocked": {[]func(*facts){many, flooded, func(f *facts) { f.Keys[0].State = "blocked" }}, "amber", "A flood", "It is blocked. Nothing to do.", 0},
		"only a shadow":           {[]func(*facts){many, flooded, func(f *facts) { f.Keys[0].Shadow = true }}, "amber", "30 % of the requests are denied", "", 0},
		"many clients":            {[]func(*facts){many, func(f *facts) { f.Keys[0].DeniedLately = []int64{3} }}, "amber", "30 % of the requests are denied, most by policy api.", "If the clients are customers, raise its limit.", 0},
		"no room for policies":    {[]func(*facts){many, func(f *facts) { f.Keys, f.Policies = nil, nil }}, "amber", "30 % of the requests are denied.", "If the clients are customers, raise their limit.", 0},
		"the worst of three":      {[]func(*facts){many, flooded, is(replicaSilent, 2), away("stand_in")}, "red", "Redis has been unavailable", "", 2},
	} {
		f := goodDay()
		for _, change := range of.is {
			change(f)
		}
		h := newHeadline(f)
		if h.Level != of.level || !strings.Contains(h.Text, of.text) || !strings.HasPrefix(h.Do, of.do) || len(h.Also) != of.also {
			t.Errorf("%s: %s: %q, %q, also %q; want %s: %q, %q", name, h.Level, h.Text, h.Do, h.Also, of.level, of.text, of.do)
		}
	}
}

// Each rule has a case above, and the colors are in the order of the rules.
func TestRulesAreInTheirOrder(t *testing.T) {
	var levels []string
	for _, rule := range rules {
		levels = append(levels, rule.level)
	}
	if !slices.IsSortedFunc(levels, func(a, b string) int { return strings.Compare(b, a) }) {
		t.Errorf("the worst rule must come first: %q", levels)
	}
}
