package redisstore_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/redistest"
	"github.com/go-tokenbucket/ratelimit/internal/test/teststore"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

// A gate is a client that holds back commands while it is shut, and notes how many there were.
type gate struct {
	redisstore.Client
	open     chan struct{} // a command passes for each
	arrived  chan struct{}
	panicked bool
}

func (g *gate) Process(ctx context.Context, cmd redis.Cmder) error {
	g.arrived <- struct{}{}
	<-g.open
	if g.panicked {
		g.panicked = false
		panic("a hook")
	}
	return g.Client.Process(ctx, cmd)
}

func newGate(t *testing.T) *gate {
	client := redistest.Start(t).Client()
	if err := client.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	return &gate{Client: client, open: make(chan struct{}), arrived: make(chan struct{}, 100)}
}

// queue has n callers take from one of two buckets in turn, while a first call is held back, and returns when
// they have all been queued or refused.
func (g *gate) queue(t *testing.T, s store.Store, n int, failed func(error)) *sync.WaitGroup {
	var wg sync.WaitGroup
	take := func(key string) {
		wg.Go(func() {
			if _, err := tryFor(10*time.Second, s, charge(t, key)); err != nil {
				failed(err)
			}
		})
	}
	take("first")
	<-g.arrived
	for i := range n {
		take([]string{"a", "b"}[i%2])
	}
	time.Sleep(100 * time.Millisecond) // for them to get there
	return &wg
}

func TestWhatComesWhileACallIsUnderWayLeavesTogether(t *testing.T) {
	g := newGate(t)
	s := ratelimit.Must(redisstore.New(g, redisstore.Config{MaxDenials: -1, MaxInFlight: 1}))
	wg := g.queue(t, s, 60, func(err error) { t.Error(err) })
	close(g.open)
	wg.Wait()
	// The first, and all others in one script: of each EVALSHA and, the first time, EVAL.
	if sent := 1 + len(g.arrived); sent > 4 {
		t.Errorf("%d commands for 61 calls, want 4", sent)
	}
	wantLeft(t, s, 70, charge(t, "a"), charge(t, "b"))
}

func TestAFullQueueRefusesAtOnce(t *testing.T) {
	g := newGate(t)
	s := ratelimit.Must(redisstore.New(g, redisstore.Config{MaxDenials: -1, MaxInFlight: 1, MaxQueue: 5}))
	var mu sync.Mutex
	full := 0
	wg := g.queue(t, s, 8, func(err error) {
		mu.Lock()
		defer mu.Unlock()
		if !errors.Is(err, redisstore.ErrQueueFull) {
			t.Error(err)
		}
		full++
	})
	mu.Lock()
	if full != 3 {
		t.Errorf("%d were refused before any was answered, want 3", full)
	}
	mu.Unlock()
	wantCounted(t, s, "queue_full", 3)
	close(g.open)
	wg.Wait()
	take(t, s, charge(t, "a"))
}

// While a command hangs, what waits for the next is kept after its callers have left.
func TestLongKeysInTheQueueAreKeptByTheirHash(t *testing.T) {
	g := newGate(t)
	s := ratelimit.Must(redisstore.New(g, redisstore.Config{MaxInFlight: 1}))
	kept := teststore.LeftOnHeap(func() {
		var wg sync.WaitGroup
		take := func(c store.Charge) { wg.Go(func() { _, _ = tryFor(50*time.Millisecond, s, c) }) }
		take(charge(t, "first"))
		<-g.arrived
		teststore.LongKeys(t, take)
		wg.Wait()
	})
	if kept > teststore.MostOfLongKeys {
		t.Errorf("calls with long keys keep %d bytes", kept)
	}
	close(g.open)
	s.Close()
}

func TestCloseWaitsForWhatHasBegunAndRefusesTheRest(t *testing.T) {
	g := newGate(t)
	s := ratelimit.Must(redisstore.New(g, redisstore.Config{MaxDenials: -1, MaxInFlight: 1}))
	wg := g.queue(t, s, 10, func(err error) { t.Error(err) })
	closed := make(chan struct{})
	go func() {
		s.Close()
		close(closed)
	}()
	for _, err := try(s, charge(t, "late")); !errors.Is(err, redisstore.ErrClosed); _, err = try(s, charge(t, "late")) {
		if !errors.Is(err, context.DeadlineExceeded) { // as long as it is not closed
			t.Fatal(err)
		}
	}
	select {
	case <-closed:
		t.Fatal("Close did not wait")
	default:
	}
	close(g.open)
	wg.Wait()
	<-closed
	if n := redisStats(t, s).Errors["closed"]; n != 1 {
		t.Errorf("%d calls are counted as refused by a closed Store, want 1", n)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func TestAPanicInTheClientFailsOnlyWhatItWasSending(t *testing.T) {
	g := newGate(t)
	s := ratelimit.Must(redisstore.New(g, redisstore.Config{MaxDenials: -1, MaxInFlight: 1}))
	g.panicked = true
	var mu sync.Mutex
	failed := 0
	wg := g.queue(t, s, 10, func(err error) {
		mu.Lock()
		defer mu.Unlock()
		if failed++; !strings.Contains(err.Error(), "a hook") {
			t.Error(err)
		}
	})
	close(g.open)
	wg.Wait()
	if failed != 1 {
		t.Errorf("%d calls failed, want the first", failed)
	}
}

func TestNewNamesTheFieldThatIsWrong(t *testing.T) {
	for want, cfg := range map[string]redisstore.Config{
		"Config.MaxBatch -1":    {MaxBatch: -1},
		"Config.MaxInFlight -1": {MaxInFlight: -1},
		"Config.MaxQueue -1":    {MaxQueue: -1},
		"Config.DenialAge -1":   {DenialAge: -1},
		"Config.SlotLease 1ms":  {SlotLease: time.Millisecond},
		"Config.SlotLease 2h":   {SlotLease: 2 * time.Hour},
		"Config.CrossSlot -1":   {CrossSlot: -1},
		"Config.CrossSlot 3":    {CrossSlot: 3},
	} {
		t.Run(want, func(t *testing.T) {
			if _, err := redisstore.New(new(gate), cfg); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("error %v", err)
			}
		})
	}
}
