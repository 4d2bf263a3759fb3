// Package redisstore keeps token buckets in Redis, so that a limit holds across all replicas of a service.
//
//	options, err := redisstore.Options("redis://localhost:6379")
//	if err != nil {
//		log.Fatal(err)
//	}
//	limiter, err := ratelimit.New(ratelimit.Config{
//		Store:    ratelimit.Must(redisstore.New(redis.NewClient(options), redisstore.Config{})),
//		Policies: policies,
//	})
//
// It works with a single server, Sentinel, Cluster and Ring. A Lua script decides each call. Redis runs a script
// alone and by its own clock, so the clocks of the replicas do not matter. To keep limits in force while Redis is
// unavailable, use [github.com/go-tokenbucket/ratelimit/store/fallback]. The guide [operations] covers memory,
// persistence and sizing.
//
// # Speed
//
// A call is sent at once. Calls that come while others are running are sent together in the next script call, and
// identical calls are merged. Each server has its own queue. A call that is certain to be refused is refused
// without calling Redis, see [github.com/go-tokenbucket/ratelimit/store/denialcache].
//
// # Rights
//
// The default Config needs these rights:
//
//	ACL SETUSER limiter on >secret ~ratelimit:* -@all +evalsha +eval +time +hmget +hset +pttl +pexpire
//
// Without one of them, calls fail. Without pexpire they fail after buckets were charged, and those buckets have no
// TTL. A Cluster also needs +cluster, to find the masters, and +asking, while slots move.
// Concurrency limits also need +hgetall and +hdel. Sets of values, see [Store.ReadValues], also need +hdel, +zadd, +zrange,
// +zrem and +persist.
//
// # Check the servers
//
// Call [Store.Diagnose] when a program starts:
//
//	for _, problem := range buckets.Diagnose(ctx) {
//		slog.Warn(problem)
//	}
//
// It reports options of the client that make an outage of Redis more expensive, see [Options]. It also reports a server
// that:
//   - does not answer in time, or decides too slowly
//   - is not a master
//   - does not permit the commands of the script
//   - evicts buckets, or has no memory left
//   - has a wrong clock
//
// Some checks need the right to INFO. Without it, a sentence says so.
//
// # Client options
//
// [Options] and [ClusterOptions] return options for a client. Options that the URL does not set get these values,
// where go-redis has others:
//   - ContextTimeoutEnabled: a command ends at the deadline of its context, and no other goroutine has to wait for
//     it.
//   - DialTimeout 500 ms, not 5 s: a caller leaves at its own deadline, but a connection that is being made keeps
//     its place in the pool until then.
//   - DialerRetries 1, not 5: while Redis refuses connections, a decision fails at once. Five dials, 100 ms apart,
//     would take its whole timeout.
//   - Dialer: a connection that cannot be made fails when it is used. With the dialer of go-redis the pool counts
//     such failures, and after PoolSize of them it refuses commands until a dial succeeds, which it tries once a
//     second.
//   - ReadTimeout and WriteTimeout 1 s, not 5 s: they are for calls without a deadline. They must be longer if
//     [github.com/go-tokenbucket/ratelimit.Config.Timeout] is longer.
//   - MaxRetries -1, not 3: commands of a Store are never sent again. This holds for other commands of the client,
//     too.
//   - MinRetryBackoff and MaxRetryBackoff -1: without retries there is nothing to wait for. On a Cluster, several
//     commands then follow a redirect at once. Otherwise they wait some tens of milliseconds, and calls may miss
//     their deadlines while slots move.
//   - MinIdleConns 2, not 0: after a lost connection, another one is ready, with its TLS handshake done. On a
//     Cluster it is for each node.
//   - DisableIdentity: CLIENT SETINFO is not sent. It takes a round trip for each new connection. A user with only
//     the rights above may not send it, and go-redis logs that.
//
// On a Cluster, MaxRedirects stays at 3: the client needs redirects to follow slots that move.
//
// # Clients without ContextTimeoutEnabled
//
// For a *redis.Client without ContextTimeoutEnabled, [New] makes a clone that has it, on the same connections. The clone
// sends the commands of lone calls, and the client sends batches. The client itself does not change. Hooks that are
// added to the client after New see only batches. No hook sees the handshake of a connection that the clone opens.
//
// A batch whose packets are lost waits for the ReadTimeout, 5 s by default. If batches hold all the connections that they
// may use, calls fail until then, although Redis answers again. With ContextTimeoutEnabled it takes some milliseconds.
//
// A lone call is sent by its caller if the client can end it at its deadline. Otherwise another goroutine sends it, which
// takes some microseconds: on a ClusterClient or Ring without ContextTimeoutEnabled, and on a client with a
// ReadTimeout or WriteTimeout of -2.
//
// # Keys in several slots
//
// On a Cluster, the calls that wait for a master are sent in one script call, if the master allows keys of several
// hash slots in one. Redis allows it since 7.0, and so does Valkey. Otherwise each slot needs a script call, which
// costs Redis two to three times as much. The Store finds out what a master allows, see [CrossSlot].
//
// All policies of one key share a hash slot. A call whose keys are in several slots is one atomic step if one master
// has them all and allows it. Otherwise its buckets are charged at the same time, but not in one step. If one of them
// refuses or fails, or the caller leaves, the tokens that the others paid are given back. Until then, for about a round
// trip, other calls find fewer tokens than there are, and may be refused because of it. They never find more. Refunds
// and Owed charges of the call are sent after no bucket has refused, also if the caller leaves then. They are not undone.
//
// After such a refusal or failure, calls of the same policies are taken in turn for at least ten seconds. The first
// round trip only reads all buckets, and refuses the call if one of them cannot pay. Then one master or slot after
// another is charged, the bucket with the fewest tokens first. So denied calls take no tokens from a bucket that they
// share with others. An allowed call needs one round trip to read, and one for each master or slot.
//
// # Slots
//
// Redis keeps the slots of a concurrency limit for each Store, under a random name. Each time, the Store sends how many it
// holds, with a sequence number. So a call that is lost, late or repeated counts once. A release is answered at once, and sent
// to Redis within a millisecond or two. If the reply is lost, it is sent again each 250 ms.
//
// A Store renews its slots three times in each [Config.SlotLease]. If it cannot do so for a whole lease, others may take the
// slots. It logs that, and [store.Stats] count it. If Redis loses the slots, the Store restores them with the next renewal.
//
// A renewal is a script call for up to 256 keys, at most 40 times a second for all keys. No request waits for one. So with
// the default lease, a Store can hold slots of 50,000 keys. A Cluster that refuses keys of several hash slots needs a call for
// each key, about 2,000 a second to hold slots of 10,000 keys.
//
// # Ring
//
// A Ring has no replicas. When one of its shards goes down, the Ring gives the keys of the shard to the other
// shards, where each key starts with a full bucket. When the shard is back, its keys have the buckets that it still
// holds. So each change can allow every such key one more burst. Each process learns of a change by its own
// heartbeats. Until all have, a key may have two buckets. If that is too much, use Cluster or Sentinel.
//
// [operations]: https://github.com/go-tokenbucket/ratelimit/blob/main/docs/operations.md
package redisstore

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit/internal/keyname"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/denialcache"
)

// A Client runs commands. *redis.Client (also of NewFailoverClient), *redis.ClusterClient and *redis.Ring are
// Clients. If it has a Pipeline method, that is used for several commands at once. Make it with [Options] or
// [ClusterOptions] if you can. [Store.Diagnose] says what to improve otherwise.
//
// A Take ends at its context's deadline or by the client's timeouts, whichever is first. Calls without a deadline
// end by the client's timeouts only. If all callers of a command leave before it is sent, nothing is charged. No call is
// sent again after Redis may have seen it, even if the client has retries. Add hooks to a client before [New], see
// "Clients without ContextTimeoutEnabled" in the package comment.
type Client interface {
	// Process sends cmd and sets its result.
	Process(ctx context.Context, cmd redis.Cmder) error
}

// Config configures a [Store]. The zero value is ready to use.
type Config struct {
	// Prefix is the start of every key, as in "ratelimit:{member:5}:api". Default "ratelimit". It must be printable
	// ASCII without spaces and braces.
	Prefix string

	// Secret, if set, replaces every key's identity with its HMAC-SHA256 under Secret. Use it if you may not store
	// addresses or member ids. Changing it forgets all buckets. It must be nil or not empty.
	Secret []byte

	// Clock, if set, is used instead of Redis's clock, for services that refuse TIME in scripts. All Stores of a
	// prefix must use the same kind of clock. A clock that is ahead grants the difference once. Until the others
	// reach it, they grant nothing new, for at most twice the time to full. A clock that goes backwards neither
	// grants nor takes tokens.
	Clock func() time.Time

	// MaxBatch is how many charges one batch has at most. Identical calls count once. Redis does nothing else while
	// it runs a batch, which takes about 5 µs for each charge. Default 256.
	MaxBatch int

	// MaxInFlight is how many batches to one server run at most. Default 2: Redis works on one while another is
	// made or read. If a caller runs out of time, a batch that took more than half of that time stops counting,
	// because its connection may be dead. It goes on for its other callers. Such batches use at most half of the
	// client's pool.
	MaxInFlight int

	// MaxQueue is how many calls to one server may wait to be sent. Further calls fail at once with [ErrQueueFull].
	// Default 16,384.
	MaxQueue int

	// MaxDenials is for how many buckets a denial is remembered. Calls that are certain to be refused are then
	// refused without calling Redis, see package denialcache. Default 16,384; negative: none.
	MaxDenials int

	// DenialAge is how long a denial is used. A refund or reset by another replica has an effect here within that
	// time. Default 1 second.
	DenialAge time.Duration

	// CrossSlot is whether a master of a Redis Cluster receives keys of several hash slots in one script call.
	// Default [CrossSlotAuto]: where the master allows it.
	CrossSlot CrossSlot

	// SlotLease is how long Redis keeps the slots of a Store that does not renew them: see "Slots" in the package comment.
	// It must be from 1 second to 1 hour. Default 15 seconds.
	//
	// All Stores must have the same SlotLease, because a Store shortens longer leases of others to its own. In a rollout, it may
	// at most double or halve. Otherwise Redis can grant more slots than there are.
	SlotLease time.Duration

	// Logger receives one line if Redis requires the keys of a command to share a hash slot. It receives another one
	// if a master of a Cluster does not allow keys of several slots in one script. Default slog.Default().
	Logger *slog.Logger
}

const (
	defaultPrefix      = "ratelimit"
	defaultMaxBatch    = 256
	defaultMaxInFlight = 2
	defaultMaxQueue    = 16_384
	defaultSlotLease   = 15 * time.Second
)

// A Store keeps buckets in Redis. Make it with [New].
type Store struct {
	front  store.Store // engine, behind the denial cache if there is one
	engine *engine
}

var (
	_ store.Store         = (*Store)(nil)
	_ store.Inspector     = (*Store)(nil)
	_ store.Blocker       = (*Store)(nil)
	_ store.StatsReporter = (*Store)(nil)
	_ store.Values        = (*Store)(nil)
)

// New returns a Store that uses client. Close the Store first, and then client. New returns an error if client is
// nil or if cfg is invalid.
func New(client Client, cfg Config) (*Store, error) {
	if client == nil {
		return nil, errors.New("redisstore: New: client is nil: must be a go-redis client")
	}
	prefix := cmp.Or(cfg.Prefix, defaultPrefix)
	if strings.ContainsFunc(prefix, func(r rune) bool { return r <= ' ' || r > '~' || r == '{' || r == '}' }) {
		return nil, fmt.Errorf("redisstore: New: Config.Prefix %q: must be printable ASCII without spaces and braces", cfg.Prefix)
	}
	if cfg.Secret != nil && len(cfg.Secret) == 0 {
		return nil, errors.New("redisstore: New: Config.Secret is empty: must be nil, or nobody's identity would be kept secret")
	}
	if cfg.CrossSlot < CrossSlotAuto || cfg.CrossSlot > CrossSlotNever {
		return nil, fmt.Errorf("redisstore: New: Config.CrossSlot %d: must be CrossSlotAuto, CrossSlotAlways or CrossSlotNever", cfg.CrossSlot)
	}
	if cfg.DenialAge < 0 {
		return nil, fmt.Errorf("redisstore: New: Config.DenialAge %v: must be positive; 0 means the default of 1s", cfg.DenialAge)
	}
	if lease := cmp.Or(cfg.SlotLease, defaultSlotLease); lease < time.Second || lease > time.Hour {
		return nil, fmt.Errorf("redisstore: New: Config.SlotLease %v: must be from 1s to 1h; 0 means the default of 15s", cfg.SlotLease)
	}
	for field, n := range map[string]int{"MaxBatch": cfg.MaxBatch, "MaxInFlight": cfg.MaxInFlight, "MaxQueue": cfg.MaxQueue} {
		if n < 0 {
			return nil, fmt.Errorf("redisstore: New: Config.%s %d: must be positive; 0 means the default", field, n)
		}
	}
	choose := scriptOf
	if cfg.Clock != nil { // the faster scripts go by the clock of Redis
		choose = func([]entry) script { return take }
	}
	e := &engine{
		choose:      choose,
		client:      client,
		forget:      func(string, string) {},
		keys:        keys{prefix, bytes.Clone(cfg.Secret)},
		clock:       cfg.Clock,
		logger:      cmp.Or(cfg.Logger, slog.Default()),
		maxBatch:    cmp.Or(cfg.MaxBatch, defaultMaxBatch),
		maxInFlight: cmp.Or(cfg.MaxInFlight, defaultMaxInFlight),
		maxQueue:    cmp.Or(cfg.MaxQueue, defaultMaxQueue),
		maxOverdue:  overdueOf(client),
		crossSlot:   cfg.CrossSlot,
	}
	e.sender, e.timely = timely(client)
	e.caution.init()
	e.routes.engine = e
	e.routes.only.init(e)
	e.holdings.init(e, cmp.Or(cfg.SlotLease, defaultSlotLease))
	e.routes.cluster, _ = client.(*redis.ClusterClient)
	e.routes.ring, _ = client.(*redis.Ring)
	e.bySlot.Store(e.routes.cluster != nil)
	s := &Store{front: e, engine: e}
	if cfg.MaxDenials >= 0 {
		cache, err := denialcache.New(e, denialcache.Config{MaxKeys: cfg.MaxDenials, MaxAge: cfg.DenialAge, Clock: cfg.Clock})
		if err != nil {
			return nil, fmt.Errorf("redisstore: New: %w", err)
		}
		s.front, e.forget = cache, cache.Forget
	}
	return s, nil
}

// Take implements [store.Store]. An error wraps [ErrQueueFull], [ErrClosed], an error of Redis (redis.Error) or of
// the network, or that of ctx. After an error the charges may or may not have been made, but never twice. If the
// error wraps [store.ErrNotCharged], they were not made.
func (s *Store) Take(ctx context.Context, charges []store.Charge, states []store.State) (bool, error) {
	for i := range charges {
		if releases(&charges[i]) {
			return s.release(ctx, charges, states)
		}
	}
	if s.engine.closed.Load() {
		err := uncharged(ErrClosed)
		s.engine.counts.fail(err)
		return false, err
	}
	// Long keys are shortened here, because the keys of waiting calls stay in memory after their callers have left.
	return s.front.Take(ctx, keyname.ShortCharges(charges), states)
}

// releases reports whether c gives back slots.
func releases(c *store.Charge) bool {
	return c.Cost < 0 && c.Cost != store.Reset && c.Limit.IsConcurrency()
}

// release is Take for charges of which some release slots. That needs no server, and is done before the others are charged.
func (s *Store) release(ctx context.Context, charges []store.Charge, states []store.State) (bool, error) {
	if err := store.Validate(charges, states); err != nil {
		return false, err
	}
	charges = keyname.ShortCharges(charges)
	var rest []store.Charge
	var at []int
	for i := range charges {
		c := &charges[i]
		if !releases(c) {
			rest, at = append(rest, *c), append(at, i)
			continue
		}
		free, lost := s.engine.holdings.giveBack(c.Policy, c.Key, c.Limit, -c.Cost)
		c.Fill(&states[i], free, 0, 0, true)
		states[i].Lost = lost
	}
	if len(rest) == 0 {
		return true, nil
	}
	others := make([]store.State, len(rest))
	ok, err := s.Take(ctx, rest, others)
	for i := range at {
		states[at[i]] = others[i]
	}
	return ok, err
}

// Inspect implements [store.Inspector]. It reads the bucket with one script call, which writes nothing. Its errors
// are those of Take, except ErrQueueFull.
func (s *Store) Inspect(ctx context.Context, policy, key string) (store.Bucket, error) {
	return s.engine.Inspect(ctx, policy, key)
}

// Block implements [store.Blocker]. It blocks or unblocks the bucket with one script call. Its errors are those of Take,
// except ErrQueueFull.
func (s *Store) Block(ctx context.Context, policy, key string, b store.Block) (degraded bool, err error) {
	return store.SetBlock(ctx, s.front, policy, key, b)
}

// Close waits for running calls, and for the tokens and slots that are still to be given back. Other calls fail with
// [ErrClosed]. The error is always nil. A Store that is idle uses only memory, even if it is not closed. One that holds slots
// is not idle. After Close, they end with their lease.
func (s *Store) Close() error {
	s.engine.close()
	return nil
}
