package fleet

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/distinct"
)

// The sum of 200 replicas has all that each of them has counted, in the steps in which it came.
func TestMergeOfManyReplicas(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	const n = 200
	now := time.Date(2026, 11, 26, 21, 0, 7, 0, time.UTC)
	var of []*Snapshot
	var counted, keyed int64
	byStep := make(map[time.Time]int64)
	for range n {
		s := &Snapshot{Format: 1, At: now, Traffic: map[string]int64{"allowed": random.Int64N(100)}, Engine: map[string]int64{"calls": 2}, Kinds: []string{"ip"}}
		// Two in ten have not begun the last step yet, and one has been silent for half a minute.
		behind := []time.Duration{0, 0, 0, 0, 0, 0, 0, 10, 10, 40}[random.IntN(10)] * time.Second
		h := NewHistory(now.Add(-behind), 10*time.Second)
		for i := range 70 {
			at, count := now.Add(-behind-time.Duration(i)*10*time.Second), random.Int64N(10)
			h.Add(at, Counts{Denied: count})
			if i > 0 && i <= HistorySteps {
				byStep[at.Truncate(10*time.Second)] += count
			}
		}
		key := Key{Policy: "api", Name: Text(fmt.Sprint("ip:", random.IntN(20))), Count: random.Int64N(100)}
		s.KeySteps, key.Denials = h.Steps, h.Denied
		s.Keys, s.History = []Key{key}, Histories{TenMinutes: h}
		s.Policies = []Policy{{Name: "api", Limit: "5/1s", Held: 2, Total: Counts{Allowed: 3}, History: Histories{TenMinutes: h}}}
		s.Limited = sketchOf(string(key.Name))
		counted += s.Traffic["allowed"]
		keyed += key.Count
		of = append(of, s)
	}
	of[n-1].Policies[0].Limit, of[n-1].Policies[0].History = "6/1s", Histories{}
	all := Merge(of)
	if all.Traffic["allowed"] != counted || all.Engine["calls"] != 2*n || !slices.Equal(all.Kinds, []string{"ip"}) {
		t.Errorf("%+v, want %d allowed", all, counted)
	}
	if p := all.Policies[0]; len(all.Policies) != 1 || p.Total.Allowed != 3*n || p.Held != 2*n || p.Limit != "5/1s" || !slices.Equal(p.Others, []string{"6/1s"}) || p.History.TenMinutes.Without != 1 {
		t.Errorf("%+v", all.Policies)
	}
	var sum int64
	for _, k := range all.Keys {
		sum += k.Count
	}
	if len(all.Keys) != 20 || sum != keyed {
		t.Errorf("%d keys with %d requests, want %d", len(all.Keys), sum, keyed)
	}
	if sketch, err := distinct.Parse(all.Limited); err != nil || sketch.Count() < 18 || sketch.Count() > 22 {
		t.Errorf("%v limited, %v", sketch, err)
	}
	h := all.History.TenMinutes
	if want := now.Truncate(10 * time.Second).Add(-10 * time.Second); !h.End.Equal(want) || len(h.Denied) != HistorySteps {
		t.Fatalf("%d steps until %v, want %v", len(h.Denied), h.End, want)
	}
	for i, got := range h.Denied[10:] { // before, replicas have forgotten some
		start := h.End.Add(time.Duration(10+i-HistorySteps) * 10 * time.Second)
		keys := int64(0)
		for _, k := range all.Keys {
			if at := len(k.Denials) - HistorySteps + 10 + i; at >= 0 {
				keys += k.Denials[at]
			}
		}
		if want := byStep[start]; got != want || keys != want {
			t.Errorf("step of %v: %d, and %d of keys, want %d", start, got, keys, want)
		}
	}
}

func sketchOf(key string) string {
	var s distinct.Sketch
	s.Add(distinct.Hash(key))
	return s.String()
}

// A silent replica has counted what it has counted, but is not known to do anything now. This process comes first.
func TestTheSumOfAFleet(t *testing.T) {
	replica := func(name, limit string) Replica {
		return Replica{Snapshot: &Snapshot{Format: 1, Replica: name, Last: Counts{Allowed: 1}, Limited: sketchOf(name), Policies: []Policy{{Name: "api", Limit: limit, Total: Counts{Allowed: 5}, Last: Counts{Allowed: 1}}}}}
	}
	f := Fleet{Replicas: []Replica{replica("a", "1/1s"), replica("b", "2/1s"), replica("c", "3/1s")}}
	f.Replicas[0].Silent = true
	own := replica("b", "4/1s").Snapshot
	f = f.With(own)
	if len(f.Replicas) != 3 || !f.Replicas[1].Own {
		t.Fatalf("%+v", f.Replicas)
	}
	all := f.Merged()
	p := all.Policies[0]
	if all.Last.Allowed != 2 || p.Last.Allowed != 2 || p.Total.Allowed != 15 || p.Limit != "4/1s" || len(p.Others) != 2 {
		t.Errorf("%+v", all)
	}
	if sketch, err := distinct.Parse(all.Limited); err != nil || sketch.Count() != 2 {
		t.Errorf("%v limited, %v", sketch, err)
	}
	if f.Replicas[0].Last.Allowed != 1 {
		t.Error("the sum has changed a snapshot")
	}
}
