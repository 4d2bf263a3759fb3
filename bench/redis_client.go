package main

import (
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

// clientSettings select the options of a go-redis client.
type clientSettings int

const (
	advised  clientSettings = iota // as in the README: redisstore.Options or ClusterOptions
	defaults                       // of go-redis
)

func (s clientSettings) String() string {
	return [...]string{"a client of redisstore.Options", "a client of defaults"}[s]
}

// client returns a new client for a limiter of the deployment. Limiters do not share clients.
func (d *deployment) client() (redis.UniversalClient, error) {
	var addresses []string
	for _, s := range d.servers {
		addresses = append(addresses, s.address)
	}
	switch d.shape {
	case cluster:
		return newClusterClient(addresses, d.settings)
	case ring:
		return newRing(addresses, d.settings)
	default:
		return newClient(addresses[0], d.settings)
	}
}

func newClient(address string, settings clientSettings) (*redis.Client, error) {
	if settings == defaults {
		return redis.NewClient(&redis.Options{Addr: address}), nil
	}
	options, err := redisstore.Options("redis://" + address)
	if err != nil {
		return nil, err
	}
	return redis.NewClient(options), nil
}

func newClusterClient(addresses []string, settings clientSettings) (*redis.ClusterClient, error) {
	if settings == defaults {
		return redis.NewClusterClient(&redis.ClusterOptions{Addrs: addresses}), nil
	}
	others := ""
	if len(addresses) > 1 {
		others = "?addr=" + strings.Join(addresses[1:], "&addr=")
	}
	options, err := redisstore.ClusterOptions("redis://" + addresses[0] + others)
	if err != nil {
		return nil, err
	}
	return redis.NewClusterClient(options), nil
}

// newRing copies the values of redisstore.Options, which has no function for a Ring.
func newRing(addresses []string, settings clientSettings) (*redis.Ring, error) {
	options := &redis.RingOptions{Addrs: make(map[string]string)}
	for i, address := range addresses {
		options.Addrs[fmt.Sprintf("shard%d", i)] = address
	}
	if settings == defaults {
		return redis.NewRing(options), nil
	}
	one, err := redisstore.Options("redis://" + addresses[0])
	if err != nil {
		return nil, err
	}
	options.ContextTimeoutEnabled = one.ContextTimeoutEnabled
	options.DialTimeout, options.ReadTimeout, options.WriteTimeout = one.DialTimeout, one.ReadTimeout, one.WriteTimeout
	options.MaxRetries, options.MinRetryBackoff, options.MaxRetryBackoff = one.MaxRetries, one.MinRetryBackoff, one.MaxRetryBackoff
	options.MinIdleConns = one.MinIdleConns
	options.DisableIdentity = one.DisableIdentity
	return redis.NewRing(options), nil
}
