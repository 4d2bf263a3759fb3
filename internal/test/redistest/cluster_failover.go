package redistest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// StartClusterWithReplicas is like StartCluster but gives each master a replica
// that takes over when the master is killed. It returns when the replicas are in
// sync, too.
//
// A majority of the masters must agree to a failover, so there is none with
// fewer than 3.
func StartClusterWithReplicas(tb testing.TB, masters int) *Cluster {
	tb.Helper()
	c := &Cluster{tb: tb}
	// Nodes consider a node dead that is silent for the node timeout, 15 s by default. With less than 1 s, they also
	// do so with a live node on a busy machine.
	options := append([]string{"--cluster-node-timeout", "1000"}, syncAtOnce...)
	c.addMasters(masters, options...)
	for _, master := range c.Nodes {
		replica := c.join(options...)
		id := nodeID(master)
		waitUntil(tb, fmt.Sprintf("cluster node %s knows %s", replica.Addr(), master.Addr()), func() bool {
			return strings.Contains(nodesKnownTo(replica), id)
		})
		replica.Do("CLUSTER", "REPLICATE", id)
		c.Replicas = append(c.Replicas, replica)
	}
	for _, replica := range c.Replicas {
		replica.waitInSync()
	}
	c.waitComplete()
	return c
}

// WaitFailover waits until the replica of Nodes[i], which was killed, has taken its place. All running nodes then
// know this, and consider the cluster complete. That takes Redis about 3 s.
//
// A killed master that is restarted after that becomes the replica of the new master.
func (c *Cluster) WaitFailover(i int) {
	c.tb.Helper()
	id := nodeID(c.Replicas[i])
	for _, node := range c.running() {
		waitUntil(c.tb, fmt.Sprintf("cluster node %s knows of the failover", node.Addr()), func() bool {
			return takesForMaster(node, id) && takesForComplete(node)
		})
	}
}

// takesForMaster reports whether node takes the one called id for a master.
func takesForMaster(node *Server, id string) bool {
	for line := range strings.Lines(nodesKnownTo(node)) {
		const idField, flagsField = 0, 2
		fields := strings.Fields(line)
		if fields[idField] == id {
			return slices.Contains(strings.Split(fields[flagsField], ","), "master")
		}
	}
	return false
}

// nodesKnownTo returns a line for each node that node knows, itself included.
func nodesKnownTo(node *Server) string {
	return fmt.Sprint(node.Do("CLUSTER", "NODES"))
}

func nodeID(node *Server) string {
	return fmt.Sprint(node.Do("CLUSTER", "MYID"))
}

// syncAtOnce are options of a master that would otherwise let the first replica
// wait 5 s for others to come.
var syncAtOnce = []string{"--repl-diskless-sync-delay", "0"}

// waitInSync waits until the server has the data of its master.
func (s *Server) waitInSync() {
	s.tb.Helper()
	waitUntil(s.tb, fmt.Sprintf("replica %s is in sync", s.addr), func() bool {
		return strings.Contains(fmt.Sprint(s.Do("INFO", "replication")), "master_link_status:up")
	})
}
