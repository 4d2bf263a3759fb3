package redisstore_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/redistest"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

// A refusal is two buckets on different slots, of which the other is empty, behind a proxy.
type refusal struct {
	proxy       *redistest.Proxy
	store       *redisstore.Store
	full, empty store.Charge
	spread      bool // a call of several slots is several scripts
}

func newRefusal(t *testing.T, cfg redisstore.Config) refusal {
	cluster := redistest.SharedCluster(t, 1)
	r := refusal{proxy: redistest.NewProxy(t, cluster.Addrs()[0]), spread: cluster.RefusesSeveralSlots()}
	cfg.Logger = quiet
	r.store = ratelimit.Must(redisstore.New(dial(t, r.proxy.Addr()), cfg))
	r.full, r.empty = charge(t, "full"), charge(t, "empty")
	r.empty.Limit = limit(t, 1, time.Hour, 1)
	takeAll(t, r.store, charge(t, "a"), charge(t, "b")) // from here on, each slot has a command of its own
	take(t, r.store, r.empty)
	landed(t, r.store)
	return r
}

// underWay waits until the store has sent commands.
func (r refusal) underWay(t *testing.T) {
	until(t, "in flight", func() bool { return r.store.Stats().Redis.InFlight > 0 })
}

// wantAllBack checks with another Store that a refused call has taken nothing.
func (r refusal) wantAllBack(t *testing.T) {
	t.Helper()
	wantLeft(t, ratelimit.Must(redisstore.New(dial(t, r.proxy.Addr()), redisstore.Config{})), r.full.Limit.Capacity/r.full.Limit.Unit, r.full)
}

func TestWhatARefusedCallTookIsGivenBackAlsoWhenTheStoreIsClosedMeanwhile(t *testing.T) {
	r := newRefusal(t, redisstore.Config{MaxDenials: -1})
	r.proxy.Delay(200 * time.Millisecond)
	var wg sync.WaitGroup
	wg.Go(func() { wantRefused(t, r.store, r.full, r.empty) })
	r.underWay(t)
	r.store.Close()
	wg.Wait()
	r.proxy.Pass()
	r.wantAllBack(t)
	if _, err := try(r.store, r.full); !errors.Is(err, redisstore.ErrClosed) {
		t.Errorf("error %v, want ErrClosed", err)
	}
}

func TestWhatARefusedCallTookIsGivenBackAlsoWhenTheQueueIsFullMeanwhile(t *testing.T) {
	r := newRefusal(t, redisstore.Config{MaxDenials: -1, MaxQueue: 2, MaxInFlight: 1})
	r.proxy.Delay(100 * time.Millisecond)
	var wg sync.WaitGroup
	wg.Go(func() { wantRefused(t, r.store, r.full, r.empty) })
	r.underWay(t)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	var full atomic.Int64
	for range 6 {
		wg.Go(func() {
			for ctx.Err() == nil {
				if _, err := try(r.store, charge(t, "other")); errors.Is(err, redisstore.ErrQueueFull) {
					full.Add(1)
				}
			}
		})
	}
	wg.Wait()
	r.proxy.Pass()
	r.wantAllBack(t)
	if full.Load() == 0 {
		t.Error("the queue was never full")
	}
}

// What is taken for the time of a round trip refuses others, but no longer than that.
func TestARefusalForWhatIsGivenBackIsNotRemembered(t *testing.T) {
	r := newRefusal(t, redisstore.Config{DenialAge: time.Hour})
	if !r.spread {
		return // nothing is given back of what is one script
	}
	r.full.Limit = limit(t, 1, time.Hour, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() {
		empty := r.empty
		for i := 0; ctx.Err() == nil; i++ {
			empty.MaxWait = time.Duration(i) * time.Microsecond // or it would be refused without Redis
			redisstore.ForgetRefusals(r.store)                  // or it would take nothing
			tryIn(ctx, r.store, r.full, empty)
		}
	})
	until(t, "somebody is refused for what is given back", func() bool {
		if !take(t, r.store, r.full).Allowed {
			return true
		}
		take(t, r.store, costs(r.full, -1))
		return false
	})
	cancel()
	wg.Wait()
	until(t, "all is given back", func() bool { return take(t, r.store, r.full).Allowed })
}
