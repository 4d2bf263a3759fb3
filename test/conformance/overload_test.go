package conformance

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"

	"github.com/failsafe-go/failsafe-go/adaptivelimiter"

	"github.com/go-tokenbucket/ratelimit"
)

// shed answers 503 while this process runs as many requests as it can without becoming slow.
func shed(next http.Handler) http.Handler {
	adaptive := adaptivelimiter.NewBuilder[any]().WithLimits(5, 500, 50).Build()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		permit, ok := adaptive.TryAcquirePermit()
		if !ok {
			w.Header().Set("Retry-After", "1")
			http.Error(w, "overloaded", http.StatusServiceUnavailable)
			return
		}
		defer permit.Record() // also after a panic
		next.ServeHTTP(w, r)
	})
}

func mountShed(mux *http.ServeMux, limiter *ratelimit.Limiter, client ratelimit.KeyFunc, search http.Handler) {
	searches := ratelimit.Policy{Name: "searches", Key: client, Limit: ratelimit.Concurrency(10)}
	mux.Handle("GET /search", limiter.Limit(searches)(shed(search)))
}

// One client has its own limit, and all clients together what the process can do. A panic gives back what it held.
func TestSheddingBesideAConcurrencyLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{}))
		defer limiter.Close()
		mux, end := http.NewServeMux(), make(chan struct{})
		mountShed(mux, limiter, ratelimit.Header("X-Client"), http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			<-end
			panic(http.ErrAbortHandler)
		}))
		statuses := make(chan int, 100)
		send := func(client string, n int) {
			for range n {
				go func() {
					defer func() { recover() }()
					r := httptest.NewRequest("GET", "/search", nil)
					r.Header.Set("X-Client", client)
					w := httptest.NewRecorder()
					mux.ServeHTTP(w, r)
					statuses <- w.Code
				}()
			}
			synctest.Wait()
		}
		want := func(status, n int) {
			t.Helper()
			if len(statuses) != n {
				t.Errorf("%d requests are answered, want %d", len(statuses), n)
			}
			for range len(statuses) {
				if got := <-statuses; got != status {
					t.Errorf("status %d, want %d", got, status)
				}
			}
		}
		send("a", 12)
		want(429, 2)
		for _, client := range []string{"b", "c", "d", "e"} {
			send(client, 10)
		}
		want(0, 0)
		send("f", 3)
		want(503, 3)
		close(end)
		synctest.Wait()
		end = make(chan struct{})
		send("f", 3)
		want(0, 0)
		close(end)
	})
}
