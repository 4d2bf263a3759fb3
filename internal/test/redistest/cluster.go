package redistest

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

const slotCount = 16384

// Cluster is a Redis Cluster.
type Cluster struct {
	// Nodes are the masters, in the order of the slots they own at first.
	Nodes []*Server

	// Replicas holds the replica of each master, in the order of Nodes. It is
	// empty in a cluster without replicas.
	Replicas []*Server

	tb testing.TB
}

// StartCluster runs a cluster of at least one master without replicas. The slots are spread evenly over the masters.
// It returns when every node considers the cluster complete, which takes Redis about 2 s. See Start for the end of
// the nodes, and for a machine without redis-server.
func StartCluster(tb testing.TB, masters int) *Cluster {
	tb.Helper()
	c := &Cluster{tb: tb}
	c.addMasters(masters)
	c.waitComplete()
	return c
}

// addMasters starts masters with args, and spreads the slots over them.
func (c *Cluster) addMasters(masters int, args ...string) {
	c.tb.Helper()
	for i := range masters {
		node := c.join(args...)
		first, next := slotCount*i/masters, slotCount*(i+1)/masters
		slots := []any{"CLUSTER", "ADDSLOTS"} // ADDSLOTSRANGE needs Redis 7
		for slot := first; slot < next; slot++ {
			slots = append(slots, slot)
		}
		node.Do(slots...)
		c.Nodes = append(c.Nodes, node)
	}
}

// join starts a node that meets all others but is not in a list of c yet.
func (c *Cluster) join(args ...string) *Server {
	c.tb.Helper()
	node := Start(c.tb, append([]string{"--cluster-enabled", "yes"}, args...)...)
	// Nodes with equal epochs change them some time later. If the source of a migration does so shortly before its end,
	// the target may take the source for the owner of the slot again.
	node.Do("CLUSTER", "SET-CONFIG-EPOCH", len(c.all())+1)
	// Nodes would also learn of each other by gossip, but that can take 10 s.
	for _, other := range c.all() {
		host, port, err := net.SplitHostPort(other.Addr())
		if err != nil {
			c.tb.Fatal(err)
		}
		node.Do("CLUSTER", "MEET", host, port)
	}
	return node
}

// waitComplete waits until all nodes consider the cluster complete at once, and know no node twice. While two nodes meet each
// other, they may know one twice, and a test was then answered CLUSTERDOWN.
func (c *Cluster) waitComplete() {
	c.tb.Helper()
	known := fmt.Sprintf("cluster_known_nodes:%d\r", len(c.all()))
	waitUntil(c.tb, "all nodes of the cluster have cluster_state:ok", func() bool {
		return !slices.ContainsFunc(c.all(), func(node *Server) bool {
			info := fmt.Sprint(node.Do("CLUSTER", "INFO"))
			return !strings.Contains(info, complete) || !strings.Contains(info, known)
		})
	})
}

const complete = "cluster_state:ok"

func takesForComplete(node *Server) bool {
	return strings.Contains(fmt.Sprint(node.Do("CLUSTER", "INFO")), complete)
}

// all returns the masters and then the replicas.
func (c *Cluster) all() []*Server {
	return slices.Concat(c.Nodes, c.Replicas)
}

// running returns the nodes that were not killed, at least one.
func (c *Cluster) running() []*Server {
	c.tb.Helper()
	nodes := slices.DeleteFunc(c.all(), func(node *Server) bool { return !node.process.runs() })
	if len(nodes) == 0 {
		c.tb.Fatal("all nodes of the cluster were killed")
	}
	return nodes
}

// Addrs returns the host:port of every node: of the masters, in the order of
// Nodes, and then of the replicas.
func (c *Cluster) Addrs() []string {
	nodes := c.all()
	addrs := make([]string, len(nodes))
	for i, node := range nodes {
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

// RefusesSeveralSlots reports whether the first of Nodes, which must own all slots, refuses a command on keys of
// several slots. Redis does; KeyDB does not. If it does not, this is logged.
func (c *Cluster) RefusesSeveralSlots() bool {
	c.tb.Helper()
	client := redis.NewClient(&redis.Options{Addr: c.Nodes[0].Addr()})
	defer client.Close()
	err := client.MGet(context.Background(), "a", "b").Err()
	if err == nil {
		c.tb.Log("this server takes keys of several slots")
		return false
	}
	if !redis.HasErrorPrefix(err, "CROSSSLOT") {
		c.tb.Fatalf("cluster node %s: MGET: %v", c.Nodes[0].Addr(), err)
	}
	return true
}

// Slot returns the hash slot of key.
func (c *Cluster) Slot(key string) int {
	c.tb.Helper()
	return int(c.running()[0].Do("CLUSTER", "KEYSLOT", key).(int64))
}

// Owner returns the index in Nodes of the master that owns slot. It fails the
// test if that is a former replica.
func (c *Cluster) Owner(slot int) int {
	c.tb.Helper()
	for _, entry := range c.running()[0].Do("CLUSTER", "SLOTS").([]any) {
		// A range of slots has its first and last slot, its master and the replicas.
		slots := entry.([]any)
		if int64(slot) < slots[0].(int64) || int64(slot) > slots[1].(int64) {
			continue
		}
		master := slots[2].([]any)
		addr := net.JoinHostPort(fmt.Sprint(master[0]), fmt.Sprint(master[1]))
		i := slices.IndexFunc(c.Nodes, func(node *Server) bool { return node.Addr() == addr })
		if i < 0 {
			c.tb.Fatalf("slot %d is owned by %s, which is none of Nodes", slot, addr)
		}
		return i
	}
	c.tb.Fatalf("slot %d has no owner", slot)
	return -1
}
