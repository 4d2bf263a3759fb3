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

// Options returns client options that suit a [Store], for redis.NewClient. It reads url like redis.ParseURL.
// Options that url does not set get the values listed under "Client options" in the package comment. An empty
// parameter of url counts as not set, and so does max_retries=0. The error says what to change and never contains
// the password.
//
// For redis.NewFailoverClient, copy the values to its options, which have the same names.
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

// ClusterOptions is [Options] for redis.NewClusterClient. It reads url like redis.ParseClusterURL. "Client options"
// in the package comment lists the differences.
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

// checkDialTimeout refuses a timeout of 0. go-redis would turn it into one with which no dial succeeds.
func checkDialTimeout(u redisURL, timeout time.Duration) error {
	if timeout < 0 {
		return fmt.Errorf("redisstore: %s: dial_timeout must be above 0, such as %v", u.function, dialTimeout)
	}
	return nil
}

// preset sets an option that the URL leaves open.
func preset[T comparable](option *T, value T) {
	var open T
	if *option == open {
		*option = value
	}
}
