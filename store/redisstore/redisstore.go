// Package redisstore keeps token buckets in Redis, so that a limit holds across replicas: calls are decided
// by a script, which Redis runs alone and by its own clock.
//
// A call leaves at once. Those that come while others are under way leave together in the next script call,
// identical ones as one, so that many cost little more than a few. What is certain to be refused is refused
// without asking Redis.
//
// It works on a single server, behind Sentinel, and on Cluster and Ring, where each server has its own queue.
//
// A Ring has no replicas. When one of its shards goes down, the Ring gives the keys of the shard to the other shards,
// where each key starts with a full bucket. When the shard is back, its keys have the buckets that it still holds. So
// each change can allow every such key one more burst. Each process learns of a change by its own heartbeats, and until
// all have, a key may have two buckets. If that is too much, use Cluster or Sentinel.
//
// All policies of one key share a hash slot. A call whose keys are in several slots is not one atomic step there.
// Its buckets are charged at the same time. If one of them refuses or fails, the tokens that the others paid are
// given back. Until then, for about a round trip, other calls find fewer tokens than there are, and may be refused
// for it. They never find more. Refunds and Owed charges of the call follow when no bucket has refused.
//
// After such a refusal or failure, calls of the same policies are taken in turn for at least ten seconds. The first
// round trip only looks at all buckets, and refuses the call if one of them cannot pay. Then one slot after another
// is charged, the scarcest bucket first. So denied calls take no tokens from a bucket that they share with others,
// however many they are. An allowed call needs one round trip to look, and one for each slot.
//
// A minimal ACL for the default Config is
//
//	ACL SETUSER limiter on >secret ~ratelimit:* -@all +evalsha +eval +time +hmget +hset +pexpire
//
// With less, calls fail; without pexpire they do so after buckets were charged, and those keep no TTL.
package redisstore

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit/internal/shortkey"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/denialcache"
)

// A Client runs a command: *redis.Client (also one of NewFailoverClient), *redis.ClusterClient and
// *redis.Ring do. If it also has their Pipeline method, that is used for several commands at once.
//
// A Take ends by its context's deadline whatever the client's timeouts are, if those do not end it sooner,
// and is never sent again once Redis may have seen it, whatever its retries.
//
// Make it with Options or ClusterOptions if you can, whose ContextTimeoutEnabled lets it obey that deadline by
// itself. Without that, and with a negative ReadTimeout or WriteTimeout, a lone call is sent by a goroutine other
// than its caller's, which takes some microseconds more. What is sent for a caller without a deadline ends by the
// client's timeouts only. Store.Diagnose says what could be better.
//
// A Ring gives each key of a shard that goes down a new, full bucket on another shard; see the package comment.
//
// A ClusterClient waits some tens of milliseconds before it follows a redirect of several commands, unless its
// MinRetryBackoff is -1, as in ClusterOptions: calls may run into their deadlines while slots move.
type Client interface {
	Process(ctx context.Context, cmd redis.Cmder) error
}

// Config configures a Store. The zero value is ready to use.
type Config struct {
	// Prefix starts every key, as in "ratelimit:{member:5}:api". Default "ratelimit". It must be
	// printable ASCII without spaces and braces.
	Prefix string

	// Secret, if set, replaces every key's identity by its HMAC-SHA256 under Secret, for teams that may
	// not store addresses or member ids. Changing it forgets all buckets. It must be nil or not empty.
	Secret []byte

	// Clock, if set, is used instead of Redis's own, for services that refuse TIME in scripts. Limits
	// are then as exact as the clocks of all replicas agree: a clock that is ahead is granted the
	// difference once, and until the others reach it they are granted nothing new, though for no longer
	// than twice the time to full. Time that goes backwards neither grants nor drains tokens. All Stores
	// of a prefix must go by the same: Redis's clock, or their own.
	Clock func() time.Time

	// MaxBatch is how many charges leave in one batch at most, where identical calls count once. Redis does
	// nothing else while it runs one, which takes it about 5 µs a charge. Default 256.
	MaxBatch int

	// MaxInFlight is how many batches are under way to one server at most. Default 2: one that Redis works
	// on, and one that is being made or read.
	//
	// A connection can be dead without any notice. So a batch stops counting when a caller runs out of time and the
	// batch has taken more than half of that time. It stays under way for its other callers. Such batches take at most
	// half of the connections of the client's pool.
	MaxInFlight int

	// MaxQueue is how many calls may wait to be sent to one server. Those beyond fail at once, with
	// ErrQueueFull. Default 16,384.
	MaxQueue int

	// MaxDenials is for how many buckets a denial is remembered, so that calls that are certain to be refused
	// are refused without asking Redis; see package denialcache. Default 16,384; below 0 none is.
	MaxDenials int

	// DenialAge is how long a denial is used: how long it may take until a refund by another replica has an
	// effect here. Default 1 second.
	DenialAge time.Duration

	// Logger is told once if Redis turns out to want the keys of a command in one hash slot. Default
	// slog.Default().
	Logger *slog.Logger
}

const (
	defaultPrefix      = "ratelimit"
	defaultMaxBatch    = 256
	defaultMaxInFlight = 2
	defaultMaxQueue    = 16_384
)

// A Store keeps buckets in Redis. Make it with New.
type Store struct {
	front  store.Store // engine, behind what needs not reach it
	engine *engine
}

var (
	_ store.Store     = (*Store)(nil)
	_ store.Inspector = (*Store)(nil)
)

// New returns a Store on client, which stays the caller's to close, after the Store. It panics if client is
// nil, or on a malformed cfg.
func New(client Client, cfg Config) *Store {
	if client == nil {
		panic("redisstore: New: client is nil: must be a go-redis client")
	}
	prefix := cmp.Or(cfg.Prefix, defaultPrefix)
	if strings.ContainsFunc(prefix, func(r rune) bool { return r <= ' ' || r > '~' || r == '{' || r == '}' }) {
		panic(fmt.Sprintf("redisstore: New: Config.Prefix %q: must be printable ASCII without spaces and braces", cfg.Prefix))
	}
	if cfg.Secret != nil && len(cfg.Secret) == 0 {
		panic("redisstore: New: Config.Secret is empty: must be nil, or nobody's identity would be kept secret")
	}
	e := &engine{
		choose:      scriptOf,
		client:      client,
		forget:      func(string, string) {},
		timely:      timely(client),
		keys:        keys{prefix, bytes.Clone(cfg.Secret)},
		clock:       cfg.Clock,
		logger:      cmp.Or(cfg.Logger, slog.Default()),
		maxBatch:    positive("MaxBatch", cfg.MaxBatch, defaultMaxBatch),
		maxInFlight: positive("MaxInFlight", cfg.MaxInFlight, defaultMaxInFlight),
		maxQueue:    positive("MaxQueue", cfg.MaxQueue, defaultMaxQueue),
		maxOverdue:  overdueOf(client),
	}
	e.caution.init()
	e.routes.engine, e.routes.only.engine = e, e
	e.routes.cluster, _ = client.(*redis.ClusterClient)
	e.routes.ring, _ = client.(*redis.Ring)
	e.bySlot.Store(e.routes.cluster != nil)
	s := &Store{front: e, engine: e}
	if cfg.DenialAge < 0 {
		panic(fmt.Sprintf("redisstore: New: Config.DenialAge %v: must be positive, or 0 for 1s", cfg.DenialAge))
	}
	if cfg.MaxDenials >= 0 {
		cache := denialcache.New(e, denialcache.Config{MaxKeys: cfg.MaxDenials, MaxAge: cfg.DenialAge, Clock: cfg.Clock})
		s.front, e.forget = cache, cache.Forget
	}
	return s
}

func positive(field string, n, otherwise int) int {
	if n < 0 {
		panic(fmt.Sprintf("redisstore: New: Config.%s %d: must be positive, or 0 for %d", field, n, otherwise))
	}
	return cmp.Or(n, otherwise)
}

// Take implements store.Store. An error is ErrQueueFull, ErrClosed, a Redis error (redis.Error), one of the
// network, or one that wraps ctx.Err(). After an error the charges may or may not have been carried out,
// but never twice. An error that wraps store.ErrNotCharged says that they were not.
func (s *Store) Take(ctx context.Context, charges []store.Charge, states []store.State) (bool, error) {
	if s.engine.closed.Load() {
		return false, uncharged(ErrClosed)
	}
	// The keys of calls that wait are kept after their callers have left.
	return s.front.Take(ctx, shortkey.Charges(charges), states)
}

// Inspect implements store.Inspector. It reads the bucket with one script call, which writes nothing. Errors are those
// of Take, without ErrQueueFull.
func (s *Store) Inspect(ctx context.Context, policy, key string) (store.Bucket, error) {
	return s.engine.Inspect(ctx, policy, key)
}

// Close waits for the calls that have begun, and for what is still to be given back for them, and refuses
// others with ErrClosed. A Store that is not closed holds nothing but memory when it is idle. The error is nil.
func (s *Store) Close() error {
	s.engine.close()
	return nil
}
