package redistest

import (
	"context"
	"fmt"
	"net"
	"slices"

	"github.com/redis/go-redis/v9"
)

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
