package fallback_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/teststore"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/fallback"
)

// The reply to a call that was carried out before a block, or before its end, may come after that.
func TestALateReplySaysNothingOfALaterBlock(t *testing.T) {
	late := func(_ context.Context, take func() error) error {
		err := take()
		time.Sleep(10 * time.Millisecond)
		return err
	}
	c := teststore.Months(t, 1)
	for name, test := range map[string]struct {
		first, then store.Charge
		blocked     bool
	}{
		"block":   {blockOf(c, -1), blockOf(c, time.Hour), true},
		"unblock": {blockOf(c, time.Hour), blockOf(c, -1), false},
		"reset":   {blockOf(c, time.Hour), teststore.ResetOf(t, c), false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDuo(t, fallback.Config{})
				d.take(test.first)
				d.primary.Have(late)
				var calls sync.WaitGroup
				calls.Go(func() { d.take(c) })
				time.Sleep(time.Millisecond)
				d.primary.Mend()
				d.take(test.then)
				calls.Wait()
				d.fail(teststore.Broken)
				if ok, state := d.take(c); ok == test.blocked || state.Blocked != test.blocked {
					t.Errorf("%t, %+v in the outage", ok, state)
				}
			})
		})
	}
}

func TestALateReplyOfThePrimaryDoesNotEndABlockOfTheOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDuo(t, fallback.Config{})
		c := teststore.Months(t, 1)
		d.primary.Have(func(_ context.Context, take func() error) error {
			err := take()
			time.Sleep(40 * time.Millisecond)
			return err
		})
		var calls sync.WaitGroup
		calls.Go(func() { d.take(c) })
		time.Sleep(time.Millisecond)
		d.fail(teststore.Broken)
		until := time.Now().Add(time.Hour)
		d.block(c, time.Hour)
		calls.Wait()
		d.wantDenied(c, until)
	})
}
