package main

import (
	"context"
	"testing"

	"github.com/go-tokenbucket/ratelimit"
)

func TestReplicasShareTheCallersEvenly(t *testing.T) {
	const replicas, callers = 4, 32
	calls, closed := make([]int, replicas), 0
	next := 0
	open, err := replicated(replicas, func(context.Context, *deployment, []ratelimit.Limit) (openRedis, error) {
		id := next
		next++
		return openRedis{
			take:  forAll(func(context.Context, string) (bool, error) { calls[id]++; return true, nil }),
			close: func() { closed++ },
		}, nil
	})(t.Context(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for range callers {
		open.take()(t.Context(), "")
	}
	for id, n := range calls {
		if n != callers/replicas {
			t.Errorf("replica %d has %d callers of %d, want %d", id, n, callers, callers/replicas)
		}
	}
	if open.close(); closed != replicas {
		t.Errorf("%d of %d replicas were closed", closed, replicas)
	}
}
