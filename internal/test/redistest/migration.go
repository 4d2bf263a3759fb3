package redistest

import "net"

// migrationChunk is how many keys Finish moves at a time. The source serves no client meanwhile.
const migrationChunk = 100

// Migration is the move of a slot from its master to another one. It is open from StartMigration to Finish. Meanwhile
// the source serves the keys that it still has, and answers ASK for other keys. Both servers answer TRYAGAIN to
// commands on several keys of which they have only some.
type Migration struct {
	cluster  *Cluster
	slot     int
	source   *Server
	target   *Server
	targetID string
}

// StartMigration starts to move slot to Nodes[to], but no keys yet. Until the
// Finish of the migration, all Nodes must run and be masters.
func (c *Cluster) StartMigration(slot, to int) *Migration {
	c.tb.Helper()
	m := &Migration{cluster: c, slot: slot, source: c.Nodes[c.Owner(slot)], target: c.Nodes[to]}
	m.targetID = nodeID(m.target)
	// In this order: an ASK must not lead to a target that does not import yet.
	m.target.Do("CLUSTER", "SETSLOT", slot, "IMPORTING", nodeID(m.source))
	m.source.Do("CLUSTER", "SETSLOT", slot, "MIGRATING", m.targetID)
	return m
}

// MoveKeys moves up to n keys of the slot and returns how many. After it returns 0, new keys are created at the
// target only.
func (m *Migration) MoveKeys(n int) int {
	m.cluster.tb.Helper()
	keys := m.source.Do("CLUSTER", "GETKEYSINSLOT", m.slot, n).([]any)
	if len(keys) == 0 {
		return 0
	}
	host, port, err := net.SplitHostPort(m.target.Addr())
	if err != nil {
		m.cluster.tb.Fatal(err)
	}
	args := []any{"MIGRATE", host, port, "", 0, waitTimeout.Milliseconds(), "KEYS"}
	m.source.Do(append(args, keys...)...)
	return len(keys)
}

// Finish moves the remaining keys and makes the target the owner of the slot. All masters know this when it returns;
// replicas learn of it later.
func (m *Migration) Finish() {
	m.cluster.tb.Helper()
	for m.MoveKeys(migrationChunk) > 0 {
	}
	m.setOwner(m.target)
	m.setOwner(m.source)
	for _, node := range m.cluster.Nodes {
		if node != m.target && node != m.source {
			m.setOwner(node)
		}
	}
}

// setOwner announces the target as the owner of the slot to node. The target must be told first, because the source
// redirects clients to it as soon as it has given the slot up.
func (m *Migration) setOwner(node *Server) {
	m.cluster.tb.Helper()
	node.Do("CLUSTER", "SETSLOT", m.slot, "NODE", m.targetID)
}
