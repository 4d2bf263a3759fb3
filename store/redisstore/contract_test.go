package redisstore_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/go-tokenbucket/ratelimit/internal/test/redistest"
	"github.com/go-tokenbucket/ratelimit/internal/test/testsize"
	"github.com/go-tokenbucket/ratelimit/internal/test/teststore"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/lease"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
	"github.com/go-tokenbucket/ratelimit/store/storetest"
)

// workers are what this program does instead of running tests, where a test started it as a process of its own. Each
// reports whether that was its work.
var workers []func() bool

func TestMain(m *testing.M) {
	for _, works := range workers {
		if works() {
			return
		}
	}
	// The pool of a client goes on dialing a killed server for up to a second after the client was closed.
	const pool = "github.com/redis/go-redis/v9/internal/pool.(*ConnPool)."
	goleak.VerifyTestMain(redistest.Sharing(m), goleak.IgnoreAnyFunction(pool+"dialConn"), goleak.IgnoreAnyFunction(pool+"tryDial"))
}

// prefixes gives each Store of a test keys of its own.
var prefixes atomic.Int64

func prefix() string { return fmt.Sprint("test", prefixes.Add(1)) }

// onClient opens Stores on client that go by the test's clock, as only that can be moved.
func onClient(client redisstore.Client) storetest.Open {
	return func(_ *testing.T, clock func() time.Time) store.Store {
		return redisstore.New(client, redisstore.Config{Prefix: prefix(), Clock: clock})
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

func TestContractOnServer(t *testing.T) {
	storetest.Run(t, onClient(redistest.Start(t).Client()))
}

// By default the calls of the contract are answered by the scripts of one call, but for those that merge.
func TestContractOfTakeLuaOnServer(t *testing.T) {
	storetest.Run(t, through(redisstore.OnlyTake, onClient(redistest.Start(t).Client())))
}

// Leases need times with a monotonic reading, and the random sequence has some that go back. The buckets of
// which each token is to be had by few calls at once are too small for a lease.
func TestContractOfLeasesOnServer(t *testing.T) {
	client := redistest.Start(t).Client()
	storetest.RunRules(t, func(t *testing.T, clock func() time.Time) store.Store {
		now, start := time.Now(), clock()
		s := lease.New(onClient(client)(t, clock), lease.Config{
			Fraction: 0.4,
			Hold:     time.Hour,
			Clock:    func() time.Time { return now.Add(clock().Sub(start)) },
		})
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		return s
	})
}

func TestContractWithSecret(t *testing.T) {
	client := redistest.Start(t).Client()
	storetest.Run(t, func(_ *testing.T, clock func() time.Time) store.Store {
		return redisstore.New(client, redisstore.Config{Prefix: prefix(), Clock: clock, Secret: []byte("a secret")})
	})
}

// The calls of the contract have keys of one identity, which share a slot. For others see TestContractAcrossSlots.
func TestContractOnCluster(t *testing.T) {
	client := redistest.SharedCluster(t, 3).Client()
	for name, how := range forms {
		t.Run(name, func(t *testing.T) {
			storetest.Run(t, func(_ *testing.T, clock func() time.Time) store.Store {
				return redisstore.New(client, redisstore.Config{Prefix: prefix(), Clock: clock, CrossSlot: how})
			})
		})
	}
}

// forms are the ways to send batches to a cluster.
var forms = map[string]redisstore.CrossSlot{"across slots": redisstore.CrossSlotAlways, "slot by slot": redisstore.CrossSlotNever}

func TestContractOnRing(t *testing.T) {
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{
		"a": redistest.Start(t).Addr(),
		"b": redistest.Start(t).Addr(),
	}})
	t.Cleanup(func() { ring.Close() })
	storetest.Run(t, onClient(ring))
}

func TestContractBehindSentinel(t *testing.T) {
	storetest.Run(t, onClient(redistest.StartSentinel(t).Client()))
}

// For the random sequence see TestSequenceOnMiniredis.
func TestContractOnMiniredis(t *testing.T) {
	storetest.RunRules(t, forgetting(t, false))
}

func TestSequenceByTheServersClock(t *testing.T) {
	storetest.RunForgetting(t, forgetting(t, true), testsize.Of(300, 1000), 5)
}

func TestSequenceOfEitherScriptByTheServersClock(t *testing.T) {
	storetest.RunForgetting(t, through(redisstore.EitherScript, forgetting(t, true)), testsize.Of(300, 1000), 6)
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
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { client.Close() })
	return func(_ *testing.T, clock func() time.Time) store.Store {
		if serversClock {
			server.SetTime(clock())
			return &forgetter{redisstore.New(client, redisstore.Config{Prefix: prefix(), MaxDenials: -1}), server, clock}
		}
		return &forgetter{redisstore.New(client, redisstore.Config{Prefix: prefix(), Clock: clock}), server, nil}
	}
}

func (f *forgetter) Forget(d time.Duration) {
	f.server.FastForward(d)
	if f.clock != nil {
		f.server.SetTime(f.clock())
	}
}

// With the clock and the TTLs of the server, which cannot be moved.
func TestABucketUnderTwoLimitsDoesNotExpireEarly(t *testing.T) {
	client := redistest.Start(t).Client()
	large, small := teststore.Limit(t, 1, time.Hour, 171), teststore.Limit(t, 1000, time.Second, 10)
	for name, scripts := range map[string]func(*redisstore.Store) *redisstore.Store{
		"take.lua": redisstore.OnlyTake,
		"alone":    func(s *redisstore.Store) *redisstore.Store { return s },
	} {
		s := scripts(redisstore.New(client, redisstore.Config{Prefix: prefix(), MaxDenials: -1}))
		granted := int64(0)
		for range 3 {
			for _, c := range []store.Charge{{Limit: large, Cost: 171}, {Limit: large, Cost: 11}, {Limit: small, Cost: 1}} {
				c.Policy, c.Key = "p", name
				states := make([]store.State, 1)
				ok, err := s.Take(t.Context(), []store.Charge{c}, states)
				if err != nil {
					t.Fatal(err)
				}
				if ok {
					granted += c.Cost
				}
			}
			time.Sleep(40 * time.Millisecond) // small fills in 10 ms, and its TTL is 21 ms
		}
		if granted > 171+3 { // a charge of each round, if a token of small has come before it
			t.Errorf("%s: %d tokens are granted", name, granted)
		}
	}
}

func TestSequenceOnServer(t *testing.T) {
	storetest.RunSequence(t, onClient(redistest.Start(t).Client()), testsize.Of(2_000, 50_000), 3)
}

func TestSequenceOfEitherScriptOnServer(t *testing.T) {
	storetest.RunSequence(t, through(redisstore.EitherScript, onClient(redistest.Start(t).Client())), testsize.Of(2_000, 50_000), 3)
}

func TestSequenceOnMiniredis(t *testing.T) {
	storetest.RunSequence(t, forgetting(t, false), testsize.Of(500, 5000), 4)
}

func TestSequenceOfTakeLuaOnMiniredis(t *testing.T) {
	storetest.RunSequence(t, through(redisstore.OnlyTake, forgetting(t, false)), testsize.Of(500, 5000), 4)
}
