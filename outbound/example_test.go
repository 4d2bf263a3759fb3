package outbound_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/outbound"
)

// The API says that nothing is left for a minute.
func Example() {
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-RateLimit-Remaining", "0")
		w.Header().Set("X-RateLimit-Reset", fmt.Sprint(time.Now().Add(time.Minute).Unix()))
		w.WriteHeader(http.StatusTooManyRequests)
	}))
	defer api.Close()

	limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{})) // in production, with a Store in Redis
	defer limiter.Close()
	transport, err := outbound.New(outbound.Config{
		Limiter: limiter,
		Policy: ratelimit.Policy{
			Name:    "api",
			Limit:   ratelimit.PerHour(5000),
			MaxWait: 5 * time.Second,
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	client := &http.Client{Transport: transport}
	defer client.CloseIdleConnections()

	for range 2 {
		resp, err := client.Get(api.URL)
		var full *outbound.Error
		switch {
		case errors.As(err, &full):
			fmt.Println("not sent: the next window is in more than 50 s:", full.RetryAfter > 50*time.Second)
		case err != nil:
			fmt.Println(err)
		default:
			fmt.Println(resp.Status)
			resp.Body.Close()
		}
	}
	// Output:
	// 429 Too Many Requests
	// not sent: the next window is in more than 50 s: true
}

// A client of another protocol.
func ExampleQuota() {
	limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{}))
	defer limiter.Close()
	quota, err := outbound.NewQuota(outbound.Config{
		Limiter: limiter,
		Policy:  ratelimit.Policy{Name: "sms", Limit: ratelimit.PerMinute(600)},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()

	turn, err := quota.Wait(ctx, "account:7", 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	refused := false // make the call here
	quota.Report(ctx, turn, outbound.Report{Refused: refused})
	fmt.Println("sent")
	// Output: sent
}
