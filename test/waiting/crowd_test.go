package waiting_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/store"
)

// as returns h for requests from an address.
func as(addr string, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		from(addr)(r)
		h.ServeHTTP(w, r)
	})
}

// A crowd is many requests that come at the same time.
type crowd struct {
	sync.WaitGroup
	mu      sync.Mutex
	refused int
}

// come sends n requests. When it returns, they wait or were answered.
func (c *crowd) come(t *testing.T, h http.Handler, n int) {
	t.Helper()
	for range n {
		c.Go(func() {
			switch w := get(h); w.Code {
			case http.StatusOK:
			case http.StatusTooManyRequests:
				c.mu.Lock()
				c.refused++
				c.mu.Unlock()
			default:
				t.Errorf("answered %d", w.Code)
			}
		})
	}
	synctest.Wait()
}

func TestOneClientLeavesPlacesForOthersToWait(t *testing.T) {
	p := waiting(perIP("api", ratelimit.Every(200*time.Millisecond)), time.Hour)
	inBubble(t, ratelimit.Config{}, func(t *testing.T, q *queue) {
		h := q.Limit(p)(okHandler)
		flooding := as("192.0.2.66", h)
		get(flooding) // its token, or a request would take a place for a moment to take that
		var flood crowd
		flood.come(t, flooding, 1500)
		if want := 1500 - 512; flood.refused != want {
			t.Errorf("%d of a flood were refused, want %d: half of the 1024 places are for others", flood.refused, want)
		}
		arrive(as("192.0.2.7", h), t.Context()).Want(t, 200, 0)
		arrive(as("192.0.2.7", h), t.Context()).Want(t, 200, 200*time.Millisecond)
		flood.Wait()
	})
}

func TestOneKeyWaitsInHalfOfThePlaces(t *testing.T) {
	const most = 10
	p := waiting(perIP("api", ratelimit.Every(time.Second)), time.Hour)
	inBubble(t, ratelimit.Config{MaxWaiting: 2 * most}, func(t *testing.T, q *queue) {
		h := q.Limit(p)(okHandler)
		get(h)
		var c crowd
		c.come(t, h, 200)
		if c.refused != 200-most || q.ResetAfter(t, p) != (most+1)*time.Second {
			t.Errorf("%d were refused, and the bucket is full after %v: want %d waiting", c.refused, q.ResetAfter(t, p), most)
		}
		// Without a wait it could be allowed when all who wait have had their turns.
		if a := arrive(h, t.Context()); a.Code != 429 || a.Header().Get("Retry-After") != "11" {
			t.Errorf("%d, Retry-After %q, want 429 and 11", a.Code, a.Header().Get("Retry-After"))
		}

		// A turn makes room for one, and so does a client that leaves.
		time.Sleep(time.Second)
		synctest.Wait()
		eleventh := arrive(h, t.Context())
		arrive(h, t.Context()).Want(t, 429, 0)
		eleventh.Leave()
		eleventh.Want(t, 499, 0)
		arrive(h, t.Context()).Want(t, 200, 10*time.Second)
		c.Wait()
	})
}

func TestTwoKeysWaitInAThirdOfThePlacesEach(t *testing.T) {
	p := waiting(perIP("api", ratelimit.Every(time.Second)), time.Hour)
	inBubble(t, ratelimit.Config{MaxWaiting: 30}, func(t *testing.T, q *queue) {
		h := q.Limit(p)(okHandler)
		one, two := as("192.0.2.1", h), as("192.0.2.2", h)
		get(one)
		get(two)
		var first, second crowd
		first.come(t, one, 100) // and gets half of the places while it is alone
		second.come(t, two, 100)
		if first.refused != 100-15 || second.refused != 100-8 {
			t.Errorf("%d and %d of 100 were refused, want 85 and 92", first.refused, second.refused)
		}
		for range 12 { // as the first moves on, the second gets what it may have
			time.Sleep(time.Second)
			synctest.Wait()
			first.come(t, one, 5)
			second.come(t, two, 5)
		}
		for name, c := range map[string]struct {
			*crowd
			sent int
		}{"first": {&first, 160}, "second": {&second, 160}} {
			// One of each had its turn in each second.
			if waiting := c.sent - c.refused - 12; waiting != 10 && waiting != 11 { // and 9 are free
				t.Errorf("%d of the %s wait, want a third of 30", waiting, name)
			}
		}
		first.Wait()
		second.Wait()
	})
}

func TestNoMoreThanMaxWaitingWait(t *testing.T) {
	const most, clients = 10, 50
	p := waiting(perIP("api", ratelimit.Every(time.Second)), time.Hour)
	inBubble(t, ratelimit.Config{MaxWaiting: most}, func(t *testing.T, q *queue) {
		h := q.Limit(p)(okHandler)
		var c crowd
		come := func() {
			for i := range clients {
				c.come(t, as(fmt.Sprint("192.0.2.", i), h), 1)
			}
		}
		come()
		if c.refused != 0 {
			t.Errorf("%d were refused a token that they had", c.refused)
		}
		if come(); c.refused != clients-most {
			t.Errorf("%d were refused, want all but the %d that wait", c.refused, most)
		}
		// A client with tokens needs no place.
		arrive(as("192.0.2.200", h), t.Context()).Want(t, 200, 0)
		a := arrive(as("192.0.2.200", h), t.Context())
		if a.Want(t, 429, 0); a.Header().Get("Retry-After") != "1" {
			t.Errorf("Retry-After %q, want 1", a.Header().Get("Retry-After"))
		}
		c.Wait()
		arrive(as("192.0.2.200", h), t.Context()).Want(t, 200, 0)
	})
}

func TestARequestNeedsAPlaceInOneOfItsQueues(t *testing.T) {
	perClient := waiting(perIP("client", ratelimit.Every(time.Second)), time.Hour)
	all := waiting(ratelimit.Policy{Name: "all", Key: ratelimit.Static("all"), Limit: ratelimit.Every(time.Second)}, time.Hour)
	shadow := all
	shadow.Name, shadow.Shadow = "shadow", true
	inBubble(t, ratelimit.Config{MaxWaiting: 10}, func(t *testing.T, q *queue) {
		both, one := q.Limit(perClient, all)(okHandler), q.Limit(perClient, shadow)(okHandler)
		// A flood of one client fills its queue, and its half of the one that counts all clients together.
		var flood, c crowd
		flood.come(t, as("192.0.2.66", both), 1) // or it would hold a place while others are refused
		flood.come(t, as("192.0.2.66", both), 19)
		if flood.refused != 20-1-5 {
			t.Errorf("%d of a flood were refused, want 14: one has the token of all, and five wait", flood.refused)
		}
		for i := range 4 {
			c.come(t, as(fmt.Sprint("192.0.2.", i), both), 1)
		}
		// A shadow's queue is nobody's.
		get(as("192.0.2.99", one))
		c.come(t, as("192.0.2.99", one), 1)
		if c.refused != 0 {
			t.Errorf("%d of others were refused where five places are free", c.refused)
		}
		flood.Wait()
		c.Wait()
	})
}

func TestCallsOfWaitAndRequestsShareThePlacesOfAKey(t *testing.T) {
	p := waiting(perIP("api", ratelimit.Every(time.Second)), time.Hour)
	inBubble(t, ratelimit.Config{MaxWaiting: 4}, func(t *testing.T, q *queue) {
		h := q.Limit(p)(okHandler)
		get(h)
		var workers sync.WaitGroup
		workers.Go(func() {
			if r, err := q.Wait(t.Context(), p, "ip:192.0.2.1", 1); err != nil || !r.Allowed {
				t.Errorf("%+v, %v", r, err)
			}
		})
		synctest.Wait()
		second := arrive(h, t.Context())
		arrive(h, t.Context()).Want(t, 429, 0)
		if r, err := q.Wait(t.Context(), p, "ip:192.0.2.1", 1); err == nil || r.Allowed {
			t.Errorf("a third place of four was given to one key: %+v, %v", r, err)
		}
		workers.Go(func() {
			get(as("192.0.2.2", h))
			if r, err := q.Wait(t.Context(), p, "ip:192.0.2.2", 1); err != nil || !r.Allowed {
				t.Errorf("another key: %+v, %v", r, err)
			}
		})
		second.Want(t, 200, 2*time.Second)
		workers.Wait()
	})
}

func TestAPlaceIsGivenBackHoweverARequestEnds(t *testing.T) {
	p := waiting(perIP("api", ratelimit.Every(time.Second)), time.Hour)
	inBubble(t, ratelimit.Config{MaxWaiting: 1}, func(t *testing.T, q *queue) {
		h := q.Limit(p)(okHandler)
		get(h)
		for range 3 {
			q.Store.Fault = func([]store.Charge) error { panic("of the store") }
			func() {
				defer func() {
					if recover() != "of the store" {
						t.Error("the panic of the store was not passed on")
					}
				}()
				h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
			}()
			q.Store.Fault = func([]store.Charge) error { return fmt.Errorf("away") }
			arrive(h, t.Context()).Want(t, 200, 0)
			q.Store.Fault = nil
			leaving := arrive(h, t.Context())
			leaving.Leave()
			<-leaving.Done
			arrive(h, t.Context()).Want(t, 200, time.Second)
		}
	})
}
