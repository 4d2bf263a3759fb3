//go:build long

package outages_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/store/fallback"
)

// Three replicas block and unblock keys before and during an outage of Redis. What was blocked before it is blocked
// afterwards. What was done in it holds on one replica, until Redis is back.
func TestBlocksInAnOutage(t *testing.T) {
	const replicas, length = 3, time.Hour
	server := lasting(t)
	var stores [replicas]*fallback.Store
	var limiters [replicas]*ratelimit.Limiter
	for i := range replicas {
		stores[i], _ = withFallback(t, openStore(t, at(t, server.Addr())()), fallback.Config{Replicas: replicas})
		limiter, err := ratelimit.New(ratelimit.Config{Store: stores[i], Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		limiters[i] = limiter
	}
	api := ratelimit.Policy{Name: "api", Limit: ratelimit.PerHour(600)}
	login := ratelimit.Policy{Name: "login", Limit: ratelimit.Every(time.Minute).WithBurst(replicas), LockFor: length}
	must := func(result ratelimit.Result, err error) ratelimit.Result {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return result
	}
	take := func(replica int, p ratelimit.Policy, key string) ratelimit.Result {
		t.Helper()
		return must(limiters[replica].Take(t.Context(), p, key, 1))
	}
	wantBlocked := func(degraded bool, p ratelimit.Policy, key string, begin time.Time, replicas ...int) {
		t.Helper()
		for _, i := range replicas {
			rest := length - time.Since(begin)
			if got := take(i, p, key); got.Allowed || !got.Blocked || got.Degraded != degraded || got.RetryAfter < rest-time.Second || got.RetryAfter > rest+time.Second {
				t.Errorf("replica %d, %s: %+v, want it blocked for %v", i, key, got, rest)
			}
		}
	}

	begin := time.Now()
	for _, key := range []string{"before", "freed"} {
		if got := must(limiters[0].Block(t.Context(), api, key, length, "")); !got.Blocked {
			t.Fatalf("%+v", got)
		}
		wantBlocked(false, api, key, begin, 0, 1)
	}

	server.Kill()
	for i, s := range stores {
		until(t, "the outage", func() bool {
			take(i, api, "other")
			return s.Away() != nil
		})
	}
	wantBlocked(true, api, "before", begin, 0, 1)
	if got := take(2, api, "before"); !got.Allowed {
		t.Errorf("replica 2 has not met the block, and denies: %+v", got)
	}
	must(limiters[1].Block(t.Context(), api, "during", length, ""))
	during := time.Now()
	wantBlocked(true, api, "during", during, 1)
	must(limiters[2].Unblock(t.Context(), api, "freed"))
	if got := take(2, api, "freed"); !got.Allowed {
		t.Errorf("%+v after Unblock", got)
	}
	for i := range replicas { // each has a share of one token
		if got := take(i, login, "locked"); !got.Allowed || !got.Blocked || !got.Degraded {
			t.Errorf("%+v, want the last token of the share", got)
		}
	}
	locked := time.Now()
	wantBlocked(true, login, "locked", locked, 0, 1, 2)

	server.Restart()
	for _, s := range stores {
		until(t, "the return", func() bool { return s.Away() == nil })
	}
	wantBlocked(false, api, "before", begin, 0, 1, 2)
	wantBlocked(false, api, "freed", begin, 0, 1, 2)
	for i := range replicas {
		if got := take(i, api, "during"); !got.Allowed {
			t.Errorf("%+v, want the block ended with the outage", got)
		}
	}
	if got, err := limiters[0].Peek(t.Context(), login, "locked"); err != nil || got.Blocked {
		t.Errorf("%+v, %v, want the lock ended with the outage", got, err)
	}
}

// until waits until something is so.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s has not come", what)
		}
	}
}
