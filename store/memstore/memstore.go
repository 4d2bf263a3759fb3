// Package memstore keeps token buckets in the memory of one process. Use it for a single replica, for tests, and as
// the stand-in of package fallback. It is the default of [github.com/go-tokenbucket/ratelimit.Config.Store]. Create
// one yourself to bound its size, or to set its clock:
//
//	buckets := ratelimit.Must(memstore.New(memstore.Config{MaxKeys: 100_000}))
//	defer buckets.Close()
//	limiter, err := ratelimit.New(ratelimit.Config{
//		Store:    buckets,
//		Policies: policies,
//	})
//
// Each replica with such a store allows the whole limit. To share limits between replicas, use
// [github.com/go-tokenbucket/ratelimit/store/redisstore].
//
// # Memory
//
// A bucket takes about 90 bytes and its key, of which at most 256 bytes are kept. A blocked bucket takes about 100 bytes
// more. Full buckets are forgotten within about a second for each million buckets. An idle store has no goroutine, and
// an empty store has no timer.
//
// A bucket is kept until it is full under each limit that has charged it, until its block has ended, and while a slot of it
// is held.
//
// When MaxKeys buckets are kept, a bucket is forgotten to make room for a new one. The store looks at a few. One that is
// full comes first. Otherwise it is one that has spent the smallest part of its burst. A bucket without a token is
// forgotten only if no other is found, then one of which slots are held, and a blocked one last. If a bucket of n slots is
// forgotten, up to n more may be held until those are released. The forgotten bucket is one of the new bucket's policy if that policy has its
// share: MaxKeys divided by the number of policies that have buckets. Otherwise it is one of the policy with the most
// buckets. A large store divides MaxKeys evenly over its shards. The guide [bounds] says what a client can gain by many
// keys.
//
// # Tests
//
// Set [Config.Clock] to move time in a test. In a bubble of package testing/synctest the default clock is enough.
//
// [bounds]: https://github.com/go-tokenbucket/ratelimit/blob/main/docs/bounds.md
package memstore

import (
	"cmp"
	"context"
	"fmt"
	"hash/maphash"
	"math/bits"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-tokenbucket/ratelimit/store"
)

const (
	// defaultMaxKeys takes about 100 MB.
	defaultMaxKeys = 1_000_000

	// maxShards makes it rare that two calls wait for the same lock, which would spin for microseconds.
	maxShards = 256

	// minPerShard makes shards so large that their random shares of the keys differ by only a few percent.
	minPerShard = 1024

	// sweepEvery is how long a full bucket may stay before it is forgotten.
	sweepEvery = time.Second
)

// Config configures a Store. The zero value is ready to use.
type Config struct {
	// MaxKeys is how many buckets are kept at most, at about 90 bytes each and the key. Default 1,000,000. Above
	// it, a bucket is forgotten for each new one, see "Memory" in the package comment.
	MaxKeys int

	// Clock returns the time. Default: the monotonic clock of the machine. A clock that goes backwards neither
	// grants nor takes tokens. But a bucket that was full and forgotten is then full at the earlier time, too.
	Clock func() time.Time
}

// A Store keeps buckets in memory. Make it with [New].
type Store struct {
	clock  func() time.Time // nil: the monotonic clock
	start  time.Time
	seed   maphash.Seed
	shards []shard
	shift  uint // a hash's bits above it are its shard

	counts counts
	values valueSets

	sweeper  *time.Timer
	sweeping atomic.Bool // the sweeper is set: there may be buckets to forget
	closed   atomic.Bool
}

var (
	_ store.Store         = (*Store)(nil)
	_ store.Blocker       = (*Store)(nil)
	_ store.Inspector     = (*Store)(nil)
	_ store.StatsReporter = (*Store)(nil)
	_ store.Values        = (*Store)(nil)
)

// New returns an empty Store. It returns an error if cfg.MaxKeys is negative.
func New(cfg Config) (*Store, error) {
	if cfg.MaxKeys < 0 {
		return nil, fmt.Errorf("memstore: New: Config.MaxKeys %d: must be positive; 0 means the default of %d", cfg.MaxKeys, defaultMaxKeys)
	}
	maxKeys := cmp.Or(cfg.MaxKeys, defaultMaxKeys)
	wanted := min(maxShards, max(1, maxKeys/minPerShard))
	power := bits.Len(uint(wanted)) - 1

	s := &Store{
		clock:  cfg.Clock,
		start:  time.Now(),
		seed:   maphash.MakeSeed(),
		shards: make([]shard, 1<<power),
		shift:  uint(64 - power),
	}
	for i := range s.shards {
		s.shards[i].max = maxKeys >> power
		s.shards[i].counts = &s.counts
		s.shards[i].seed = s.seed
	}
	s.sweeper = time.AfterFunc(sweepEvery, s.sweep)
	s.sweeper.Stop()
	return s, nil
}

// now returns the time in microseconds of Unix time. It does not jump if the clock of the machine is set.
func (s *Store) now() int64 {
	if s.clock != nil {
		return s.clock().UnixMicro()
	}
	return s.start.UnixMicro() + time.Since(s.start).Microseconds()
}

// Close stops the timer that forgets full buckets. The Store still answers calls, within MaxKeys. The error is
// always nil.
func (s *Store) Close() error {
	s.closed.Store(true)
	s.sweeper.Stop()
	return nil
}

// Take implements [store.Store]. It does not block. It fails only if [store.Validate] refuses the call or if ctx
// has ended.
func (s *Store) Take(ctx context.Context, charges []store.Charge, states []store.State) (bool, error) {
	if err := store.Validate(charges, states); err != nil {
		return false, err
	}
	if err := ctx.Err(); err != nil {
		return false, fmt.Errorf("memstore: %w", err)
	}
	var ok bool
	if len(charges) == 1 {
		ok = s.takeOne(&charges[0], &states[0])
	} else {
		ok = s.takeAll(charges, states)
	}
	if ok {
		s.sweepLater()
	}
	return ok, nil
}

func (s *Store) takeOne(c *store.Charge, state *store.State) bool {
	var cs chargeState
	cs.shard, cs.key, cs.hash = s.locate(c.Policy, c.Key)
	now := s.now()
	cs.shard.mu.Lock()
	cs.look(c, now)
	if cs.fits {
		cs.charge(c, now)
	} else {
		cs.refuse(c)
	}
	cs.shard.mu.Unlock()
	cs.fill(c, state, now)
	return cs.fits || c.Shadow
}

func (s *Store) takeAll(charges []store.Charge, states []store.State) bool {
	var few [4]chargeState // on the stack
	chargeStates := few[:0]
	var fewLocks [4]uint64
	locks := fewLocks[:0]
	for i := range charges {
		var cs chargeState
		cs.shard, cs.key, cs.hash = s.locate(charges[i].Policy, charges[i].Key)
		locks = append(locks, cs.hash>>s.shift)
		chargeStates = append(chargeStates, cs)
	}
	now := s.now()
	slices.Sort(locks) // so that no two calls wait for each other
	locks = slices.Compact(locks)
	for _, n := range locks {
		s.shards[n].mu.Lock()
	}
	ok := true
	for i := range chargeStates {
		chargeStates[i].look(&charges[i], now)
		ok = ok && (chargeStates[i].fits || charges[i].Shadow)
	}
	for i := range chargeStates {
		c, cs := &charges[i], &chargeStates[i]
		cs.entry = cs.shard.find(cs.hash, c.Policy, cs.key) // again, because another charge may have moved or forgotten it
		cs.fits = cs.fits && ok
		if cs.fits {
			cs.charge(c, now)
		} else {
			cs.refuse(c)
		}
	}
	for _, n := range locks {
		s.shards[n].mu.Unlock()
	}
	for i := range charges {
		chargeStates[i].fill(&charges[i], &states[i], now)
	}
	return ok
}
