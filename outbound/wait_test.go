package outbound_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/ratetest"
	"github.com/go-tokenbucket/ratelimit/outbound"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
)

// request returns a request with a deadline.
func request(t *testing.T, timeout time.Duration) *http.Request {
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	time.AfterFunc(timeout, cancel)
	r, err := http.NewRequestWithContext(ctx, "GET", "https://api.example", nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestErrorsSayWhen(t *testing.T) {
	run(t, func(t *testing.T, replica func(outbound.Config) *http.Client) {
		s := &server{}
		c := replica(outbound.Config{Policy: ratelimit.Policy{Limit: ratelimit.Every(10 * time.Second), MaxWait: 3 * time.Second}, Base: s})
		call(t, c)
		body := &closing{Reader: strings.NewReader("x")}
		r, _ := http.NewRequest("POST", "https://api.example", body)
		_, err := c.Transport.RoundTrip(r)
		var failed *outbound.Error
		if !errors.As(err, &failed) || failed.RetryAfter != 7*time.Second || failed.Policy != "api" || failed.Key != "host:api.example" {
			t.Errorf("error %#v", err)
		}
		if want := "outbound: policy api: the turn comes in 10s, but MaxWait leaves 3s: retry after 7s"; err == nil || err.Error() != want {
			t.Errorf("error %q, want %q", err, want)
		}
		if !body.closed {
			t.Error("the body is not closed")
		}
		time.Sleep(failed.RetryAfter)
		begin := time.Now()
		call(t, c)
		wantBetween(t, "the call after RetryAfter", time.Since(begin), 3*time.Second, 3*time.Second)
	})
}

// The text says what the turn would come after.
func TestErrorsSayWhy(t *testing.T) {
	run(t, func(t *testing.T, _ func(outbound.Config) *http.Client) {
		for name, c := range map[string]struct {
			maxWait, deadline time.Duration // 0: none
			block             bool
			want              string
		}{
			"a deadline before the turn":        {0, 9999 * time.Millisecond, false, "the turn comes in 10s, but the context's deadline leaves 9.999s: retry after 1ms"},
			"a deadline before MaxWait":         {3 * time.Second, time.Second, false, "the turn comes in 10s, but the context's deadline leaves 1s: retry after 9s"},
			"a MaxWait before the deadline":     {3 * time.Second, time.Minute, false, "the turn comes in 10s, but MaxWait leaves 3s: retry after 7s"},
			"a block, for whose end none waits": {3 * time.Second, time.Minute, true, "retry after 1h0m0s"},
		} {
			limiter := ratetest.Quiet(t)
			policy := ratelimit.Policy{Name: "api", Limit: ratelimit.Every(10 * time.Second), MaxWait: c.maxWait}
			q, err := outbound.NewQuota(outbound.Config{Limiter: limiter, Policy: policy})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := q.Wait(t.Context(), "key", 1); err != nil {
				t.Fatal(err)
			}
			if c.block {
				if _, err := limiter.Block(t.Context(), policy, "key", time.Hour, ""); err != nil {
					t.Fatal(err)
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), c.deadline)
			_, err = q.Wait(ctx, "key", 1)
			cancel()
			if want := "outbound: policy api: " + c.want; err == nil || err.Error() != want {
				t.Errorf("%s: error %q, want %q", name, err, want)
			}
		}
	})
}

type closing struct {
	io.Reader
	closed bool
}

func (c *closing) Close() error { c.closed = true; return nil }

// With a call each second, and 10 that wait, the eleventh would have to wait for 11 s.
func TestALineThatIsTooLongIsRefusedAtOnce(t *testing.T) {
	run(t, func(t *testing.T, replica func(outbound.Config) *http.Client) {
		c := replica(outbound.Config{Policy: ratelimit.Policy{Limit: ratelimit.Every(time.Second), MaxWait: 10500 * time.Millisecond}, Base: &server{}})
		call(t, c)
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() { call(t, c) })
		}
		synctest.Wait()
		time.Sleep(100 * time.Millisecond)
		begin := time.Now()
		var refused, served int
		for range 3 {
			_, err := c.Get("https://api.example")
			var failed *outbound.Error
			if errors.As(err, &failed) && failed.RetryAfter > 0 {
				refused++
			} else if err == nil {
				served++
			}
		}
		all.Wait()
		if refused == 0 || time.Since(begin) > 13*time.Second {
			t.Errorf("%d refused, %d served after %v", refused, served, time.Since(begin))
		}
	})
}

// After a stop with tokens left, calls in line do not wait for others to come.
func TestCallsInLineCountTheTokensThatAreLeft(t *testing.T) {
	run(t, func(t *testing.T, replica func(outbound.Config) *http.Client) {
		s := &server{answer: func(n int, _ *http.Request) (int, []string) {
			if n == 1 {
				return 403, []string{"Retry-After", "5", "X-RateLimit-Remaining", "50"}
			}
			return 200, nil
		}}
		cfg := outbound.Config{Policy: ratelimit.Policy{Limit: ratelimit.PerHour(60), MaxWait: 30 * time.Second}, Base: s}
		call(t, replica(cfg))
		begin := time.Now()
		c := replica(cfg) // learns of the stop from the store
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() { call(t, c) })
		}
		all.Wait()
		wantBetween(t, "the last call", time.Since(begin), 5*time.Second, 5100*time.Millisecond)
	})
}

// A line that has formed in a stop does not stay because each call in it needs an answer of the store.
func TestALineEndsWhenTheBucketHasTokens(t *testing.T) {
	run(t, func(t *testing.T, replica func(outbound.Config) *http.Client) {
		memory := ratelimit.Must(memstore.New(memstore.Config{}))
		defer memory.Close()
		s := &server{answer: func(n int, _ *http.Request) (int, []string) {
			if n == 100 {
				return 429, []string{"Retry-After", "1"}
			}
			return 200, nil
		}}
		slow := roundTripper(func(r *http.Request) (*http.Response, error) {
			defer time.Sleep(20 * time.Millisecond)
			return s.RoundTrip(r)
		})
		limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{Store: slowStore{memory}}))
		c := replica(outbound.Config{Limiter: limiter, Policy: ratelimit.Policy{Limit: ratelimit.PerSecond(5000)}, Base: slow})
		begin := time.Now()
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() {
				for range 100 {
					call(t, c)
				}
			})
		}
		all.Wait()
		wantBetween(t, "the last of 5000 calls", time.Since(begin), 3*time.Second, 4*time.Second)
	})
}

type slowStore struct{ store.Store }

func (s slowStore) Take(ctx context.Context, charges []store.Charge, states []store.State) (bool, error) {
	time.Sleep(2 * time.Millisecond)
	return s.Store.Take(ctx, charges, states)
}

// A call that takes no tokens, or can never have its tokens, does not wait behind others.
func TestCallsThatNeedNotWaitDoNot(t *testing.T) {
	run(t, func(t *testing.T, replica func(outbound.Config) *http.Client) {
		c := replica(outbound.Config{Base: &server{}, Policy: ratelimit.Policy{
			Limit: ratelimit.Every(time.Hour),
			LimitFunc: func(r *http.Request) ratelimit.Limit {
				if r.Method == "DELETE" {
					return ratelimit.PerHour(0)
				}
				return ratelimit.Limit{}
			},
			Cost: func(r *http.Request) int64 {
				return map[string]int64{"GET": 1, "DELETE": 1, "HEAD": 0, "PUT": 2}[r.Method]
			},
		}})
		call(t, c)
		var waiting sync.WaitGroup
		waiting.Go(func() { call(t, c) })
		synctest.Wait()
		begin := time.Now()
		for method, allowed := range map[string]bool{"DELETE": false, "HEAD": true, "PUT": false} {
			r, _ := http.NewRequest(method, "https://api.example", nil)
			_, err := c.Do(r)
			var failed *outbound.Error
			if allowed != (err == nil) || !allowed && (!errors.As(err, &failed) || failed.RetryAfter != ratelimit.Never) {
				t.Errorf("%s: %v", method, err)
			}
		}
		wantBetween(t, "the last call", time.Since(begin), 0, 0)
		waiting.Wait()
	})
}

// So does one in a stop: after it, the bucket is empty.
func TestErrorsInAStopCountTheNextToken(t *testing.T) {
	run(t, func(t *testing.T, replica func(outbound.Config) *http.Client) {
		s := &server{answer: func(n int, _ *http.Request) (int, []string) {
			if n == 1 {
				return 429, []string{"Retry-After", "5"}
			}
			return 200, nil
		}}
		cfg := outbound.Config{Policy: ratelimit.Policy{Limit: ratelimit.PerHour(60), MaxWait: time.Second}, Base: s}
		a, b := replica(cfg), replica(cfg)
		call(t, a)
		for name, c := range map[string]*http.Client{"a": a, "b": b} {
			_, err := c.Get("https://api.example")
			var failed *outbound.Error
			if !errors.As(err, &failed) {
				t.Fatal(err)
			}
			wantBetween(t, "replica "+name+": a retry", failed.RetryAfter, 58*time.Second, 65*time.Second)
		}
	})
}

// A call that has to wait behind others says when, too.
func TestErrorsOfCallsInLineSayWhen(t *testing.T) {
	run(t, func(t *testing.T, replica func(outbound.Config) *http.Client) {
		s := &server{answer: always(429, "Retry-After", "1000")}
		a := replica(outbound.Config{Policy: ratelimit.Policy{Limit: ratelimit.PerSecond(10)}, Base: s})
		b := replica(outbound.Config{Policy: ratelimit.Policy{Limit: ratelimit.PerSecond(10)}, Base: s})
		call(t, a)
		var all sync.WaitGroup
		all.Go(func() { call(t, b) }) // learns of the stop from the store
		time.Sleep(100 * time.Second)
		for _, c := range []*http.Client{a, b} {
			begin := time.Now()
			_, err := c.Do(request(t, time.Second))
			var failed *outbound.Error
			if !errors.As(err, &failed) || failed.RetryAfter < 898*time.Second || failed.RetryAfter > 900*time.Second || time.Since(begin) > 0 {
				t.Errorf("after %v: %v", time.Since(begin), err)
			}
		}
		all.Wait()
	})
}

func TestACallThatLeavesGivesItsTokensBack(t *testing.T) {
	run(t, func(t *testing.T, replica func(outbound.Config) *http.Client) {
		s := &server{}
		c := replica(outbound.Config{Policy: ratelimit.Policy{Limit: ratelimit.Every(time.Second)}, Base: s})
		begin := time.Now()
		call(t, c)
		ctx, cancel := context.WithCancel(t.Context())
		var leaving sync.WaitGroup
		for range 50 {
			leaving.Go(func() {
				r, _ := http.NewRequestWithContext(ctx, "GET", "https://api.example", nil)
				if _, err := c.Do(r); !errors.Is(err, context.Canceled) {
					t.Errorf("error %v, want one of the context", err)
				}
			})
		}
		time.Sleep(500 * time.Millisecond)
		cancel()
		leaving.Wait()
		call(t, c)
		if calls := s.since(begin); len(calls) != 2 || calls[1] != time.Second {
			t.Errorf("calls at %v, want the second one after 1s", calls)
		}
	})
}

// The call behind one that leaves does not wait for the token after.
func TestTheTokenOfACallThatLeavesIsForTheNextOne(t *testing.T) {
	run(t, func(t *testing.T, replica func(outbound.Config) *http.Client) {
		memory := ratelimit.Must(memstore.New(memstore.Config{}))
		defer memory.Close()
		c := replica(outbound.Config{
			Limiter: ratelimit.Must(ratelimit.New(ratelimit.Config{Store: slowRefunds{memory}})),
			Policy:  ratelimit.Policy{Limit: ratelimit.Every(time.Hour)},
			Base:    &server{},
		})
		begin := time.Now()
		call(t, c)
		ctx, cancel := context.WithCancel(t.Context())
		var both sync.WaitGroup
		both.Go(func() {
			r, _ := http.NewRequestWithContext(ctx, "GET", "https://api.example", nil)
			if _, err := c.Do(r); err == nil {
				t.Error("the call that leaves was made")
			}
		})
		synctest.Wait()
		both.Go(func() { call(t, c) })
		synctest.Wait()
		cancel()
		both.Wait()
		wantBetween(t, "the next call", time.Since(begin), time.Hour, time.Hour+time.Second)
	})
}

type slowRefunds struct{ store.Store }

func (s slowRefunds) Take(ctx context.Context, charges []store.Charge, states []store.State) (bool, error) {
	if charges[0].Cost < 0 {
		time.Sleep(time.Millisecond)
	}
	return s.Store.Take(ctx, charges, states)
}
