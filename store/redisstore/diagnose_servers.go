package redisstore

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"
)

// A server keeps buckets. key is a key on it that no bucket uses.
type server struct {
	name   string // its address, if the client may have several servers
	client Client
	key    string
}

// An inventory is the servers of a client, and the problems of the client's view of them.
type inventory struct {
	servers  []server
	findings []string
}

func (e *engine) inventory(ctx context.Context) inventory {
	policy := rand.Text()
	key := func(i int) string { return fmt.Sprintf("%s:{check-%d}:%s", e.keys.prefix, i, policy) }
	switch {
	case e.routes.cluster != nil:
		return locate(ctx, key, func(key string) (*redis.Client, error) { return e.routes.cluster.MasterForKey(ctx, key) })
	case e.routes.ring != nil:
		found := locate(ctx, key, e.routes.ring.GetShardClientForKey)
		found.findings = nil // without a shard, each would have the same finding
		for name, addr := range e.routes.ring.Options().Addrs {
			if !slices.ContainsFunc(found.servers, func(s server) bool { return s.name == addr }) {
				found.findings = append(found.findings, fmt.Sprintf("The shard %q of the ring, at %s, does not answer, and the ring has given its keys to others: start it, or take it out of RingOptions.Addrs.", name, addr))
			}
		}
		slices.Sort(found.findings)
		return found
	default:
		return inventory{servers: []server{{client: e.client, key: key(0)}}}
	}
}

// locate returns the servers that keep keys. It finds them by key, as the engine does, because a list of the masters
// needs a server that answers.
func locate(ctx context.Context, key func(int) string, of func(key string) (*redis.Client, error)) (found inventory) {
	const attempts = 1 << 12 // a server with a hundredth of the keys gets about 40
	located := make(map[string]bool)
	for i := range attempts {
		client, err := of(key(i))
		if err != nil {
			return inventory{findings: []string{explain(ctx, err)}}
		}
		if addr := client.Options().Addr; !located[addr] {
			located[addr] = true
			found.servers = append(found.servers, server{name: addr, client: client, key: key(i)})
		}
	}
	slices.SortFunc(found.servers, func(a, b server) int { return cmp.Compare(a.name, b.name) })
	return found
}
