package redisstore

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"
)

// A server is one that keeps buckets, and a key there that is nobody's.
type server struct {
	name   string // its address, if there may be several
	client Client
	key    string
}

// An inventory is the servers of a client, and what is wrong with the client's view of them.
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
		found.findings = nil // if there is no shard left, the same is said of each
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

// locate returns the servers that keys go to. It looks for them as the engine does, by the keys, because to list
// the masters of a cluster takes a server that answers.
func locate(ctx context.Context, key func(int) string, of func(key string) (*redis.Client, error)) (found inventory) {
	const attempts = 1 << 12 // of which one with a hundredth of the keys gets about 40
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
