package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

// redisVariable has the URL of Redis. Arguments can be seen by all users of a machine.
const redisVariable = "RATELIMIT_REDIS"

func init() { redis.SetLogger(silence{}) }

// silence drops what the client logs about connections. Errors say it.
type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}

// redisFlags say which buckets there are.
type redisFlags struct {
	f                       *flags
	url, prefix, secretFile *string
	cluster                 *bool
	timeout                 *time.Duration
}

func defineRedis(f *flags) *redisFlags {
	return &redisFlags{
		f:          f,
		url:        f.text("redis", "`URL` of Redis, such as redis://localhost:6379 or rediss://user:password@host:6380/0. Default: "+redisVariable+" of the environment, which other users of the machine cannot see"),
		prefix:     f.text("prefix", "`PREFIX` of the keys: the redisstore.Config.Prefix of the program (default ratelimit)"),
		secretFile: f.text("secret-file", "`FILE` with the redisstore.Config.Secret of the program, if it has one. A line break at its end does not count"),
		cluster:    f.is("cluster", "the URL is that of a node of a Redis Cluster"),
		timeout:    f.duration("timeout", 5*time.Second, "`TIME` to wait for Redis"),
	}
}

// given reports whether there is a Redis.
func (r *redisFlags) given() bool { return *r.url != "" || r.f.getenv(redisVariable) != "" }

// A connection is a Redis that keeps buckets.
type connection struct {
	client interface {
		redisstore.Client
		Ping(ctx context.Context) *redis.StatusCmd
		Close() error
	}
	store  *redisstore.Store
	server string // its address
}

func (c *connection) close() {
	_ = c.store.Close()
	_ = c.client.Close()
}

// connect makes a client. It does not connect yet.
func (r *redisFlags) connect() (*connection, error) {
	url, from := *r.url, "-redis"
	if url == "" {
		url, from = r.f.getenv(redisVariable), redisVariable
	}
	if url == "" {
		return nil, wrongUsage("-redis: must be the URL of Redis, such as redis://localhost:6379; or set %s", redisVariable)
	}
	if !strings.Contains(url, "://") {
		return nil, wrongUsage("%s: must be a URL, such as redis://localhost:6379", from)
	}
	cfg := redisstore.Config{Prefix: *r.prefix, MaxDenials: -1, Logger: slog.New(slog.DiscardHandler)}
	if strings.ContainsFunc(cfg.Prefix, func(c rune) bool { return c <= ' ' || c > '~' || c == '{' || c == '}' }) {
		return nil, wrongUsage("-prefix: must be printable ASCII without spaces and braces")
	}
	if *r.secretFile != "" {
		secret, err := readSecret(*r.secretFile)
		if err != nil {
			return nil, err
		}
		cfg.Secret = secret
	}
	c := new(connection)
	var err error
	if *r.cluster {
		var o *redis.ClusterOptions
		if o, err = redisstore.ClusterOptions(url); err == nil {
			c.client, c.server = redis.NewClusterClient(o), "cluster at "+show(strings.Join(o.Addrs, ", "))
		}
	} else {
		var o *redis.Options
		if o, err = redisstore.Options(url); err == nil {
			c.client, c.server = redis.NewClient(o), "Redis at "+show(o.Addr)
		}
	}
	if err != nil {
		return nil, wrongUsage("%s: %v", from, trim(err))
	}
	if c.store, err = redisstore.New(c.client, cfg); err != nil {
		return nil, err
	}
	return c, nil
}

// readSecret reads a secret from a file that an editor may have ended with a line break.
func readSecret(name string) ([]byte, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("-secret-file: %w", err)
	}
	text = bytes.TrimSuffix(bytes.TrimSuffix(text, []byte("\n")), []byte("\r"))
	if len(text) == 0 {
		return nil, fmt.Errorf("-secret-file: %s is empty: must have the Secret of redisstore.Config", show(name))
	}
	return text, nil
}

// with connects, and calls do for at most the time of -timeout.
func (r *redisFlags) with(ctx context.Context, do func(context.Context, *connection) error) error {
	c, err := r.connect()
	if err != nil {
		return err
	}
	defer c.close()
	ctx, cancel := context.WithTimeout(ctx, *r.timeout)
	defer cancel()
	return do(ctx, c)
}

// unanswered explains an error of Redis. changes reports that the call would have changed a bucket.
func (c *connection) unanswered(err error, changes bool) error {
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("no answer in time: %w", err)
	}
	err = fmt.Errorf("%s: %w", c.server, trim(err))
	if changes && !errors.Is(err, store.ErrNotCharged) {
		err = fmt.Errorf("%w\nIt is not known whether it was done: look with ratelimit peek.", err)
	}
	return err
}
