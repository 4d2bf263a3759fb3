package redisstore_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

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
	client := redis.NewClient(&redis.Options{Addr: r.proxy.Addr()})
	t.Cleanup(func() { client.Close() })
	cfg.Logger = slog.New(slog.DiscardHandler)
	r.store = redisstore.New(client, cfg)
	r.full, r.empty = charge(t, "full"), charge(t, "empty")
	r.empty.Limit = limit(t, 1, time.Hour, 1)
	if _, err := tryFor(10*time.Second, r.store, charge(t, "a"), charge(t, "b")); err != nil {
		t.Fatal(err) // from here on, each slot has a command of its own
	}
	take(t, r.store, r.empty)
	landed(t, r.store)
	return r
}

// underWay waits until the store has sent commands.
func (r refusal) underWay() {
	for r.store.Stats().Redis.InFlight == 0 {
		time.Sleep(time.Millisecond)
	}
}

// wantAllBack checks with another Store that a refused call has taken nothing.
func (r refusal) wantAllBack(t *testing.T) {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: r.proxy.Addr()})
	defer client.Close()
	peek := r.full
	peek.Cost = 0
	if got, want := take(t, redisstore.New(client, redisstore.Config{}), peek).Remaining, r.full.Limit.Capacity/r.full.Limit.Unit; got != want {
		t.Errorf("%d remain, want %d", got, want)
	}
}

func TestWhatARefusedCallTookIsGivenBackAlsoWhenTheStoreIsClosedMeanwhile(t *testing.T) {
	r := newRefusal(t, redisstore.Config{MaxDenials: -1})
	r.proxy.Delay(200 * time.Millisecond)
	var wg sync.WaitGroup
	wg.Go(func() {
		if ok, err := tryFor(10*time.Second, r.store, r.full, r.empty); ok || err != nil {
			t.Errorf("ok %t, error %v, want a refusal", ok, err)
		}
	})
	r.underWay()
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
	wg.Go(func() {
		if ok, err := tryFor(10*time.Second, r.store, r.full, r.empty); ok || err != nil {
			t.Errorf("ok %t, error %v, want a refusal", ok, err)
		}
	})
	r.underWay()
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
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
			r.store.Take(ctx, []store.Charge{r.full, empty}, make([]store.State, 2))
		}
	})
	refused := false
	for begin := time.Now(); !refused && time.Since(begin) < 5*time.Second; {
		if take(t, r.store, r.full).Allowed {
			back := r.full
			back.Cost = -1
			take(t, r.store, back)
		} else {
			refused = true
		}
	}
	cancel()
	wg.Wait()
	if !refused {
		t.Fatal("nobody was refused for what was given back")
	}
	for begin := time.Now(); !take(t, r.store, r.full).Allowed; {
		if time.Since(begin) > 5*time.Second {
			r.wantAllBack(t)
			t.Fatal("still refused, long after all was given back")
		}
	}
}
