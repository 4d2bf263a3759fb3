package ratelimit_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/go-tokenbucket/ratelimit"
)

// Three wrong passwords lock the login of an address. Clients that know the password are never locked out by using it.
func ExampleFailedLogins() {
	limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{}))
	defer limiter.Close()
	login := limiter.Limit(ratelimit.Policy{
		Name:   "login",
		Key:    ratelimit.RemoteIP(),
		Limit:  ratelimit.PerHour(3),
		Settle: ratelimit.FailedLogins,
	})(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("password") != "sesame" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.WriteHeader(http.StatusNoContent) // a success is one that is written
	}))
	for _, password := range []string{"sesame", "1", "sesame", "2", "sesame", "3", "sesame"} {
		printResponse(login, "POST", "/login?password="+password)
	}
	// Output:
	// POST /login?password=sesame 204
	// POST /login?password=1 401
	// POST /login?password=sesame 204
	// POST /login?password=2 401
	// POST /login?password=sesame 204
	// POST /login?password=3 401
	// POST /login?password=sesame 429
}

// A model's answer costs as many tokens as it has, which is known when it is written. Until then the request is
// charged an estimate.
func ExampleSetCost() {
	limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{}))
	defer limiter.Close()
	tokens := ratelimit.Policy{
		Name:   "llm",
		Key:    ratelimit.RemoteIP(),
		Limit:  ratelimit.PerHour(10_000),
		Cost:   func(*http.Request) int64 { return 1000 },
		Settle: func(_ *http.Request, response ratelimit.Response) int64 { return response.Cost }, // if nothing is said
	}
	complete := limiter.Limit(tokens)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := strings.Fields("the answer of the model")
		ratelimit.SetCost(r.Context(), "llm", int64(len(answer)))
		fmt.Fprint(w, answer)
	}))
	printResponse(complete, "POST", "/complete")
	left, err := limiter.Peek(context.Background(), tokens, "ip:192.0.2.1") // httptest's address
	fmt.Println(left.Remaining, "left", err)
	// Output:
	// POST /complete 200
	// 9995 left <nil>
}

// A download costs a token for each kilobyte that was sent. What is more than there is becomes a debt.
func ExamplePolicy_settle() {
	limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{}))
	defer limiter.Close()
	download := limiter.Limit(ratelimit.Policy{
		Name:   "kilobytes",
		Key:    ratelimit.RemoteIP(),
		Limit:  ratelimit.PerSecond(100),
		Settle: func(_ *http.Request, response ratelimit.Response) int64 { return (response.Bytes + 999) / 1000 },
	})(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Write(make([]byte, 1_000_000))
	}))
	printResponse(download, "GET", "/file") // 1,000 tokens, of which there are 100: the next one is in 9 seconds
	printResponse(download, "GET", "/file")
	// Output:
	// GET /file 200
	// GET /file 429
}
