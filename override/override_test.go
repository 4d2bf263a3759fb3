package override_test

import (
	"cmp"
	"context"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/override"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
)

// A keeper is a store.Values in memory, whose values can be lost, whose clock can be another one, and that can fail.
type keeper struct {
	t        testing.TB
	mu       sync.Mutex
	values   *memstore.Store
	err      error
	readOnly error         // of writes only
	ahead    time.Duration // of the clock of the machine
	before   func()        // called once before the next write
	read     int           // values
	writes   int
}

func newKeeper(t testing.TB) *keeper {
	k := &keeper{t: t}
	k.lose()
	return k
}

// lose begins with no values, as after FLUSHALL.
func (k *keeper) lose() *memstore.Store {
	clock := func() time.Time { return time.Now().Add(k.ahead) }
	lost := k.values
	k.values = ratelimit.Must(memstore.New(memstore.Config{Clock: clock}))
	k.t.Cleanup(func() { k.values.Close() })
	return lost
}

func (k *keeper) ReadValues(ctx context.Context, set string, after store.Value) (store.ValueChanges, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.err != nil {
		return store.ValueChanges{}, k.err
	}
	changes, err := k.values.ReadValues(ctx, set, after)
	k.read += len(changes.Values)
	for i, v := range changes.Values { // as they come from a network
		changes.Values[i].Name, changes.Values[i].Text = strings.Clone(v.Name), strings.Clone(v.Text)
	}
	return changes, err
}

func (k *keeper) WriteValue(ctx context.Context, set string, v store.Value) (store.Value, bool, error) {
	k.mu.Lock()
	before := k.before
	k.before = nil
	k.mu.Unlock()
	if before != nil {
		before()
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := cmp.Or(k.err, k.readOnly); err != nil {
		return store.Value{}, false, err
	}
	k.writes++
	return k.values.WriteValue(ctx, set, v)
}

// counts returns how many values were read, and how many writes there were.
func (k *keeper) counts() (read, writes int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.read, k.writes
}

func (k *keeper) edit(f func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	f()
}

// put writes a value by hand.
func (k *keeper) put(name, text string) {
	k.t.Helper()
	if _, _, err := k.WriteValue(k.t.Context(), "overrides", store.Value{Name: name, Text: text, Version: store.AnyVersion}); err != nil {
		k.t.Fatal(err)
	}
}

func policy(name string, l ratelimit.Limit) ratelimit.Policy {
	return ratelimit.Policy{Name: name, Key: ratelimit.RemoteIP(), Limit: l}
}

// A logged is what a replica logged.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logged) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(line)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// A replica is one replica of a program with the policies api and login.
type replica struct {
	*ratelimit.Limiter
	*override.Overrides
	log *logged
}

func start(t *testing.T, values store.Values) replica {
	t.Helper()
	lines := new(logged)
	r := startWith(t, values, override.Config{Logger: slog.New(slog.NewTextHandler(lines, nil))})
	r.log = lines
	return r
}

func startWith(t *testing.T, values store.Values, cfg override.Config) replica {
	t.Helper()
	l, err := ratelimit.New(ratelimit.Config{Policies: []ratelimit.Policy{policy("api", ratelimit.PerMinute(60).WithBurst(10))}})
	if err != nil {
		t.Fatal(err)
	}
	login := l.Limit(policy("login", ratelimit.PerHour(5)))
	t.Cleanup(func() { runtime.KeepAlive(login); l.Close() })
	s, err := override.Watch(t.Context(), l, values, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return replica{Limiter: l, Overrides: s}
}

func (r replica) api() string { return r.Policies()[0].Limit.String() }

func (r replica) entry(name string) override.Entry {
	policy, key, _ := strings.Cut(name, " ")
	list := r.List(nil)
	i := slices.IndexFunc(list, func(e override.Entry) bool { return e.Policy == policy && e.Key == key })
	if i < 0 {
		return override.Entry{}
	}
	return list[i]
}

func change(limit, was string) override.Change {
	return override.Change{Policy: "api", Limit: limit, Was: was, By: "alice", Why: "sale"}
}

// ofKey is a change of the limit of a key.
func ofKey(key, limit string, until time.Time) override.Change {
	return override.Change{Policy: "api", Key: key, Limit: limit, Until: until, By: "alice", Why: "launch"}
}

func set(t *testing.T, r replica, c override.Change) {
	t.Helper()
	if err := r.Set(t.Context(), c); err != nil {
		t.Fatal(err)
	}
}

// edit returns the overrides as the command has them. program is nil, or has the limits of policies.
func edit(t testing.TB, values store.Values, program map[string]ratelimit.Limit) *override.Overrides {
	t.Helper()
	var limits map[string][]ratelimit.Limit
	for name, limit := range program {
		if limits == nil {
			limits = make(map[string][]ratelimit.Limit)
		}
		limits[name] = []ratelimit.Limit{limit}
	}
	s, err := override.Edit(t.Context(), values, limits)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
