// Package memstore keeps token buckets in memory: for one replica, for tests, and as a stand-in.
package memstore

import (
	"cmp"
	"context"
	"fmt"
	"hash/maphash"
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/shortkey"
	"github.com/go-tokenbucket/ratelimit/store"
)

const (
	// defaultMaxKeys takes below 100 MB.
	defaultMaxKeys = 1_000_000

	// maxShards makes it rare that two calls meet at a lock, where one would spin for microseconds.
	maxShards = 256

	// minPerShard keeps shards so large that the shares of MaxKeys that keys happen to fall into differ
	// by a few percent only.
	minPerShard = 1024

	// sweepEvery is how long a full bucket may stay before it is forgotten.
	sweepEvery = time.Second
)

// Config configures a Store. The zero value is ready to use.
type Config struct {
	// MaxKeys bounds how many buckets are kept, at about 80 bytes each and the key, of which at most 256
	// bytes are kept. Default 1,000,000. To make room for one more, a full bucket is forgotten, or else the
	// one of a policy that has spent the least part of its burst. That is the same policy, if it has its share:
	// MaxKeys divided by the number of policies that have buckets. Otherwise it is the policy with the most
	// buckets. Large stores divide MaxKeys evenly over their shards. See docs/bounds.md.
	MaxKeys int

	// Clock tells the time. Default: the machine's monotonic clock. Time that goes backwards neither
	// grants nor drains tokens, but a bucket that was full before, and forgotten, is full then too.
	Clock func() time.Time
}

// A Store keeps buckets in memory. Make it with New.
type Store struct {
	clock  func() time.Time // nil: the monotonic clock
	start  time.Time
	seed   maphash.Seed
	shards []shard
	shift  uint // a hash's bits above it are its shard

	sweeper  *time.Timer
	sweeping atomic.Bool // the sweeper is set: there may be buckets to forget
	closed   atomic.Bool
}

var (
	_ store.Store     = (*Store)(nil)
	_ store.Inspector = (*Store)(nil)
)

// New returns an empty Store. It panics if cfg.MaxKeys is negative.
func New(cfg Config) *Store {
	if cfg.MaxKeys < 0 {
		panic(fmt.Sprintf("memstore: New: Config.MaxKeys %d: must be positive, or 0 for %d", cfg.MaxKeys, defaultMaxKeys))
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
	}
	s.sweeper = time.AfterFunc(sweepEvery, s.sweep)
	s.sweeper.Stop()
	return s
}

// now returns the time in microseconds.
func (s *Store) now() int64 {
	if s.clock != nil {
		return s.clock().UnixMicro()
	}
	return time.Since(s.start).Microseconds()
}

// Close stops the sweep of full buckets. The Store goes on answering, within MaxKeys. The error is nil.
func (s *Store) Close() error {
	s.closed.Store(true)
	s.sweeper.Stop()
	return nil
}

// Take implements store.Store. It does not block, and it fails only if Validate refuses the call or ctx
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
	key := shortkey.Of(c.Key)
	hash := s.hash(c.Policy, key)
	v := visit{shard: &s.shards[hash>>s.shift], key: key, hash: uint32(hash)}
	now := s.now()
	v.shard.mu.Lock()
	v.look(c, now)
	if v.fits {
		v.charge(c)
		v.keep(c)
	} else {
		v.refuse(c)
	}
	v.shard.mu.Unlock()
	*state = c.State(v.bucket.Tokens, v.fits)
	return v.fits || c.Shadow
}

func (s *Store) takeAll(charges []store.Charge, states []store.State) bool {
	var few [4]visit // on the stack
	visits := few[:0]
	var locks shardSet
	for i := range charges {
		key := shortkey.Of(charges[i].Key)
		hash := s.hash(charges[i].Policy, key)
		n := hash >> s.shift
		locks.add(n)
		visits = append(visits, visit{shard: &s.shards[n], key: key, hash: uint32(hash)})
	}
	now := s.now()
	for n := range locks.ascending { // so that no two calls wait for each other
		s.shards[n].mu.Lock()
	}
	ok := true
	for i := range visits {
		visits[i].look(&charges[i], now)
		ok = ok && (visits[i].fits || charges[i].Shadow)
	}
	for i := range visits {
		if ok && visits[i].fits {
			visits[i].charge(&charges[i])
		} else {
			visits[i].refuse(&charges[i])
		}
	}
	if ok {
		// New ones and those to be forgotten come last: they move the others about.
		for i := range visits {
			visits[i].keep(&charges[i])
		}
	}
	for n := range locks.ascending {
		s.shards[n].mu.Unlock()
	}
	for i := range charges {
		states[i] = charges[i].State(visits[i].bucket.Tokens, ok && visits[i].fits)
	}
	return ok
}

// A shardSet is the shards of a call, each once.
type shardSet [maxShards / 64]uint64

func (s *shardSet) add(n uint64) { s[n/64] |= 1 << (n % 64) }

func (s *shardSet) ascending(yield func(int) bool) {
	for i, word := range s {
		for ; word != 0; word &= word - 1 {
			if !yield(64*i + bits.TrailingZeros64(word)) {
				return
			}
		}
	}
}

// hash tells where a bucket is: its shard by the upper bits, and its place there by the lower 32. Policies
// are few and not chosen by clients, so that a little of the name is enough to keep those of a key apart.
func (s *Store) hash(policy, key string) uint64 {
	name := uint64(len(policy)) | uint64(policy[0])<<8 | uint64(policy[len(policy)-1])<<16
	return maphash.String(s.seed, key) ^ name*0x9e3779b97f4a7c15
}
