package redisstore

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	dialTimeout  = 500 * time.Millisecond
	replyTimeout = time.Second
	minIdleConns = 2 // as many as defaultMaxInFlight
)

// Options returns the options of a client for a Store: those of url, as redis.ParseURL reads it, and for
// what it leaves open, these instead of go-redis's own:
//
//   - ContextTimeoutEnabled: a command ends with the deadline of its context, and needs no goroutine that waits
//     for it.
//   - DialTimeout 500 ms, not 5 s: a caller leaves by its own deadline, but the connection that is being made
//     keeps a place in the pool until then.
//   - DialerRetries 1, not 5: while Redis refuses connections, a decision fails at once. With five dials, 100 ms
//     apart, it waits for its whole timeout.
//   - Dialer: go-redis's, but a connection that cannot be made fails when it is used. Of others the pool keeps
//     count, and after PoolSize of them it refuses commands until a dial that it makes once a second succeeds.
//   - ReadTimeout and WriteTimeout 1 s, not 5 s: they are for calls without a deadline. Where
//     ratelimit.Config.Timeout is longer, these must be, too.
//   - MaxRetries -1, not 3: a Store's commands are never sent again, and neither are others of the client.
//   - MinRetryBackoff and MaxRetryBackoff -1: without retries there is nothing to wait for.
//   - MinIdleConns 2, not 0: after a lost connection there is another whose dial and TLS handshake are done.
//   - DisableIdentity: go-redis does not send CLIENT SETINFO, which takes a round trip of each new connection
//     and is refused, and logged, where the user has only the rights that a Store needs.
//
// A parameter of url that is empty leaves its option open, and so does max_retries=0. For the client of
// redis.NewFailoverClient, take the values over into its options, which have the same names.
//
// The error says what would be right, and nothing of url's password.
func Options(url string) (*redis.Options, error) {
	u, err := parseURL("Options", url, "redis", "rediss", "unix")
	if err != nil {
		return nil, err
	}
	o, err := redis.ParseURL(url)
	if err != nil {
		return nil, u.refused(err)
	}
	if err := checkDialTimeout(u, o.DialTimeout); err != nil {
		return nil, err
	}
	o.ContextTimeoutEnabled = true
	o.DisableIdentity = true
	o.DialerRetries = 1
	preset(&o.DialTimeout, dialTimeout)
	preset(&o.ReadTimeout, replyTimeout)
	preset(&o.WriteTimeout, replyTimeout)
	preset(&o.MaxRetries, -1)
	preset(&o.MinRetryBackoff, -1)
	preset(&o.MaxRetryBackoff, -1)
	if !u.gives("min_idle_conns") {
		o.MinIdleConns = minIdleConns
	}
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		return dialed(redis.NewDialer(o)(ctx, network, addr))
	}
	return o, nil
}

// ClusterOptions is like Options for a client of redis.NewClusterClient, and reads url as
// redis.ParseClusterURL does, with these differences:
//
//   - MaxRedirects stays at 3: by them the client follows slots that move. A Store's commands are not sent again
//     for another reason.
//   - MinRetryBackoff and MaxRetryBackoff -1: several commands follow a redirect at once, and not after some tens
//     of milliseconds.
//   - MinIdleConns 2 is for each node.
func ClusterOptions(url string) (*redis.ClusterOptions, error) {
	u, err := parseURL("ClusterOptions", url, "redis", "rediss")
	if err != nil {
		return nil, err
	}
	if u.Path != "" && u.Path != "/" && u.Path != "/0" {
		return nil, fmt.Errorf("redisstore: ClusterOptions: the URL must be like redis://user:password@host:port?addr=host:port, without a path: a cluster has only database 0")
	}
	o, err := redis.ParseClusterURL(url)
	if err != nil {
		return nil, u.refused(err)
	}
	if err := checkDialTimeout(u, o.DialTimeout); err != nil {
		return nil, err
	}
	o.ContextTimeoutEnabled = true
	o.DisableIdentity = true
	preset(&o.DialerRetries, 1)
	preset(&o.DialTimeout, dialTimeout)
	preset(&o.ReadTimeout, replyTimeout)
	preset(&o.WriteTimeout, replyTimeout)
	preset(&o.MaxRetries, -1)
	preset(&o.MinRetryBackoff, -1)
	preset(&o.MaxRetryBackoff, -1)
	if !u.gives("min_idle_conns") {
		o.MinIdleConns = minIdleConns
	}
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		dial := redis.NewDialer(&redis.Options{DialTimeout: o.DialTimeout, TLSConfig: o.TLSConfig})
		return dialed(dial(ctx, network, addr))
	}
	return o, nil
}

// checkDialTimeout refuses what go-redis makes of a timeout of 0, with which no dial succeeds.
func checkDialTimeout(u redisURL, timeout time.Duration) error {
	if timeout < 0 {
		return fmt.Errorf("redisstore: %s: dial_timeout must be above 0, such as %v", u.function, dialTimeout)
	}
	return nil
}

// preset sets what a URL has left open.
func preset[T comparable](option *T, value T) {
	var open T
	if *option == open {
		*option = value
	}
}
