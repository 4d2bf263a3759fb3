// Package memstore keeps token buckets in memory: for one replica, for tests, and as a stand-in.
package memstore

import (
	"cmp"
	"context"
	"fmt"
	"hash/maphash"
	"math/bits"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/bucket"
	"github.com/go-tokenbucket/ratelimit/store"
)

const (
	// defaultMaxKeys takes below 100 MB.
	defaultMaxKeys = 1_000_000

	// maxShards is how many shards a set of them, as the bits of a word, can name.
	maxShards = 64

	// minPerShard keeps shards so large that the shares of MaxKeys that keys happen to fall into differ
	// by a few percent only.
	minPerShard = 4096

	// sweepEvery is how long a full bucket may stay before it is forgotten.
	sweepEvery = time.Second
)

// Config configures a Store. The zero value is ready to use.
type Config struct {
	// MaxKeys bounds how many buckets are kept, at about 90 bytes each and the key. Default 1,000,000.
	// To make room for one more, the bucket that is nearest to full is forgotten, which is the one that
	// loses least by it. Large stores divide MaxKeys evenly over their shards.
	MaxKeys int

	// Clock tells the time. Default: the machine's monotonic clock. Time that goes backwards neither
	// grants nor drains tokens.
	Clock func() time.Time
}

// A Store keeps buckets in memory. Make it with New.
type Store struct {
	now    func() int64 // in microseconds
	seed   maphash.Seed
	shards []shard
	shift  uint // a hash's bits above it are its shard

	sweeper  *time.Timer
	sweeping atomic.Bool // the sweeper is set: there may be buckets to forget
	closed   atomic.Bool
}

var _ store.Store = (*Store)(nil)

// New returns an empty Store. It panics if cfg.MaxKeys is negative.
func New(cfg Config) *Store {
	if cfg.MaxKeys < 0 {
		panic(fmt.Sprintf("memstore: New: Config.MaxKeys %d: must be positive, or 0 for %d", cfg.MaxKeys, defaultMaxKeys))
	}
	maxKeys := cmp.Or(cfg.MaxKeys, defaultMaxKeys)
	wanted := min(maxShards, 8*runtime.GOMAXPROCS(0), max(1, maxKeys/minPerShard))
	power := bits.Len(uint(wanted)) - 1

	s := &Store{
		seed:   maphash.MakeSeed(),
		shards: make([]shard, 1<<power),
		shift:  uint(64 - power),
	}
	for i := range s.shards {
		s.shards[i].max = maxKeys >> power
	}
	if cfg.Clock != nil {
		s.now = func() int64 { return cfg.Clock().UnixMicro() }
	} else {
		start := time.Now()
		s.now = func() int64 { return time.Since(start).Microseconds() }
	}
	s.sweeper = time.AfterFunc(sweepEvery, s.sweep)
	s.sweeper.Stop()
	return s
}

// Close stops the sweep of full buckets. The Store goes on answering, within MaxKeys. The error is nil.
func (s *Store) Close() error {
	s.closed.Store(true)
	s.sweeper.Stop()
	return nil
}

// A visit is a charge on its way through Take.
type visit struct {
	shard  *shard
	hash   uint32
	entry  *entry        // nil: no bucket is kept, so it is full
	bucket bucket.Bucket // as it stands now
	fits   bool
	isNew  bool // it was full, and is to be kept from now on
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
	now := s.now()

	var few [4]visit // on the stack
	visits := few[:0]
	var locks uint64
	for i := range charges {
		hash := s.hash(charges[i].Policy, charges[i].Key)
		n := hash >> s.shift
		locks |= 1 << n
		visits = append(visits, visit{shard: &s.shards[n], hash: uint32(hash)})
	}
	// Always in ascending order, so that no two calls wait for each other.
	for set := locks; set != 0; set &= set - 1 {
		s.shards[bits.TrailingZeros64(set)].mu.Lock()
	}
	ok := look(charges, visits, now)
	if ok {
		commit(charges, visits)
	}
	for set := locks; set != 0; set &= set - 1 {
		s.shards[bits.TrailingZeros64(set)].mu.Unlock()
	}
	for i := range charges {
		states[i] = charges[i].State(visits[i].bucket.Tokens, ok && visits[i].fits)
	}
	if ok {
		s.sweepLater()
	}
	return ok, nil
}

// look finds what each charge's bucket holds now, and reports whether the call is allowed.
func look(charges []store.Charge, visits []visit, now int64) bool {
	ok := true
	for i := range charges {
		c, v := &charges[i], &visits[i]
		l := bucket.Limit(c.Limit)
		var kept bucket.Bucket
		if v.entry = v.shard.find(v.hash, c.Policy, c.Key); v.entry != nil {
			kept = v.entry.bucket()
		}
		v.bucket = l.Advance(kept, now)
		v.fits = l.Grants(v.bucket.Tokens, l.Need(c.Cost), l.Debt(c.MaxWait.Microseconds()), 1) == 1
		ok = ok && (v.fits || c.Shadow)
	}
	return ok
}

// commit charges what fits, the buckets that are kept already before the new ones: making room for one
// moves the others about.
func commit(charges []store.Charge, visits []visit) {
	for i := range charges {
		c, v := &charges[i], &visits[i]
		if !v.fits {
			continue
		}
		l := bucket.Limit(c.Limit)
		left := l.Charge(v.bucket.Tokens, l.Need(c.Cost), 1)
		if left == v.bucket.Tokens {
			continue // as in Redis, a charge that changes nothing writes nothing
		}
		v.bucket.Tokens = left
		v.isNew = v.entry == nil
		if !v.isNew {
			v.shard.update(v.entry, c, v.bucket)
		}
	}
	for i := range charges {
		if v := &visits[i]; v.isNew {
			v.shard.insert(v.hash, &charges[i], v.bucket)
		}
	}
}

func (s *Store) hash(policy, key string) uint64 {
	// Two hashes under one seed: only the store can tell which pairs they make equal, and find compares
	// the strings.
	return maphash.String(s.seed, key) + bits.RotateLeft64(maphash.String(s.seed, policy), 32)
}
