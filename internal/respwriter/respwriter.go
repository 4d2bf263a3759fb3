// Package respwriter wraps the writer of a response. The wrapper has exactly the optional methods that the wrapped
// writer has.
//
// A wrapper embeds [Base], overrides the methods that it needs, and is passed to [Narrow].
package respwriter

import (
	"bufio"
	"io"
	"net"
	"net/http"
)

// A Writer is a response writer with every optional method.
type Writer interface {
	http.ResponseWriter
	io.ReaderFrom
	http.Pusher
	http.Hijacker
	closeNotifier
	FlushError() error
	Unwrap() http.ResponseWriter
}

// A closeNotifier is a http.CloseNotifier. It is deprecated, but handlers may still use it.
type closeNotifier interface{ CloseNotify() <-chan bool }

// An errorFlusher is a writer with a flush that can return an error.
type errorFlusher interface {
	http.Flusher
	FlushError() error
}

// A Base is a Writer that passes all calls on. CloseNotify and FlushError panic if the wrapped writer lacks
// them: see Narrow.
type Base struct{ http.ResponseWriter }

var _ Writer = Base{}

// Unwrap returns the wrapped writer, for http.ResponseController.
func (b Base) Unwrap() http.ResponseWriter { return b.ResponseWriter }

// ReadFrom copies src. If the wrapped writer is no io.ReaderFrom, it copies as io.Copy does then.
func (b Base) ReadFrom(src io.Reader) (int64, error) {
	if r, ok := b.ResponseWriter.(io.ReaderFrom); ok {
		return r.ReadFrom(src)
	}
	return io.Copy(struct{ io.Writer }{b.ResponseWriter}, src)
}

// Push fails with http.ErrNotSupported if the wrapped writer is no http.Pusher.
func (b Base) Push(target string, opts *http.PushOptions) error {
	if p, ok := b.ResponseWriter.(http.Pusher); ok {
		return p.Push(target, opts)
	}
	return http.ErrNotSupported
}

// Hijack implements http.Hijacker. It fails with http.ErrNotSupported if the wrapped writer cannot, see Hijacks.
func (b Base) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return http.NewResponseController(b.ResponseWriter).Hijack()
}

// Hijacks reports whether http.ResponseController can take over the connection of w.
func Hijacks(w http.ResponseWriter) bool {
	for {
		switch t := w.(type) {
		case http.Hijacker:
			return true
		case interface{ Unwrap() http.ResponseWriter }:
			w = t.Unwrap()
		default:
			return false
		}
	}
}

// CloseNotify implements http.CloseNotifier.
func (b Base) CloseNotify() <-chan bool { return b.ResponseWriter.(closeNotifier).CloseNotify() }

// FlushError flushes. The error is nil if the wrapped writer has only Flush.
func (b Base) FlushError() error {
	if f, ok := b.ResponseWriter.(errorFlusher); ok {
		return f.FlushError()
	}
	b.ResponseWriter.(http.Flusher).Flush()
	return nil
}

// Narrow returns w with only those of the methods Flush, FlushError, Hijack and CloseNotify that the wrapped writer
// has. Handlers look for these methods, and behave differently without them. ReadFrom and Push are always present,
// because a handler loses nothing when it calls them without effect.
func Narrow(w Writer) http.ResponseWriter {
	inner, c := w.Unwrap(), &core{w}
	hijacks := Hijacks(inner) // also if only Unwrap leads to it, so that the wrapper notices
	_, notifies := inner.(closeNotifier)
	_, flushes := inner.(http.Flusher)
	_, reports := inner.(errorFlusher)
	switch {
	case reports:
		return c.flushingErrors(hijacks, notifies)
	case flushes:
		return c.flushing(hijacks, notifies)
	case hijacks && notifies:
		return struct {
			*core
			http.Hijacker
			closeNotifier
		}{c, w, w}
	case hijacks:
		return struct {
			*core
			http.Hijacker
		}{c, w}
	case notifies:
		return struct {
			*core
			closeNotifier
		}{c, w}
	}
	return c
}

// A core is a Writer without the methods that handlers look for.
type core struct{ w Writer }

func (c *core) Header() http.Header                            { return c.w.Header() }
func (c *core) WriteHeader(status int)                         { c.w.WriteHeader(status) }
func (c *core) Write(p []byte) (int, error)                    { return c.w.Write(p) }
func (c *core) ReadFrom(src io.Reader) (int64, error)          { return c.w.ReadFrom(src) }
func (c *core) Push(path string, opts *http.PushOptions) error { return c.w.Push(path, opts) }
func (c *core) Unwrap() http.ResponseWriter                    { return c.w.Unwrap() }

// A flusher flushes without an error.
type flusher struct{ w Writer }

func (f flusher) Flush() { _ = f.w.FlushError() }

func (c *core) flushing(hijacks, notifies bool) http.ResponseWriter {
	f := flusher{c.w}
	switch {
	case hijacks && notifies:
		return struct {
			*core
			flusher
			http.Hijacker
			closeNotifier
		}{c, f, c.w, c.w}
	case hijacks:
		return struct {
			*core
			flusher
			http.Hijacker
		}{c, f, c.w}
	case notifies:
		return struct {
			*core
			flusher
			closeNotifier
		}{c, f, c.w}
	}
	return struct {
		*core
		flusher
	}{c, f}
}

// A reporter flushes and returns the error. http.ResponseController passes the error on, so that a stream ends when
// its client has left.
type reporter struct{ flusher }

func (r reporter) FlushError() error { return r.w.FlushError() }

func (c *core) flushingErrors(hijacks, notifies bool) http.ResponseWriter {
	r := reporter{flusher{c.w}}
	switch {
	case hijacks && notifies:
		return struct {
			*core
			reporter
			http.Hijacker
			closeNotifier
		}{c, r, c.w, c.w}
	case hijacks:
		return struct {
			*core
			reporter
			http.Hijacker
		}{c, r, c.w}
	case notifies:
		return struct {
			*core
			reporter
			closeNotifier
		}{c, r, c.w}
	}
	return struct {
		*core
		reporter
	}{c, r}
}
