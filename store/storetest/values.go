package storetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit/store"
)

// RunValues is the part of [Run] for a [store.Values]. Use it where only the way to the server differs.
func RunValues(t *testing.T, open Open) {
	for _, rule := range valueRules {
		t.Run(rule.name, func(t *testing.T) {
			rule.test(newRig(t, open))
		})
	}
}

// valueRules are those of sets of values.
var valueRules = []rule{
	{"a set without values is empty", onSet(func(s *set) {
		for range 2 {
			s.want(store.Value{}, true)
			s.want(store.Value{Name: "a", Version: s.now() - 1}, true)
			s.wait(second)
		}
	})},
	{"a value is written if its name has the expected version, and else is returned", onSet(func(s *set) {
		first := s.write(store.Value{Name: "a", Text: "1"})
		if first.Version != s.now() {
			s.Errorf("version %d at %d, want the time", first.Version, s.now())
		}
		s.refused(store.Value{Name: "a", Text: "2"}, first)
		s.refused(store.Value{Name: "a", Text: "2", Version: first.Version - 1}, first)
		s.refused(store.Value{Name: "a", Text: "2", Version: first.Version + 1}, first)
		s.refused(store.Value{Name: "b", Text: "2", Version: first.Version}, store.Value{Name: "b"})
		s.wait(second)
		second := s.write(store.Value{Name: "a", Text: "2", Version: first.Version})
		s.refused(store.Value{Name: "a", Text: "3", Version: first.Version}, second)
		s.write(store.Value{Name: "a", Text: "", Version: store.AnyVersion})
		s.write(store.Value{Name: "b", Text: "b", Version: store.AnyVersion})
		s.want(store.Value{}, true, "a", "b")
	})},
	{"only the values that were written after a known one are read, in the order of their versions", onSet(func(s *set) {
		a, b := s.write(store.Value{Name: "a"}), s.write(store.Value{Name: "b"})
		c := s.write(store.Value{Name: "c"})
		s.want(store.Value{}, true, "a", "b", "c")
		s.want(a, false, "b", "c")
		s.want(store.Value{Name: "b", Version: b.Version, Text: "of no meaning"}, false, "c")
		s.want(c, false)
		s.write(store.Value{Name: "a", Text: "again", Version: a.Version})
		s.want(a, false, "b", "c", "a") // which has a higher version by now
		s.want(b, false, "c", "a")
		s.want(c, false, "a")
		s.want(store.Value{}, true, "b", "c", "a")
	})},
	{"all values are read if the set does not have the known one", onSet(func(s *set) {
		a := s.write(store.Value{Name: "a"})
		b := s.write(store.Value{Name: "b"})
		s.want(store.Value{Name: "c", Version: a.Version}, true, "a", "b")
		s.want(store.Value{Name: "b", Version: b.Version + 1}, true, "a", "b")
		s.want(store.Value{Name: "b"}, true, "a", "b")
		s.want(store.Value{Version: a.Version}, true, "a", "b")
		s.want(store.Value{Name: "b", Version: 1}, false, "a", "b")
	})},
	{"versions rise, also while the clock stands still or is set back", onSet(func(s *set) {
		last := store.Value{}
		for i, move := range []time.Duration{0, 0, -hour, 0, -micro, hour, second, -400 * day, 0, 0, micro} {
			s.nanos.Add(int64(move))
			v := s.write(store.Value{Name: fmt.Sprint("v", i%3), Text: fmt.Sprint(i), Version: store.AnyVersion})
			if v.Version <= last.Version {
				s.Errorf("version %d after %d", v.Version, last.Version)
			}
			if i > 0 {
				s.want(last, false, v.Name)
			}
			last = v
		}
		s.nanos.Add(int64(500 * day))
		if v := s.write(store.Value{Name: "late"}); v.Version != s.now() {
			s.Errorf("version %d at %d", v.Version, s.now())
		}
	})},
	{"a value is left out from its end on, and not a microsecond before", onSet(func(s *set) {
		at := time.Unix(0, s.nanos.Load())
		s.write(store.Value{Name: "stays"})
		ends := s.write(store.Value{Name: "ends", Until: at.Add(hour)})
		s.write(store.Value{Name: "rounded up", Until: at.Add(2*hour - 999)})
		last := s.write(store.Value{Name: "last", Until: at.Add(90 * minute)})
		s.wait(hour - micro)
		s.want(store.Value{}, true, "stays", "ends", "rounded up", "last")
		s.refused(store.Value{Name: "ends"}, ends)
		s.wait(micro)
		s.want(store.Value{}, true, "stays", "rounded up", "last")
		s.want(last, false)
		s.refused(ends, store.Value{Name: "ends"})
		anew := s.write(store.Value{Name: "ends", Text: "anew"})
		s.want(last, false, "ends")
		s.write(store.Value{Name: "ends", Until: at, Version: anew.Version}) // in the past
		s.want(store.Value{}, true, "stays", "rounded up", "last")
		s.wait(hour - micro)
		s.want(store.Value{}, true, "stays", "rounded up")
		s.wait(micro)
		s.want(store.Value{}, true, "stays")
	})},
	{"the version of a value that has ended is exceeded by the next, also if the clock is set back", onSet(func(s *set) {
		s.write(store.Value{Name: "stays"})
		ends := s.write(store.Value{Name: "ends", Until: time.Unix(0, s.nanos.Load()).Add(second)})
		s.wait(second)
		s.want(store.Value{}, true, "stays")
		s.nanos.Add(int64(-hour))
		if v := s.write(store.Value{Name: "ends", Version: store.AnyVersion}); v.Version <= ends.Version {
			s.Errorf("version %d after %d", v.Version, ends.Version)
		}
	})},
	{"an end may be removed, and set", onSet(func(s *set) {
		v := s.write(store.Value{Name: "v", Until: time.Unix(0, s.nanos.Load()).Add(minute)})
		v = s.write(store.Value{Name: "v", Version: v.Version})
		s.wait(400 * day)
		s.want(store.Value{}, true, "v")
		s.write(store.Value{Name: "v", Version: v.Version, Until: time.Unix(0, s.nanos.Load()).Add(10 * 365 * day)})
		s.wait(10*365*day - micro)
		s.want(store.Value{}, true, "v")
		s.wait(micro)
		s.want(store.Value{}, true)
	})},
	{"names and texts are any bytes, up to their bounds", onSet(func(s *set) {
		random := rand.New(rand.NewPCG(1, 2))
		noise := func(n int) string {
			b := make([]byte, n)
			for i := range b {
				b[i] = byte(random.IntN(256))
			}
			return string(b)
		}
		hostile := []string{" ", "0", "1 2 ", "1 0 x", "#versions", "#ends", "}", "{", "a\x00b", "\r\n$-1\r\n", "\xff\xfe", "%s%d", "é", "-1", "(5", "inf", "\n"}
		for i, name := range append(hostile, noise(store.MaxValueName), strings.Repeat("\x00", store.MaxValueName)) {
			text := noise(store.MaxValueText)
			if i < len(hostile) {
				text = hostile[len(hostile)-1-i]
			}
			s.write(store.Value{Name: name, Text: text})
		}
		s.want(store.Value{}, true, s.names...)
	})},
	{"a set and a bucket do not share what they keep, nor do two sets", func(r *rig) {
		sets := []*set{{r, "one", map[string]store.Value{}, nil}, {r, "two", map[string]store.Value{}, nil}, {r, "{one}", map[string]store.Value{}, nil}, {r, "one:p", map[string]store.Value{}, nil}}
		if !sets[0].supported() {
			return
		}
		limit := r.limit(1, hour, 3)
		for _, s := range sets {
			r.take(store.Charge{Policy: "p", Key: s.name, Limit: limit, Cost: 2})
			s.write(store.Value{Name: "tokens", Text: s.name})
		}
		for _, s := range sets {
			s.want(store.Value{}, true, "tokens")
			r.take(store.Charge{Policy: "p", Key: s.name, Limit: limit, Cost: 1})
		}
	}},
	{"an invalid call is an error that wraps ErrInvalidCall and names the field, and changes nothing", onSet(func(s *set) {
		valid := s.write(store.Value{Name: "v", Text: "valid"})
		long, far := strings.Repeat("n", store.MaxValueName+1), time.Date(2300, 1, 1, 0, 0, 0, 0, time.UTC)
		for _, invalid := range []struct {
			set, field string
			v          store.Value
		}{
			{"", "set", valid},
			{long, "set", valid},
			{"s", "Name", store.Value{Version: store.AnyVersion}},
			{"s", "Name", store.Value{Name: long}},
			{"s", "Text", store.Value{Name: "v", Text: strings.Repeat("t", store.MaxValueText+1), Version: store.AnyVersion}},
			{"s", "Version", store.Value{Name: "v", Version: -2}},
			{"s", "Until", store.Value{Name: "v", Until: far, Version: store.AnyVersion}},
			{"s", "Until", store.Value{Name: "v", Until: time.Unix(-1, 0), Version: store.AnyVersion}},
		} {
			_, _, err := store.WriteValue(context.Background(), s.store, invalid.set, invalid.v)
			if !errors.Is(err, store.ErrInvalidCall) || !strings.Contains(err.Error(), ": "+invalid.field+" ") {
				s.Errorf("%s: %v", invalid.field, err)
			}
			if invalid.field == "Text" || invalid.field == "Until" || invalid.v.Version == store.AnyVersion {
				continue
			}
			_, err = store.ReadValues(context.Background(), s.store, invalid.set, invalid.v)
			if !errors.Is(err, store.ErrInvalidCall) || !strings.Contains(err.Error(), ": "+invalid.field+" ") {
				s.Errorf("%s: %v", invalid.field, err)
			}
		}
		s.want(store.Value{}, true, "v")
	})},
	{"a call whose context has ended changes nothing", onSet(func(s *set) {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if _, _, err := store.WriteValue(ctx, s.store, s.name, store.Value{Name: "v"}); !errors.Is(err, context.Canceled) {
			s.Error(err)
		}
		if _, err := store.ReadValues(ctx, s.store, s.name, store.Value{}); !errors.Is(err, context.Canceled) {
			s.Error(err)
		}
		s.want(store.Value{}, true)
	})},
	{"many values are read once each, and after that only changes", onSet(func(s *set) {
		for i := range 600 {
			s.write(store.Value{Name: fmt.Sprint("name ", i), Text: fmt.Sprint("text ", i)})
		}
		s.want(store.Value{}, true, s.names...)
		last := s.kept[s.names[len(s.names)-1]]
		s.want(last, false)
		s.write(store.Value{Name: "name 7", Text: "changed", Version: s.kept["name 7"].Version})
		s.want(last, false, "name 7")
	})},
	{"a replica that reads the changes has what a new one reads", onSet(func(s *set) {
		random, last, follows := rand.New(rand.NewPCG(3, 4)), store.Value{}, make(map[string]store.Value)
		for step := range 300 {
			switch at := time.Unix(0, s.nanos.Load()); random.IntN(8) {
			case 0:
				s.wait(time.Duration(random.Int64N(int64(hour))).Truncate(micro))
			case 1:
				s.nanos.Add(-random.Int64N(int64(second)))
			case 2:
				s.write(store.Value{Name: fmt.Sprint("ends ", random.IntN(9)), Version: store.AnyVersion, Until: at.Add(micro + time.Duration(random.Int64N(int64(hour))))})
			default:
				s.write(store.Value{Name: fmt.Sprint("stays ", random.IntN(9)), Text: fmt.Sprint(step), Version: store.AnyVersion})
			}
			for range random.IntN(3) {
				last = s.follow(follows, last)
			}
			last = s.follow(follows, last)
			all := make(map[string]store.Value)
			s.follow(all, store.Value{})
			if !maps.EqualFunc(follows, all, same) {
				s.Fatalf("step %d: has %s, want %s", step, shown(follows), shown(all))
			}
		}
	})},
	{"of many writers that expect the same version one writes", onSet(func(s *set) {
		var mu sync.Mutex
		var writers sync.WaitGroup
		var written []store.Value
		for i := range 20 {
			writers.Go(func() {
				v, ok, err := store.WriteValue(context.Background(), s.store, s.name, store.Value{Name: "v", Text: fmt.Sprint(i)})
				mu.Lock()
				defer mu.Unlock()
				if ok {
					written = append(written, v)
				}
				if err != nil {
					s.Error(err)
				}
			})
		}
		writers.Wait()
		if len(written) != 1 {
			s.Fatalf("%d have written, want one: %+v", len(written), written)
		}
		s.kept["v"] = written[0]
		s.want(store.Value{}, true, "v")
	})},
}

// A set is a set of values under test, and what it must have.
type set struct {
	*rig
	name  string
	kept  map[string]store.Value
	names []string // in the order in which they were first written
}

// onSet tests an empty set. A decorator of a Store without sets passes.
func onSet(test func(*set)) func(*rig) {
	return func(r *rig) {
		if s := (&set{r, "s", make(map[string]store.Value), nil}); s.supported() {
			test(s)
		}
	}
}

func (s *set) supported() bool {
	_, err := store.ReadValues(context.Background(), s.store, s.name, store.Value{})
	return !errors.Is(err, errors.ErrUnsupported)
}

// write writes a value, which must be done.
func (s *set) write(v store.Value) store.Value {
	s.Helper()
	now, written, err := store.WriteValue(context.Background(), s.store, s.name, v)
	if err != nil || !written || now.Version <= 0 {
		s.Fatalf("%s: %s, written %t, error %v", shown(v), shown(now), written, err)
	}
	v.Version = now.Version
	if !v.Until.IsZero() {
		v.Until = v.Until.Add(micro - 1).Truncate(micro)
	}
	if !same(now, v) {
		s.Fatalf("written %s, want %s", shown(now), shown(v))
	}
	if _, known := s.kept[v.Name]; !known {
		s.names = append(s.names, v.Name)
	}
	s.kept[v.Name] = v
	return v
}

// refused tries to write a value, which must leave what the name has.
func (s *set) refused(v, want store.Value) {
	s.Helper()
	now, written, err := store.WriteValue(context.Background(), s.store, s.name, v)
	if err != nil || written || !same(now, want) {
		s.Fatalf("%+v: %+v, written %t, error %v, want %+v", v, now, written, err, want)
	}
}

// follow has a replica, which has values up to the last one, read what has changed. It returns the one that is the last then.
func (s *set) follow(has map[string]store.Value, last store.Value) store.Value {
	s.Helper()
	got, err := store.ReadValues(context.Background(), s.store, s.name, last)
	if err != nil {
		s.Fatal(err)
	}
	if got.All {
		clear(has)
		last = store.Value{}
	}
	for _, v := range got.Values {
		has[v.Name], last = v, v
	}
	maps.DeleteFunc(has, func(_ string, v store.Value) bool { return !v.Until.IsZero() && !got.Now.Before(v.Until) })
	return last
}

// want reads the values after one, which must be those of these names, in their order.
func (s *set) want(after store.Value, all bool, names ...string) {
	s.Helper()
	got, err := store.ReadValues(context.Background(), s.store, s.name, after)
	if err != nil || got.All != all || !got.Now.Equal(time.UnixMicro(s.now())) || len(got.Values) != len(names) {
		s.Fatalf("after %s at %d: %s, error %v, want all %t, %s", shown(after), s.now(), shown(got), err, all, shown(names))
	}
	for i, v := range got.Values {
		if want := s.kept[names[i]]; !same(v, want) {
			s.Fatalf("after %s: %s, want %s", shown(after), shown(v), shown(want))
		}
	}
}

func same(a, b store.Value) bool {
	return a.Name == b.Name && a.Text == b.Text && a.Version == b.Version && a.Until.Equal(b.Until)
}

// shown is a part of v for people, because names and texts may be long.
func shown(v any) string { return fmt.Sprintf("%.500q", fmt.Sprintf("%+v", v)) }
