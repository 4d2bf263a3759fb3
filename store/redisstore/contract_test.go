package redisstore_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"go.uber.org/goleak"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/redistest"
	"github.com/go-tokenbucket/ratelimit/internal/test/testsize"
	"github.com/go-tokenbucket/ratelimit/internal/test/teststore"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/lease"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
	"github.com/go-tokenbucket/ratelimit/store/storetest"
)

func TestMain(m *testing.M) {
	if hammerHere() {
		return
	}
	// The pool of a client goes on dialing a killed server for up to a second after the client was closed.
	const pool = "github.com/redis/go-redis/v9/internal/pool.(*ConnPool)."
	goleak.VerifyTestMain(redistest.Sharing(m), goleak.IgnoreAnyFunction(pool+"dialConn"), goleak.IgnoreAnyFunction(pool+"tryDial"))
}

// prefixes gives each Store of a test keys of its own.
var prefixes atomic.Int64

func prefix() string { return fmt.Sprint("test", prefixes.Add(1)) }

// open opens a Store until the test ends. It may hold slots then, and would renew them for ever.
func open(t *testing.T, client redisstore.Client, cfg redisstore.Config) *redisstore.Store {
	s := ratelimit.Must(redisstore.New(client, cfg))
	t.Cleanup(func() { s.Close() })
	return s
}

// onClient opens Stores on client that go by the test's clock, as only that can be moved.
func onClient(client redisstore.Client) storetest.Open {
	return configured(client, redisstore.Config{})
}

// configured is onClient with more of a Config.
func configured(client redisstore.Client, cfg redisstore.Config) storetest.Open {
	return func(t *testing.T, clock func() time.Time) store.Store {
		cfg := cfg
		cfg.Prefix, cfg.Clock = prefix(), clock
		return open(t, client, cfg)
	}
}

// through opens the Stores of open with other scripts: see export_test.go.
func through(scripts func(*redisstore.Store) *redisstore.Store, open storetest.Open) storetest.Open {
	return func(t *testing.T, clock func() time.Time) store.Store {
		s := open(t, clock)
		switch s := s.(type) {
		case *redisstore.Store:
			scripts(s)
		case *forgetter:
			scripts(s.Store)
		default:
			t.Fatalf("a %T", s)
		}
		return s
	}
}

// The whole contract is tested on one server. By default the calls of the contract are answered by the scripts of one
// call, but for those that merge.
func TestContractOnServer(t *testing.T) {
	storetest.Run(t, onClient(redistest.Start(t).Client()))
}

// Elsewhere it is the way to the server that differs, or the script, which random calls meet, too. The tag long has all
// rules tested.
func TestContractElsewhere(t *testing.T) {
	server := redistest.Start(t).Client()
	cluster := redistest.SharedCluster(t, 3).Client()
	opens := map[string]storetest.Open{
		"take.lua":            through(redisstore.OnlyTake, onClient(server)),
		"a secret":            configured(server, redisstore.Config{Secret: []byte("a secret")}),
		"a ring":              onClient(ring(t)),
		"Sentinel":            onClient(redistest.StartSentinel(t).Client()),
		"a Cluster, take.lua": through(redisstore.OnlyTake, onClient(cluster)),
		"miniredis":           forgetting(t, false),
		"miniredis, take.lua": through(redisstore.OnlyTake, forgetting(t, false)),
	}
	for form, how := range forms {
		opens["a Cluster, "+form] = configured(cluster, redisstore.Config{CrossSlot: how})
	}
	for name, open := range opens {
		t.Run(name, func(t *testing.T) {
			if testsize.Of(0, 1) > 0 {
				storetest.RunRules(t, open)
			}
			storetest.RunValues(t, open)
			storetest.RunSequence(t, open, testsize.Of(120, 5_000), 4)
		})
	}
}

// Leases need times with a monotonic reading, and the random sequence has some that go back. The buckets of
// which each token is to be had by few calls at once are too small for a lease.
func TestContractOfLeasesOnServer(t *testing.T) {
	client := redistest.Start(t).Client()
	storetest.RunRules(t, func(t *testing.T, clock func() time.Time) store.Store {
		s := ratelimit.Must(lease.New(onClient(client)(t, clock), lease.Config{Fraction: 0.4, Hold: time.Hour, Clock: teststore.Monotonic(clock)}))
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		return s
	})
}

// The calls of the contract have keys of one identity, which share a slot. Here they are scattered over slots.
func TestContractAcrossSlots(t *testing.T) {
	client := crossable(t, redistest.SharedCluster(t, 1)).Client()
	open := func(t *testing.T, clock func() time.Time) store.Store {
		return scattered{openKnown(t, client, redisstore.Config{
			Prefix: prefix(), Clock: clock, CrossSlot: redisstore.CrossSlotAlways, Logger: quiet,
		})}
	}
	storetest.RunRules(t, open)
	storetest.RunSequence(t, open, testsize.Of(1_000, 50_000), 7)
}

func TestSequenceOnServer(t *testing.T) {
	storetest.RunSequence(t, through(redisstore.EitherScript, onClient(redistest.Start(t).Client())), testsize.Of(2_000, 50_000), 3)
}

// The server's clock and TTLs move with those of the test.
func TestSequenceByTheServersClock(t *testing.T) {
	storetest.RunForgetting(t, forgetting(t, true), testsize.Of(60, 1000), 5)
	storetest.RunForgetting(t, through(redisstore.EitherScript, forgetting(t, true)), testsize.Of(100, 1000), 6)
}

// Years of quotas by a passed clock, and by the server's, which this process takes to be another at each period.
func TestCalendarOnServer(t *testing.T) {
	storetest.RunCalendar(t, through(redisstore.EitherScript, onClient(redistest.Start(t).Client())), testsize.Of(1_000, 10_000), 3)
}

func TestCalendarByTheServersClock(t *testing.T) {
	storetest.RunCalendar(t, through(redisstore.EitherScript, forgetting(t, true)), testsize.Of(200, 5_000), 4)
}

// A forgetter is a Store on a miniredis whose TTLs, and clock, move along with that of the test.
type forgetter struct {
	*redisstore.Store
	server *miniredis.Miniredis
	clock  func() time.Time // nil: the server's is not used
}

// forgetting opens Stores whose buckets expire as time goes on, as the server has it do.
func forgetting(t *testing.T, serversClock bool) storetest.Open {
	server := miniredis.RunT(t)
	client := dial(t, server.Addr())
	return func(t *testing.T, clock func() time.Time) store.Store {
		if serversClock {
			server.SetTime(clock())
			return &forgetter{open(t, client, redisstore.Config{Prefix: prefix(), MaxDenials: -1}), server, clock}
		}
		return &forgetter{open(t, client, redisstore.Config{Prefix: prefix(), Clock: clock}), server, nil}
	}
}

func (f *forgetter) Forget(d time.Duration) {
	f.server.FastForward(d)
	if f.clock != nil {
		f.server.SetTime(f.clock())
	}
}

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

// openKnown opens a Store that knows the masters.
func openKnown(t *testing.T, client redisstore.Client, cfg redisstore.Config) *redisstore.Store {
	t.Helper()
	s := open(t, client, cfg)
	look(t, s, charge(t, "connects"))
	return s
}
