package fallback_test

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/teststore"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/fallback"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
)

var quiet = slog.New(slog.DiscardHandler)

// A fallbackRig is a fallback on a faulty Store.
type fallbackRig struct {
	*fallback.Store
	t       *testing.T
	primary *teststore.Faulty
	changes []string // what OnChange was told
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// inBubble runs a test of a fallbackRig in a bubble.
func inBubble(t *testing.T, cfg fallback.Config, test func(t *testing.T, r *fallbackRig)) {
	synctest.Test(t, func(t *testing.T) { test(t, newRig(t, cfg)) })
}

// run is inBubble in a subtest.
func run(t *testing.T, name string, cfg fallback.Config, test func(t *testing.T, r *fallbackRig)) {
	t.Run(name, func(t *testing.T) { inBubble(t, cfg, test) })
}

// openSmall returns a store of a single shard. In hours of a bubble, sweeps of many shards take seconds.
func openSmall(t *testing.T) *memstore.Store {
	s := ratelimit.Must(memstore.New(memstore.Config{MaxKeys: 1024}))
	t.Cleanup(func() { s.Close() })
	return s
}

func newRig(t *testing.T, cfg fallback.Config) *fallbackRig { return newRigWith(t, openSmall(t), cfg) }

func newRigWith(t *testing.T, secondary store.Store, cfg fallback.Config) *fallbackRig {
	r := &fallbackRig{t: t, primary: &teststore.Faulty{Store: openSmall(t)}}
	cfg.Logger = cmp.Or(cfg.Logger, quiet)
	told := cfg.OnChange
	cfg.OnChange = func(away bool, reason error) {
		if r.changes = append(r.changes, fmt.Sprint(away, " ", reason)); told != nil {
			told(away, reason)
		}
	}
	r.Store = ratelimit.Must(fallback.New(r.primary, secondary, cfg))
	t.Cleanup(func() { r.Close() })
	return r
}

func openFallback(t testing.TB, s store.Store, cfg fallback.Config) *fallback.Store {
	cfg.Logger = quiet
	f := ratelimit.Must(fallback.New(s, nil, cfg))
	t.Cleanup(func() { f.Close() })
	return f
}

func (r *fallbackRig) take(c store.Charge) (bool, store.State) {
	r.t.Helper()
	ok, state, err := r.takeBy(r.t.Context(), c)
	if err != nil {
		r.t.Fatal(err)
	}
	return ok, state
}

// want makes a call that must be allowed, or denied.
func (r *fallbackRig) want(c store.Charge, allowed bool) {
	r.t.Helper()
	if ok, state := r.take(c); ok != allowed {
		r.t.Errorf("%+v: %+v, want it allowed: %t", c, state, allowed)
	}
}

func (r *fallbackRig) takeBy(ctx context.Context, c store.Charge) (bool, store.State, error) {
	states := make([]store.State, 1)
	ok, err := r.Take(ctx, []store.Charge{c}, states)
	return ok, states[0], err
}

// takeWithin makes a call that has that long, or no deadline if limit is 0.
func (r *fallbackRig) takeWithin(limit time.Duration, c store.Charge) (bool, store.State, error) {
	if limit == 0 {
		return r.takeBy(r.t.Context(), c)
	}
	ctx, cancel := context.WithTimeout(r.t.Context(), limit)
	defer cancel()
	return r.takeBy(ctx, c)
}

// wantAway checks whether the primary is given up.
func (r *fallbackRig) wantAway(want bool) {
	r.t.Helper()
	if reason := r.Away(); (reason != nil) != want {
		r.t.Errorf("given up: %v, want it given up: %t", reason, want)
	}
}

// hourly takes a token of a bucket of burst, of which one comes in an hour.
func hourly(t testing.TB, burst int64) store.Charge {
	t.Helper()
	return store.Charge{Policy: "p", Key: "k", Limit: teststore.Limit(t, 1, time.Hour, burst), Cost: 1}
}

// count makes calls of c until one is refused, and returns how many were allowed.
func (r *fallbackRig) count(c store.Charge) (n int) {
	r.t.Helper()
	for ; n < 10_000; n++ {
		if ok, _ := r.take(c); !ok {
			return n
		}
	}
	r.t.Fatal("never refused")
	return n
}

// wantCount checks how many calls of c are allowed until one is refused.
func (r *fallbackRig) wantCount(c store.Charge, want int) {
	r.t.Helper()
	if n := r.count(c); n != want {
		r.t.Errorf("%+v: %d allowed, want %d", c, n, want)
	}
}

// fail has the primary given up, by calls of a bucket that nothing else uses.
func (r *fallbackRig) fail(f teststore.Fault) {
	r.t.Helper()
	r.primary.Have(f)
	for i := 0; r.Away() == nil; i++ {
		if i == 100 {
			r.t.Fatal("the primary is not given up")
		}
		r.take(store.Charge{Policy: "other", Key: fmt.Sprint(i), Limit: teststore.Limit(r.t, 1, time.Hour, 100), Cost: 1})
	}
}

// comeBack mends the primary and waits until it is asked again.
func (r *fallbackRig) comeBack() {
	r.t.Helper()
	r.primary.Mend()
	begin := time.Now()
	for r.Away() != nil {
		time.Sleep(time.Millisecond)
		if time.Since(begin) > time.Second {
			r.t.Fatal("the primary is well for a second and not asked")
		}
	}
	synctest.Wait()
}

// outage is an outage in which charges are made.
func (r *fallbackRig) outage(charges ...store.Charge) {
	r.t.Helper()
	r.fail(teststore.Broken)
	for _, c := range charges {
		r.take(c)
	}
	r.comeBack()
}

func (r *fallbackRig) peekPrimary(c store.Charge) store.State {
	r.t.Helper()
	c.Cost, c.MaxWait = 0, 0
	states := make([]store.State, 1)
	if _, err := r.primary.Store.Take(r.t.Context(), []store.Charge{c}, states); err != nil {
		r.t.Fatal(err)
	}
	return states[0]
}

// missing returns how many tokens the primary's bucket of c lacks, of one token in 100 hours.
func (r *fallbackRig) missing(c store.Charge) int64 {
	r.t.Helper()
	return int64((r.peekPrimary(c).ResetAfter + 50*time.Hour) / (100 * time.Hour))
}

// wantLeft checks how many of 600 tokens the primary's bucket of c holds.
func (r *fallbackRig) wantLeft(c store.Charge, want int64) {
	r.t.Helper()
	if left := 600 - r.missing(c); left != want {
		r.t.Errorf("%d left in the primary, want %d", left, want)
	}
}

// block blocks c's bucket, or unblocks it if length is 0.
func (r *fallbackRig) block(c store.Charge, length time.Duration) (degraded bool) {
	r.t.Helper()
	degraded, err := r.Block(r.t.Context(), c.Policy, c.Key, store.Block{For: length})
	if err != nil {
		r.t.Fatal(err)
	}
	return degraded
}

// blockPrimary is block by another replica.
func (r *fallbackRig) blockPrimary(c store.Charge, length time.Duration) {
	r.t.Helper()
	if _, err := store.SetBlock(r.t.Context(), r.primary.Store, c.Policy, c.Key, store.Block{For: length}); err != nil {
		r.t.Fatal(err)
	}
}
