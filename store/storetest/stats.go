package storetest

import (
	"reflect"
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

// statsRules are those of a StatsReporter.
var statsRules = []rule{
	{"Stats tell of blocked buckets that are kept in memory", on(hour, 5, func(b *bucket) {
		if !is[store.Blocker](b.rig) || b.stats().Memory == nil {
			return
		}
		kept := func(buckets, blocked int) step {
			return func(b *bucket) {
				if m := b.stats().Memory; m.Buckets != buckets || m.Blocked != blocked || m.Bytes <= 0 || m.Max < buckets {
					b.Fatalf("%+v, want %d buckets, and %d of them blocked", m, buckets, blocked)
				}
			}
		}
		all(allow(1, 4), kept(1, 0), block(hour), kept(1, 1), by("locked"), locking(minute), allow(5, 0), kept(2, 2),
			shift(minute), kept(2, 1), by("k"), block(0), kept(2, 0))(b)
	})},
	{"Stats can be read while calls are made, may be changed, and their counts only grow", func(r *rig) {
		limit := r.limit(1, hour, 20)
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
				s, now := r.stats(), make(map[string]int64)
				visit("", reflect.ValueOf(&s).Elem(), now)
				for name, n := range last {
					if now[name] < n {
						r.Errorf("%s fell from %d to %d", name, n, now[name])
					}
				}
				last = now
				time.Sleep(100 * micro) // or it takes a processor from a store in this process
			}
		})
		r.hammer(8, 100, func(i int) []store.Charge {
			c := store.Charge{Policy: "p" + string(rune('A'+i%5)), Key: "k" + string(rune('A'+i%7)), Limit: limit, Cost: 1}
			switch i % 11 {
			case 0:
				c.Cost = -2
			case 1:
				c.Lock = minute
			case 2:
				c.Cost = store.Reset
			}
			return []store.Charge{c}
		})
		close(done)
		reader.Wait()
	}},
}

func (r *rig) stats() store.Stats { return r.store.(store.StatsReporter).Stats() }

// visit adds to counts what only grows in v, and then sets it to a value below all.
func visit(path string, v reflect.Value, counts map[string]int64) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			visit(path, v.Elem(), counts)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() && f.Name != "Held" && f.Name != "Bytes" { // which are levels
				visit(path+"."+f.Name, v.Field(i), counts)
			}
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			counts[path+"."+key.String()] = v.MapIndex(key).Int()
			v.SetMapIndex(key, reflect.ValueOf(int64(-1)))
		}
	case reflect.Slice:
		v.Clear()
	case reflect.Int64:
		if v.Type() != reflect.TypeFor[time.Duration]() {
			counts[path] = v.Int()
			v.SetInt(-1)
		}
	}
}
