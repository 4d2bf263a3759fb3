// Package respwriter wraps the writer of a response without hiding what it can do.
package respwriter

import (
	"io"
	"net/http"

	"github.com/felixge/httpsnoop"
)

// Wrap is httpsnoop.Wrap for writers whose flush may fail. flush is called for each flush of the writer, and
// calls next to make it. The error goes to http.ResponseController, so that a stream ends when its client has left.
//
// Version 1.0.4 of httpsnoop hides FlushError behind its Flush, which has no error. Version 1.1 has it among so many
// combinations of methods that programs become 3 MB larger.
func Wrap(w http.ResponseWriter, hooks httpsnoop.Hooks, flush func(next func() error) error) http.ResponseWriter {
	hooks.Flush = func(next httpsnoop.FlushFunc) httpsnoop.FlushFunc {
		return func() { _ = flush(func() error { next(); return nil }) }
	}
	wrapped := httpsnoop.Wrap(w, hooks)
	inner, ok := w.(errorFlusher)
	if !ok {
		return wrapped // a controller flushes as it would without us
	}
	f := &flushing{wrapped, inner, flush}
	c, _ := wrapped.(closeNotifier)
	h, _ := wrapped.(http.Hijacker)
	r, _ := wrapped.(io.ReaderFrom)
	p, _ := wrapped.(http.Pusher)
	return f.with(c, h, r, p)
}

// An errorFlusher is a writer that can be flushed, and reports whether it was.
type errorFlusher interface {
	http.Flusher
	FlushError() error
}

// A closeNotifier is a http.CloseNotifier, which is deprecated, but which handlers may still look for.
type closeNotifier interface{ CloseNotify() <-chan bool }

// A flushing is a wrapped writer without its optional methods, and with FlushError.
type flushing struct {
	http.ResponseWriter
	inner errorFlusher
	flush func(next func() error) error
}

func (f *flushing) Unwrap() http.ResponseWriter { return f.inner.(http.ResponseWriter) }

func (f *flushing) FlushError() error { return f.flush(f.inner.FlushError) }

func (f *flushing) Flush() { _ = f.FlushError() }

// with returns f with those of the optional methods that are not nil, and no others: handlers look for them.
func (f *flushing) with(c closeNotifier, h http.Hijacker, r io.ReaderFrom, p http.Pusher) http.ResponseWriter {
	const closes, hijacks, reads, pushes = 1, 2, 4, 8
	can := 0
	if c != nil {
		can |= closes
	}
	if h != nil {
		can |= hijacks
	}
	if r != nil {
		can |= reads
	}
	if p != nil {
		can |= pushes
	}
	switch can {
	case closes:
		return struct {
			*flushing
			closeNotifier
		}{f, c}
	case hijacks:
		return struct {
			*flushing
			http.Hijacker
		}{f, h}
	case closes | hijacks:
		return struct {
			*flushing
			closeNotifier
			http.Hijacker
		}{f, c, h}
	case reads:
		return struct {
			*flushing
			io.ReaderFrom
		}{f, r}
	case closes | reads:
		return struct {
			*flushing
			closeNotifier
			io.ReaderFrom
		}{f, c, r}
	case hijacks | reads:
		return struct {
			*flushing
			http.Hijacker
			io.ReaderFrom
		}{f, h, r}
	case closes | hijacks | reads:
		return struct {
			*flushing
			closeNotifier
			http.Hijacker
			io.ReaderFrom
		}{f, c, h, r}
	case pushes:
		return struct {
			*flushing
			http.Pusher
		}{f, p}
	case closes | pushes:
		return struct {
			*flushing
			closeNotifier
			http.Pusher
		}{f, c, p}
	case hijacks | pushes:
		return struct {
			*flushing
			http.Hijacker
			http.Pusher
		}{f, h, p}
	case closes | hijacks | pushes:
		return struct {
			*flushing
			closeNotifier
			http.Hijacker
			http.Pusher
		}{f, c, h, p}
	case reads | pushes:
		return struct {
			*flushing
			io.ReaderFrom
			http.Pusher
		}{f, r, p}
	case closes | reads | pushes:
		return struct {
			*flushing
			closeNotifier
			io.ReaderFrom
			http.Pusher
		}{f, c, r, p}
	case hijacks | reads | pushes:
		return struct {
			*flushing
			http.Hijacker
			io.ReaderFrom
			http.Pusher
		}{f, h, r, p}
	case closes | hijacks | reads | pushes:
		return struct {
			*flushing
			closeNotifier
			http.Hijacker
			io.ReaderFrom
			http.Pusher
		}{f, c, h, r, p}
	}
	return f
}
