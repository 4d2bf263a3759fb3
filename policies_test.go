package ratelimit_test

import (
	"context"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit"
)

// inForce lists what Policies returns, as names and limits.
func inForce(l *ratelimit.Limiter) (all []string) {
	for _, p := range l.Policies() {
		all = append(all, p.Name+" "+p.Limit.String())
	}
	return all
}

func wantInForce(t *testing.T, l *ratelimit.Limiter, want ...string) {
	t.Helper()
	if got := inForce(l); !slices.Equal(got, want) {
		t.Errorf("in force are %q, want %q", got, want)
	}
}

func TestPoliciesListsTheHandlersAndThenTheMountedByName(t *testing.T) {
	l := newLimiter(t, ratelimit.Config{Policies: []ratelimit.Policy{hourly("z", 1), hourly("b", 2)}})
	wantInForce(t, l, "z 1/1h", "b 2/1h")
	mounts := []func(http.Handler) http.Handler{
		l.Limit(hourly("y", 3), hourly("a", 4)), l.Limit(hourly("c", 5)),
		l.Limit(hourly("a", 4)), // again
		l.Limit(hourly("b", 6)), // Handler has another one
		l.Limit(hourly("c", 7)), // another of the same name
	}
	_, _ = l.Take(t.Context(), hourly("taken", 8), "k", 1)
	for range 20 { // not in the order of a map
		wantInForce(t, l, "z 1/1h", "b 2/1h", "a 4/1h", "c 5/1h", "y 3/1h")
	}
	runtime.KeepAlive(mounts)
}

func TestPoliciesWithoutAny(t *testing.T) {
	if got := newLimiter(t, ratelimit.Config{}).Policies(); len(got) > 0 {
		t.Errorf("%+v", got)
	}
}

func TestPoliciesAreWhole(t *testing.T) {
	p := hourly("p", 5)
	p.LockFor, p.FailClosed, p.Hidden, p.Settle, p.Cost = time.Hour, true, true, ratelimit.FailedLogins, func(*http.Request) int64 { return 7 }
	l := newLimiter(t, ratelimit.Config{Policies: []ratelimit.Policy{p}})
	got := l.Policies()[0]
	if got.LockFor != time.Hour || !got.FailClosed || !got.Hidden || got.Settle == nil || got.Key == nil || got.Cost(nil) != 7 {
		t.Errorf("%+v", got)
	}
	got.Limit, got.Name = ratelimit.Unlimited, "changed" // has no effect
	all := l.Policies()
	all[0] = hourly("other", 1)
	wantInForce(t, l, "p 5/1h")
}

func TestPoliciesFollowAReload(t *testing.T) {
	l := newLimiter(t, ratelimit.Config{Policies: []ratelimit.Policy{hourly("a", 1), hourly("b", 1)}})
	mounts := []func(http.Handler) http.Handler{l.Limit(hourly("m", 1)), l.Limit(hourly("n", 1))}
	reload(t, l, hourly("c", 2), hourly("a", 2), hourly("n", 2))
	wantInForce(t, l, "c 2/1h", "a 2/1h", "m 1/1h", "n 2/1h")
	if l.Reload(ratelimit.Policy{}) == nil {
		t.Error("a malformed policy was accepted")
	}
	wantInForce(t, l, "c 2/1h", "a 2/1h", "m 1/1h", "n 2/1h")

	// All of a Reload, or nothing.
	stop := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		for i := int64(3); ; i++ {
			select {
			case <-stop:
				return
			default:
				_ = l.Reload(hourly("a", i), hourly("m", i), hourly("n", i))
			}
		}
	})
	seen := make(map[ratelimit.Limit]bool)
	for len(seen) < 50 && !t.Failed() {
		all := l.Policies()
		seen[all[0].Limit] = true
		for i := range all {
			if all[0].Name != "c" && all[i].Limit != all[0].Limit { // a first Reload was there
				t.Errorf("%+v: parts of two", all)
			}
		}
	}
	close(stop)
	running.Wait()
	runtime.KeepAlive(mounts)
}

func TestPoliciesOfAPlaceThatWasDroppedAreNotListed(t *testing.T) {
	l := newLimiter(t, ratelimit.Config{})
	kept := l.Limit(hourly("kept", 1))
	func() { _ = l.Limit(hourly("dropped", 1)) }()
	for range 5 {
		runtime.GC()
	}
	wantInForce(t, l, "kept 1/1h")
	runtime.KeepAlive(kept)
}

func TestALimiterThatObservesItsHandlersIsCollected(t *testing.T) {
	type program struct{ handlers []http.Handler }
	collected := make(chan struct{})
	func() {
		p := new(program)
		runtime.AddCleanup(p, func(done chan struct{}) { close(done) }, collected)
		l := ratelimit.Must(ratelimit.New(ratelimit.Config{Policies: []ratelimit.Policy{hourly("all", 1)}, Observe: func(context.Context, *ratelimit.Event) { _ = p.handlers }}))
		end := http.NotFoundHandler()
		p.handlers = []http.Handler{l.Handler(end), l.Limit(hourly("route", 1))(end)}
	}()
	for range 100 {
		runtime.GC()
		select {
		case <-collected:
			return
		case <-time.After(10 * time.Millisecond): // for the cleanups, which have a goroutine
		}
	}
	t.Error("it is kept after nothing uses it")
}
