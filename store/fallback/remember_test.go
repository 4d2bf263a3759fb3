package fallback_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/test/teststore"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/fallback"
)

// A reply that leaves less than half of the burst lowers the bucket of the secondary to the same part of its share.
func TestABucketThatIsLessThanHalfFullBeginsAnOutageSo(t *testing.T) {
	for name, c := range map[string]struct {
		replicas    int
		burst, cost int
		refills     time.Duration // after the reply, at 1 token a minute
		want        int
	}{
		"half full":                        {1, 40, 20, 0, 40},
		"less than half full":              {1, 40, 21, 0, 19},
		"less than half full, shared":      {4, 40, 24, 0, 4},
		"empty":                            {1, 40, 40, 0, 0},
		"empty, shared":                    {4, 40, 40, 0, 0},
		"refilled since":                   {1, 40, 30, 5 * time.Minute, 15},
		"refilled since, shared":           {4, 40, 40, 20 * time.Minute, 5},
		"a part of a token is none":        {4, 40, 30, 0, 2},
		"a burst below the replicas":       {8, 4, 4, 0, 0},
		"a burst below the replicas, full": {8, 4, 0, 0, 1},
	} {
		run(t, name, fallback.Config{Replicas: c.replicas}, func(t *testing.T, r *fallbackRig) {
			charge := store.Charge{Policy: "p", Key: "k", Limit: teststore.Limit(t, 1, time.Minute, int64(c.burst)), Cost: 1}
			for range c.cost {
				r.take(charge)
			}
			time.Sleep(c.refills)
			r.fail(teststore.Broken)
			r.wantCount(charge, c.want)
		})
	}
}

func TestADebtIsAnEmptyBucketInAnOutage(t *testing.T) {
	inBubble(t, fallback.Config{}, func(t *testing.T, r *fallbackRig) {
		r.take(owed(teststore.Months(t, 0), 700))
		r.fail(teststore.Broken)
		if ok, state := r.take(teststore.Months(t, 1)); ok || state.RetryAfter != 100*time.Hour {
			t.Errorf("%t, %+v, want a token in 100 h", ok, state)
		}
	})
}

// What the secondary's bucket has less, it keeps.
func TestAReplyDoesNotFillTheBucketOfTheSecondary(t *testing.T) {
	inBubble(t, fallback.Config{}, func(t *testing.T, r *fallbackRig) {
		r.outage(teststore.Months(t, 600))
		r.take(teststore.Months(t, 1)) // settles
		teststore.TakeAllowed(t, r.primary.Store, teststore.ResetOf(t, teststore.Months(t, 0)))
		r.take(teststore.Months(t, 500))
		r.fail(teststore.Broken)
		r.wantCount(teststore.Months(t, 1), 0)
	})
}

// counted counts the calls of a secondary.
type counted struct {
	store.Store
	charges, looks, blocks int
}

func (s *counted) Take(ctx context.Context, charges []store.Charge, states []store.State) (bool, error) {
	if charges[0].Cost == 0 {
		s.looks++
	} else {
		s.charges++
	}
	return s.Store.Take(ctx, charges, states)
}

func (s *counted) Block(ctx context.Context, policy, key string, b store.Block) (bool, error) {
	s.blocks++
	return store.SetBlock(ctx, s.Store, policy, key, b)
}

func TestWhatFollowingThePrimaryCosts(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(r *fallbackRig)
		cost    int64
		times   int
		want    counted
	}{
		"a light client":            {nil, 1, 300, counted{}},
		"a flood that is denied":    {func(r *fallbackRig) { r.take(teststore.Months(t, 600)) }, 1, 1000, counted{looks: 1000}},
		"a flood on a blocked key":  {func(r *fallbackRig) { r.block(teststore.Months(t, 0), time.Hour) }, 1, 1000, counted{looks: 1000}},
		"after a block has ended":   {func(r *fallbackRig) { r.block(teststore.Months(t, 0), time.Hour); time.Sleep(time.Hour) }, 1, 100, counted{}},
		"while another is blocked":  {func(r *fallbackRig) { r.block(store.Charge{Policy: "p", Key: "other"}, time.Hour) }, 1, 100, counted{looks: 100}},
		"a block that another made": {func(r *fallbackRig) { r.blockPrimary(teststore.Months(t, 0), time.Hour) }, 1, 1000, counted{looks: 1000, blocks: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				memory := openSmall(t)
				secondary := &counted{Store: memory}
				r := newRigWith(t, secondary, fallback.Config{})
				if c.prepare != nil {
					c.prepare(r)
				}
				*secondary = counted{Store: memory}
				for range c.times {
					r.take(teststore.Months(t, c.cost))
				}
				if c.want.Store = memory; *secondary != c.want {
					t.Errorf("%+v, want %+v", *secondary, c.want)
				}
			})
		})
	}
}

func TestAResetReachesTheSecondary(t *testing.T) {
	for name, spend := range map[string]func(r *fallbackRig){
		"what was known": func(r *fallbackRig) { r.take(teststore.Months(t, 600)) },
		"what is not settled": func(r *fallbackRig) {
			r.outage(teststore.Months(t, 600))
		},
	} {
		run(t, name, fallback.Config{}, func(t *testing.T, r *fallbackRig) {
			spend(r)
			if ok, state := r.take(teststore.ResetOf(t, teststore.Months(t, 0))); !ok || state.Degraded || state.Remaining != 10 {
				t.Fatalf("%t, %+v", ok, state)
			}
			r.take(teststore.Months(t, 1))
			r.wantLeft(teststore.Months(t, 0), 599)
			r.fail(teststore.Broken)
			r.wantCount(teststore.Months(t, 1), 600)
		})
	}
}
