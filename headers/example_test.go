package headers_test

import (
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/headers"
)

// The headers of the second response, in each format, at a limit with a burst of 5.
func Example() {
	for _, format := range []ratelimit.HeaderFunc{headers.DeltaSeconds, headers.IETF, headers.Spring, headers.Shadows} {
		limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{
			Headers: format,
			Policies: []ratelimit.Policy{
				{Name: "login", Key: ratelimit.RemoteIP(), Limit: ratelimit.PerMinute(20).WithBurst(5)},
				{Name: "candidate", Key: ratelimit.RemoteIP(), Limit: ratelimit.PerMinute(20).WithBurst(1), Shadow: true},
			},
		}))
		handler := limiter.Handler(hello)
		handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		var lines []string
		for name, values := range w.Header() {
			if strings.Contains(name, "Ratelimit") {
				lines = append(lines, name+": "+values[0])
			}
		}
		slices.Sort(lines)
		fmt.Println(strings.Join(lines, "\n"))
		limiter.Close()
	}
	// Output:
	// X-Ratelimit-Limit: 5
	// X-Ratelimit-Remaining: 3
	// X-Ratelimit-Reset: 6
	// Ratelimit-Policy: "login";q=5;w=15
	// Ratelimit: "login";r=3;t=9
	// X-Ratelimit-Burst-Capacity: 15
	// X-Ratelimit-Remaining: 9
	// X-Ratelimit-Replenish-Rate: 1
	// X-Ratelimit-Requested-Tokens: 3
	// X-Ratelimit-Shadow: "candidate";r=0;t=3
}
