package redistest

import (
	"fmt"
	"strings"
)

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
