package adaptertest

import (
	"fmt"
	"net/http"
	"sync"

	"github.com/go-tokenbucket/ratelimit"
)

var keys = []check{{"keys of many clients, kept after the request", testKeys}}

// Frameworks reuse the buffers of a request. A key that points into one would change while the store keeps it.
func testKeys(e *env) {
	const clients, each, burst = 8, 20, 3
	raw := func(r *http.Request) (string, error) { return r.Header.Get("X-Api-Key") + r.URL.RawQuery, nil }
	policy := ratelimit.Policy{Name: "api", Key: raw, Limit: ratelimit.PerDay(1).WithBurst(burst)}
	url := e.serve(App{
		Limiter: e.limiter(ratelimit.Config{Policies: []ratelimit.Policy{policy}}),
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
}
