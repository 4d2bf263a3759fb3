package fleet

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
)

// values are those of a store whose clock is wrong.
type values struct {
	store.Values
	ahead time.Duration

	mu    sync.Mutex
	err   error
	hangs bool
	reads atomic.Int64
}

func (v *values) ReadValues(ctx context.Context, set string, after store.Value) (store.ValueChanges, error) {
	v.reads.Add(1)
	if err := v.fail(ctx); err != nil {
		return store.ValueChanges{}, err
	}
	changes, err := v.Values.ReadValues(ctx, set, after)
	changes.Now = changes.Now.Add(v.ahead)
	for i := range changes.Values {
		changes.Values[i].Version += v.ahead.Microseconds()
	}
	return changes, err
}

func (v *values) WriteValue(ctx context.Context, set string, w store.Value) (store.Value, bool, error) {
	if err := v.fail(ctx); err != nil {
		return store.Value{}, false, err
	}
	w.Until = w.Until.Add(-v.ahead)
	now, written, err := v.Values.WriteValue(ctx, set, w)
	now.Version += v.ahead.Microseconds()
	return now, written, err
}

func (v *values) fail(ctx context.Context) error {
	v.mu.Lock()
	hangs, err := v.hangs, v.err
	v.mu.Unlock()
	if err == errPanic {
		panic("a nil map")
	}
	if hangs {
		<-ctx.Done()
		return ctx.Err()
	}
	return err
}

var errPanic = errors.New("panic")

func (v *values) set(err error, hangs bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.err, v.hangs = err, hangs
}

// newValues returns the values of a new memory store.
func newValues(t *testing.T, ahead time.Duration) *values {
	m, err := memstore.New(memstore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return &values{Values: m, ahead: ahead}
}

// publish publishes a snapshot that was taken now, by a clock that is off.
func publish(t *testing.T, p *Publisher, s Snapshot, off time.Duration) {
	t.Helper()
	s.At, s.Store = time.Now().Add(off).UTC(), Store{Kind: "redis", State: "answers"}
	if s.Started.IsZero() {
		s.Started = s.At.Add(-time.Hour)
	}
	if err := p.Publish(t.Context(), &s); err != nil {
		t.Error(err)
	}
}

// read returns the state of each replica.
func read(t *testing.T, r *Reader) string {
	t.Helper()
	f, err := r.Fleet(t.Context())
	if err != nil {
		return err.Error()
	}
	var list []string
	for _, replica := range f.Replicas {
		state := replica.Replica
		if replica.Silent {
			state += " silent"
		}
		list = append(list, state)
	}
	return strings.Join(list, ", ")
}

// A replica that has ended is silent after 6 s and gone after a minute, whatever the clock of the store, and also for a
// reader that has never seen it alive.
func TestReplicasThatEndAreSilentAndThenGone(t *testing.T) {
	for _, ahead := range []time.Duration{0, 5 * time.Hour, -5 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			v := newValues(t, ahead)
			a, b, watching := NewPublisher(v, "a"), NewPublisher(v, "b"), NewReader(v, nil)
			for at := range 70 {
				if at%2 == 0 {
					publish(t, a, Snapshot{}, 0)
				}
				if at == 0 {
					publish(t, b, Snapshot{}, 0)
				}
				want := "a, b"
				switch {
				case at >= 60:
					want = "a"
				case at >= 6:
					want = "a, b silent"
				}
				if at%2 == 0 && at != 6 && at != 60 { // the second of two writes in a microsecond counts as later
					for name, r := range map[string]*Reader{"a reader that watches": watching, "a new reader": NewReader(v, nil)} {
						if got := read(t, r); got != want {
							t.Errorf("clock ahead by %v, after %d s, %s: %q, want %q", ahead, at, name, got, want)
						}
					}
				}
				time.Sleep(time.Second)
			}
		})
	}
}

// A value whose version is ahead of the store's clock, which was set back, is not new each time it is gone.
func TestReplicasThatAreGoneStayGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		text, _ := (&Snapshot{At: time.Now()}).Encode()
		r := NewReader(written{{Name: "a", Text: text, Version: time.Now().Add(time.Hour).UnixMicro()}}, nil)
		for at := time.Duration(0); at < 3*GoneAfter; at += Every {
			if got := read(t, r); at >= GoneAfter && got != "" {
				t.Fatalf("%q after %v", got, at)
			}
			time.Sleep(Every)
		}
	})
}

// written are the values of a store that nobody writes any more.
type written []store.Value

func (w written) ReadValues(context.Context, string, store.Value) (store.ValueChanges, error) {
	return store.ValueChanges{Values: w, Now: time.Now()}, nil
}

func (written) WriteValue(context.Context, string, store.Value) (store.Value, bool, error) {
	return store.Value{}, false, errors.ErrUnsupported
}

// Values beyond those that are shown cost nothing, however many somebody writes.
func TestReplicasBeyondTheMostAreNotDecoded(t *testing.T) {
	text, _ := (&Snapshot{At: time.Now()}).Encode()
	changes := store.ValueChanges{Now: time.Now()}
	for i := range 4 * MaxReplicas {
		changes.Values = append(changes.Values, store.Value{Name: fmt.Sprint("r", i), Text: text, Version: changes.Now.UnixMicro()})
	}
	r := NewReader(written{}, nil)
	if f := r.decode(changes); len(f.Replicas) != MaxReplicas || f.More != 3*MaxReplicas {
		t.Fatalf("%d replicas and %d more", len(f.Replicas), f.More)
	}
	if n := testing.AllocsPerRun(3, func() { r.decode(changes) }); n > MaxReplicas {
		t.Errorf("%v allocations to read the same values again", n)
	}
}

// A clock that nobody can have set would be shown as the time of the whole fleet, and all blocks as ended.
func TestATimeTooFarAwayIsUnreadable(t *testing.T) {
	for _, at := range []string{"0001-01-01T00:00:01Z", "2400-01-01T00:00:00Z", "9999-12-31T23:59:59-23:59"} {
		r := NewReader(written{{Name: "a", Text: `{"format":1,"at":"` + at + `"}`, Version: time.Now().UnixMicro()}}, nil)
		if f, err := r.Fleet(t.Context()); err != nil || len(f.Replicas) != 0 || f.Unreadable != 1 {
			t.Errorf("%s: %+v, %v", at, f, err)
		}
	}
}

// All times of a replica are by this process's clock, whatever the clock of the replica. A second more or less is left.
func TestTimesAreThoseOfTheReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newValues(t, 3*time.Hour)
		for off, left := range map[time.Duration]time.Duration{-2 * time.Hour: 0, time.Second: time.Second} {
			now := time.Now()
			at := now.Add(off)
			publish(t, NewPublisher(v, "a"), Snapshot{
				Started: at.Add(-time.Hour), KeySteps: Steps{10, at.Add(-2 * time.Second)}, History: Histories{Hour: NewHistory(at, time.Minute)},
				Blocks: []Block{{Policy: "api", Name: "ip:192.0.2.1", Until: at.Add(time.Hour)}},
			}, off)
			f, err := NewReader(v, nil).Fleet(t.Context())
			if err != nil || len(f.Replicas) != 1 {
				t.Fatalf("%+v, %v", f, err)
			}
			s := f.Replicas[0].Snapshot
			for name, times := range map[string][2]time.Time{
				"At": {s.At, now}, "Started": {s.Started, now.Add(-time.Hour)}, "KeySteps.End": {s.KeySteps.End, now.Add(-2 * time.Second)},
				"Blocks.Until": {s.Blocks[0].Until, now.Add(time.Hour)}, "History.End": {s.History.Hour.End, at.Truncate(time.Minute).Add(-off)},
			} {
				if got, want := times[0], times[1].Add(left); !got.Equal(want) {
					t.Errorf("clock off by %v: %s is %v, want %v", off, name, got, want)
				}
			}
		}
	})
}

// However many look, the store is read once in two seconds. While it hangs, nobody waits for longer than they want to, and
// soon nothing of others is shown. When it answers again, the first one who looks sees it.
func TestAReaderReadsOnceInTwoSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newValues(t, 0)
		publish(t, NewPublisher(v, "a"), Snapshot{}, 0)
		r := NewReader(v, nil)
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				if got := read(t, r); got != "a" {
					t.Errorf("%q", got)
				}
			})
		}
		all.Wait()
		if n := v.reads.Load(); n != 1 {
			t.Errorf("%d reads", n)
		}
		v.set(nil, true)
		readAt := time.Now()
		for range 80 {
			ctx, end := context.WithTimeout(t.Context(), 100*time.Millisecond)
			began := time.Now()
			f, err := r.Fleet(ctx)
			end()
			if waited := time.Since(began); waited > 100*time.Millisecond {
				t.Errorf("waited %v", waited)
			}
			if past := time.Since(readAt) > keptFor; past != (err != nil) || past != (len(f.Replicas) == 0) {
				t.Errorf("%v after the last read: %+v, %v", time.Since(readAt), f, err)
			}
			time.Sleep(100 * time.Millisecond)
		}
		if n := v.reads.Load(); n > 8 {
			t.Errorf("%d reads", n)
		}
		v.set(errors.New("away"), false)
		time.Sleep(Every)
		if got := read(t, r); got != "away" {
			t.Errorf("%q", got)
		}
		v.set(nil, false)
		time.Sleep(Every)
		publish(t, NewPublisher(v, "a"), Snapshot{}, 0)
		if got := read(t, r); got != "a" {
			t.Errorf("afterwards %q", got)
		}
	})
}

// A panic of somebody's Store is an error of the read.
func TestAStoreThatPanics(t *testing.T) {
	v := newValues(t, 0)
	v.set(errPanic, false)
	if got := read(t, NewReader(v, nil)); got != "fleet: the store panicked: a nil map" {
		t.Errorf("%q", got)
	}
}

// A replica is not silent because the store could not be written, and not gone because the store has lost its data.
func TestAnOutageSilencesNobody(t *testing.T) {
	for _, outage := range []time.Duration{0, 20 * time.Second, 2 * GoneAfter} {
		for _, lost := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				v := newValues(t, 0)
				a, b, r := NewPublisher(v, "a"), NewPublisher(v, "b"), NewReader(v, nil)
				publish(t, a, Snapshot{}, 0)
				publish(t, b, Snapshot{}, 0)
				read(t, r)
				v.set(errors.New("away"), false)
				for range outage / Every {
					time.Sleep(Every)
					read(t, r)
				}
				if v.set(nil, false); lost {
					v.Values = newValues(t, 0).Values
				}
				for after := Every; after <= 10*time.Second; after += Every {
					time.Sleep(Every)
					want := "a, b"
					switch silent := after > SilentAfter || outage == 0 && after == SilentAfter; {
					case silent && (lost || outage > GoneAfter): // b has ended in the outage
						want = "a"
					case silent:
						want = "a, b silent"
					}
					if got := read(t, r); got != want {
						t.Errorf("%v after an outage of %v, data lost %v: %q, want %q", after, outage, lost, got, want)
					}
					publish(t, a, Snapshot{}, 0)
				}
			})
		}
	}
}

// What somebody has written into Redis is left out and counted. There are at most MaxReplicas.
func TestAReaderTakesNothingOnTrust(t *testing.T) {
	v := newValues(t, 0)
	write := func(name, text string) {
		if _, _, err := v.WriteValue(t.Context(), setName, store.Value{Name: name, Text: text, Version: store.AnyVersion, Until: time.Now().Add(time.Hour)}); err != nil {
			t.Error(err)
		}
	}
	for i := range 300 {
		publish(t, NewPublisher(v, fmt.Sprintf("replica-%03d", i)), Snapshot{}, 0)
	}
	good, _ := (&Snapshot{At: time.Now()}).Encode()
	for i, name := range []string{"<script>", "a b", strings.Repeat("n", 500), "\xff\x00"} {
		write(name, good)
		write(fmt.Sprint("text-", i), []string{"", "null", "[]", strings.Repeat("[", 8192)}[i])
	}
	f, err := NewReader(v, nil).Fleet(t.Context())
	if err != nil || len(f.Replicas)+f.Unreadable != MaxReplicas || f.Unreadable != 8 || f.More != 308-MaxReplicas {
		t.Fatalf("%d replicas, %d more, %d unreadable, %v", len(f.Replicas), f.More, f.Unreadable, err)
	}
	if last := f.Replicas[len(f.Replicas)-1].Replica; last != "replica-299" {
		t.Errorf("the newest are left out: %s", last)
	}
}

// A snapshot of a newer release is one in its list, and not in the sums.
func TestANewerReleaseIsNoError(t *testing.T) {
	v := newValues(t, 0)
	publish(t, NewPublisher(v, "a"), Snapshot{Traffic: map[string]int64{"allowed": 5}}, 0)
	text := fmt.Sprintf(`{"format":2,"host":"h","release":"v9","at":%q,"traffic":[1],"new":{"x":[null]}}`, time.Now().Format(time.RFC3339))
	if _, _, err := v.WriteValue(t.Context(), setName, store.Value{Name: "b", Text: text, Version: store.AnyVersion, Until: time.Now().Add(time.Hour)}); err != nil {
		t.Fatal(err)
	}
	f, err := NewReader(v, nil).Fleet(t.Context())
	if err != nil || len(f.Replicas) != 2 {
		t.Fatalf("%+v, %v", f, err)
	}
	if b := f.Replicas[1]; !b.Newer || b.Release != "v9" || b.Host != "h" || b.Away() || b.Behind != nil {
		t.Errorf("%+v", b)
	}
	if n := f.Merged().Traffic["allowed"]; n != 5 {
		t.Errorf("%d requests in the sum", n)
	}
}

// The replica with the last change of a limit has the newest limits, or else that of the last commit, or else the last that
// was started.
func TestWhatIsBehind(t *testing.T) {
	now := time.Now()
	replica := func(name, limit, release string, built, started, changed int) Replica {
		s := &Snapshot{Format: 1, Replica: name, Release: release, Started: now.Add(time.Duration(started) * time.Minute), Policies: []Policy{{Name: "api", Limit: limit}, {Name: "only-" + name, Limit: name}}}
		if built != 0 {
			s.Built = now.Add(time.Duration(built) * time.Hour)
		}
		if changed != 0 {
			s.Overrides.Changed = now.Add(time.Duration(changed) * time.Second)
		}
		return Replica{Snapshot: s}
	}
	for name, c := range map[string]struct {
		of   []Replica
		want map[string]string // a part of Behind
	}{
		"all the same":   {[]Replica{replica("a", "5/1s", "v1", 1, 1, 1), replica("b", "5/1s", "v1", 1, 2, 1)}, nil},
		"a change":       {[]Replica{replica("a", "5/1s", "v1", 1, 1, 2), replica("b", "6/1s", "v1", 1, 2, 1)}, map[string]string{"b": "does not know the last change of a limit. It limits api to 6/1s, and others to 5/1s."}},
		"a new release":  {[]Replica{replica("a", "6/1s", "v2", 2, 1, 0), replica("b", "5/1s", "v1", 1, 2, 0)}, map[string]string{"b": "runs release v1, and a runs v2. It limits api to 5/1s, and others to 6/1s."}},
		"no commit":      {[]Replica{replica("a", "", "", 0, 1, 0), replica("b", "5/1s", "", 0, 2, 0)}, map[string]string{"a": "It limits api to what a LimitFunc returns, and others to 5/1s."}},
		"a silent newer": {[]Replica{replica("a", "5/1s", "v1", 1, 1, 0), {Snapshot: replica("b", "6/1s", "v2", 2, 2, 0).Snapshot, Silent: true}}, map[string]string{"b": "runs release v2, and a runs v1. It limits api to 6/1s"}},
	} {
		f := Fleet{Replicas: c.of}
		f.judge()
		for _, r := range f.Replicas {
			got := strings.Join(r.Behind, " ")
			if want := c.want[r.Replica]; want == "" && got != "" || !strings.Contains(got, want) {
				t.Errorf("%s: %s: %q, want %q", name, r.Replica, got, want)
			}
		}
	}
}

// Two programs with one prefix can differ in all their policies.
func TestWhatIsBehindIsShort(t *testing.T) {
	a, b := &Snapshot{Replica: "a", Started: time.Now()}, &Snapshot{Replica: "b"}
	for i := range 64 {
		a.Policies = append(a.Policies, Policy{Name: fmt.Sprint("p", i), Limit: "5/1s"})
		b.Policies = append(b.Policies, Policy{Name: fmt.Sprint("p", i), Limit: "6/1s"})
	}
	f := Fleet{Replicas: []Replica{{Snapshot: a}, {Snapshot: b}}}
	f.judge()
	if got := f.Replicas[1].Behind; len(got) != 4 || got[3] != "It has other limits for 64 policies in all." {
		t.Errorf("%q", got)
	}
}
