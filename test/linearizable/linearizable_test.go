// Package linearizable contains only tests, which check that concurrent calls of memstore and of redisstore are
// linearizable, with porcupine.
package linearizable_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/bucket"
	"github.com/go-tokenbucket/ratelimit/internal/test/redistest"
	"github.com/go-tokenbucket/ratelimit/internal/test/testsize"
	"github.com/go-tokenbucket/ratelimit/lua"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

// An operation is a call of Take, or one that blocks or unblocks the first of its buckets.
type operation struct {
	charges []store.Charge
	block   *store.Block
}

// An outcome is what a call was told.
type outcome struct {
	ok     bool
	states [2]store.State
}

// buckets are the credits of three buckets of one limit, and their blocks, while time stands still.
type buckets [3]struct {
	tokens int64
	block  bucket.Block
}

const month = 30 * 24 * time.Hour

func limit(t *testing.T, rate int64, per time.Duration, burst int64) store.Limit {
	t.Helper()
	l, err := store.NewLimit(rate, per, burst)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(redistest.Sharing(m)) }

var prefixes atomic.Int64

func prefix() string { return fmt.Sprint("test", prefixes.Add(1)) }

const still = 1_800_000_000_000_000 // any time will do

// left returns how much longer bucket n is blocked.
func (b buckets) left(n int) time.Duration {
	return time.Duration(b[n].block.Left(still)) * time.Microsecond
}

// after carries out a call as the only one.
func (b buckets) after(op operation) (buckets, outcome) {
	out, charges := outcome{ok: true}, op.charges
	found := b
	if op.block != nil {
		found[number(&charges[0])].block = bucket.Block{}
		if op.block.For > 0 {
			found[number(&charges[0])].block = bucket.Block{Until: still + op.block.For.Microseconds()}
		}
		return found, out
	}
	var fits [2]bool
	for i := range charges {
		l := charges[i].Limit
		need, debt := l.Ask(charges[i].Cost, charges[i].MaxWait.Microseconds(), charges[i].Owed, charges[i].Settles)
		n := number(&charges[i])
		fits[i] = l.Grants(b[n].tokens, need, debt, 1) == 1 && (b.left(n) == 0 || bucket.Passes(need, debt))
		out.ok = out.ok && (fits[i] || charges[i].Shadow)
	}
	for i := range charges {
		c := &charges[i]
		l, n := c.Limit, number(c)
		charged := out.ok && fits[i]
		if charged {
			need, debt := l.Ask(c.Cost, 0, c.Owed, c.Settles)
			left := l.Charge(b[n].tokens, need, debt, 1)
			found[n].tokens, found[n].block = left, l.After(b[n].block, need, bucket.Microseconds(c.Lock), left, still)
		}
		c.Fill(&out.states[i], found[n].tokens, 0, found.left(n), charged)
	}
	return found, out
}

// number tells which bucket a charge is of.
func number(c *store.Charge) int { return int(c.Policy[0] - '0') }

// sequential is a Store that carries out one call after the other. If remembers is set, it may tell a refused call
// numbers from before a charge that is carried out but has not returned: see package denialcache.
func sequential(l store.Limit, remembers bool) porcupine.Model {
	return porcupine.Model{
		Init: func() any {
			var full buckets
			for i := range full {
				full[i].tokens = l.Capacity
			}
			return full
		},
		Step: func(state, input, output any) (bool, any) {
			told := output.(outcome)
			next, out := state.(buckets).after(input.(operation))
			return out == told || remembers && !told.ok && !out.ok, next
		},
	}
}

// What concurrent calls are told, their numbers too, is what they would be told one by one in some order, in
// which none comes before one that was over when it began.
func TestConcurrentHistoriesAreLinearizable(t *testing.T) {
	server := redistest.Start(t)
	l := limit(t, 1, month, 12)
	now := time.Now()
	for name, cfgs := range map[string][]redisstore.Config{
		"by default":                  {{}},
		"every call asks Redis":       {{MaxDenials: -1}},
		"small batches, many at once": {{MaxDenials: -1, MaxBatch: 4, MaxInFlight: 8}},
		"calls of their own":          {{MaxDenials: -1, MaxBatch: 1, MaxInFlight: 16}},
		"two replicas":                {{MaxDenials: -1, MaxBatch: 1, MaxInFlight: 16}, {MaxDenials: -1, MaxInFlight: 8}},
	} {
		t.Run(name, func(t *testing.T) {
			client := server.ClientOptions(func(o *redis.Options) { o.ContextTimeoutEnabled = true })
			checkHistories(t, l, cfgs[0].MaxDenials >= 0, func() store.Store {
				prefix := prefix()
				var all replicas
				for _, cfg := range cfgs {
					cfg.Clock, cfg.Prefix = func() time.Time { return now }, prefix
					all.stores = append(all.stores, ratelimit.Must(redisstore.New(client, cfg)))
				}
				return &all
			})
		})
	}
}

// replicas take calls in turn, one with scripts for single calls, another with those for batches.
type replicas struct {
	stores []store.Store
	next   atomic.Uint64
}

func (r *replicas) Take(ctx context.Context, charges []store.Charge, states []store.State) (bool, error) {
	return r.stores[r.next.Add(1)%uint64(len(r.stores))].Take(ctx, charges, states)
}

func (r *replicas) Block(ctx context.Context, policy, key string, b store.Block) (bool, error) {
	return store.SetBlock(ctx, r.stores[r.next.Add(1)%uint64(len(r.stores))], policy, key, b)
}

// The check holds of a Store that carries out one call after the other behind a lock.
func TestConcurrentHistoriesInMemoryAreLinearizable(t *testing.T) {
	now := time.Now()
	checkHistories(t, limit(t, 1, month, 12), false, func() store.Store {
		s := ratelimit.Must(memstore.New(memstore.Config{Clock: func() time.Time { return now }}))
		t.Cleanup(func() { s.Close() })
		return s
	})
}

// Calls over several slots of one master are one step, too.
func TestConcurrentHistoriesAcrossSlotsAreLinearizable(t *testing.T) {
	cluster := redistest.SharedCluster(t, 1)
	client, now := cluster.Client(), time.Now()
	err := client.Eval(t.Context(), lua.Reach, nil, "a", "b").Err()
	if err != nil {
		t.Logf("this server has no scripts over several slots: %v", err)
		return
	}
	checkHistories(t, limit(t, 1, month, 12), false, func() store.Store {
		s := scattered{ratelimit.Must(redisstore.New(client, redisstore.Config{
			Prefix: prefix(), Clock: func() time.Time { return now }, MaxDenials: -1, MaxInFlight: 4, CrossSlot: redisstore.CrossSlotAlways,
		}))}
		// From its first call on, it knows the masters.
		if _, err := s.Take(t.Context(), []store.Charge{{Policy: "p", Key: "first", Limit: limit(t, 1, month, 12)}}, make([]store.State, 1)); err != nil {
			t.Fatal(err)
		}
		return s
	})
}

// scattered keeps each bucket of an identity in a slot of its own.
type scattered struct{ *redisstore.Store }

func (s scattered) Take(ctx context.Context, charges []store.Charge, states []store.State) (bool, error) {
	charges = slices.Clone(charges)
	for i := range charges {
		charges[i].Key += " of " + charges[i].Policy
	}
	return s.Store.Take(ctx, charges, states)
}

func (s scattered) Block(ctx context.Context, policy, key string, b store.Block) (bool, error) {
	return s.Store.Block(ctx, policy, key+" of "+policy, b)
}

// checkHistories checks histories of Stores that open opens.
func checkHistories(t *testing.T, l store.Limit, remembers bool, open func() store.Store) {
	t.Helper()
	seeds, denied := testsize.Of(12, 60), 0
	for seed := range uint64(seeds) {
		history := record(t, open(), l, seed)
		for _, op := range history {
			if !op.Output.(outcome).ok {
				denied++
			}
		}
		if result := porcupine.CheckOperationsTimeout(sequential(l, remembers), history, time.Minute); result != porcupine.Ok {
			t.Fatalf("seed %d: the check says %v", seed, result)
		}
	}
	if denied < 8*seeds {
		t.Errorf("only %d calls were denied", denied)
	}
}

// record lets many take at once, and returns what they were told and when.
func record(t *testing.T, s store.Store, l store.Limit, seed uint64) (history []porcupine.Operation) {
	const callers, calls = 10, 8
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	begin := time.Now()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for id := range callers {
		r := rand.New(rand.NewPCG(seed, uint64(id)))
		wg.Go(func() {
			for range calls {
				input := randomOperation(r, l)
				op := porcupine.Operation{ClientId: id, Input: input, Call: int64(time.Since(begin))}
				out := outcome{ok: true}
				var err error
				if c := &input.charges[0]; input.block != nil {
					_, err = store.SetBlock(ctx, s, c.Policy, c.Key, *input.block)
				} else {
					out.ok, err = s.Take(ctx, input.charges, out.states[:])
				}
				op.Return, op.Output = int64(time.Since(begin)), out
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				history = append(history, op)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return history
}

// randomOperation is of one or two buckets of one identity. Most are the same, and so are merged.
func randomOperation(r *rand.Rand, l store.Limit) (op operation) {
	charges := make([]store.Charge, 1+r.IntN(4)/3)
	for i, n := range r.Perm(3)[:len(charges)] {
		c := store.Charge{Policy: fmt.Sprint(n), Key: "k", Limit: l, Cost: 1}
		switch r.IntN(20) {
		case 0:
			c.Cost = 0
		case 8:
			op.block = &store.Block{For: time.Hour}
		case 9, 10, 11:
			op.block = &store.Block{}
		case 12, 13:
			c.Lock = time.Minute
		case 14:
			c.Lock, c.Owed = 2*time.Hour, true
		case 15:
			if len(charges) == 1 {
				c.Settles, c.Cost = true, 1+r.Int64N(4)
			}
		case 1:
			c.Cost = -1
		case 2:
			c.Cost = 1 + r.Int64N(4)
		case 3:
			c.MaxWait = 3 * month
		case 4:
			c.Shadow = true
		case 5, 6:
			c.Owed = true
		case 7:
			c.Cost = -3
		}
		charges[i] = c
	}
	op.charges = charges
	return op
}
