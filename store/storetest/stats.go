package storetest

import (
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit/store"
)

// RunDecorator tests that a decorator reports the Stats of the Store that it wraps, and a part of its own. The Store is
// also wrapped in another decorator that is no [store.StatsReporter]. wrap returns the decorator over inner, which
// answers no calls.
func RunDecorator(t *testing.T, wrap func(t *testing.T, inner store.Store) store.Store) {
	for name, inner := range map[string]store.Store{"a reporter": reporter{}, "a reporter that is wrapped": foreign{reporter{}}} {
		t.Run("the Stats have those of "+name, func(t *testing.T) {
			want, got := reflect.ValueOf(reporter{}.Stats()), reflect.ValueOf(store.StatsOf(wrap(t, inner)))
			own := 0
			for i := range want.NumField() {
				switch part := want.Type().Field(i).Name; {
				case got.Field(i).Kind() == reflect.Pointer && got.Field(i).IsNil():
					t.Errorf("%s is nil", part)
				case !reflect.DeepEqual(got.Field(i).Interface(), want.Field(i).Interface()):
					own++
				}
			}
			if own != 1 {
				t.Errorf("%d parts are others than those of what is wrapped, want 1: that of the decorator", own)
			}
		})
	}
}

// A reporter is a Store with all parts of Stats.
type reporter struct{ store.Store }

func (reporter) Stats() store.Stats {
	return store.Stats{
		Redis:    &store.RedisStats{Calls: 11},
		Denials:  &store.DenialStats{Answered: 12},
		Leases:   &store.LeaseStats{Drawn: 13},
		Fallback: &store.FallbackStats{Probes: 14},
		Memory:   &store.MemoryStats{Buckets: 15},
	}
}

// A foreign decorator knows nothing of Stats.
type foreign struct{ store.Store }

func (f foreign) Unwrap() store.Store { return f.Store }

// statsRules hold for Stores that are StatsReporters.
var statsRules = reporting([]rule{
	{"Stats tell of blocked buckets that are kept in memory", func(r *rig) {
		if r.stats().Memory == nil {
			return
		}
		c := store.Charge{Policy: "p", Key: "k", Limit: r.limit(1, time.Hour, 5), Cost: 1}
		r.allow(c)
		want := func(buckets, blocked int) {
			r.Helper()
			if m := r.stats().Memory; m.Buckets != buckets || m.Blocked != blocked || m.Bytes <= 0 || m.Max < buckets {
				r.Fatalf("%+v, want %d buckets, and %d of them blocked", m, buckets, blocked)
			}
		}
		want(1, 0)
		r.block(c, time.Hour)
		want(1, 1)
		c.Key = "locked"
		r.allow(locking(c, 5, time.Minute))
		want(2, 2)
		r.advance(time.Minute)
		want(2, 1)
		c.Key = "k"
		r.block(c, -1)
		want(2, 0)
	}},
	{"Stats can be read while calls are made, may be changed, and their counts only grow", func(r *rig) {
		limit := r.limit(1, time.Hour, 20)
		done := make(chan struct{})
		var reader sync.WaitGroup
		reader.Go(func() {
			last := make(map[string]int64)
			for over := false; !over; {
				select {
				case <-done:
					over = true
				default:
				}
				s := r.stats()
				now := counts(s)
				for name := range now {
					if strings.HasSuffix(name, scribbled) {
						r.Errorf("%s is what was done to earlier Stats", name)
					}
				}
				for name, n := range last {
					if now[name] < n {
						r.Errorf("%s fell from %d to %d", name, n, now[name])
					}
				}
				last = now
				scribble(s)
				time.Sleep(100 * time.Microsecond) // or it takes a processor from a store in this process
			}
		})
		r.hammer(8, 100, func(i int) []store.Charge {
			c := store.Charge{Policy: "p" + string(rune('A'+i%5)), Key: "k" + string(rune('A'+i%7)), Limit: limit, Cost: 1}
			switch i % 11 {
			case 0:
				c.Cost = -2
			case 1:
				c.Block = time.Minute
			case 2:
				c.Cost, c.Block = 0, -1
			case 3:
				c.Cost, c.Block = 0, time.Minute
			case 4:
				c.Cost = store.Reset
			}
			return []store.Charge{c}
		})
		close(done)
		r.join(&reader)
	}},
})

// reporting omits the rules for a Store that is not a StatsReporter.
func reporting(rules []rule) []rule {
	for i := range rules {
		test := rules[i].test
		rules[i].test = func(r *rig) {
			if _, ok := r.store.(store.StatsReporter); ok {
				test(r)
			}
		}
	}
	return rules
}

func (r *rig) stats() store.Stats { return r.store.(store.StatsReporter).Stats() }

// counts returns what only grows in s.
func counts(s store.Stats) map[string]int64 {
	n := make(map[string]int64)
	if x := s.Redis; x != nil {
		n["calls"], n["batches"], n["charges"], n["merged"], n["direct"] = x.Calls, x.Batches, x.Charges, x.Merged, x.Direct
		n["redirects"], n["script loads"] = x.Redirects, x.ScriptLoads
		for kind, errors := range x.Errors {
			n["errors of kind "+kind] = errors
		}
	}
	if x := s.Denials; x != nil {
		n["denials answered"] = x.Answered
	}
	if x := s.Leases; x != nil {
		n["drawn"], n["returned"], n["lost"] = x.Drawn, x.Returned, x.Lost
	}
	if x := s.Fallback; x != nil {
		n["probes"], n["answered"], n["charged"] = x.Probes, x.Answered, x.Charged
		for name, count := range counts(x.Secondary) {
			n["secondary: "+name] = count
		}
	}
	if x := s.Memory; x != nil {
		for policy, evicted := range x.Evicted {
			n["evicted of "+policy] = evicted
		}
	}
	return n
}

const scribbled = "_scribbled"

// scribble changes everything in s that a Store could still use.
func scribble(s store.Stats) {
	if x := s.Redis; x != nil {
		if x.Errors != nil {
			x.Errors[scribbled] = 1
		}
		*x = store.RedisStats{}
	}
	if x := s.Denials; x != nil {
		*x = store.DenialStats{}
	}
	if x := s.Leases; x != nil {
		*x = store.LeaseStats{}
	}
	if x := s.Fallback; x != nil {
		clear(x.Outages)
		scribble(x.Secondary)
		*x = store.FallbackStats{}
	}
	if x := s.Memory; x != nil {
		if x.Evicted != nil {
			x.Evicted[scribbled] = 1
		}
		*x = store.MemoryStats{}
	}
}
