package fallback_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/teststore"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/fallback"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
)

// wantBlocked checks until when c's bucket is blocked in s, zero for not at all.
func wantBlocked(t *testing.T, s store.Store, c store.Charge, until time.Time) {
	t.Helper()
	b, err := store.Inspect(t.Context(), s, c.Policy, c.Key)
	if err != nil {
		t.Fatal(err)
	}
	if want := max(0, time.Until(until)); (b.Blocked - want).Abs() > 10*time.Millisecond {
		t.Errorf("blocked for %v, want %v", b.Blocked, want)
	}
}

func TestABlockBeforeAnOutageIsInForceInIt(t *testing.T) {
	for name, block := range map[string]func(d *duo, c store.Charge){
		"made here": func(d *duo, c store.Charge) { d.block(c, time.Minute) },
		"met by a denial": func(d *duo, c store.Charge) {
			d.blockPrimary(c, time.Minute)
			d.take(c)
		},
		"met by a look": func(d *duo, c store.Charge) {
			d.blockPrimary(c, time.Minute)
			c.Cost = 0
			d.take(c)
		},
		"made longer": func(d *duo, c store.Charge) {
			d.block(c, 10*time.Second)
			d.blockPrimary(c, time.Minute)
			d.take(c)
		},
		"made shorter": func(d *duo, c store.Charge) {
			d.block(c, time.Hour)
			d.blockPrimary(c, time.Minute)
			d.take(c)
		},
		"met between outages": func(d *duo, c store.Charge) {
			d.fail(teststore.Broken)
			d.block(c, time.Hour)
			d.comeBack()
			d.blockPrimary(c, time.Minute)
			d.take(c)
		},
	} {
		duoRun(t, name, fallback.Config{Replicas: 4}, func(t *testing.T, d *duo) {
			c := teststore.Months(t, 1)
			block(d, c)
			until := time.Now().Add(time.Minute)
			d.fail(teststore.Broken)
			wantBlocked(t, d, c, until)
			if ok, state := d.take(c); ok || !state.Blocked || !state.Degraded {
				t.Errorf("%t, %+v", ok, state)
			}
			time.Sleep(time.Until(until) + 10*time.Millisecond)
			if n := d.count(c); n < 149 || n > 150 {
				t.Errorf("%d allowed after the block, want a quarter of 600", n)
			}
		})
	}
}

// A reply that was under way when its bucket was blocked does not know of the block.
func TestAnOlderReplyEndsNoBlock(t *testing.T) {
	duoTest(t, fallback.Config{}, func(t *testing.T, d *duo) {
		c := teststore.Months(t, 1)
		d.block(teststore.Months(t, 0), time.Millisecond) // from now on, replies are compared with the secondary
		d.primary.Have(func(_ context.Context, call func() error) error {
			err := call()
			time.Sleep(10 * time.Millisecond)
			return err
		})
		go d.Take(t.Context(), []store.Charge{c}, make([]store.State, 1))
		time.Sleep(5 * time.Millisecond)
		d.blockPrimary(c, time.Hour)
		d.primary.Mend()
		d.take(c)
		time.Sleep(time.Second)
		d.fail(teststore.Broken)
		if ok, state := d.take(c); ok || !state.Blocked {
			t.Errorf("%t, %+v", ok, state)
		}
	})
}

// So is one that this replica has not met.
func TestABlockThatEndsBeforeAnOutageIsNotInForceInIt(t *testing.T) {
	for name, block := range map[string]func(d *duo, c store.Charge){
		"ended here": func(d *duo, c store.Charge) {
			d.block(c, time.Hour)
			d.block(c, 0)
		},
		"ended elsewhere": func(d *duo, c store.Charge) {
			d.block(c, time.Hour)
			d.blockPrimary(c, 0)
			d.take(c)
		},
		"ended by a reset": func(d *duo, c store.Charge) {
			d.block(c, time.Hour)
			d.take(teststore.ResetOf(d.t, c))
		},
		"not met": func(d *duo, c store.Charge) { d.blockPrimary(c, time.Hour) },
	} {
		duoRun(t, name, fallback.Config{}, func(t *testing.T, d *duo) {
			c := teststore.Months(t, 1)
			block(d, c)
			d.fail(teststore.Broken)
			wantBlocked(t, d, c, time.Time{})
			d.want(c, true)
		})
	}
}

// A block or its end holds until the primary is back, and the result says so.
func TestABlockInAnOutageEndsWithIt(t *testing.T) {
	duoTest(t, fallback.Config{}, func(t *testing.T, d *duo) {
		c := teststore.Months(t, 1)
		if d.block(c, time.Hour) {
			t.Error("degraded although the primary answers")
		}
		until := time.Now().Add(time.Hour)
		d.fail(teststore.Broken)
		if !d.block(c, 0) {
			t.Error("not degraded")
		}
		d.want(c, true) // although it was unblocked
		d.comeBack()
		wantBlocked(t, d, c, until)
		d.want(c, false) // although the primary has it blocked

		other := c
		other.Key = "other"
		d.fail(teststore.Broken)
		if !d.block(other, time.Hour) {
			t.Error("not degraded")
		}
		d.want(other, false) // although it was blocked
		d.comeBack()
		wantBlocked(t, d, other, time.Time{})
		d.take(other)
		d.fail(teststore.Broken)
		d.want(other, true) // in the next outage, though the primary has allowed it
	})
}

func TestABlockThatFailsInThePrimaryIsAnError(t *testing.T) {
	for name, f := range map[string]teststore.Fault{"broken": teststore.Broken, "refused": teststore.Refused, "hung": teststore.Hung} {
		duoRun(t, name, fallback.Config{}, func(t *testing.T, d *duo) {
			d.primary.Have(f)
			for i := range 5 {
				if degraded, err := d.Block(t.Context(), "p", "k", store.Block{For: time.Hour}); degraded || err == nil {
					t.Errorf("%d: %t, %v", i, degraded, err)
				}
			}
			d.wantAway(true)
			if _, err := d.Block(store.WithoutStandIn(t.Context()), "p", "k", store.Block{}); !errors.Is(err, store.ErrAway) {
				t.Errorf("%v, want ErrAway", err)
			}
			if _, err := d.Block(t.Context(), "p", "", store.Block{}); !errors.Is(err, store.ErrInvalidCall) {
				t.Errorf("%v, want ErrInvalidCall", err)
			}
		})
	}
}

func TestAFallbackOfAStoreThatIsNoBlockerOrInspectorSaysSo(t *testing.T) {
	memory := ratelimit.Must(memstore.New(memstore.Config{}))
	defer memory.Close()
	f := ratelimit.Must(fallback.New(struct{ store.Store }{memory}, memory, fallback.Config{Logger: quiet, Failures: 1}))
	defer f.Close()
	if _, err := f.Block(t.Context(), "p", "k", store.Block{}); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("%v, want ErrUnsupported", err)
	}
	if _, err := f.Inspect(t.Context(), "p", "k"); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("%v, want ErrUnsupported", err)
	}
	if f.Away() != nil {
		t.Error("given up for what it cannot do")
	}
}

func TestInspectByTheSecondaryInAnOutage(t *testing.T) {
	duoTest(t, fallback.Config{Replicas: 4}, func(t *testing.T, d *duo) {
		c := teststore.Months(t, 1)
		d.take(c)
		inspect := func(ctx context.Context) store.Bucket {
			t.Helper()
			b, err := d.Inspect(ctx, c.Policy, c.Key)
			if err != nil {
				t.Fatal(err)
			}
			return b
		}
		if b := inspect(t.Context()); b.Degraded || b.Limit != c.Limit || b.State(c.Limit).Remaining != 599 {
			t.Errorf("%+v", b)
		}
		d.fail(teststore.Broken)
		d.take(teststore.Months(t, 9))
		b := inspect(t.Context())
		if s := b.State(b.Limit); !b.Degraded || !s.Degraded || !b.Used() || b.Limit == c.Limit || s.Remaining != 150-9 {
			t.Errorf("%+v, %+v", b, s)
		}
		if _, err := d.Inspect(store.WithoutStandIn(t.Context()), c.Policy, c.Key); !errors.Is(err, store.ErrAway) {
			t.Errorf("%v, want ErrAway", err)
		}
		d.comeBack()
		d.take(c)
		if b := inspect(t.Context()); b.Degraded || b.State(c.Limit).Remaining != 589 {
			t.Errorf("%+v", b)
		}
	})
}
