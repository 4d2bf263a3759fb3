package fallback_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/fallback"
)

// unreachable stands for a redisstore.Store whose Redis is unreachable.
type unreachable struct{}

func (unreachable) Take(context.Context, []store.Charge, []store.State) (bool, error) {
	return false, errors.New("connection refused")
}

// While Redis is unavailable, each of three replicas allows a third of the limit.
func ExampleNew_replicas() {
	s := ratelimit.Must(fallback.New(unreachable{}, nil, fallback.Config{
		Replicas: 3,
		Logger:   slog.New(slog.DiscardHandler),
	}))
	defer s.Close()
	limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{Store: s}))
	mails := ratelimit.Policy{Name: "mails", Limit: ratelimit.PerHour(9)}

	for range 4 {
		result, err := limiter.Take(context.Background(), mails, "member:5", 1)
		fmt.Println(result.Allowed, result.Degraded, err)
	}
	// Output:
	// true true <nil>
	// true true <nil>
	// true true <nil>
	// false true <nil>
}
