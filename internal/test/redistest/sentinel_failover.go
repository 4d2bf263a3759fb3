package redistest

import (
	"fmt"
	"net"
	"strings"
	"testing"
)

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
