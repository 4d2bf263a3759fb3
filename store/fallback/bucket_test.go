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
	for name, block := range map[string]func(r *fallbackRig, c store.Charge){
		"made here": func(r *fallbackRig, c store.Charge) { r.block(c, time.Minute) },
		"met by a denial": func(r *fallbackRig, c store.Charge) {
			r.blockPrimary(c, time.Minute)
			r.take(c)
		},
		"met by a look": func(r *fallbackRig, c store.Charge) {
			r.blockPrimary(c, time.Minute)
			c.Cost = 0
			r.take(c)
		},
		"made longer": func(r *fallbackRig, c store.Charge) {
			r.block(c, 10*time.Second)
			r.blockPrimary(c, time.Minute)
			r.take(c)
		},
		"made shorter": func(r *fallbackRig, c store.Charge) {
			r.block(c, time.Hour)
			r.blockPrimary(c, time.Minute)
			r.take(c)
		},
		"met between outages": func(r *fallbackRig, c store.Charge) {
			r.fail(teststore.Broken)
			r.block(c, time.Hour)
			r.comeBack()
			r.blockPrimary(c, time.Minute)
			r.take(c)
		},
	} {
		run(t, name, fallback.Config{Replicas: 4}, func(t *testing.T, r *fallbackRig) {
			c := teststore.Months(t, 1)
			block(r, c)
			until := time.Now().Add(time.Minute)
			r.fail(teststore.Broken)
			wantBlocked(t, r, c, until)
			if ok, state := r.take(c); ok || !state.Blocked || !state.Degraded {
				t.Errorf("%t, %+v", ok, state)
			}
			time.Sleep(time.Until(until) + 10*time.Millisecond)
			if n := r.count(c); n < 149 || n > 150 {
				t.Errorf("%d allowed after the block, want a quarter of 600", n)
			}
		})
	}
}

// A reply that was under way when its bucket was blocked does not know of the block.
func TestAnOlderReplyEndsNoBlock(t *testing.T) {
	inBubble(t, fallback.Config{}, func(t *testing.T, r *fallbackRig) {
		c := teststore.Months(t, 1)
		r.block(teststore.Months(t, 0), time.Millisecond) // from now on, replies are compared with the secondary
		r.primary.Have(func(_ context.Context, call func() error) error {
			err := call()
			time.Sleep(10 * time.Millisecond)
			return err
		})
		go r.Take(t.Context(), []store.Charge{c}, make([]store.State, 1))
		time.Sleep(5 * time.Millisecond)
		r.blockPrimary(c, time.Hour)
		r.primary.Mend()
		r.take(c)
		time.Sleep(time.Second)
		r.fail(teststore.Broken)
		if ok, state := r.take(c); ok || !state.Blocked {
			t.Errorf("%t, %+v", ok, state)
		}
	})
}

// So is one that this replica has not met.
func TestABlockThatEndsBeforeAnOutageIsNotInForceInIt(t *testing.T) {
	for name, block := range map[string]func(r *fallbackRig, c store.Charge){
		"ended here": func(r *fallbackRig, c store.Charge) {
			r.block(c, time.Hour)
			r.block(c, 0)
		},
		"ended elsewhere": func(r *fallbackRig, c store.Charge) {
			r.block(c, time.Hour)
			r.blockPrimary(c, 0)
			r.take(c)
		},
		"ended by a reset": func(r *fallbackRig, c store.Charge) {
			r.block(c, time.Hour)
			r.take(teststore.ResetOf(r.t, c))
		},
		"not met": func(r *fallbackRig, c store.Charge) { r.blockPrimary(c, time.Hour) },
	} {
		run(t, name, fallback.Config{}, func(t *testing.T, r *fallbackRig) {
			c := teststore.Months(t, 1)
			block(r, c)
			r.fail(teststore.Broken)
			wantBlocked(t, r, c, time.Time{})
			r.want(c, true)
		})
	}
}

// A block or its end holds until the primary is back, and the result says so.
func TestABlockInAnOutageEndsWithIt(t *testing.T) {
	inBubble(t, fallback.Config{}, func(t *testing.T, r *fallbackRig) {
		c := teststore.Months(t, 1)
		if r.block(c, time.Hour) {
			t.Error("degraded although the primary answers")
		}
		until := time.Now().Add(time.Hour)
		r.fail(teststore.Broken)
		if !r.block(c, 0) {
			t.Error("not degraded")
		}
		r.want(c, true) // although it was unblocked
		r.comeBack()
		wantBlocked(t, r, c, until)
		r.want(c, false) // although the primary has it blocked

		other := c
		other.Key = "other"
		r.fail(teststore.Broken)
		if !r.block(other, time.Hour) {
			t.Error("not degraded")
		}
		r.want(other, false) // although it was blocked
		r.comeBack()
		wantBlocked(t, r, other, time.Time{})
		r.take(other)
		r.fail(teststore.Broken)
		r.want(other, true) // in the next outage, though the primary has allowed it
	})
}

func TestABlockThatFailsInThePrimaryIsAnError(t *testing.T) {
	for name, f := range map[string]teststore.Fault{"broken": teststore.Broken, "refused": teststore.Refused, "hung": teststore.Hung} {
		run(t, name, fallback.Config{}, func(t *testing.T, r *fallbackRig) {
			r.primary.Have(f)
			for i := range 5 {
				if degraded, err := r.Block(t.Context(), "p", "k", store.Block{For: time.Hour}); degraded || err == nil {
					t.Errorf("%d: %t, %v", i, degraded, err)
				}
			}
			r.wantAway(true)
			if _, err := r.Block(store.WithoutStandIn(t.Context()), "p", "k", store.Block{}); !errors.Is(err, store.ErrAway) {
				t.Errorf("%v, want ErrAway", err)
			}
			if _, err := r.Block(t.Context(), "p", "", store.Block{}); !errors.Is(err, store.ErrInvalidCall) {
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
	inBubble(t, fallback.Config{Replicas: 4}, func(t *testing.T, r *fallbackRig) {
		c := teststore.Months(t, 1)
		r.take(c)
		inspect := func(ctx context.Context) store.Bucket {
			t.Helper()
			b, err := r.Inspect(ctx, c.Policy, c.Key)
			if err != nil {
				t.Fatal(err)
			}
			return b
		}
		if b := inspect(t.Context()); b.Degraded || b.Limit != c.Limit || b.State(c.Limit).Remaining != 599 {
			t.Errorf("%+v", b)
		}
		r.fail(teststore.Broken)
		r.take(teststore.Months(t, 9))
		b := inspect(t.Context())
		if s := b.State(b.Limit); !b.Degraded || !s.Degraded || !b.Used() || b.Limit == c.Limit || s.Remaining != 150-9 {
			t.Errorf("%+v, %+v", b, s)
		}
		if _, err := r.Inspect(store.WithoutStandIn(t.Context()), c.Policy, c.Key); !errors.Is(err, store.ErrAway) {
			t.Errorf("%v, want ErrAway", err)
		}
		r.comeBack()
		r.take(c)
		if b := inspect(t.Context()); b.Degraded || b.State(c.Limit).Remaining != 589 {
			t.Errorf("%+v", b)
		}
	})
}
