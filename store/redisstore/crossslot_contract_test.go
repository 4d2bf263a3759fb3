package redisstore_test

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/test/redistest"
	"github.com/go-tokenbucket/ratelimit/internal/test/testsize"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
	"github.com/go-tokenbucket/ratelimit/store/storetest"
)

// A scattered is a Store in which the buckets of a key are in a slot for each policy.
type scattered struct{ *redisstore.Store }

func (s scattered) Take(ctx context.Context, charges []store.Charge, states []store.State) (bool, error) {
	charges = slices.Clone(charges)
	for i := range charges {
		charges[i].Key = s.key(charges[i].Policy, charges[i].Key)
	}
	return s.Store.Take(ctx, charges, states)
}

func (s scattered) Inspect(ctx context.Context, policy, key string) (store.Bucket, error) {
	return s.Store.Inspect(ctx, policy, s.key(policy, key))
}

func (s scattered) Block(ctx context.Context, policy, key string, b store.Block) (bool, error) {
	return s.Store.Block(ctx, policy, s.key(policy, key), b)
}

func (scattered) key(policy, key string) string {
	if policy == "" || key == "" { // which is refused
		return key
	}
	return key + " of " + policy
}

// onOneMaster opens Stores on the only master of a cluster, whose calls are scattered over slots of it.
func onOneMaster(t *testing.T, cluster *redistest.Cluster) storetest.Open {
	client := cluster.Client()
	return func(t *testing.T, clock func() time.Time) store.Store {
		return scattered{openKnown(t, client, redisstore.Config{
			Prefix: prefix(), Clock: clock, CrossSlot: redisstore.CrossSlotAlways, Logger: slog.New(slog.DiscardHandler),
		})}
	}
}

// openKnown opens a Store that knows the masters.
func openKnown(t *testing.T, client redisstore.Client, cfg redisstore.Config) *redisstore.Store {
	t.Helper()
	s := redisstore.New(client, cfg)
	look := charge(t, "connects")
	look.Cost = 0
	take(t, s, look)
	return s
}

func TestContractAcrossSlots(t *testing.T) {
	if cluster := redistest.SharedCluster(t, 1); allowsCrossing(t, cluster) {
		storetest.Run(t, onOneMaster(t, cluster))
	}
}

func TestSequenceAcrossSlots(t *testing.T) {
	if cluster := redistest.SharedCluster(t, 1); allowsCrossing(t, cluster) {
		storetest.RunSequence(t, onOneMaster(t, cluster), testsize.Of(1_500, 50_000), 7)
	}
}
