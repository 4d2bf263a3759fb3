package ratelimit

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"sync/atomic"

	"github.com/go-tokenbucket/ratelimit/internal/respwriter"
)

// A Response is how a request was answered, for Policy.Settle.
type Response struct {
	// Status is the status code that was sent, 200 if the handler chose none. It is 0 if the handler took over
	// the connection or panicked before it sent one. See Written.
	Status int

	// Written says that the handler sent Status through the http.ResponseWriter of the limiter, by writing the
	// status or the body. A flush alone does not count. If it is false, a Status of 200 is only what net/http sends for a handler
	// that writes nothing. The client may see another status: that of a framework which wrote it past that writer,
	// or which writes the error of a handler after the limiter has returned.
	Written bool

	// Bytes is how many bytes of the body the handler wrote and the server took, before compression by a
	// middleware around the limiter. What was written to a connection that was taken over is not among them,
	// and a HEAD has none.
	Bytes int64

	// Cost is what the request was charged under the policy before it was answered, in tokens.
	Cost int64

	// Hijacked says that the handler took over the connection, for WebSockets for example. The request is
	// settled when the handler returns, whatever becomes of the connection. It is false, and Status 200, where a
	// middleware around the limiter lets http.ResponseController have the connection by Unwrap alone.
	Hijacked bool

	// Panicked says that the handler did not return but panicked, also with http.ErrAbortHandler.
	Panicked bool
}

// A watched is what is seen of a response while it is written. A handler may leave goroutines behind that
// still write, so its fields are atomic.
type watched struct {
	respwriter.Base
	status   atomic.Int64
	written  atomic.Bool // the handler chose the status, or wrote a body
	bytes    atomic.Int64
	hijacked atomic.Bool
	returned bool // the handler did
}

// watch returns w, with all that it can do, seen by a.
func (a *watched) watch(w http.ResponseWriter) http.ResponseWriter {
	a.ResponseWriter = w
	return respwriter.Narrow(a)
}

func (a *watched) WriteHeader(status int) {
	a.Base.WriteHeader(status)
	a.began(status)
	a.written.CompareAndSwap(false, a.status.Load() != 0)
}

func (a *watched) Write(p []byte) (int, error) {
	n, err := a.Base.Write(p)
	a.wrote(int64(n))
	return n, err
}

func (a *watched) ReadFrom(src io.Reader) (int64, error) {
	n, err := a.Base.ReadFrom(src)
	if n > 0 { // or nothing was sent, and the handler may still choose a status
		a.wrote(n)
	}
	return n, err
}

func (a *watched) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := a.Base.Hijack()
	a.hijacked.CompareAndSwap(false, err == nil)
	return conn, rw, err
}

func (a *watched) FlushError() error {
	err := a.Base.FlushError()
	if !errors.Is(err, errors.ErrUnsupported) { // or nothing was sent, and the handler may still choose a status
		a.began(http.StatusOK)
	}
	return err
}

// began notes that the header was sent. Only the first status is, but for those that announce another, and none
// on a connection that was taken over before.
func (a *watched) began(status int) {
	if !a.hijacked.Load() && (status >= 200 || status == http.StatusSwitchingProtocols) {
		a.status.CompareAndSwap(0, int64(status))
	}
}

func (a *watched) wrote(n int64) {
	a.began(http.StatusOK)
	a.written.CompareAndSwap(false, a.status.Load() != 0)
	a.bytes.Add(n)
}

// response returns what was seen of the answer to r, once its handler has ended.
func (a *watched) response(r *http.Request) Response {
	status := int(a.status.Load())
	response := Response{
		Status:   status,
		Written:  a.written.Load(),
		Bytes:    a.bytes.Load(),
		Hijacked: a.hijacked.Load(),
		Panicked: !a.returned,
	}
	if r.Method == http.MethodHead {
		response.Bytes = 0
	}
	if response.Status == 0 && !response.Hijacked && !response.Panicked {
		response.Status = http.StatusOK
	}
	return response
}
