package fallback_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/test/teststore"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/fallback"
)

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
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDuo(t, fallback.Config{})
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
					teststore.Must(t, d.primary.Store, many)
				}
				d.take(one) // settles
				before := d.peekPrimary(one).Remaining
				d.take(standby(one, served))
				d.take(one)
				if after := d.peekPrimary(one).Remaining; after > before {
					t.Errorf("%d tokens after the refund, %d before", after, before)
				}
			})
		})
	}
}

// Both buckets have refilled since a refund was due: it would be a gift.
func TestARefundIsVoidWhenBothBucketsHaveRefilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDuo(t, fallback.Config{})
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
		teststore.Must(t, d.primary.Store, c)
		c.Cost = 1
		if ok, s := d.take(c); ok {
			t.Error(s, "a refund of before the bucket was full again filled it")
		}
	})
}
