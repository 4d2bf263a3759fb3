package overlay

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
	"github.com/go-tokenbucket/ratelimit/store/storetest"
)

// readOnly fails the test if its Store is asked for more than looks.
type readOnly struct {
	testing.TB
	store.Store
}

func (r readOnly) Take(ctx context.Context, charges []store.Charge, states []store.State) (bool, error) {
	for _, c := range charges {
		if c.Cost != 0 || c.Block != 0 || c.Owed || c.Refilled != 0 {
			r.Errorf("the base was charged: %+v", c)
		}
	}
	return r.Store.Take(ctx, charges, states)
}

func (r readOnly) Inspect(ctx context.Context, policy, key string) (store.Bucket, error) {
	return store.Inspect(ctx, r.Store, policy, key)
}

// opaque hides that a Store is an Inspector.
type opaque struct{ store.Store }

func newBase(clock func() time.Time) *memstore.Store {
	s := memstore.New(memstore.Config{Clock: clock})
	s.Close() // its timer goes by the clock of the machine, and would forget full buckets between two looks
	return s
}

func TestContract(t *testing.T) {
	storetest.Run(t, func(t *testing.T, clock func() time.Time) store.Store {
		return open(readOnly{t, newBase(clock)}, clock)
	})
}

// layers lays a new Store over the last one before each call from some call on, and lets it copy all buckets. So each call
// meets what the calls before it have left in bases. A Bucket does not say that its last charge was in the future, nor
// what a Store knows of outages. So none is laid while the clock is behind, and none after a charge for an outage.
type layers struct {
	*testing.T
	clock func() time.Time
	from  int

	mu     sync.Mutex
	top    store.Store
	named  map[name]store.Limit
	latest time.Time
}

func (l *layers) Take(ctx context.Context, charges []store.Charge, states []store.State) (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.clock()
	if l.from--; l.from < 0 && len(l.named) < 40 && !now.Before(l.latest) { // more take too long
		l.top = open(readOnly{l.T, l.top}, l.clock)
		for n, limit := range l.named {
			take(l.T, context.Background(), l.top, store.Charge{Policy: n.policy, Key: n.key, Limit: limit})
		}
	}
	if now.After(l.latest) {
		l.latest = now
	}
	for _, c := range charges {
		if c.Refilled != 0 {
			l.from = math.MaxInt
		}
		if store.Validate([]store.Charge{c}, make([]store.State, 1)) == nil {
			l.named[name{c.Policy, c.Key}] = c.Limit
		}
	}
	return l.top.Take(ctx, charges, states)
}

func (l *layers) Inspect(ctx context.Context, policy, key string) (store.Bucket, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return store.Inspect(ctx, l.top, policy, key)
}

func TestContractOverFilledBases(t *testing.T) {
	for _, from := range []int{1, 4} {
		t.Run(strconv.Itoa(from), func(t *testing.T) {
			over := func(t *testing.T, clock func() time.Time) store.Store {
				s := newBase(clock)
				s.Close() // if a clock goes back, it shows that the timer forgets full buckets
				return &layers{T: t, clock: clock, from: from, top: s, named: make(map[name]store.Limit)}
			}
			storetest.RunRules(t, over)
			storetest.RunSequence(t, over, 300, uint64(from))
		})
	}
}

func limit(t *testing.T, rate int64, per time.Duration, burst int64) store.Limit {
	t.Helper()
	l, err := store.NewLimit(rate, per, burst)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func take(t *testing.T, ctx context.Context, s store.Store, charges ...store.Charge) (bool, []store.State) {
	t.Helper()
	states := make([]store.State, len(charges))
	ok, err := s.Take(ctx, charges, states)
	if err != nil {
		t.Fatal(err)
	}
	return ok, states
}

// What a charge would do is what it then does.
func TestABaseIsLeftAsItIs(t *testing.T) {
	now := time.Date(2026, 5, 23, 0, 0, 0, 0, time.UTC)
	exact := limit(t, 1, time.Second, 10) // of which a State says all
	limits := []store.Limit{exact, limit(t, 7, time.Second, 10), limit(t, 3, time.Minute, 11), limit(t, 1, 70*365*24*time.Hour, 1), limit(t, 1_000_000, time.Second, 12)}
	for name, tt := range map[string]struct {
		hide   func(store.Store) store.Store
		limits []store.Limit
		blocks bool
	}{
		"an Inspector":    {func(s store.Store) store.Store { return readOnly{t, s} }, limits, true},
		"another overlay": {func(s store.Store) store.Store { return New(readOnly{t, s}, now) }, limits, true},
		"no Inspector":    {func(s store.Store) store.Store { return opaque{readOnly{t, s}} }, limits[:1], false},
	} {
		t.Run(name, func(t *testing.T) {
			random := rand.New(rand.NewPCG(18, 3))
			base := newBase(func() time.Time { return now })
			names := []string{"a", "b", "c"}
			for range 3000 {
				charges := []store.Charge{}
				for _, policy := range names[:1+random.IntN(3)] {
					c := store.Charge{Policy: policy, Key: names[random.IntN(3)], Cost: random.Int64N(13) - 1, Shadow: random.IntN(4) == 0}
					c.Limit = tt.limits[random.IntN(len(tt.limits))]
					switch random.IntN(8) {
					case 0:
						c.MaxWait = time.Duration(random.IntN(20)) * time.Second
					case 1:
						c.Owed = c.Cost > 0
					case 2:
						if tt.blocks {
							c.Block, c.Cost = time.Duration(random.IntN(3))*time.Second, 0
						}
					case 3:
						if tt.blocks {
							c.Block, c.Cost = time.Duration(random.IntN(3))*time.Second, max(1, c.Cost)
						}
					}
					charges = append(charges, c)
				}
				before := contents(t, base, charges)
				wantOK, want := take(t, t.Context(), New(tt.hide(base), now), charges...)
				if after := contents(t, base, charges); !equal(before, after) {
					t.Fatalf("%+v\nbefore %+v\nafter  %+v", charges, before, after)
				}
				if ok, states := take(t, t.Context(), base, charges...); ok != wantOK || !equal(states, want) {
					t.Fatalf("%+v of %+v\ngot  %t %+v\nwant %t %+v", charges, before, wantOK, want, ok, states)
				}
				now = now.Add(time.Duration(random.IntN(3000)) * time.Millisecond)
			}
		})
	}
}

func contents(t *testing.T, s store.Store, charges []store.Charge) (all []store.Bucket) {
	for _, c := range charges {
		b, err := store.Inspect(context.Background(), s, c.Policy, c.Key)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b)
	}
	return all
}

func equal[T comparable](a, b []T) bool {
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return len(a) == len(b)
}

// A bucket that is charged at two places is charged twice.
func TestChargesAreRemembered(t *testing.T) {
	ctx := context.Background()
	now := time.Now()
	base := newBase(func() time.Time { return now })
	c := store.Charge{Policy: "p", Key: "k", Limit: limit(t, 1, time.Hour, 5), Cost: 2}
	take(t, ctx, base, c)
	s := New(base, now)
	for _, want := range []bool{true, false, false} {
		if ok, states := take(t, ctx, s, c); ok != want {
			t.Fatalf("%t %+v, want %t", ok, states, want)
		}
	}
	c.Cost = -1
	take(t, ctx, s, c)
	if b, err := s.Inspect(ctx, "p", "k"); err != nil || b.State(c.Limit).Remaining != 2 {
		t.Fatalf("%+v, %v, want 2 tokens", b, err)
	}
	if b, err := base.Inspect(ctx, "p", "k"); err != nil || b.State(c.Limit).Remaining != 3 {
		t.Fatalf("the base has %+v, %v, want 3 tokens", b, err)
	}
}

// failing fails all calls under WithoutStandIn, and answers the others as a stand-in with half of each limit.
type failing struct{ store.Store }

func (f failing) Take(ctx context.Context, charges []store.Charge, states []store.State) (bool, error) {
	if !store.MayStandIn(ctx) {
		return false, store.ErrAway
	}
	ok, err := f.Store.Take(ctx, charges, states)
	for i := range charges {
		states[i].Degraded = true
	}
	return ok, err
}

func TestAStandInIsNotAskedWhereItMustNotBe(t *testing.T) {
	ctx := context.Background()
	now := time.Now()
	s := New(failing{newBase(func() time.Time { return now })}, now)
	c := store.Charge{Policy: "p", Key: "k", Limit: limit(t, 1, time.Hour, 5), Cost: 2}
	if ok, states := take(t, ctx, s, c); !ok || states[0] != (store.State{Allowed: true, Degraded: true, Remaining: 3, ResetAfter: 2 * time.Hour}) {
		t.Fatalf("%t, %+v", ok, states)
	}
	if _, err := s.Take(store.WithoutStandIn(ctx), []store.Charge{c}, make([]store.State, 1)); !errors.Is(err, store.ErrAway) {
		t.Fatalf("error %v, want ErrAway", err)
	}
	if ok, states := take(t, ctx, s, c); !ok || states[0].Remaining != 1 {
		t.Fatalf("%t, %+v, want 1 left", ok, states)
	}
}

func TestErrorsOfABaseAreReturned(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	s := New(newBase(nil), time.Now())
	cancel()
	c := store.Charge{Policy: "p", Key: "k", Limit: limit(t, 1, time.Hour, 5), Cost: 2}
	if _, err := s.Take(ctx, []store.Charge{c}, make([]store.State, 1)); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}
