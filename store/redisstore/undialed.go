package redisstore

import (
	"fmt"
	"net"
	"syscall"
)

// An undialed is a connection that could not be made.
//
// The pool of go-redis counts failed dials. After PoolSize of them it refuses to dial, until a dial succeeds, which
// it tries once a second. So after a restart of Redis, calls would fail for up to a second longer. A connection that
// fails when it is used is not counted, and the pool dials again for the next command.
type undialed struct {
	net.Conn // an unused connection, for its addresses and deadlines
	err      error
}

// dialed returns conn, or an undialed if err is set.
func dialed(conn net.Conn, err error) (net.Conn, error) {
	if err == nil {
		return conn, nil
	}
	nobody, _ := net.Pipe()
	return undialed{nobody, fmt.Errorf("redisstore: %w", unsent{err})}, nil // go-redis unwraps it once
}

func (u undialed) Read([]byte) (int, error) { return 0, u.err }

func (u undialed) Write([]byte) (int, error) { return 0, u.err }

// SyscallConn returns the error, so that the pool discards this connection when it checks whether an idle connection
// is alive.
func (u undialed) SyscallConn() (syscall.RawConn, error) { return nil, u.err }
