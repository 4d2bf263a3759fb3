package redistest

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

const slotCount = 16384

// Cluster is a Redis Cluster of masters without replicas.
type Cluster struct {
	// Nodes are the masters, in the order of the slots they own.
	Nodes []*Server

	tb testing.TB
}

// StartCluster runs a cluster of at least one master, with the slots spread
// evenly over the masters, and returns when every node takes the cluster for
// complete. That takes Redis about 2 s. See Start for how the nodes end and for
// what happens without a redis-server.
func StartCluster(tb testing.TB, masters int) *Cluster {
	tb.Helper()
	c := &Cluster{tb: tb}
	for i := range masters {
		node := Start(tb, "--cluster-enabled", "yes")
		first, next := slotCount*i/masters, slotCount*(i+1)/masters
		node.Do("CLUSTER", "ADDSLOTSRANGE", first, next-1)
		// Nodes would also hear of each other by gossip, but that can take 10 s.
		for _, other := range c.Nodes {
			host, port, err := net.SplitHostPort(other.Addr())
			if err != nil {
				tb.Fatal(err)
			}
			node.Do("CLUSTER", "MEET", host, port)
		}
		c.Nodes = append(c.Nodes, node)
	}
	for _, node := range c.Nodes {
		waitUntil(tb, fmt.Sprintf("cluster node %s has cluster_state:ok", node.Addr()), func() bool {
			info := node.Do("CLUSTER", "INFO")
			return strings.Contains(fmt.Sprint(info), "cluster_state:ok")
		})
	}
	return c
}

// Addrs returns the host:port of every node, in the order of Nodes.
func (c *Cluster) Addrs() []string {
	addrs := make([]string, len(c.Nodes))
	for i, node := range c.Nodes {
		addrs[i] = node.Addr()
	}
	return addrs
}

// Client returns a new cluster client with the default options of go-redis that
// knows all nodes. It is closed when the test ends.
func (c *Cluster) Client() *redis.ClusterClient {
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs()})
	closeOnCleanup(c.tb, client)
	return client
}
