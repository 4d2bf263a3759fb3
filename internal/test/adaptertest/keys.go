package adaptertest

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/go-tokenbucket/ratelimit"
)

var keys = []check{{"keys of many clients, kept after the request", testKeys}}

// Frameworks reuse the buffers of a request. A key that points into one would change while the store keeps it.
func testKeys(e *env) {
	const clients, each, burst = 8, 20, 3
	var mu sync.Mutex
	var kept, copies []string
	keep := func(of func(*http.Request) string) ratelimit.KeyFunc {
		return func(r *http.Request) (string, error) {
			key := of(r)
			mu.Lock()
			defer mu.Unlock()
			kept, copies = append(kept, key), append(copies, strings.Clone(key))
			return key, nil
		}
	}
	limit := ratelimit.PerDay(1).WithBurst(burst)
	policies := []ratelimit.Policy{
		{Name: "header", Limit: limit, Key: keep(func(r *http.Request) string { return r.Header.Get("X-Api-Key") })},
		{Name: "query", Limit: limit, Key: keep(func(r *http.Request) string { return r.URL.RawQuery })},
	}
	url := e.serve(App{
		Limiter: e.limiter(ratelimit.Config{Policies: policies}),
		Handler: true,
		Routes:  []Route{{Method: "GET", Path: "/", Handler: ok}},
	})
	var running sync.WaitGroup
	for client := range clients {
		running.Go(func() {
			allowed := make([]int, each)
			for range burst + 1 {
				for i := range each {
					// Of different lengths, so that buffers overlap.
					key := fmt.Sprintf("%0*d-client-%d", 1+i, i, client)
					if read(e.http1.Do(e.request("GET", url+"/?"+key, "X-Api-Key", key))).status == 200 {
						allowed[i]++
					}
				}
			}
			for i, n := range allowed {
				if n != burst {
					e.Errorf("client %d, key %d: %d requests allowed, want %d", client, i, n, burst)
				}
			}
		})
	}
	running.Wait()
	if !slices.Equal(kept, copies) {
		e.Error("keys have changed since their requests")
	}
}
