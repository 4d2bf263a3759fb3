package redisstore_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

// A wire is a hook that answers in place of a server, which allows everything, after as long as it is told to. It needs
// no network, so that time can be that of a bubble.
type wire struct {
	// send, if set, is called for each command, of which it is number n. After an error the command fails by it.
	send func(ctx context.Context, n int) error

	// deaf says that send does not obey its context.
	deaf bool

	mu              sync.Mutex
	sent, now, most int // commands: all, those under way, and the most that were
	charges         int
}

func (w *wire) DialHook(next redis.DialHook) redis.DialHook { return next }

func (w *wire) ProcessHook(redis.ProcessHook) redis.ProcessHook { return w.process }

func (w *wire) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			cmd.SetErr(w.process(ctx, cmd))
		}
		return nil
	}
}

func (w *wire) process(ctx context.Context, cmd redis.Cmder) error {
	w.mu.Lock()
	w.sent++
	n, send := w.sent, w.send
	w.now++
	w.charges += cmd.Args()[2].(int)
	w.most = max(w.most, w.now)
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.now--
	}()
	if send != nil {
		if err := send(ctx, n); err != nil {
			return err
		}
	}
	if one, ok := cmd.(interface{ SetVal(int64) }); ok {
		one.SetVal(2*1000 + 1)
		return nil
	}
	reply := make([]int64, 2*cmd.Args()[2].(int))
	for i := range reply {
		reply[i] = 1000 // as many calls are allowed, and leave as many credits
	}
	cmd.(interface{ SetVal([]int64) }).SetVal(reply)
	return nil
}

// atOnce returns how many commands were under way at once, at most.
func (w *wire) atOnce() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.most
}

// charged returns how many charges were sent.
func (w *wire) charged() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.charges
}

// onWire runs a test on a Store with w for a server, in a bubble.
func onWire(t *testing.T, w *wire, cfg redisstore.Config, test func(t *testing.T, s *redisstore.Store)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		o := &redis.Options{
			Addr:                     "127.0.0.1:1",
			PoolSize:                 10,
			ContextTimeoutEnabled:    true,
			MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		}
		if w.deaf {
			o.ReadTimeout = -2 // it sets no deadlines
		}
		client := redis.NewClient(o)
		defer client.Close()
		client.AddHook(w)
		cfg.MaxDenials = -1
		test(t, ratelimit.Must(redisstore.New(client, cfg)))
	})
}

// idle checks that nothing is under way, and that s answers and ends.
func (w *wire) idle(t *testing.T, s *redisstore.Store) {
	t.Helper()
	synctest.Wait()
	if flights, overdue := redisstore.Flights(s); flights != 0 || overdue != 0 {
		t.Errorf("%d flights and %d overdue ones in the end", flights, overdue)
	}
	w.mu.Lock()
	w.send = nil
	w.mu.Unlock()
	for range 3 {
		if ok, err := try(s, charge(t, "last")); !ok || err != nil {
			t.Errorf("a call in the end: ok %t, error %v", ok, err)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// An attempt is how a call ended, when done is closed.
type attempt struct {
	ok   bool
	err  error
	took time.Duration
	done chan struct{}
}

// begin makes a call in a bubble, and returns when it waits or has ended.
func begin(ctx context.Context, s store.Store, charges ...store.Charge) *attempt {
	o := &attempt{done: make(chan struct{})}
	go func() {
		defer close(o.done)
		start := time.Now()
		o.ok, o.err = s.Take(ctx, charges, make([]store.State, len(charges)))
		o.took = time.Since(start)
	}()
	synctest.Wait()
	return o
}

// beginFor is begin for a call that is given d.
func beginFor(t *testing.T, d time.Duration, s store.Store, key string) *attempt {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return begin(ctx, s, charge(t, key))
}

// want waits for the end of o, and checks it.
func (o *attempt) want(t *testing.T, name string, ok bool, took time.Duration) {
	t.Helper()
	<-o.done
	if o.ok != ok || (o.err == nil) != ok || o.took != took {
		t.Errorf("%s: ok %t, error %v after %v, want %t after %v", name, o.ok, o.err, o.took, ok, took)
	}
}
