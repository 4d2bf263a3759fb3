package conformance

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/redistest"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

const (
	perSecond = 5
	requests  = 30
)

// A race is so many workers of one client that send so many requests through a limit, as fast as they may.
type race struct {
	client  client
	burst   int
	workers int
}

// leastRefusals is how often a race is refused if all of its time is spent on waiting for Retry-After, which is
// a second each time. A client that sends what it has is refused when the burst is spent, and finds a whole burst
// a second later, as a burst comes in less. If it waited for less it would be refused more often.
//
// It is never more, however long anything takes. Between two refusals of one worker lies a second at least, in
// which the bucket has got a whole burst, or was full; so others or itself spent one before the second of them.
// The j-th refusal of a worker thus comes after j bursts were spent, and refuses one of those requests that are
// then left.
func (r race) leastRefusals() int {
	refusals := 0
	for left := requests - r.burst; left > 0; left -= r.burst {
		refusals += min(r.workers, left)
	}
	return refusals
}

// retries is how often a request can be refused. A lone client's next one is always admitted; of several
// workers one may lose against the others for as long as there are others.
func (r race) retries() int {
	if r.workers == 1 {
		return 1
	}
	return (requests - 1) / r.burst
}

// run runs the race under a store of its own, and fails the test unless each request succeeds within the retries,
// and the race is refused just as often as it must be.
func (r race) run(t *testing.T, s store.Store) {
	l := newLimiter(t, ratelimit.Config{
		Store:    s,
		Policies: []ratelimit.Policy{everybody(ratelimit.PerSecond(perSecond).WithBurst(int64(r.burst)))},
	})
	var mu sync.Mutex
	attempts := make(map[string]int)
	limited := l.Handler(okHandler)
	url := serve(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		mu.Lock()
		attempts[req.URL.Path]++
		mu.Unlock()
		limited.ServeHTTP(w, req)
		if after := w.Header().Get("Retry-After"); after != "" && after != "1" {
			t.Errorf("Retry-After is %s, and the next token comes within a second", after)
		}
	}))

	start := time.Now()
	r.send(t, url)
	took := time.Since(start)

	refused, most := -requests, 0
	for _, n := range attempts {
		refused += n
		most = max(most, n-1)
	}
	least := r.leastRefusals()
	t.Logf("refused %d times, need not be more than %d; one request %d times; %v", refused, least, most, took)
	if refused > least {
		t.Errorf("refused %d times, and %d would do", refused, least)
	}
	// What a lone client does besides waiting brings it tokens, a burst of which saves it a refusal.
	if r.workers == 1 {
		besides := max(0, took-time.Duration(refused)*time.Second)
		saved := int(besides * perSecond / time.Second / time.Duration(r.burst))
		if refused < least-saved {
			t.Errorf("refused %d times only, and it took %v besides: it cannot be less than %d", refused, besides, least-saved)
		}
	}
	// The clock of a Redis may drift against this one.
	if admitted := float64(r.burst) + perSecond*took.Seconds()*1.001; requests > admitted {
		t.Errorf("%d requests were admitted in %v, and the limit allows %v", requests, took, admitted)
	}
}

// send has the workers of one client share the requests.
func (r race) send(t *testing.T, url string) {
	get := r.client.make(t, r.retries())
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	paths := make(chan string, requests)
	for n := range requests {
		paths <- fmt.Sprintf("/%d", n)
	}
	close(paths)
	var workers sync.WaitGroup
	for range r.workers {
		workers.Go(func() {
			for path := range paths {
				if status, err := get(ctx, url+path); status != http.StatusOK || err != nil {
					t.Errorf("%s: status %d, error %v", path, status, err)
				}
			}
		})
	}
	workers.Wait()
}

func (r race) String() string {
	return fmt.Sprintf("%s, burst %d, %d at once", r.client.name, r.burst, r.workers)
}

func TestClientsThatObeyAreRefusedAsRarelyAsCanBe(t *testing.T) {
	t.Parallel()
	for _, c := range clients {
		for _, r := range []race{{c, 5, 1}, {c, 5, 4}, {c, 1, 1}, {c, 1, 4}} {
			t.Run(r.String(), func(t *testing.T) {
				t.Parallel()
				s := ratelimit.Must(memstore.New(memstore.Config{}))
				defer s.Close()
				r.run(t, s)
			})
		}
	}
}

func TestClientsThatObeyAreRefusedAsRarelyAsCanBeOnRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for i, c := range clients {
		for _, r := range []race{{c, 5, 1}, {c, 5, 4}} {
			t.Run(r.String(), func(t *testing.T) {
				t.Parallel()
				r.run(t, ratelimit.Must(redisstore.New(server.Client(), redisstore.Config{Prefix: fmt.Sprintf("%d-%d", i, r.workers)})))
			})
		}
	}
}
