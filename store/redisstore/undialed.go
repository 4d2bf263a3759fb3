package redisstore

import (
	"fmt"
	"net"
	"syscall"
)

// An undialed is a connection that could not be made.
//
// The pool of go-redis counts dials that fail, for ever, and refuses to dial once there are PoolSize of them,
// until one that it makes once a second succeeds. So after a restart of Redis calls would fail for up to a second
// more. Of a connection that fails when it is used the pool thinks nothing, and dials again for the next.
type undialed struct {
	net.Conn // of nobody, for its addresses and deadlines
	err      error
}

// dialed returns conn, or an undialed if there is none.
func dialed(conn net.Conn, err error) (net.Conn, error) {
	if err == nil {
		return conn, nil
	}
	nobody, _ := net.Pipe()
	return undialed{nobody, fmt.Errorf("redisstore: %w", unsent{err})}, nil // go-redis unwraps it once
}

func (u undialed) Read([]byte) (int, error) { return 0, u.err }

func (u undialed) Write([]byte) (int, error) { return 0, u.err }

// SyscallConn is what the pool asks for to see whether an idle connection is alive: this one is thrown away, and
// is in no command's way.
func (u undialed) SyscallConn() (syscall.RawConn, error) { return nil, u.err }
