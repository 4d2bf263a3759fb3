package code_test

import (
	"context"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/ratetest"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
)

// Block a client

func keepOut(ctx context.Context, limiter *ratelimit.Limiter) error {
	api := ratelimit.Policy{Name: "api"} // the name is enough
	_, err := limiter.Block(ctx, api, "ip:192.0.2.1", time.Hour, "alice: scrapes prices")
	return err
}

func letIn(ctx context.Context, limiter *ratelimit.Limiter) error {
	api := ratelimit.Policy{Name: "api"}
	_, err := limiter.Unblock(ctx, api, "ip:192.0.2.1") // with the tokens that it has
	return err
}

func fill(ctx context.Context, limiter *ratelimit.Limiter) error {
	api := ratelimit.Policy{Name: "api"}
	_, err := limiter.Reset(ctx, api, "ip:192.0.2.1") // with a full bucket
	return err
}

func TestRecipeBlock(t *testing.T) {
	shared := memstore.New(memstore.Config{})
	t.Cleanup(func() { shared.Close() })
	replica := func() *ratelimit.Limiter {
		return ratetest.NewLimiter(t, ratelimit.Config{Store: shared, Policies: []ratelimit.Policy{ratetest.PerIP("api", ratelimit.PerHour(3))}})
	}
	here, elsewhere := replica(), replica()
	for _, step := range []struct {
		do   func(context.Context, *ratelimit.Limiter) error
		want []int
	}{
		{keepOut, []int{429, 429}},
		{letIn, []int{200}},
		{keepOut, []int{429}},
		{letIn, []int{200, 200, 429}},
		{keepOut, []int{429}},
		{fill, []int{200, 200, 200, 429}},
	} {
		if err := step.do(t.Context(), here); err != nil {
			t.Fatal(err)
		}
		ratetest.WantStatuses(t, elsewhere.Handler(ratetest.OK), step.want, ratetest.From("192.0.2.1"))
	}
	ratetest.WantStatuses(t, elsewhere.Handler(ratetest.OK), []int{200}, ratetest.From("192.0.2.2"))
}
