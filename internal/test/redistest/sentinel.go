package redistest

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
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

// StartSentinelWithReplica is like StartSentinel but gives the master a replica
// that takes over when the master is killed. It returns when the replica is in
// sync and the Sentinel process knows it.
//
// The Sentinel process considers a master dead that is silent for 500 ms. So a test that does not need a failover is
// more stable with StartSentinel.
func StartSentinelWithReplica(tb testing.TB) *Sentinel {
	tb.Helper()
	s := &Sentinel{Master: Start(tb, syncAtOnce...), tb: tb}
	host, port, err := net.SplitHostPort(s.Master.Addr())
	if err != nil {
		tb.Fatal(err)
	}
	s.Replica = Start(tb, "--replicaof", host, port)
	// Sentinel learns of replicas from the master, at once and then every 10 s.
	s.Replica.waitInSync()
	s.monitor(
		"down-after-milliseconds "+masterName+" 500",
		// A failed attempt is repeated after twice that time.
		"failover-timeout "+masterName+" 3000",
	)
	waitUntil(tb, "Sentinel knows the replica", func() bool {
		replicas := fmt.Sprint(s.sentinel.Do("SENTINEL", "REPLICAS", masterName))
		return strings.Contains(replicas, "master-link-status:ok")
	})
	return s
}

// WaitFailover waits until the Sentinel process directs clients to Replica and
// that accepts writes, after Master was killed. That takes 1 to 2 s.
func (s *Sentinel) WaitFailover() {
	s.tb.Helper()
	waitUntil(s.tb, "Replica has become the master", func() bool {
		named := s.sentinel.Do("SENTINEL", "GET-MASTER-ADDR-BY-NAME", masterName).([]any)
		if net.JoinHostPort(named[0].(string), named[1].(string)) != s.Replica.Addr() {
			return false
		}
		return s.Replica.Do("ROLE").([]any)[0] == "master"
	})
}
