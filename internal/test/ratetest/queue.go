package ratetest

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
)

// NewStore returns a Store in memory without the timer that forgets full buckets. In virtual time the timer wakes each second,
// also in a month in which nothing happens.
func NewStore() *memstore.Store {
	s := ratelimit.Must(memstore.New(memstore.Config{}))
	s.Close()
	return s
}

// A Recorder is a Store that keeps what it was asked for, and fails if it is told to.
type Recorder struct {
	store.Store

	sync.Mutex
	Calls [][]store.Charge
	Fault func(charges []store.Charge) error // nil: none
}

func (r *Recorder) Take(ctx context.Context, charges []store.Charge, states []store.State) (bool, error) {
	r.Lock()
	r.Calls = append(r.Calls, slices.Clone(charges))
	fault := r.Fault
	r.Unlock()
	if fault != nil {
		if err := fault(charges); err != nil {
			return false, err
		}
	}
	return r.Store.Take(ctx, charges, states)
}

func (r *Recorder) Block(ctx context.Context, policy, key string, b store.Block) (bool, error) {
	return store.SetBlock(ctx, r.Store, policy, key, b)
}

// Refunds returns the calls that gave back.
func (r *Recorder) Refunds() (calls [][]store.Charge) {
	r.Lock()
	defer r.Unlock()
	for _, charges := range r.Calls {
		if charges[0].Cost < 0 {
			calls = append(calls, charges)
		}
	}
	return calls
}

// Events are those of a limiter.
type Events struct {
	mu  sync.Mutex
	all []*ratelimit.Event
}

// Observe is a Config.Observe.
func (e *Events) Observe(_ context.Context, event *ratelimit.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, event)
}

// All returns all events.
func (e *Events) All() []*ratelimit.Event {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.all)
}

// Last returns the event that came last.
func (e *Events) Last() *ratelimit.Event {
	all := e.All()
	return all[len(all)-1]
}

// A Queue is a limiter in a bubble, what it was asked for, and what it reported of that.
type Queue struct {
	*ratelimit.Limiter
	Events
	Store *Recorder
	Log   bytes.Buffer
}

// InBubble runs a test in which time passes only while all wait.
func InBubble(t *testing.T, cfg ratelimit.Config, test func(t *testing.T, q *Queue)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		q := &Queue{Store: &Recorder{Store: NewStore()}}
		if cfg.Store == nil {
			cfg.Store = q.Store
		}
		cfg.Logger = slog.New(slog.NewTextHandler(&q.Log, nil))
		cfg.Observe = q.Observe
		q.Limiter = NewLimiter(t, cfg)
		test(t, q)
	})
}

// ResetAfter returns how long until the bucket of an address is full: a debt can be seen in it.
func (q *Queue) ResetAfter(t *testing.T, p ratelimit.Policy) time.Duration {
	t.Helper()
	r, err := q.Peek(t.Context(), p, Address)
	if err != nil {
		t.Error(err)
	}
	return r.ResetAfter
}

// An Arrival is a request that came, and perhaps waits.
type Arrival struct {
	*httptest.ResponseRecorder
	Leave func()
	gone  chan bool // closed when the client leaves
	Done  chan struct{}
	Took  time.Duration
}

// CloseNotify is how net/http says that the client has gone away.
func (a *Arrival) CloseNotify() <-chan bool { return a.gone }

// Arrive sends a request in a bubble. When it returns, that waits or was answered.
func Arrive(h http.Handler, ctx context.Context) *Arrival {
	a := &Arrival{ResponseRecorder: httptest.NewRecorder(), gone: make(chan bool), Done: make(chan struct{})}
	ctx, cancel := context.WithCancel(ctx)
	a.Leave = sync.OnceFunc(func() {
		cancel()
		close(a.gone)
	})
	begin := time.Now()
	go func() {
		defer close(a.Done)
		defer a.Leave()
		h.ServeHTTP(a, httptest.NewRequest("GET", "/", nil).WithContext(ctx))
		a.Took = time.Since(begin)
	}()
	synctest.Wait()
	return a
}

// Want waits for the answer and compares it.
func (a *Arrival) Want(t *testing.T, status int, took time.Duration) {
	t.Helper()
	<-a.Done
	if a.Code != status || a.Took != took {
		t.Errorf("%d after %v, want %d after %v", a.Code, a.Took, status, took)
	}
}
