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

// A duo is a fallback on a faulty Store.
type duo struct {
	*fallback.Store
	t       *testing.T
	primary *teststore.Faulty
	changes []string // what OnChange was told
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// duoTest runs a test of a duo in a bubble.
func duoTest(t *testing.T, cfg fallback.Config, test func(t *testing.T, d *duo)) {
	synctest.Test(t, func(t *testing.T) { test(t, newDuo(t, cfg)) })
}

// duoRun is duoTest in a subtest.
func duoRun(t *testing.T, name string, cfg fallback.Config, test func(t *testing.T, d *duo)) {
	t.Run(name, func(t *testing.T) { duoTest(t, cfg, test) })
}

// openSmall returns a store of a single shard. In hours of a bubble, sweeps of many shards take seconds.
func openSmall(t *testing.T) *memstore.Store {
	s := ratelimit.Must(memstore.New(memstore.Config{MaxKeys: 1024}))
	t.Cleanup(func() { s.Close() })
	return s
}

func newDuo(t *testing.T, cfg fallback.Config) *duo { return newDuoWith(t, openSmall(t), cfg) }

func newDuoWith(t *testing.T, secondary store.Store, cfg fallback.Config) *duo {
	d := &duo{t: t, primary: &teststore.Faulty{Store: openSmall(t)}}
	cfg.Logger = cmp.Or(cfg.Logger, quiet)
	told := cfg.OnChange
	cfg.OnChange = func(away bool, reason error) {
		if d.changes = append(d.changes, fmt.Sprint(away, " ", reason)); told != nil {
			told(away, reason)
		}
	}
	d.Store = ratelimit.Must(fallback.New(d.primary, secondary, cfg))
	t.Cleanup(func() { d.Close() })
	return d
}

func openFallback(t testing.TB, s store.Store, cfg fallback.Config) *fallback.Store {
	cfg.Logger = quiet
	f := ratelimit.Must(fallback.New(s, nil, cfg))
	t.Cleanup(func() { f.Close() })
	return f
}

func (d *duo) take(c store.Charge) (bool, store.State) {
	d.t.Helper()
	ok, state, err := d.takeBy(d.t.Context(), c)
	if err != nil {
		d.t.Fatal(err)
	}
	return ok, state
}

// want makes a call that must be allowed, or denied.
func (d *duo) want(c store.Charge, allowed bool) {
	d.t.Helper()
	if ok, state := d.take(c); ok != allowed {
		d.t.Errorf("%+v: %+v, want it allowed: %t", c, state, allowed)
	}
}

func (d *duo) takeBy(ctx context.Context, c store.Charge) (bool, store.State, error) {
	states := make([]store.State, 1)
	ok, err := d.Take(ctx, []store.Charge{c}, states)
	return ok, states[0], err
}

// takeWithin makes a call that has that long, or no deadline if limit is 0.
func (d *duo) takeWithin(limit time.Duration, c store.Charge) (bool, store.State, error) {
	if limit == 0 {
		return d.takeBy(d.t.Context(), c)
	}
	ctx, cancel := context.WithTimeout(d.t.Context(), limit)
	defer cancel()
	return d.takeBy(ctx, c)
}

// wantAway checks whether the primary is given up.
func (d *duo) wantAway(want bool) {
	d.t.Helper()
	if reason := d.Away(); (reason != nil) != want {
		d.t.Errorf("given up: %v, want it given up: %t", reason, want)
	}
}

// hourly takes a token of a bucket of burst, of which one comes in an hour.
func hourly(t testing.TB, burst int64) store.Charge {
	t.Helper()
	return store.Charge{Policy: "p", Key: "k", Limit: teststore.Limit(t, 1, time.Hour, burst), Cost: 1}
}

// count makes calls of c until one is refused, and returns how many were allowed.
func (d *duo) count(c store.Charge) (n int) {
	d.t.Helper()
	for ; n < 10_000; n++ {
		if ok, _ := d.take(c); !ok {
			return n
		}
	}
	d.t.Fatal("never refused")
	return n
}

// wantCount checks how many calls of c are allowed until one is refused.
func (d *duo) wantCount(c store.Charge, want int) {
	d.t.Helper()
	if n := d.count(c); n != want {
		d.t.Errorf("%+v: %d allowed, want %d", c, n, want)
	}
}

// fail has the primary given up, by calls of a bucket that nothing else uses.
func (d *duo) fail(f teststore.Fault) {
	d.t.Helper()
	d.primary.Have(f)
	for i := 0; d.Away() == nil; i++ {
		if i == 100 {
			d.t.Fatal("the primary is not given up")
		}
		d.take(store.Charge{Policy: "other", Key: fmt.Sprint(i), Limit: teststore.Limit(d.t, 1, time.Hour, 100), Cost: 1})
	}
}

// comeBack mends the primary and waits until it is asked again.
func (d *duo) comeBack() {
	d.t.Helper()
	d.primary.Mend()
	begin := time.Now()
	for d.Away() != nil {
		time.Sleep(time.Millisecond)
		if time.Since(begin) > time.Second {
			d.t.Fatal("the primary is well for a second and not asked")
		}
	}
	synctest.Wait()
}

// outage is an outage in which charges are made.
func (d *duo) outage(charges ...store.Charge) {
	d.t.Helper()
	d.fail(teststore.Broken)
	for _, c := range charges {
		d.take(c)
	}
	d.comeBack()
}

func (d *duo) peekPrimary(c store.Charge) store.State {
	d.t.Helper()
	c.Cost, c.MaxWait = 0, 0
	states := make([]store.State, 1)
	if _, err := d.primary.Store.Take(d.t.Context(), []store.Charge{c}, states); err != nil {
		d.t.Fatal(err)
	}
	return states[0]
}

// missing returns how many tokens the primary's bucket of c lacks, of one token in 100 hours.
func (d *duo) missing(c store.Charge) int64 {
	d.t.Helper()
	return int64((d.peekPrimary(c).ResetAfter + 50*time.Hour) / (100 * time.Hour))
}

// wantLeft checks how many of 600 tokens the primary's bucket of c holds.
func (d *duo) wantLeft(c store.Charge, want int64) {
	d.t.Helper()
	if left := 600 - d.missing(c); left != want {
		d.t.Errorf("%d left in the primary, want %d", left, want)
	}
}

// block blocks c's bucket, or unblocks it if length is 0.
func (d *duo) block(c store.Charge, length time.Duration) (degraded bool) {
	d.t.Helper()
	degraded, err := d.Block(d.t.Context(), c.Policy, c.Key, store.Block{For: length})
	if err != nil {
		d.t.Fatal(err)
	}
	return degraded
}

// blockPrimary is block by another replica.
func (d *duo) blockPrimary(c store.Charge, length time.Duration) {
	d.t.Helper()
	if _, err := store.SetBlock(d.t.Context(), d.primary.Store, c.Policy, c.Key, store.Block{For: length}); err != nil {
		d.t.Fatal(err)
	}
}
