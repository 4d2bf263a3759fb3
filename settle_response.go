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

// A Response describes how a request was answered, for [Policy.Settle].
type Response struct {
	// Status is the status code that was sent, 200 if the handler chose none. It is 0 if the handler took
	// over the connection, or panicked, before it sent one. See Written.
	Status int

	// Written reports whether the handler wrote a status or a body to the limiter's http.ResponseWriter.
	// A flush does not count. If Written is false, a Status of 200 is only the default of net/http. The
	// client may then see another one, which a framework wrote past that writer or later.
	Written bool

	// Bytes is the number of bytes of the body that the handler wrote and the server accepted, before
	// compression by middleware around the limiter. Bytes written to a connection that was taken over do
	// not count. For a HEAD it is 0.
	Bytes int64

	// Cost is the number of tokens that the request was charged under the policy before it was answered.
	Cost int64

	// Hijacked reports whether the handler took over the connection, for example for WebSockets. The
	// request is settled when the handler returns. If middleware around the limiter gives the connection
	// to http.ResponseController only by Unwrap, Hijacked is false and Status is 200.
	Hijacked bool

	// Panicked reports whether the handler panicked, also with http.ErrAbortHandler.
	Panicked bool
}

// A responseRecorder records a response while it is written. Its fields are atomic because goroutines of a handler may still
// write after it has returned.
type responseRecorder struct {
	respwriter.Base
	status   atomic.Int64
	written  atomic.Bool // the handler wrote a status or a body
	bytes    atomic.Int64
	hijacked atomic.Bool
}

// wrap returns a writer that records in a, and that supports what w supports.
func (a *responseRecorder) wrap(w http.ResponseWriter) http.ResponseWriter {
	a.ResponseWriter = w
	return respwriter.Narrow(a)
}

func (a *responseRecorder) WriteHeader(status int) {
	a.Base.WriteHeader(status)
	a.recordHeader(status)
	a.written.CompareAndSwap(false, a.status.Load() != 0)
}

func (a *responseRecorder) Write(p []byte) (int, error) {
	n, err := a.Base.Write(p)
	a.recordBody(int64(n))
	return n, err
}

func (a *responseRecorder) ReadFrom(src io.Reader) (int64, error) {
	n, err := a.Base.ReadFrom(src)
	if n > 0 { // otherwise nothing was sent, and the handler may still choose a status
		a.recordBody(n)
	}
	return n, err
}

func (a *responseRecorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := a.Base.Hijack()
	a.hijacked.CompareAndSwap(false, err == nil)
	return conn, rw, err
}

func (a *responseRecorder) FlushError() error {
	err := a.Base.FlushError()
	if !errors.Is(err, errors.ErrUnsupported) { // otherwise nothing was sent, and the handler may still choose a status
		a.recordHeader(http.StatusOK)
	}
	return err
}

// recordHeader records that the header was sent. Only the first final status is sent, and none on a connection that was taken
// over before.
func (a *responseRecorder) recordHeader(status int) {
	if !a.hijacked.Load() && (status >= 200 || status == http.StatusSwitchingProtocols) {
		a.status.CompareAndSwap(0, int64(status))
	}
}

func (a *responseRecorder) recordBody(n int64) {
	a.recordHeader(http.StatusOK)
	a.written.CompareAndSwap(false, a.status.Load() != 0)
	a.bytes.Add(n)
}

// Response returns what a has recorded.
func (a *responseRecorder) Response() Response {
	return Response{
		Status:   int(a.status.Load()),
		Written:  a.written.Load(),
		Bytes:    a.bytes.Load(),
		Hijacked: a.hijacked.Load(),
	}
}

// complete adds what is not known from writes: whether the handler of r panicked, and what net/http does then.
func (response *Response) complete(r *http.Request, panicked bool) {
	response.Panicked = panicked
	if r.Method == http.MethodHead {
		response.Bytes = 0
	}
	if response.Status == 0 && !response.Hijacked && !panicked {
		response.Status = http.StatusOK
	}
}
