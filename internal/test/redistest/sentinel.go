package redistest

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/redis/go-redis/v9"
)

const masterName = "primary"

// Sentinel is a master and one Sentinel process that monitors it.
type Sentinel struct {
	// Master is the server that the Sentinel process directs clients to at
	// first.
	Master *Server

	// Replica is the server that takes over when Master is killed, or nil.
	Replica *Server

	tb       testing.TB
	sentinel *Server
}

// StartSentinel runs a master without replicas, and a Sentinel process that monitors it under the name "primary" with
// a quorum of 1. See Start for the end of both, and for a machine without redis-server.
func StartSentinel(tb testing.TB) *Sentinel {
	tb.Helper()
	s := &Sentinel{Master: Start(tb), tb: tb}
	s.monitor()
	return s
}

// monitor starts the Sentinel process. Each of options is a line of its
// configuration without "sentinel" in front.
func (s *Sentinel) monitor(options ...string) {
	s.tb.Helper()
	host, port, err := net.SplitHostPort(s.Master.Addr())
	if err != nil {
		s.tb.Fatal(err)
	}
	config := fmt.Sprintf("sentinel monitor %s %s %s 1\n", masterName, host, port)
	for _, option := range options {
		config += fmt.Sprintf("sentinel %s\n", option)
	}
	// Sentinel keeps its state in its configuration file and refuses to start
	// without one.
	path := filepath.Join(s.tb.TempDir(), "sentinel.conf")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		s.tb.Fatal(err)
	}
	s.sentinel = start(s.tb, []string{path, "--sentinel"})
}

// Client returns a new failover client with the default options of go-redis. It
// asks the Sentinel process for the master and is closed when the test ends.
func (s *Sentinel) Client() *redis.Client {
	client := redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName:    masterName,
		SentinelAddrs: []string{s.sentinel.Addr()},
	})
	closeOnCleanup(s.tb, client)
	return client
}
