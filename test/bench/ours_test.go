package main

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/lease"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

var (
	// endless never empties a bucket. It is so slow that no bucket becomes full, and is dropped from Redis, before its
	// next use.
	endless = ratelimit.Limit{Rate: 1, Per: 10 * time.Second, Burst: 200_000_000}

	// exhausted is a limit whose bucket is empty after the first call.
	exhausted = ratelimit.PerHour(1).WithBurst(1)

	// leasable refills a bucket faster than the calls empty it.
	leasable = ratelimit.PerSecond(10_000_000).WithBurst(1_000_000)
)

// manyLimits returns n limits that never empty a bucket. After one token, a bucket stays in Redis for an hour, because
// many keys are not used again for a long time.
func manyLimits(n int) []ratelimit.Limit {
	limits := make([]ratelimit.Limit, n)
	for i := range limits {
		limits[i] = ratelimit.Limit{Rate: 1, Per: time.Hour + time.Duration(i)*time.Minute, Burst: 500_000}
	}
	return limits
}

// openStore returns a redisstore until b ends.
func openStore(b *testing.B, s servers, defaults bool, cfg redisstore.Config) store.Store {
	opened := ratelimit.Must(redisstore.New(s.client(b, defaults), cfg))
	b.Cleanup(func() { opened.Close() })
	return opened
}

// openLease returns a lease.Store on a redisstore until b ends.
func openLease(b *testing.B, s servers) store.Store {
	leases := ratelimit.Must(lease.New(openStore(b, s, false, redisstore.Config{}), lease.Config{}))
	b.Cleanup(func() { leases.Close() })
	return leases
}

// openLimiter returns a Limiter on a store until b ends. If s is nil, it has a new memory store.
func openLimiter(b *testing.B, s store.Store, policies ...ratelimit.Policy) *ratelimit.Limiter {
	limiter, err := ratelimit.New(ratelimit.Config{Store: s, Timeout: limiterTimeout, Policies: policies})
	check(b, err)
	b.Cleanup(func() { limiter.Close() })
	return limiter
}

// policiesOf returns a policy for each limit. The key is in a header of the requests.
func policiesOf(limits []ratelimit.Limit) []ratelimit.Policy {
	policies := make([]ratelimit.Policy, len(limits))
	for i, l := range limits {
		policies[i] = ratelimit.Policy{Name: "bench" + strconv.Itoa(i+1), Key: ratelimit.Header(keyHeader), Limit: l}
	}
	return policies
}

func limiterTake(b *testing.B, s store.Store, l ratelimit.Limit) func() take {
	limiter, policy := openLimiter(b, s), policiesOf([]ratelimit.Limit{l})[0]
	return shared(func(ctx context.Context, key string) (bool, error) {
		result, err := limiter.Take(ctx, policy, key, 1)
		return result.Allowed, err
	})
}

func limiterTakeAll(b *testing.B, s store.Store, limits []ratelimit.Limit) func() take {
	limiter, policies := openLimiter(b, s), policiesOf(limits)
	return shared(func(ctx context.Context, key string) (bool, error) {
		charges := make([]ratelimit.Charge, len(policies))
		for i, policy := range policies {
			charges[i] = ratelimit.Charge{Policy: policy, Key: key}
		}
		decision, err := limiter.TakeAll(ctx, charges...)
		return decision.Allowed, err
	})
}

// limiterHandler serves requests, without a network.
func limiterHandler(b *testing.B, s store.Store, limits []ratelimit.Limit) func() take {
	return requests(openLimiter(b, s, policiesOf(limits)...).Handler(http.HandlerFunc(greet)))
}

// storeTake calls a store directly, with a compiled limit.
func storeTake(b *testing.B, s store.Store, l ratelimit.Limit) func() take {
	limit, err := store.NewLimit(l.Rate, l.Per, l.Burst)
	check(b, err)
	return func() take {
		// Reused, as in the middleware. Also as there, it shares no cache line with the values of another goroutine,
		// because each call would then wait for that line.
		own := new(struct {
			_       [128]byte
			charges [1]store.Charge
			states  [1]store.State
			_       [128]byte
		})
		own.charges[0] = store.Charge{Policy: "bench", Limit: limit, Cost: 1}
		return func(ctx context.Context, key string) (bool, error) {
			own.charges[0].Key = key
			return s.Take(ctx, own.charges[:], own.states[:])
		}
	}
}

// keyHeader is the header with the key of a request.
const keyHeader = "X-Api-Key"

// greet is the handler that is limited.
func greet(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain") // an allocation that few handlers avoid
	w.Write(greeting)
}

var greeting = []byte("hello\n")

var errNotLimited = errors.New("answered without X-RateLimit-Remaining: the limiter failed, or does not do its work")

// requests returns functions that serve requests with a key in a header by h, and fail if no limiter has seen them.
func requests(h http.Handler) func() take {
	return func() take {
		key := make([]string, 1)
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header[keyHeader] = key
		serve := serving(h, r)
		return func(ctx context.Context, member string) (bool, error) {
			key[0] = member
			status, limited := serve(ctx)
			if !limited {
				return false, errNotLimited
			}
			return status == http.StatusOK, nil
		}
	}
}

// serving returns a function that serves r by h, for one goroutine. It returns the status, and whether there are rate
// limit headers.
func serving(h http.Handler, r *http.Request) func(context.Context) (status int, limited bool) {
	// Not on a cache line with the values of another goroutine: each write would wait for that line. So the header is
	// allocated in the middle of many others.
	w := new(struct {
		_ [128]byte
		response
		_ [128]byte
	})
	var headers [64]http.Header
	for i := range headers {
		headers[i] = make(http.Header)
	}
	w.header = headers[len(headers)/2]
	return func(ctx context.Context) (int, bool) {
		clear(w.header)
		w.status = http.StatusOK
		h.ServeHTTP(&w.response, r.WithContext(ctx))
		_, limited := w.header["X-Ratelimit-Remaining"]
		return w.status, limited
	}
}

// A response is a http.ResponseWriter without a cost.
type response struct {
	header http.Header
	status int
}

func (w *response) Header() http.Header         { return w.header }
func (w *response) WriteHeader(status int)      { w.status = status }
func (w *response) Write(b []byte) (int, error) { return len(b), nil }
