package store_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit/store"
)

func TestValidate(t *testing.T) {
	limit, err := store.NewLimit(1, time.Hour, 5)
	if err != nil {
		t.Fatal(err)
	}
	good := store.Charge{Policy: "p", Key: "k", Limit: limit, Cost: 1, MaxWait: time.Hour}
	other := store.Charge{Policy: "q", Key: "k", Limit: limit}
	with := func(change func(c *store.Charge)) []store.Charge {
		c := store.Charge{Policy: "p", Key: "k", Limit: limit, Cost: 1}
		change(&c)
		return []store.Charge{c}
	}
	for name, charges := range map[string][]store.Charge{
		"one":                {good},
		"two":                {good, other},
		"a lock":             with(func(c *store.Charge) { c.Lock = 1 }),
		"an owed lock":       with(func(c *store.Charge) { c.Lock, c.Owed, c.MaxWait = 1, true, 1 }),
		"a settlement":       with(func(c *store.Charge) { c.Settles = true }),
		"a negative MaxWait": with(func(c *store.Charge) { c.MaxWait = -1 }),
	} {
		if err := store.Validate(charges, make([]store.State, 2)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, charges := range map[string][]store.Charge{
		"none":                    {},
		"too few states":          {good, other, {Policy: "r", Key: "k", Limit: limit}},
		"one bucket twice":        {good, good},
		"no policy":               with(func(c *store.Charge) { c.Policy = "" }),
		"no key":                  with(func(c *store.Charge) { c.Key = "" }),
		"no limit":                with(func(c *store.Charge) { c.Limit = store.Limit{} }),
		"a limit above all":       with(func(c *store.Charge) { c.Limit.Capacity = 1 << 60 }),
		"a burst below a token":   with(func(c *store.Charge) { c.Limit.Capacity = c.Limit.Unit - 1 }),
		"fuller than full":        with(func(c *store.Charge) { c.Limit.Refill = c.Limit.Capacity + 1 }),
		"a lock below 0":          with(func(c *store.Charge) { c.Lock = -1 }),
		"a refund that locks":     with(func(c *store.Charge) { c.Cost, c.Lock = -1, 1 }),
		"a look that locks":       with(func(c *store.Charge) { c.Cost, c.Lock = 0, 1 }),
		"a lock that waits":       with(func(c *store.Charge) { c.MaxWait, c.Lock = 1, 1 }),
		"a settlement of nothing": with(func(c *store.Charge) { c.Settles, c.Cost = true, 0 }),
		"a settled refund":        with(func(c *store.Charge) { c.Settles, c.Cost = true, -1 }),
		"a settlement that waits": with(func(c *store.Charge) { c.Settles, c.MaxWait = true, 1 }),
		"a settled shadow":        with(func(c *store.Charge) { c.Settles, c.Shadow = true, true }),
		"a settlement owed":       with(func(c *store.Charge) { c.Settles, c.Owed = true, true }),
		"a settlement that locks": with(func(c *store.Charge) { c.Settles, c.Lock = true, 1 }),
		"a settlement of several": append(with(func(c *store.Charge) { c.Settles = true }), other),
	} {
		if err := store.Validate(charges, make([]store.State, 2)); !errors.Is(err, store.ErrInvalidCall) {
			t.Errorf("%s: %v, want ErrInvalidCall", name, err)
		}
	}
}

func TestValidateBlock(t *testing.T) {
	for _, tt := range []struct {
		policy, key string
		block       store.Block
		valid       bool
	}{
		{"p", "k", store.Block{}, true},
		{"p", "k", store.Block{For: store.MaxBlock, Reason: strings.Repeat("é", store.MaxReason/2)}, true},
		{"", "k", store.Block{For: time.Hour}, false},
		{"p", "", store.Block{For: time.Hour}, false},
		{"p", "k", store.Block{For: -1}, false},
		{"p", "k", store.Block{For: store.MaxBlock + 1}, false},
		{"p", "k", store.Block{For: time.Hour, Reason: strings.Repeat("x", store.MaxReason+1)}, false},
		{"p", "k", store.Block{For: time.Hour, Reason: "\xff"}, false},
	} {
		if err := store.ValidateBlock(tt.policy, tt.key, tt.block); (err == nil) != tt.valid || err != nil && !errors.Is(err, store.ErrInvalidCall) {
			t.Errorf("%+v: %v", tt, err)
		}
	}
}

// A Store that is neither a Blocker nor an Inspector nor a StatsReporter.
type bare struct{ store.Store }

func TestABareStoreLacksWhatIsOptional(t *testing.T) {
	if _, err := store.SetBlock(context.Background(), bare{}, "p", "k", store.Block{}); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("SetBlock: %v, want ErrUnsupported", err)
	}
	if _, err := store.Inspect(context.Background(), bare{}, "p", "k"); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("Inspect: %v, want ErrUnsupported", err)
	}
	if _, err := store.ReadValues(context.Background(), bare{}, "s", store.Value{}); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("ReadValues: %v, want ErrUnsupported", err)
	}
	if _, _, err := store.WriteValue(context.Background(), bare{}, "s", store.Value{Name: "v"}); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("WriteValue: %v, want ErrUnsupported", err)
	}
	if s := store.StatsOf(bare{}); s != (store.Stats{}) {
		t.Errorf("StatsOf: %+v, want none", s)
	}
}

// Decide keeps a bucket at least until it has refilled under each of its limits, and until its block has ended.
func TestExpires(t *testing.T) {
	large, small := store.Limit{Unit: 1_000_000, Refill: 1, Capacity: 100_000_000}, store.Limit{Unit: 1000, Refill: 1, Capacity: 10_000}
	kept := make([]store.Kept, 1)
	take := func(l store.Limit, cost int64) {
		store.Decide([]store.Charge{{Policy: "p", Key: "k", Limit: l, Cost: cost}}, kept, make([]store.State, 1), 7)
	}
	want := func(expires int64) {
		t.Helper()
		if got := kept[0].Expires(); got != expires {
			t.Errorf("%+v expires at %d, want %d", kept[0], got, expires)
		}
	}
	want(0)
	take(large, 100)
	want(7 + 100_000_000)
	take(small, 1)
	want(7 + 100_000_000)
	kept[0].SetBlock(store.Block{For: time.Hour}, 7)
	want(7 + 3_600_000_000)
	kept[0].SetBlock(store.Block{}, 7)
	want(7 + 100_000_000)
	take(large, store.Reset)
	want(0)
}
