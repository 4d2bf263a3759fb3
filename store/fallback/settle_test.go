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
		duoRun(t, name, fallback.Config{Replicas: c.replicas}, func(t *testing.T, d *duo) {
			for _, one := range c.before {
				d.take(one)
			}
			d.fail(teststore.Broken)
			for _, one := range c.in {
				d.take(one)
			}
			for _, one := range c.others {
				teststore.TakeAllowed(t, d.primary.Store, one)
			}
			d.comeBack()
			time.Sleep(c.after)
			d.take(charge(1))
			if left := 600 - int64(d.peekPrimary(charge(0)).ResetAfter.Round(token)/token); left != c.want {
				t.Errorf("%d left in the primary, want %d", left, c.want)
			}
			if pending := d.Stats().Fallback.Pending; pending > 1 { // that of duo.fail
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
		duoRun(t, name, fallback.Config{}, func(t *testing.T, d *duo) {
			d.outage(teststore.Months(t, 100))
			d.take(c.charge)
			d.wantLeft(teststore.Months(t, 0), c.left)
		})
	}
}

func TestABucketIsSettledOnce(t *testing.T) {
	duoTest(t, fallback.Config{}, func(t *testing.T, d *duo) {
		d.outage(teststore.Months(t, 100))
		calls := d.primary.Calls.Load()
		var callers sync.WaitGroup
		for range 10 {
			callers.Go(func() { d.take(teststore.Months(t, 1)) })
		}
		callers.Wait()
		d.wantLeft(teststore.Months(t, 0), 490)
		if calls = d.primary.Calls.Load() - calls; calls != 11 {
			t.Errorf("%d calls, want 11", calls)
		}
	})
}

func TestEachBucketOfACallIsSettled(t *testing.T) {
	duoTest(t, fallback.Config{}, func(t *testing.T, d *duo) {
		charges := []store.Charge{teststore.Months(t, 5), teststore.Months(t, 7), teststore.Months(t, 9)}
		for i := range charges {
			charges[i].Policy = fmt.Sprint(i)
		}
		charges[2].Shadow = true
		d.fail(teststore.Broken)
		teststore.TakeAllowed(t, d, charges...)
		d.comeBack()
		teststore.TakeAllowed(t, d, charges...)
		for i, want := range []int64{590, 586, 582} {
			d.wantLeft(charges[i], want)
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
		duoRun(t, name, fallback.Config{}, func(t *testing.T, d *duo) {
			d.outage(teststore.Months(t, 100))
			d.take(store.Charge{Policy: "p", Key: "other", Limit: teststore.Months(t, 0).Limit, Cost: 1})
			d.primary.Have(c.fault)
			if ok, state := d.take(teststore.Months(t, 100)); !ok || !state.Degraded || d.Away() != nil {
				t.Errorf("%t, %+v, away: %v", ok, state, d.Away())
			}
			d.primary.Mend()
			time.Sleep(2 * time.Second)
			if ok, state := d.take(teststore.Months(t, 1)); !ok || state.Degraded {
				t.Errorf("%t, %+v", ok, state)
			}
			d.wantLeft(teststore.Months(t, 0), c.left)
		})
	}
}

// A caller that leaves, or has no time, is no failure of the primary and gets no answer of the secondary.
func TestACallerThatLeavesWhileItSettles(t *testing.T) {
	duoTest(t, fallback.Config{Failures: 1}, func(t *testing.T, d *duo) {
		d.outage(teststore.Months(t, 100))
		d.primary.Have(teststore.Hung)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		if ok, err := d.Take(ctx, []store.Charge{teststore.Months(t, 1)}, make([]store.State, 1)); ok || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%t, %v", ok, err)
		}
		d.primary.Mend()
		if _, err := d.Take(t.Context(), []store.Charge{{}}, make([]store.State, 1)); !errors.Is(err, store.ErrInvalidCall) {
			t.Error(err)
		}
		d.wantAway(false)
	})
}

// A refund goes where its charge was made, on whatever side of the beginning or end of an outage.
func TestARefundOnTheOtherSide(t *testing.T) {
	login, refund := teststore.Months(t, 1), teststore.Months(t, -1)
	for name, c := range map[string]struct {
		do   func(d *duo)
		left int64 // in the primary after another login
	}{
		"before and in it": {func(d *duo) { d.take(login); d.outage(refund) }, 599},
		"in it":            {func(d *duo) { d.outage(login, standby(login, 1)) }, 599},
		"in and after it":  {func(d *duo) { d.outage(login); d.take(standby(login, 1)) }, 599},
		"in it and after a charge": {func(d *duo) {
			d.outage(login)
			d.take(login) // settles, and what was settled is not refunded
			d.take(standby(login, 1))
		}, 597},
		"before and after it": {func(d *duo) { d.take(login); d.fail(teststore.Broken); d.comeBack(); d.take(refund) }, 599},
		"in it, and in the next one": {func(d *duo) {
			d.outage(login)
			d.take(login)
			d.outage(standby(login, 1))
		}, 597},
	} {
		duoRun(t, name, fallback.Config{}, func(t *testing.T, d *duo) {
			c.do(d)
			d.take(login)
			d.wantLeft(login, c.left)
			d.fail(teststore.Broken)
			if _, state := d.take(teststore.Months(t, 0)); state.Remaining < 599 {
				t.Errorf("%d left in the secondary", state.Remaining)
			}
		})
	}
}

// Those who fail to log in on one side get nothing back for logins on the other.
func TestRefundsOfOneSideGiveNothingOnTheOther(t *testing.T) {
	duoTest(t, fallback.Config{}, func(t *testing.T, d *duo) {
		c := store.Charge{Policy: "p", Key: "k", Limit: teststore.Limit(t, 1, 100*time.Hour, 10), Cost: 10}
		d.take(c)
		d.fail(teststore.Broken)
		c.Cost = -7
		d.take(c)
		if c.Cost = 1; d.count(c) != 0 {
			t.Error("what the primary is to get back was spent in the secondary")
		}
		d.comeBack()
		d.wantCount(c, 7) // of the primary, to which they were refunded
	})
}

func TestARefundEndsTheLockWhereItsChargeMadeIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		login := store.Charge{Policy: "p", Key: "k", Limit: teststore.Limit(t, 1, 100*time.Hour, 1), Cost: 1, Lock: 1000 * time.Hour}
		refund := login
		refund.Cost, refund.Lock = -1, 0
		d := newDuo(t, fallback.Config{})
		if _, state := d.take(login); !state.Blocked {
			t.Fatalf("%+v", state)
		}
		d.fail(teststore.Broken)
		d.take(refund)
		if _, state := d.take(login); !state.Blocked || !state.Degraded {
			t.Errorf("the lock of the primary ended in the outage: %+v", state)
		}
		d.comeBack()
		if ok, state := d.take(login); !ok || !state.Blocked {
			t.Errorf("%t, %+v, want the lock ended by the refund, and made again", ok, state)
		}

		other := login
		other.Key = "other"
		d.fail(teststore.Broken)
		if ok, state := d.take(other); !ok || !state.Blocked {
			t.Errorf("%t, %+v, want it locked in the outage", ok, state)
		}
		refund.Key, refund.Standby = "other", true
		if _, state := d.take(refund); state.Blocked {
			t.Errorf("%+v, want the lock ended", state)
		}
		d.comeBack()
		d.want(other, true)
	})
}

// Calls that failed, but may have been carried out, are not charged again.
func TestCallsWhoseRepliesAreLostAreChargedOnce(t *testing.T) {
	duoTest(t, fallback.Config{Failures: 3}, func(t *testing.T, d *duo) {
		d.primary.Have(teststore.LostReply)
		for range 5 { // three of which reach the primary
			d.take(teststore.Months(t, 1))
		}
		d.take(owed(teststore.Months(t, 0), 10))
		time.Sleep(10 * time.Second) // with probes that are carried out, too
		d.comeBack()
		d.take(teststore.Months(t, 1))
		d.wantLeft(teststore.Months(t, 0), 600-5-10-1)
	})
	duoTest(t, fallback.Config{}, func(t *testing.T, d *duo) {
		d.primary.Have(teststore.Refused)
		d.take(teststore.Months(t, 7))
		d.primary.Mend()
		d.take(teststore.Months(t, 1))
		d.wantLeft(teststore.Months(t, 0), 592)
	})
}

func TestMoreKeysThanMaxKeysAreAnsweredAndNotSettled(t *testing.T) {
	duoTest(t, fallback.Config{MaxKeys: 8}, func(t *testing.T, d *duo) {
		d.fail(teststore.Broken)
		c := teststore.Months(t, 600)
		for i := range 100 {
			c.Key = fmt.Sprint(i)
			if ok, _ := d.take(c); !ok {
				t.Fatal("denied for want of room")
			}
			if ok, _ := d.take(c); ok {
				t.Fatal("allowed twice")
			}
		}
		if pending := d.Stats().Fallback.Pending; pending != 8 {
			t.Errorf("%d pending", pending)
		}
		d.comeBack()
		settled := 0
		for i := range 100 {
			c.Key, c.Cost = fmt.Sprint(i), 1
			d.take(c)
			if d.peekPrimary(c).Remaining == 0 {
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
	duoTest(t, fallback.Config{MaxKeys: 8}, func(t *testing.T, d *duo) {
		d.fail(teststore.Broken)
		c := store.Charge{Policy: "p", Limit: teststore.Limit(t, 1, 2*time.Second, 1), Cost: 1}
		for i := range 100 {
			time.Sleep(time.Second) // two of them are spent at a time
			c.Key = fmt.Sprint(i)
			d.take(c)
		}
		d.comeBack()
		if d.take(c); d.peekPrimary(c).Remaining != 0 {
			t.Error("the last was not settled")
		}
	})
}

// Buckets that nobody charges again do not stay pending, or all calls would look for them.
func TestUsesThatMakeNoDifferenceAnyMoreAreForgotten(t *testing.T) {
	duoTest(t, fallback.Config{}, func(t *testing.T, d *duo) {
		d.fail(teststore.Broken)
		c := store.Charge{Policy: "p", Key: "k", Limit: teststore.Limit(t, 1, time.Second, 10), Cost: 10}
		d.take(c)
		d.comeBack()
		other := c
		other.Key = "other"
		for after, want := range []int{1, 0} {
			time.Sleep(time.Duration(after) * 10 * time.Second)
			if d.take(other); d.Stats().Fallback.Pending != want {
				t.Errorf("%d pending, want %d", d.Stats().Fallback.Pending, want)
			}
		}
		if ok, state := d.take(c); !ok || state.Remaining != 0 || d.peekPrimary(c).Remaining != 0 {
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
		duoRun(t, name, fallback.Config{}, func(t *testing.T, d *duo) {
			one := teststore.Months(t, 1)
			d.primary.Have(c.fault)
			served := int64(0)
			for ; served < 100; served++ {
				if ok, s := d.take(one); !ok || !s.Degraded {
					t.Fatalf("%t, %+v", ok, s)
				}
			}
			if d.Away() != nil {
				d.comeBack()
			} else {
				d.primary.Mend()
			}
			if c.spent > 0 {
				many := one
				many.Cost = c.spent
				teststore.TakeAllowed(t, d.primary.Store, many)
			}
			d.take(one) // settles
			before := d.peekPrimary(one).Remaining
			d.take(standby(one, served))
			d.take(one)
			if after := d.peekPrimary(one).Remaining; after > before {
				t.Errorf("%d tokens after the refund, %d before", after, before)
			}
		})
	}
}

// Both buckets have refilled since a refund was due: it would be a gift.
func TestARefundIsVoidWhenBothBucketsHaveRefilled(t *testing.T) {
	duoTest(t, fallback.Config{}, func(t *testing.T, d *duo) {
		c := store.Charge{Policy: "p", Key: "quick", Limit: teststore.Limit(t, 10, time.Second, 100), Cost: 50}
		slow := teststore.Months(t, 1) // keeps uses from being dropped altogether
		d.take(c)
		d.fail(teststore.Broken)
		d.take(slow)
		c.Cost = -50
		d.take(c)
		time.Sleep(time.Minute)
		d.comeBack()
		c.Cost = 100
		teststore.TakeAllowed(t, d.primary.Store, c)
		c.Cost = 1
		if ok, s := d.take(c); ok {
			t.Error(s, "a refund of before the bucket was full again filled it")
		}
	})
}
