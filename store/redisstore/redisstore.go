// Package redisstore keeps token buckets in Redis, so that a limit holds across replicas: each Take is
// one script, which Redis runs alone and by its own clock.
//
// It works on a single server, behind Sentinel, and on Cluster or Ring where the buckets of a call share
// a slot, as all policies of one key do.
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
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit/internal/bucket"
	"github.com/go-tokenbucket/ratelimit/lua"
	"github.com/go-tokenbucket/ratelimit/store"
)

// A Client runs a command: *redis.Client (also one of NewFailoverClient), *redis.ClusterClient and
// *redis.Ring do. A Take ends by its context's deadline whatever the client's timeouts are, if those do not
// end it sooner, and is never sent again once Redis may have seen it, whatever its retries.
//
// Make it with ContextTimeoutEnabled if you can, which lets it obey that deadline by itself. Without, and
// with a ReadTimeout or WriteTimeout of -2, a call is waited for in a goroutine of its own.
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
}

// A Store keeps buckets in Redis. Make it with New.
type Store struct {
	client Client
	timely bool // client ends a command with the deadline of its context
	prefix string
	secret []byte
	clock  func() time.Time
}

var _ store.Store = (*Store)(nil)

// New returns a Store on client, which stays the caller's to close. It panics if client is nil, or on a
// malformed cfg.
func New(client Client, cfg Config) *Store {
	if client == nil {
		panic("redisstore: New: client is nil: must be a go-redis client")
	}
	prefix := cmp.Or(cfg.Prefix, "ratelimit")
	if strings.ContainsFunc(prefix, func(r rune) bool { return r <= ' ' || r > '~' || r == '{' || r == '}' }) {
		panic(fmt.Sprintf("redisstore: New: Config.Prefix %q: must be printable ASCII without spaces and braces", cfg.Prefix))
	}
	if cfg.Secret != nil && len(cfg.Secret) == 0 {
		panic("redisstore: New: Config.Secret is empty: must be nil, or nobody's identity would be kept secret")
	}
	return &Store{client: client, timely: timely(client), prefix: prefix, secret: bytes.Clone(cfg.Secret), clock: cfg.Clock}
}

// Take implements store.Store with one script call. An error is a Redis error (redis.Error), one of the
// network, or one that wraps ctx.Err(). After an error the charges may or may not have been carried out,
// but never twice.
func (s *Store) Take(ctx context.Context, charges []store.Charge, states []store.State) (bool, error) {
	if err := store.Validate(charges, states); err != nil {
		return false, err
	}
	if err := ctx.Err(); err != nil {
		return false, fmt.Errorf("redisstore: not sent: %w", err)
	}
	reply, err := s.run(ctx, s.args(charges))
	if err != nil {
		return false, err
	}
	if len(reply) != 2*len(charges) {
		return false, fmt.Errorf("redisstore: reply of %d integers to %d charges", len(reply), len(charges))
	}
	ok := true
	for i := range charges {
		charged := reply[2*i] > 0
		ok = ok && (charged || charges[i].Shadow)
		states[i] = charges[i].State(reply[2*i+1], charged)
	}
	return ok, nil
}

// args returns what follows the name and the script in EVALSHA or EVAL: the number of keys, the keys,
// and the arguments that the head of take.lua describes.
func (s *Store) args(charges []store.Charge) []any {
	n := len(charges)
	args := make([]any, 0, 1+n+2+6*n+3+n)
	args = append(args, n)
	for i := range charges {
		args = append(args, s.key(charges[i].Policy, charges[i].Key))
	}
	if s.clock == nil {
		args = append(args, "")
	} else {
		args = append(args, s.clock().UnixMicro())
	}
	args = append(args, n)
	for i := range charges {
		c := &charges[i]
		l := bucket.Limit(c.Limit)
		args = append(args, l.Unit, l.Refill, l.Capacity, l.Need(c.Cost), l.Debt(c.MaxWait.Microseconds()), c.Shadow)
	}
	args = append(args, 1, 1, n)
	for i := range charges {
		args = append(args, i+1)
	}
	return args
}

// run runs the script and returns its reply, or an error when ctx ends.
func (s *Store) run(ctx context.Context, args []any) ([]int64, error) {
	_, limited := ctx.Deadline()
	var reply []int64
	var err error
	if s.timely && limited || ctx.Done() == nil {
		reply, err = s.call(ctx, args)
	} else {
		reply, err = s.callApart(ctx, args)
	}
	switch {
	case err == nil:
		return reply, nil
	case ended(ctx, err):
		return nil, fmt.Errorf("redisstore: no reply in time: %w", cmp.Or(ctx.Err(), context.DeadlineExceeded))
	default:
		return nil, fmt.Errorf("redisstore: %w", err)
	}
}

// call runs the script, which after a NOSCRIPT was not carried out. EVAL also loads it, until the server
// forgets it again.
func (s *Store) call(ctx context.Context, args []any) ([]int64, error) {
	reply, err := s.eval(ctx, "evalsha", lua.TakeSHA1, args)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		reply, err = s.eval(ctx, "eval", lua.Take, args)
	}
	return reply, err
}

func (s *Store) eval(ctx context.Context, command, script string, args []any) ([]int64, error) {
	cmd := once{redis.NewCmd(ctx, append([]any{command, script}, args...)...)}
	if err := s.client.Process(ctx, cmd); err != nil {
		return nil, err
	}
	return cmd.Int64Slice()
}

// once is a command that the client must not send again after a timeout or a lost connection, when Redis
// may have carried it out: a charge must not be made twice.
type once struct{ *redis.Cmd }

func (once) NoRetry() bool { return true }
