package main

import (
	"context"
	"strconv"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/store"
)

// limiterTake decides with Limiter.Take.
var limiterTake = redisLimiter{
	name: "Limiter.Take",
	open: func(_ context.Context, d *deployment, limits []ratelimit.Limit) (openRedis, error) {
		return openStore(d, plainStore, takeOf(limits))
	},
}

func init() {
	redisCompetitors = append(redisCompetitors, redisLimiter{
		name:      "Limiter.Take, CrossSlotNever",
		takesPart: in(cluster1024),
		open: func(_ context.Context, d *deployment, limits []ratelimit.Limit) (openRedis, error) {
			return openStore(d, slotwise, takeOf(limits))
		},
	})
}

// limiterLease is limiterTake on a lease.Store.
var limiterLease = redisLimiter{
	name: "Limiter.Take on lease.Store",
	open: func(_ context.Context, d *deployment, limits []ratelimit.Limit) (openRedis, error) {
		return openStore(d, leased, takeOf(limits))
	},
}

// takeOf returns the function that calls a store through Limiter.Take.
func takeOf(limits []ratelimit.Limit) func(store.Store) (func() takeFunc, error) {
	policy := policiesOf(limits)[0]
	return func(s store.Store) (func() takeFunc, error) {
		limiter, err := ratelimit.New(ratelimit.Config{Store: s, Timeout: limiterTimeout})
		if err != nil {
			return nil, err
		}
		return forAll(func(ctx context.Context, key string) (bool, error) {
			result, err := limiter.Take(ctx, policy, key, 1)
			return result.Allowed, err
		}), nil
	}
}

// limiterTakeAll decides about all limits of a key with Limiter.TakeAll.
var limiterTakeAll = redisLimiter{
	name: "Limiter.TakeAll",
	open: func(_ context.Context, d *deployment, limits []ratelimit.Limit) (openRedis, error) {
		policies := policiesOf(limits)
		return openStore(d, plainStore, func(s store.Store) (func() takeFunc, error) {
			limiter, err := ratelimit.New(ratelimit.Config{Store: s, Timeout: limiterTimeout})
			if err != nil {
				return nil, err
			}
			return forAll(func(ctx context.Context, key string) (bool, error) {
				charges := make([]ratelimit.Charge, len(policies))
				for i, policy := range policies {
					charges[i] = ratelimit.Charge{Policy: policy, Key: key}
				}
				decision, err := limiter.TakeAll(ctx, charges...)
				return decision.Allowed, err
			}), nil
		})
	},
}

// policiesOf returns a policy for each limit. The key is in a header of the requests.
func policiesOf(limits []ratelimit.Limit) []ratelimit.Policy {
	policies := make([]ratelimit.Policy, len(limits))
	for i, l := range limits {
		policies[i] = ratelimit.Policy{Name: "bench" + strconv.Itoa(i+1), Key: ratelimit.Header(keyHeader), Limit: l}
	}
	return policies
}
