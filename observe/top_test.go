package observe_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/observe"
	"github.com/go-tokenbucket/ratelimit/store"
)

// asked is an event of a request under one policy.
func asked(policy, key string, allowed bool) *ratelimit.Event {
	return &ratelimit.Event{Op: "request", Allowed: allowed, Results: []ratelimit.Result{{Policy: policy, Key: key, Cost: 1, State: store.State{Allowed: allowed}}}}
}

func TestTopFindsAKeyOfOnePercentAmongAMillion(t *testing.T) {
	top := observe.NewTop(observe.TopConfig{})
	ctx := context.Background()
	for i := range 1_000_000 {
		key := fmt.Sprint("ip:", i)
		if i%100 == 0 {
			key = "heavy"
		}
		top.Observe(ctx, asked("api", key, true))
	}
	list := top.Heaviest("api", 0)
	if len(list.Keys) != 1 || list.Keys[0].Key != "heavy" || list.Requests != 1_000_000 {
		t.Errorf("got %+v", list)
	}
}
