package fallback_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/test/teststore"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/fallback"
)

// owed returns a charge of what has been used already.
func owed(c store.Charge, cost int64) store.Charge {
	c.Cost, c.Owed = cost, true
	return c
}

// standby returns a refund of what the secondary has allowed.
func standby(c store.Charge, tokens int64) store.Charge {
	c.Cost, c.Standby = -tokens, true
	return c
}

// TestSettlement charges one bucket of 600 tokens, of which one comes every ten seconds, before, in and after an outage.
func TestSettlement(t *testing.T) {
	const token = 10 * time.Second // until one comes
	limit := teststore.Limit(t, 1, token, 600)
	charge := func(cost int64) store.Charge { return store.Charge{Policy: "p", Key: "k", Limit: limit, Cost: cost} }
	for name, c := range map[string]struct {
		replicas int
		before   []store.Charge
		in       []store.Charge
		others   []store.Charge // of the primary, by another replica
		after    time.Duration  // since the end of the outage
		want     int64          // left in the primary when it was charged 1 more
	}{
		"what was allowed is charged":                   {1, nil, []store.Charge{charge(200)}, nil, 0, 399},
		"by a share, too":                               {4, nil, []store.Charge{charge(100), charge(20)}, nil, 0, 479},
		"what was denied is not":                        {4, nil, []store.Charge{charge(100), charge(100)}, nil, 0, 499},
		"no more than there is":                         {1, nil, []store.Charge{charge(500)}, []store.Charge{charge(400)}, 0, 0},
		"a debt remains as it is":                       {1, []store.Charge{owed(charge(0), 610)}, []store.Charge{owed(charge(0), 100)}, nil, 0, -10},
		"what is owed is charged":                       {1, nil, []store.Charge{owed(charge(0), 100)}, nil, 0, 499},
		"what is owed by a share is charged":            {4, nil, []store.Charge{owed(charge(0), 300)}, nil, 0, 299},
		"a refund is deducted":                          {1, nil, []store.Charge{charge(10), standby(charge(0), 4)}, nil, 0, 593},
		"a refund of what the primary allowed":          {1, []store.Charge{charge(10)}, []store.Charge{charge(0), charge(-4)}, nil, 0, 593},
		"both":                                          {1, []store.Charge{charge(10)}, []store.Charge{charge(7), charge(-4)}, nil, 0, 586},
		"refilled in the secondary":                     {1, nil, []store.Charge{charge(10)}, nil, 5 * token, 594},
		"refilled in the secondary by a quarter":        {4, nil, []store.Charge{charge(10)}, nil, 4 * token, 590},
		"no more than the primary's since the last use": {4, nil, []store.Charge{charge(600)}, []store.Charge{charge(600)}, 590 * token, 579},
		"nothing when that has refilled":                {4, nil, []store.Charge{charge(600)}, []store.Charge{charge(590)}, 600 * token, 599},
	} {
		run(t, name, fallback.Config{Replicas: c.replicas}, func(t *testing.T, r *fallbackRig) {
			for _, one := range c.before {
				r.take(one)
			}
			r.fail(teststore.Broken)
			for _, one := range c.in {
				r.take(one)
			}
			for _, one := range c.others {
				teststore.TakeAllowed(t, r.primary.Store, one)
			}
			r.comeBack()
			time.Sleep(c.after)
			r.take(charge(1))
			if left := 600 - int64(r.peekPrimary(charge(0)).ResetAfter.Round(token)/token); left != c.want {
				t.Errorf("%d left in the primary, want %d", left, c.want)
			}
			if pending := r.Stats().Fallback.Pending; pending > 1 { // that of fallbackRig.fail
				t.Errorf("%d are pending", pending)
			}
		})
	}
}

// The bucket of c is not settled by calls that cost nothing.
func TestOnlyAChargeThatCostsSettles(t *testing.T) {
	for name, c := range map[string]struct {
		charge store.Charge
		left   int64
	}{
		"a look":           {teststore.Months(t, 0), 600},
		"a refund":         {teststore.Months(t, -1), 600},
		"a standby refund": {standby(teststore.Months(t, 0), 1), 600},
		"another bucket":   {store.Charge{Policy: "p", Key: "another", Limit: teststore.Months(t, 0).Limit, Cost: 1}, 600},
		"a charge":         {teststore.Months(t, 1), 499},
		"a denied charge":  {teststore.Months(t, 601), 500},
		"an owed charge":   {owed(teststore.Months(t, 0), 2), 498},
	} {
		run(t, name, fallback.Config{}, func(t *testing.T, r *fallbackRig) {
			r.outage(teststore.Months(t, 100))
			r.take(c.charge)
			r.wantLeft(teststore.Months(t, 0), c.left)
		})
	}
}

func TestABucketIsSettledOnce(t *testing.T) {
	inBubble(t, fallback.Config{}, func(t *testing.T, r *fallbackRig) {
		r.outage(teststore.Months(t, 100))
		calls := r.primary.Calls.Load()
		var callers sync.WaitGroup
		for range 10 {
			callers.Go(func() { r.take(teststore.Months(t, 1)) })
		}
		callers.Wait()
		r.wantLeft(teststore.Months(t, 0), 490)
		if calls = r.primary.Calls.Load() - calls; calls != 11 {
			t.Errorf("%d calls, want 11", calls)
		}
	})
}

func TestEachBucketOfACallIsSettled(t *testing.T) {
	inBubble(t, fallback.Config{}, func(t *testing.T, r *fallbackRig) {
		charges := []store.Charge{teststore.Months(t, 5), teststore.Months(t, 7), teststore.Months(t, 9)}
		for i := range charges {
			charges[i].Policy = fmt.Sprint(i)
		}
		charges[2].Shadow = true
		r.fail(teststore.Broken)
		teststore.TakeAllowed(t, r, charges...)
		r.comeBack()
		teststore.TakeAllowed(t, r, charges...)
		for i, want := range []int64{590, 586, 582} {
			r.wantLeft(charges[i], want)
		}
	})
}

// A settlement that fails is a failed call: the secondary answers. It is made again only if it certainly was not made.
func TestASettlementThatFails(t *testing.T) {
	for name, c := range map[string]struct {
		fault teststore.Fault
		left  int64
	}{
		"refused":      {teststore.Refused, 399},
		"a lost reply": {teststore.LostReply, 399},
		"broken":       {teststore.Broken, 499},
	} {
		run(t, name, fallback.Config{}, func(t *testing.T, r *fallbackRig) {
			r.outage(teststore.Months(t, 100))
			r.take(store.Charge{Policy: "p", Key: "other", Limit: teststore.Months(t, 0).Limit, Cost: 1})
			r.primary.Have(c.fault)
			if ok, state := r.take(teststore.Months(t, 100)); !ok || !state.Degraded || r.Away() != nil {
				t.Errorf("%t, %+v, away: %v", ok, state, r.Away())
			}
			r.primary.Mend()
			time.Sleep(2 * time.Second)
			if ok, state := r.take(teststore.Months(t, 1)); !ok || state.Degraded {
				t.Errorf("%t, %+v", ok, state)
			}
			r.wantLeft(teststore.Months(t, 0), c.left)
		})
	}
}

// A caller that leaves, or has no time, is no failure of the primary and gets no answer of the secondary.
func TestACallerThatLeavesWhileItSettles(t *testing.T) {
	inBubble(t, fallback.Config{Failures: 1}, func(t *testing.T, r *fallbackRig) {
		r.outage(teststore.Months(t, 100))
		r.primary.Have(teststore.Hung)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		if ok, err := r.Take(ctx, []store.Charge{teststore.Months(t, 1)}, make([]store.State, 1)); ok || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%t, %v", ok, err)
		}
		r.primary.Mend()
		if _, err := r.Take(t.Context(), []store.Charge{{}}, make([]store.State, 1)); !errors.Is(err, store.ErrInvalidCall) {
			t.Error(err)
		}
		r.wantAway(false)
	})
}

// A refund goes where its charge was made, on whatever side of the beginning or end of an outage.
func TestARefundOnTheOtherSide(t *testing.T) {
	login, refund := teststore.Months(t, 1), teststore.Months(t, -1)
	for name, c := range map[string]struct {
		do   func(r *fallbackRig)
		left int64 // in the primary after another login
	}{
		"before and in it": {func(r *fallbackRig) { r.take(login); r.outage(refund) }, 599},
		"in it":            {func(r *fallbackRig) { r.outage(login, standby(login, 1)) }, 599},
		"in and after it":  {func(r *fallbackRig) { r.outage(login); r.take(standby(login, 1)) }, 599},
		"in it and after a charge": {func(r *fallbackRig) {
			r.outage(login)
			r.take(login) // settles, and what was settled is not refunded
			r.take(standby(login, 1))
		}, 597},
		"before and after it": {func(r *fallbackRig) { r.take(login); r.fail(teststore.Broken); r.comeBack(); r.take(refund) }, 599},
		"in it, and in the next one": {func(r *fallbackRig) {
			r.outage(login)
			r.take(login)
			r.outage(standby(login, 1))
		}, 597},
	} {
		run(t, name, fallback.Config{}, func(t *testing.T, r *fallbackRig) {
			c.do(r)
			r.take(login)
			r.wantLeft(login, c.left)
			r.fail(teststore.Broken)
			if _, state := r.take(teststore.Months(t, 0)); state.Remaining < 599 {
				t.Errorf("%d left in the secondary", state.Remaining)
			}
		})
	}
}

// Those who fail to log in on one side get nothing back for logins on the other.
func TestRefundsOfOneSideGiveNothingOnTheOther(t *testing.T) {
	inBubble(t, fallback.Config{}, func(t *testing.T, r *fallbackRig) {
		c := store.Charge{Policy: "p", Key: "k", Limit: teststore.Limit(t, 1, 100*time.Hour, 10), Cost: 10}
		r.take(c)
		r.fail(teststore.Broken)
		c.Cost = -7
		r.take(c)
		if c.Cost = 1; r.count(c) != 0 {
			t.Error("what the primary is to get back was spent in the secondary")
		}
		r.comeBack()
		r.wantCount(c, 7) // of the primary, to which they were refunded
	})
}

func TestARefundEndsTheLockWhereItsChargeMadeIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		login := store.Charge{Policy: "p", Key: "k", Limit: teststore.Limit(t, 1, 100*time.Hour, 1), Cost: 1, Lock: 1000 * time.Hour}
		refund := login
		refund.Cost, refund.Lock = -1, 0
		r := newRig(t, fallback.Config{})
		if _, state := r.take(login); !state.Blocked {
			t.Fatalf("%+v", state)
		}
		r.fail(teststore.Broken)
		r.take(refund)
		if _, state := r.take(login); !state.Blocked || !state.Degraded {
			t.Errorf("the lock of the primary ended in the outage: %+v", state)
		}
		r.comeBack()
		if ok, state := r.take(login); !ok || !state.Blocked {
			t.Errorf("%t, %+v, want the lock ended by the refund, and made again", ok, state)
		}

		other := login
		other.Key = "other"
		r.fail(teststore.Broken)
		if ok, state := r.take(other); !ok || !state.Blocked {
			t.Errorf("%t, %+v, want it locked in the outage", ok, state)
		}
		refund.Key, refund.Standby = "other", true
		if _, state := r.take(refund); state.Blocked {
			t.Errorf("%+v, want the lock ended", state)
		}
		r.comeBack()
		r.want(other, true)
	})
}

// Calls that failed, but may have been carried out, are not charged again.
func TestCallsWhoseRepliesAreLostAreChargedOnce(t *testing.T) {
	inBubble(t, fallback.Config{Failures: 3}, func(t *testing.T, r *fallbackRig) {
		r.primary.Have(teststore.LostReply)
		for range 5 { // three of which reach the primary
			r.take(teststore.Months(t, 1))
		}
		r.take(owed(teststore.Months(t, 0), 10))
		time.Sleep(10 * time.Second) // with probes that are carried out, too
		r.comeBack()
		r.take(teststore.Months(t, 1))
		r.wantLeft(teststore.Months(t, 0), 600-5-10-1)
	})
	inBubble(t, fallback.Config{}, func(t *testing.T, r *fallbackRig) {
		r.primary.Have(teststore.Refused)
		r.take(teststore.Months(t, 7))
		r.primary.Mend()
		r.take(teststore.Months(t, 1))
		r.wantLeft(teststore.Months(t, 0), 592)
	})
}

func TestMoreKeysThanMaxKeysAreAnsweredAndNotSettled(t *testing.T) {
	inBubble(t, fallback.Config{MaxKeys: 8}, func(t *testing.T, r *fallbackRig) {
		r.fail(teststore.Broken)
		c := teststore.Months(t, 600)
		for i := range 100 {
			c.Key = fmt.Sprint(i)
			if ok, _ := r.take(c); !ok {
				t.Fatal("denied for want of room")
			}
			if ok, _ := r.take(c); ok {
				t.Fatal("allowed twice")
			}
		}
		if pending := r.Stats().Fallback.Pending; pending != 8 {
			t.Errorf("%d pending", pending)
		}
		r.comeBack()
		settled := 0
		for i := range 100 {
			c.Key, c.Cost = fmt.Sprint(i), 1
			r.take(c)
			if r.peekPrimary(c).Remaining == 0 {
				settled++
			}
		}
		if settled != 8 {
			t.Errorf("%d were settled, want 8", settled)
		}
	})
}

// Uses that make no difference any more do not take the room of others for ever.
func TestBucketsThatHaveRefilledNeedNoRoom(t *testing.T) {
	inBubble(t, fallback.Config{MaxKeys: 8}, func(t *testing.T, r *fallbackRig) {
		r.fail(teststore.Broken)
		c := store.Charge{Policy: "p", Limit: teststore.Limit(t, 1, 2*time.Second, 1), Cost: 1}
		for i := range 100 {
			time.Sleep(time.Second) // two of them are spent at a time
			c.Key = fmt.Sprint(i)
			r.take(c)
		}
		r.comeBack()
		if r.take(c); r.peekPrimary(c).Remaining != 0 {
			t.Error("the last was not settled")
		}
	})
}

// Buckets that nobody charges again do not stay pending, or all calls would look for them.
func TestUsesThatMakeNoDifferenceAnyMoreAreForgotten(t *testing.T) {
	inBubble(t, fallback.Config{}, func(t *testing.T, r *fallbackRig) {
		r.fail(teststore.Broken)
		c := store.Charge{Policy: "p", Key: "k", Limit: teststore.Limit(t, 1, time.Second, 10), Cost: 10}
		r.take(c)
		r.comeBack()
		other := c
		other.Key = "other"
		for after, want := range []int{1, 0} {
			time.Sleep(time.Duration(after) * 10 * time.Second)
			if r.take(other); r.Stats().Fallback.Pending != want {
				t.Errorf("%d pending, want %d", r.Stats().Fallback.Pending, want)
			}
		}
		if ok, state := r.take(c); !ok || state.Remaining != 0 || r.peekPrimary(c).Remaining != 0 {
			t.Errorf("%t, %+v", ok, state)
		}
	})
}

// A client gets back nothing that the primary was not charged: neither what a settlement could not take, nor calls whose
// outcome in the primary is not known.
func TestRefundsOfTheSecondaryGiveNoTokensToThePrimary(t *testing.T) {
	for name, c := range map[string]struct {
		fault teststore.Fault
		spent int64 // of the primary, by others, before it is settled
	}{
		"what could not be settled":   {teststore.Broken, 580},
		"calls of an unknown outcome": {teststore.LostReply, 0},
	} {
		run(t, name, fallback.Config{}, func(t *testing.T, r *fallbackRig) {
			one := teststore.Months(t, 1)
			r.primary.Have(c.fault)
			served := int64(0)
			for ; served < 100; served++ {
				if ok, s := r.take(one); !ok || !s.Degraded {
					t.Fatalf("%t, %+v", ok, s)
				}
			}
			if r.Away() != nil {
				r.comeBack()
			} else {
				r.primary.Mend()
			}
			if c.spent > 0 {
				many := one
				many.Cost = c.spent
				teststore.TakeAllowed(t, r.primary.Store, many)
			}
			r.take(one) // settles
			before := r.peekPrimary(one).Remaining
			r.take(standby(one, served))
			r.take(one)
			if after := r.peekPrimary(one).Remaining; after > before {
				t.Errorf("%d tokens after the refund, %d before", after, before)
			}
		})
	}
}

// Both buckets have refilled since a refund was due: it would be a gift.
func TestARefundIsVoidWhenBothBucketsHaveRefilled(t *testing.T) {
	inBubble(t, fallback.Config{}, func(t *testing.T, r *fallbackRig) {
		c := store.Charge{Policy: "p", Key: "quick", Limit: teststore.Limit(t, 10, time.Second, 100), Cost: 50}
		slow := teststore.Months(t, 1) // keeps uses from being dropped altogether
		r.take(c)
		r.fail(teststore.Broken)
		r.take(slow)
		c.Cost = -50
		r.take(c)
		time.Sleep(time.Minute)
		r.comeBack()
		c.Cost = 100
		teststore.TakeAllowed(t, r.primary.Store, c)
		c.Cost = 1
		if ok, s := r.take(c); ok {
			t.Error(s, "a refund of before the bucket was full again filled it")
		}
	})
}
