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

// Sentinel is a master without replicas and one Sentinel process that monitors
// it.
type Sentinel struct {
	// Master is the server that the Sentinel process directs clients to.
	Master *Server

	tb       testing.TB
	sentinel *Server
}

// StartSentinel runs a master and a Sentinel process that monitors it under the
// name "primary" with a quorum of 1. See Start for how both end and for what
// happens without a redis-server.
func StartSentinel(tb testing.TB) *Sentinel {
	tb.Helper()
	master := Start(tb)
	host, port, err := net.SplitHostPort(master.Addr())
	if err != nil {
		tb.Fatal(err)
	}
	// Sentinel keeps its state in its configuration file and refuses to start
	// without one.
	config := filepath.Join(tb.TempDir(), "sentinel.conf")
	monitor := fmt.Sprintf("sentinel monitor %s %s %s 1\n", masterName, host, port)
	if err := os.WriteFile(config, []byte(monitor), 0o600); err != nil {
		tb.Fatal(err)
	}
	return &Sentinel{
		Master:   master,
		tb:       tb,
		sentinel: start(tb, []string{config, "--sentinel"}),
	}
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
