package observe_test

import (
	"context"
	"slices"
	"testing"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/observe"
)

func TestJoinCallsAllObserversInOrder(t *testing.T) {
	var seen []string
	called := func(name string) func(context.Context, *ratelimit.Event) {
		return func(_ context.Context, e *ratelimit.Event) { seen = append(seen, name+" "+e.Route) }
	}
	observers := []func(context.Context, *ratelimit.Event){called("a"), called("b")}
	joined := observe.Join(observers...)
	observers[0] = nil // has no effect
	joined(t.Context(), &ratelimit.Event{Route: "GET /"})
	if want := []string{"a GET /", "b GET /"}; !slices.Equal(seen, want) {
		t.Errorf("called %q, want %q", seen, want)
	}
	checkPanic(t, func() { observe.Join() }, "observe: Join: observers: must have at least one")
	checkPanic(t, func() { observe.Join(called("a"), nil) }, "observe: Join: observers: number 2 must not be nil")
}
