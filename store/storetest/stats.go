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
				if got.Field(i).Kind() == reflect.Pointer && got.Field(i).IsNil() {
					t.Errorf("%s is nil", want.Type().Field(i).Name)
				} else if !reflect.DeepEqual(got.Field(i).Interface(), want.Field(i).Interface()) {
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
		Redis: &store.RedisStats{Calls: 11}, Denials: &store.DenialStats{Answered: 12}, Leases: &store.LeaseStats{Drawn: 13},
		Fallback: &store.FallbackStats{Probes: 14}, Memory: &store.MemoryStats{Buckets: 15},
	}
}

// A foreign decorator knows nothing of Stats.
type foreign struct{ store.Store }

func (f foreign) Unwrap() store.Store { return f.Store }

// statsRules are those of a StatsReporter.
var statsRules = []rule{
	{"Stats tell of blocked buckets that are kept in memory", on(hour, 5, allow(1, 4), kept(1, 0),
		locking(minute), by("locked"), allow(5, 0), kept(2, 1), shift(minute), kept(2, 0),
		blocking(by("k"), block(hour), kept(2, 1), block(0), kept(2, 0)))},
	{"Stats can be read while calls are made, may be changed, and their counts only grow", func(r *rig) {
		limit := r.limit(1, hour, 20)
		done := make(chan struct{})
		var reader sync.WaitGroup
		reader.Go(func() {
			for last := make(map[string]int64); ; time.Sleep(100 * micro) { // or it takes a processor from a store in this process
				s, now := r.store.(store.StatsReporter).Stats(), make(map[string]int64)
				count("", reflect.ValueOf(&s).Elem(), now)
				for name, n := range last {
					if now[name] < n {
						r.Errorf("%s fell from %d to %d", name, n, now[name])
					}
				}
				last = now
				select {
				case <-done:
					return
				default:
				}
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

// kept checks how many buckets a Store keeps in memory, if it does.
func kept(buckets, blocked int) step {
	return func(b *bucket) {
		m := b.store.(store.StatsReporter).Stats().Memory
		if m != nil && (m.Buckets != buckets || m.Blocked != blocked || m.Bytes <= 0 || m.Max < buckets) {
			b.Fatalf("%+v, want %d buckets, and %d of them blocked", m, buckets, blocked)
		}
	}
}

// count adds to counts what only grows in v, and then sets it to a value below all.
func count(path string, v reflect.Value, counts map[string]int64) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			count(path, v.Elem(), counts)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() && f.Name != "Held" && f.Name != "Bytes" { // which are levels
				count(path+"."+f.Name, v.Field(i), counts)
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
