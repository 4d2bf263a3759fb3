package admin

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/numbers"
	"github.com/go-tokenbucket/ratelimit/store"
)

// An engineGroup is a list of counts of the store and of this process.
type engineGroup struct {
	Name string
	Rows []engineRow
}

type engineRow struct{ Name, Value string }

// engineWords are the counts of fleet.Snapshot.Engine in words, in the order in which they are shown.
var engineWords = []struct {
	group string
	rows  [][2]string
}{
	{"Calls of Redis", [][2]string{
		{"calls", "Calls"}, {"batches", "Batches"}, {"charges", "Charges"}, {"merged", "Merged with an equal call"}, {"direct", "Sent by their caller"},
		{"in_flight", "In flight"}, {"queued", "Queued"}, {"failed", "Failed"}, {"redirects", "Redirects"}, {"script_loads", "Script loads"},
	}},
	{"Fallback", [][2]string{
		{"answered", "Answered by a stand-in"}, {"charged", "Tokens charged afterwards"}, {"pending", "Buckets to charge"}, {"probes", "Probes"},
	}},
	{"Memory", [][2]string{
		{"buckets", "Buckets"}, {"blocked", "Blocked buckets"}, {"evicted", "Evicted buckets"},
		{"denials_answered", "Denied without a call"}, {"denials_kept", "Denials cached"}, {"leases", "Leased buckets"}, {"leased_tokens", "Leased tokens"},
		{"waiting", "Requests that wait for tokens or slots"},
	}},
}

// EngineGroups are the counts that the store has.
func (f *facts) EngineGroups() (groups []engineGroup) {
	for _, of := range engineWords {
		g := engineGroup{Name: of.group}
		for _, row := range of.rows {
			if n, ok := f.Engine[row[0]]; ok {
				g.Rows = append(g.Rows, engineRow{row[1], numbers.Count(n)})
			}
		}
		for _, name := range slices.Sorted(maps.Keys(f.Engine)) {
			if kind, ok := strings.CutPrefix(name, "failed_"); ok && of.rows[0][0] == "calls" {
				g.Rows = append(g.Rows, engineRow{"Failed: " + words(kind), numbers.Count(f.Engine[name])})
			}
		}
		if len(g.Rows) > 0 {
			groups = append(groups, g)
		}
	}
	decisions := engineGroup{Name: "Decisions"} // of which a request through two limiters has two
	for _, outcome := range slices.Sorted(maps.Keys(f.Traffic)) {
		if n := f.Traffic[outcome]; n > 0 {
			decisions.Rows = append(decisions.Rows, engineRow{words(outcome), numbers.Count(n)})
		}
	}
	if len(decisions.Rows) > 0 {
		groups = append(groups, decisions)
	}
	return groups
}

// EngineTrouble reports whether the store does not answer, or has not answered a call in the last minute.
func (f *facts) EngineTrouble() bool {
	return f.Store.State != "answers" || f.Store.LastErrorAt.After(f.At.Add(-time.Minute))
}

// EngineWords say in short how the store is.
func (f *facts) EngineWords() string {
	s := storeFacts{f.Store}
	if s.State == "answers" {
		return s.Begin() + " answers"
	}
	return s.Begin() + " is unavailable"
}

// cacheFacts are store.CacheStats.
type cacheFacts struct {
	Name    string `json:"name"`
	Entries int    `json:"entries"`
	Max     int    `json:"max"`
	Hits    int64  `json:"hits"`
	Misses  int64  `json:"misses"`
	Evicted int64  `json:"evicted"`
}

// HitRate is the part of all look-ups that found an entry, from 0 to 1.
func (c cacheFacts) HitRate() float64 {
	return finite(float64(c.Hits) / float64(c.Hits+c.Misses))
}

// addCaches adds the caches of this replica.
func (f *facts) addCaches(caches map[string]interface{ Stats() store.CacheStats }) {
	f.Caches = []cacheFacts{}
	for _, name := range slices.Sorted(maps.Keys(caches)) {
		c := caches[name].Stats()
		f.Caches = append(f.Caches, cacheFacts{name, c.Entries, c.Max, c.Hits, c.Misses, c.Evicted})
	}
}

func sum(counts map[string]int64) (all int64) {
	for _, n := range counts {
		all += n
	}
	return all
}
