package redisstore_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/redistest"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

// quota returns a charge of a quota of n tokens in each period.
func quota(t testing.TB, n int64, unit store.PeriodUnit, zone string) store.Charge {
	t.Helper()
	p := ratelimit.Must(store.NewPeriod(unit, zone))
	return store.Charge{Policy: "q", Key: "k", Limit: ratelimit.Must(store.NewQuota(n, p)), Cost: 1}
}

// skewed returns replicas whose clocks are wrong by hours and days.
func skewed(t *testing.T, client redisstore.Client) (stores []*redisstore.Store) {
	own := prefix()
	for _, wrong := range []time.Duration{0, 7 * time.Hour, -30 * time.Hour, 40 * 24 * time.Hour, -400 * 24 * time.Hour} {
		s := ratelimit.Must(redisstore.New(client, redisstore.Config{Prefix: own, MaxDenials: -1, CrossSlot: redisstore.CrossSlotNever}))
		redisstore.Skew(s, wrong)
		stores = append(stores, s)
	}
	return stores
}

// Replicas whose clocks differ by hours decide alike, by the clock of Redis: alone, in a call of several buckets, in batches,
// and in a call over several slots.
func TestReplicasWithWrongClocksShareAPeriod(t *testing.T) {
	for name, client := range map[string]redis.UniversalClient{"a server": redistest.Start(t).Client(), "a Cluster": redistest.SharedCluster(t, 3).Client()} {
		for _, unit := range []store.PeriodUnit{store.Hour, store.Day, store.Week, store.Month} {
			c := quota(t, 12, unit, "Asia/Kathmandu")
			plain := charge(t, "another key")
			for form, charges := range map[string][]store.Charge{"alone": {c}, "with a rate": {c, plain}} {
				t.Run(fmt.Sprint(name, ", per ", unit, ", ", form), func(t *testing.T) {
					awaitPeriod(t, c.Limit.Period)
					stores := skewed(t, client)
					for i := range 20 {
						_, end := c.Limit.Period.Bounds(time.Now().UnixMicro())
						ok, states := takeStates(t, stores[i%len(stores)], charges...)
						if want := int64(max(0, 11-i)); ok != (i < 12) || states[0].Remaining != want {
							t.Errorf("charge %d: allowed %t, %+v, want %d left", i, ok, states[0], want)
						}
						if off := time.Until(time.UnixMicro(end)) - states[0].ResetAfter; off.Abs() > time.Second {
							t.Errorf("charge %d: the period ends in %v, want %v more", i, states[0].ResetAfter, off)
						}
					}
				})
			}
		}
		t.Run(name+", batches", func(t *testing.T) {
			c := quota(t, 500, store.Day, "Europe/Berlin")
			awaitPeriod(t, c.Limit.Period)
			var allowed atomic.Int64
			var calls sync.WaitGroup
			for _, s := range skewed(t, client) {
				for range 50 {
					calls.Go(func() {
						for range 4 {
							states := make([]store.State, 1)
							if ok, err := s.Take(context.Background(), []store.Charge{c}, states); err != nil {
								t.Error(err)
							} else if ok {
								allowed.Add(1)
							}
						}
					})
				}
			}
			if calls.Wait(); allowed.Load() != 500 {
				t.Errorf("%d of 1000 charges of a quota of 500 are allowed", allowed.Load())
			}
		})
	}
}

// awaitPeriod waits if a period of p is about to end, so that a test is over before that.
func awaitPeriod(t *testing.T, p *store.Period) {
	now := time.Now().UnixMicro()
	if _, end := p.Bounds(now); end-now < 10_000_000 {
		time.Sleep(time.Duration(end-now) * time.Microsecond)
	}
}

// A quota may be 2^52 tokens, and no more. It counts each of them.
func TestTheLargestQuota(t *testing.T) {
	s := ratelimit.Must(redisstore.New(redistest.Start(t).Client(), redisstore.Config{}))
	c := quota(t, 1<<52, store.Month, "")
	awaitPeriod(t, c.Limit.Period)
	for _, step := range []struct{ cost, left int64 }{{1, 1<<52 - 1}, {1<<52 - 2, 1}, {1, 0}, {-1, 1}, {-1 << 60, 1 << 52}} {
		if state := take(t, s, costs(c, step.cost)); !state.Allowed || state.Remaining != step.left {
			t.Errorf("cost %d: %+v, want %d left", step.cost, state, step.left)
		}
	}
	if _, err := store.NewQuota(1<<52+1, c.Limit.Period); err == nil {
		t.Error("a quota of 2^52 + 1 is made")
	}
}

func TestAQuotaTakesNoMoreMemoryThanARate(t *testing.T) {
	client := redistest.Start(t).Client()
	s := ratelimit.Must(redisstore.New(client, redisstore.Config{}))
	month := quota(t, 100_000, store.Month, "Europe/Berlin")
	month.Policy, month.Key = "month", "member:1234567"
	rate := store.Charge{Policy: "plain", Key: month.Key, Limit: limit(t, 100, time.Hour, 1000), Cost: 1}
	takeStates(t, s, month, rate)
	bytes := func(key string) int64 { return client.MemoryUsage(t.Context(), key).Val() }
	if q, r := bytes("ratelimit:{member:1234567}:month"), bytes("ratelimit:{member:1234567}:plain"); q == 0 || q > r+16 || q > 200 {
		t.Errorf("the key of a quota takes %d bytes, and that of a rate %d", q, r)
	}
}
