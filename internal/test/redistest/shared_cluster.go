package redistest

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
)

// SharedCluster is [StartCluster] for a test that leaves the cluster as it was. All tests of a program with the same
// number of masters use one cluster, one after another. So they wait only once for the start, which takes 2 s. Each
// test gets the cluster without keys, scripts and statistics.
//
// A test that kills, pauses or configures a node, or moves a slot, needs StartCluster. If it calls SharedCluster, it
// fails, and the next test gets a new cluster. A test fails, too, if it calls SharedCluster while another uses that
// cluster.
//
// TestMain must run the tests by [Sharing].
func SharedCluster(tb testing.TB, masters int) *Cluster {
	tb.Helper()
	return shared.lend(tb, masters)
}

// Sharing returns the tests of m. After them it stops the clusters of [SharedCluster]. Pass it to
// goleak.VerifyTestMain.
func Sharing(m *testing.M) interface{ Run() int } { return sharing{m, &shared} }

type sharing struct {
	tests interface{ Run() int }
	*pool
}

func (s sharing) Run() int {
	defer s.end()
	return s.tests.Run()
}

var shared pool

// A pool is the clusters that tests share, by number of masters.
type pool struct {
	mu       sync.Mutex
	clusters map[int]*sharedCluster
}

// A sharedCluster is a cluster that outlives the tests that use it.
type sharedCluster struct {
	*Cluster
	starter *starter
	state   []string // of each node, since the start
	lent    bool
}

func (p *pool) lend(tb testing.TB, masters int) *Cluster {
	tb.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.clusters[masters]
	if s == nil {
		if p.clusters == nil {
			p.clusters = make(map[int]*sharedCluster)
		}
		s = startShared(tb, masters)
		p.clusters[masters] = s
	}
	if s.lent {
		tb.Fatalf("another test uses the shared cluster with %d masters: start one with StartCluster", masters)
	}
	s.lent = true
	lent := s.of(tb)
	tb.Cleanup(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		s.lent = false
		if fault := s.fault(lent); fault != "" {
			delete(p.clusters, masters)
			s.starter.end()
			tb.Errorf("the test left the shared cluster changed: %s", fault)
		}
	})
	for _, node := range lent.Nodes {
		node.Do("FLUSHALL")
		node.Do("SCRIPT", "FLUSH")
		node.Do("CONFIG", "RESETSTAT")
	}
	return lent
}

func (p *pool) end() {
	for _, s := range p.clusters {
		s.starter.end()
	}
	clear(p.clusters)
}

// startShared starts a cluster. If the start fails, it leaves nothing behind.
func startShared(tb testing.TB, masters int) *sharedCluster {
	tb.Helper()
	s := &sharedCluster{starter: &starter{TB: tb}}
	defer func() {
		if !s.starter.done {
			s.starter.end()
		}
	}()
	s.Cluster = StartCluster(s.starter, masters)
	for _, node := range s.of(tb).Nodes {
		s.state = append(s.state, stateOf(node))
	}
	s.starter.done = true
	return s
}

// of returns the cluster as if tb had started it: tb fails if a command fails, and closes the clients.
func (s *sharedCluster) of(tb testing.TB) *Cluster {
	c := &Cluster{tb: tb}
	for _, node := range s.Nodes {
		c.Nodes = append(c.Nodes, &Server{tb: tb, path: node.path, args: node.args, addr: node.addr, process: node.process})
	}
	return c
}

// fault returns what a test has changed in the cluster, or "".
func (s *sharedCluster) fault(lent *Cluster) string {
	for i, node := range lent.Nodes {
		switch {
		case !s.Nodes[i].process.runs():
			return fmt.Sprintf("node %s was killed", node.addr)
		case !takesForComplete(node):
			return fmt.Sprintf("node %s does not have cluster_state:ok", node.addr)
		case stateOf(node) != s.state[i]:
			return fmt.Sprintf("node %s has other slots or another configuration", node.addr)
		}
	}
	return ""
}

// stateOf returns the slots that node owns or moves, and its configuration.
func stateOf(node *Server) string {
	for line := range strings.Lines(nodesKnownTo(node)) {
		const flagsField, slotsField = 2, 8
		fields := strings.Fields(line)
		if slices.Contains(strings.Split(fields[flagsField], ","), "myself") {
			return fmt.Sprint(fields[slotsField:], node.Do("CONFIG", "GET", "*"))
		}
	}
	node.tb.Fatalf("node %s does not know itself", node.addr)
	return ""
}

// A starter replaces the test for servers that outlive it.
type starter struct {
	testing.TB
	cleanups []func()
	done     bool
}

func (s *starter) Cleanup(f func()) { s.cleanups = append(s.cleanups, f) }

// Failed is true only while the servers start, because the test cannot log their output after its end.
func (s *starter) Failed() bool { return !s.done && s.TB.Failed() }

func (s *starter) TempDir() string {
	dir, err := os.MkdirTemp("", "redistest")
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func (s *starter) end() {
	for _, f := range slices.Backward(s.cleanups) {
		f()
	}
	s.cleanups = nil
}
