//go:build long

package outages_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/fallback"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

const (
	rate, burst = 200, 100 // a second, and at once, of each key
	keys        = 2        // as many hot keys
	callers     = 4        // that send requests all the time, of each API
	timeout     = 100 * time.Millisecond
)

// An api is a limited handler, and what its requests saw.
type api struct {
	handler http.Handler

	mu   sync.Mutex
	seen []request
}

// A request is what became of one.
type request struct {
	begin    time.Time
	took     time.Duration
	status   int
	headers  bool  // it was told its quota
	degraded bool  // a stand-in answered
	err      error // nobody did
}

// newAPI returns an API with two limits a request, of which the one of its key runs out.
func newAPI(t *testing.T, s store.Store, name string, failClosed bool) *api {
	t.Helper()
	limiter, err := ratelimit.New(ratelimit.Config{
		Store:   s,
		Timeout: timeout,
		Logger:  slog.New(slog.DiscardHandler),
		Observe: func(ctx context.Context, e *ratelimit.Event) {
			r := ctx.Value(requestKey{}).(*request)
			if len(e.Results) == 0 {
				r.err = e.Err
			}
			for i := range e.Results {
				r.degraded = r.degraded || e.Results[i].Degraded
			}
		},
		Policies: []ratelimit.Policy{{
			Name:       name,
			Key:        keyOf,
			Limit:      ratelimit.PerSecond(rate).WithBurst(burst),
			FailClosed: failClosed,
		}, {
			Name:  name + "-all",
			Key:   keyOf,
			Limit: ratelimit.PerSecond(1_000_000),
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return &api{handler: limiter.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))}
}

func keyOf(r *http.Request) (string, error) { return "key:" + r.Header.Get("Key"), nil }

type requestKey struct{}

func (a *api) get(key string) request {
	seen := &request{}
	r := httptest.NewRequest("GET", "/", nil)
	r = r.WithContext(context.WithValue(r.Context(), requestKey{}, seen))
	r.Header.Set("Key", key)
	w := httptest.NewRecorder()
	seen.begin = time.Now()
	a.handler.ServeHTTP(w, r)
	seen.took = time.Since(seen.begin)
	seen.status = w.Code
	seen.headers = w.Header()["X-Ratelimit-Limit"] != nil
	return *seen
}

// serve has callers send requests until stop is closed.
func (a *api) serve(stop <-chan struct{}, running *sync.WaitGroup) {
	for i := range callers {
		key := string(rune('a' + i%keys))
		running.Go(func() {
			var seen []request
			for {
				select {
				case <-stop:
					a.mu.Lock()
					a.seen = append(a.seen, seen...)
					a.mu.Unlock()
					return
				default:
				}
				seen = append(seen, a.get(key))
				time.Sleep(time.Millisecond)
			}
		})
	}
}

// between returns the requests that began from one time up to another.
func (a *api) between(from, to time.Time) (found []request) {
	for _, r := range a.seen {
		if !r.begin.Before(from) && r.begin.Before(to) {
			found = append(found, r)
		}
	}
	return found
}

func count(requests []request, is func(request) bool) (n int) {
	for _, r := range requests {
		if is(r) {
			n++
		}
	}
	return n
}

func isDegraded(r request) bool { return r.degraded }

func admitted(r request) bool { return r.status == http.StatusOK }

// quantile returns what the given part of the requests did not take longer than.
func quantile(requests []request, q float64) time.Duration {
	if len(requests) == 0 {
		return 0
	}
	took := make([]time.Duration, len(requests))
	for i, r := range requests {
		took[i] = r.took
	}
	slices.Sort(took)
	return took[min(len(took)-1, int(q*float64(len(took))))]
}

// stalled measures until stop is closed how much later than it should a goroutine ran, which is no limiter's
// fault. There are as many as callers: a processor that does not run holds up only those that are on it.
func stalled(stop <-chan struct{}) time.Duration {
	var longest atomic.Int64
	var running sync.WaitGroup
	for range len(apis) * callers {
		running.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				begin := time.Now()
				time.Sleep(time.Millisecond)
				late := int64(time.Since(begin) - time.Millisecond)
				for seen := longest.Load(); late > seen && !longest.CompareAndSwap(seen, late); seen = longest.Load() {
				}
			}
		})
	}
	running.Wait()
	return time.Duration(longest.Load())
}

// openStore returns a Store of its own on a client, closed when the test ends.
func openStore(t *testing.T, client redisstore.Client) *redisstore.Store {
	s := ratelimit.Must(redisstore.New(client, redisstore.Config{Logger: slog.New(slog.DiscardHandler)}))
	t.Cleanup(func() { s.Close() })
	return s
}

// withFallback returns s with a stand-in, and keeps when that changes.
func withFallback(t *testing.T, s store.Store, cfg fallback.Config) (*fallback.Store, *changes) {
	var c changes
	cfg.OnChange = c.add
	cfg.Logger = slog.New(slog.NewTextHandler(&c, nil))
	f := ratelimit.Must(fallback.New(s, nil, cfg))
	t.Cleanup(func() { f.Close() })
	return f, &c
}

// changes are when a primary was given up, and why, and when it was back. They read the log, too, for charges for
// an outage that failed.
type changes struct {
	mu  sync.Mutex
	all []change

	uncharged atomic.Int64 // lines
}

func (c *changes) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte("charging for an outage")) {
		c.uncharged.Add(1)
	}
	return len(line), nil
}

type change struct {
	at     time.Time
	away   bool
	reason error
}

func (c *changes) add(away bool, reason error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, change{time.Now(), away, reason})
}

// away reports whether the primary was away at a time.
func (c *changes) away(at time.Time) (away bool) {
	for _, one := range c.all {
		if !one.at.After(at) {
			away = one.away
		}
	}
	return away
}

// next returns the first change to away or back that is not before a time.
func (c *changes) next(away bool, from time.Time) (change, bool) {
	for _, one := range c.all {
		if one.away == away && !one.at.Before(from) {
			return one, true
		}
	}
	return change{}, false
}
