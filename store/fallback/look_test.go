package fallback_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/overlay"
	"github.com/go-tokenbucket/ratelimit/internal/testsize"
	"github.com/go-tokenbucket/ratelimit/internal/teststore"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/fallback"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
)

// What an explanation finds is what a call then finds: before, in and after outages, also of single calls. It leaves
// both stores, the ledger and the blocks as they are.
func TestAnExplanationIsWhatACallThenFinds(t *testing.T) {
	for name, cfg := range map[string]fallback.Config{
		"one replica":       {},
		"three replicas":    {Replicas: 3},
		"a changing number": {ReplicasFunc: replicasThatChange()},
	} {
		for _, opaqueSecondary := range []bool{false, true} {
			t.Run(fmt.Sprint(name, opaqueSecondary), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { explainInOutages(t, cfg, opaqueSecondary) })
			})
		}
	}
}

func replicasThatChange() func() int {
	calls := 0
	return func() int { calls++; return 1 + calls/200%4 }
}

// opaque hides that a Store is an Inspector.
type opaque struct{ store.Store }

func explainInOutages(t *testing.T, cfg fallback.Config, opaqueSecondary bool) {
	memory := memstore.New(memstore.Config{})
	defer memory.Close()
	secondary := store.Store(memory)
	if opaqueSecondary {
		secondary = opaque{memory}
	}
	cfg.MaxKeys = 1024
	d := newDuoWith(t, secondary, cfg)
	primary := d.primary.Store.(*memstore.Store)
	random := rand.New(rand.NewPCG(18, 7))
	limits := []store.Limit{teststore.Limit(t, 1, time.Second, 30), teststore.Limit(t, 10, time.Second, 12), teststore.Limit(t, 1, time.Minute, 9)} // of which a State says all
	steps, degraded := testsize.Of(700, 2000), 0
	for step := range steps {
		switch random.IntN(200) {
		case 0:
			d.fail(teststore.Broken)
		case 1:
			d.fail(teststore.Refused)
		case 2:
			d.primary.Have(teststore.Broken) // for a call or two
		case 3, 4, 5:
			if d.Away() != nil {
				d.comeBack()
			}
			d.primary.Mend()
		case 6:
			time.Sleep(time.Duration(random.IntN(30)) * time.Second)
		}
		time.Sleep(time.Duration(random.IntN(1500)) * time.Millisecond)
		synctest.Wait()
		policy := random.IntN(2)
		c := store.Charge{Policy: fmt.Sprint("p", policy), Key: fmt.Sprint("k", random.IntN(4)), Limit: limits[policy], Cost: random.Int64N(5)}
		kinds := 15
		if opaqueSecondary {
			kinds = 13 // a block may hide the tokens of the bucket from the fallback itself
		}
		switch random.IntN(kinds) {
		case 0:
			c.Limit = limits[2]
		case 1:
			c.Cost = 10 // more than the share of a replica
		case 2:
			c.MaxWait = 3 * time.Second
		case 3:
			c.Shadow = true
		case 13:
			block := c
			block.Cost, block.Block = 0, time.Duration(random.IntN(20)-3)*time.Second
			_, _ = d.Take(t.Context(), []store.Charge{block}, make([]store.State, 1)) // which fails with a primary that is not given up
		case 14:
			c.Cost, c.Block = 1, 3*time.Second
		}

		before := [2]store.Bucket{peek(t, primary, c), peek(t, memory, c)}
		pending := d.Stats().Fallback.Pending
		got, states := make([]store.State, 1), make([]store.State, 1)
		trial, look := overlay.New(d.Store, time.Now()), c
		look.Cost, look.MaxWait, look.Block = 0, 0, 0
		_, err := trial.Take(t.Context(), []store.Charge{look}, make([]store.State, 1))
		gotOK, err2 := trial.Take(t.Context(), []store.Charge{c}, got)
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		after := [2]store.Bucket{peek(t, primary, c), peek(t, memory, c)}
		if before != after || d.Stats().Fallback.Pending != pending {
			t.Fatalf("step %d: %+v\nbefore %+v, %d pending\nafter  %+v, %d pending", step, c, before, pending, after, d.Stats().Fallback.Pending)
		}
		ok, err := d.Take(t.Context(), []store.Charge{c}, states)
		if err != nil {
			t.Fatal(err)
		}
		if ok != gotOK || got[0] != states[0] {
			t.Fatalf("step %d, away %v: %+v of %+v\ngot  %t %+v\nwant %t %+v", step, d.Away(), c, before, gotOK, got[0], ok, states[0])
		}
		if states[0].Degraded {
			degraded++
		}
	}
	if degraded < steps*3/20 {
		t.Errorf("a stand-in answered %d times only", degraded)
	}
}

func peek(t *testing.T, s *memstore.Store, c store.Charge) store.Bucket {
	t.Helper()
	b, err := s.Inspect(t.Context(), c.Policy, c.Key)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
