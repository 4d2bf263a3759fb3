package main

import (
	"context"
	"fmt"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/lease"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

// The names of the comparisons in which competitors besides redis_rate take part.
const (
	store64       = "redisstore uniform 64 callers"
	store1024     = "redisstore uniform 1024 callers"
	storeHot      = "redisstore hot 1024 callers"
	storeRefusals = "redisstore refusals 256 callers"
)

// leasable is a limit that refills a bucket faster than the calls empty it.
var leasable = []ratelimit.Limit{ratelimit.PerSecond(10_000_000).WithBurst(1_000_000)}

// These comparisons call the store directly, with compiled charges and one context for many calls. They show the cost
// of a decision without the Limiter.
func init() {
	for _, w := range []workload{
		{name: "redisstore 1 caller", what: "10,000 keys", callers: 1, keys: manyKeys, allowed: true},
		{name: store64, what: "10,000 uniform keys", callers: 64, keys: manyKeys, allowed: true},
		{name: store1024, what: "10,000 uniform keys", callers: 1024, keys: manyKeys, allowed: true},
		{name: "redisstore zipf 1024 callers", what: "10,000 Zipf keys (s = 1.1)", callers: 1024, keys: manyKeys, zipf: 1.1, allowed: true},
		{name: storeHot, what: "one key, all allowed", callers: 1024, keys: 1, allowed: true},
		{name: storeRefusals, what: "8 empty keys, all refused (by redisstore mostly without asking Redis)", callers: 256, keys: 8, limits: []ratelimit.Limit{exhausted}},
	} {
		w.ours = redisstoreTake
		w.prepared = w.callers > 1
		w.register(storeAlone)
	}
	workload{
		name: "redisstore lease hot 256 callers", what: "one key of 10,000,000 per second and a burst of 1,000,000, all allowed", callers: 256, keys: 1,
		limits: leasable, allowed: true, prepared: true, ours: leaseTake,
		bounds: loadBounds{rate: atLeastTimes(100)},
	}.register(storeAlone)
}

var redisstoreTake = redisLimiter{
	name: "redisstore.Take",
	open: func(_ context.Context, d *deployment, limits []ratelimit.Limit) (openRedis, error) {
		return openStore(d, plainStore, storeTake(limits))
	},
}

var leaseTake = redisLimiter{
	name: "lease.Store on redisstore",
	open: func(_ context.Context, d *deployment, limits []ratelimit.Limit) (openRedis, error) {
		return openStore(d, leased, storeTake(limits))
	},
}

// storeKind is the store below a limiter.
type storeKind int

const (
	plainStore storeKind = iota // a redisstore
	slotwise                    // a redisstore that sends a separate call for each hash slot
	leased                      // a lease.Store on a redisstore
)

// openStore opens a store on d, with its own client. callers makes the functions that call it.
func openStore(d *deployment, kind storeKind, callers func(store.Store) (func() takeFunc, error)) (openRedis, error) {
	client, err := d.client()
	if err != nil {
		return openRedis{}, err
	}
	var cfg redisstore.Config
	if kind == slotwise {
		cfg.CrossSlot = redisstore.CrossSlotNever
	}
	s := redisstore.New(client, cfg)
	front, closeFront := store.Store(s), func() {}
	if kind == leased {
		leases := lease.New(s, lease.Config{})
		front, closeFront = leases, func() { leases.Close() }
	}
	closeAll := func() {
		closeFront()
		s.Close()
		client.Close()
	}
	take, err := callers(front)
	if err != nil {
		closeAll()
		return openRedis{}, err
	}
	return openRedis{take, closeAll}, nil
}

// storeTake returns the function that calls a store directly.
func storeTake(limits []ratelimit.Limit) func(store.Store) (func() takeFunc, error) {
	return func(s store.Store) (func() takeFunc, error) {
		limit, err := compile(limits[0])
		if err != nil {
			return nil, err
		}
		return func() takeFunc { return storeCaller(s, limit) }, nil
	}
}

// storeCaller returns a function that takes a token of a key in s, for one goroutine.
func storeCaller(s store.Store, limit store.Limit) takeFunc {
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

// compile returns l in the form for stores.
func compile(l ratelimit.Limit) (store.Limit, error) {
	limit, err := store.NewLimit(l.Rate, l.Per, l.Burst)
	if err != nil {
		return store.Limit{}, fmt.Errorf("limit of the comparison: %w", err)
	}
	return limit, nil
}
