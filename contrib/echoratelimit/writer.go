package echoratelimit

import (
	"bufio"
	"errors"
	"net"
	"net/http"
)

// An answer is the writer of handlers. It records the response.
type answer struct {
	http.ResponseWriter
	status   int
	bytes    int64
	written  bool // a status or a body
	hijacked bool
	complete bool                    // further writes are dropped
	wrapConn func(net.Conn) net.Conn // for a connection that is taken over; nil if the request holds no slot
}

func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

func (a *answer) began(status int) {
	if a.status == 0 && !a.hijacked && (status >= 200 || status == http.StatusSwitchingProtocols) {
		a.status = status
	}
}

func (a *answer) WriteHeader(status int) {
	a.ResponseWriter.WriteHeader(status)
	a.began(status)
	a.written = a.status != 0
}

func (a *answer) Write(p []byte) (int, error) {
	if a.complete {
		return len(p), nil
	}
	n, err := a.ResponseWriter.Write(p)
	a.began(http.StatusOK)
	a.written = a.status != 0
	a.bytes += int64(n)
	return n, err
}

// Flush implements [http.Flusher].
func (a *answer) Flush() { _ = a.FlushError() }

func (a *answer) FlushError() error {
	err := http.NewResponseController(a.ResponseWriter).Flush()
	if !errors.Is(err, http.ErrNotSupported) {
		a.began(http.StatusOK)
	}
	return err
}

// Hijack implements [http.Hijacker].
func (a *answer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(a.ResponseWriter).Hijack()
	if err == nil {
		a.hijacked = true
		if a.wrapConn != nil {
			conn = a.wrapConn(conn)
		}
	}
	return conn, rw, err
}
