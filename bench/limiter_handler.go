package main

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/store"
)

// limiterHandler decides with Limiter.Handler.
var limiterHandler = redisLimiter{
	name: "Limiter.Handler",
	open: func(_ context.Context, d *deployment, limits []ratelimit.Limit) (openRedis, error) {
		return openStore(d, plainStore, func(s store.Store) (func() takeFunc, error) {
			limiter, err := ratelimit.New(ratelimit.Config{Store: s, Timeout: limiterTimeout, Policies: policiesOf(limits)})
			if err != nil {
				return nil, err
			}
			return func() takeFunc { return request(limiter.Handler(http.HandlerFunc(greet))) }, nil
		})
	},
}

var errNotLimited = errors.New("answered without X-RateLimit-Remaining: the limiter failed, or does not do its work")

// request returns a function that serves a request with a key in its header by h. It is for one goroutine.
func request(h http.Handler) takeFunc {
	key := make([]string, 1)
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header[keyHeader] = key
	// Not on a cache line with the values of another goroutine.
	own := new(struct {
		_ [128]byte
		response
		_ [128]byte
	})
	own.header = make(http.Header)
	return func(ctx context.Context, member string) (bool, error) {
		key[0] = member
		clear(own.header)
		own.status = http.StatusOK
		h.ServeHTTP(&own.response, r.WithContext(ctx))
		if own.header["X-Ratelimit-Remaining"] == nil {
			return false, errNotLimited
		}
		return own.status == http.StatusOK, nil
	}
}
