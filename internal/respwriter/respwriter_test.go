package respwriter

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/felixge/httpsnoop"
)

var errOfFlush = errors.New("the client has left")

// capable is a writer with every optional method, which says that it was called.
type capable struct {
	http.ResponseWriter
	called string
}

func (c *capable) Flush()                   { c.called = "Flush" }
func (c *capable) FlushError() error        { c.called = "FlushError"; return errOfFlush }
func (c *capable) CloseNotify() <-chan bool { c.called = "CloseNotify"; return nil }
func (c *capable) Push(string, *http.PushOptions) error {
	c.called = "Push"
	return nil
}
func (c *capable) ReadFrom(io.Reader) (int64, error) {
	c.called = "ReadFrom"
	return 0, nil
}
func (c *capable) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c.called = "Hijack"
	return nil, nil, nil
}

// optional is what w can do beyond writing, and where a call of it ends.
func optional(w http.ResponseWriter) map[string]func() {
	can := make(map[string]func())
	if f, ok := w.(http.Flusher); ok {
		can["Flush"] = f.Flush
	}
	if f, ok := w.(interface{ FlushError() error }); ok {
		can["FlushError"] = func() { _ = f.FlushError() }
	}
	if c, ok := w.(closeNotifier); ok {
		can["CloseNotify"] = func() { c.CloseNotify() }
	}
	if h, ok := w.(http.Hijacker); ok {
		can["Hijack"] = func() { _, _, _ = h.Hijack() }
	}
	if r, ok := w.(io.ReaderFrom); ok {
		can["ReadFrom"] = func() { _, _ = r.ReadFrom(nil) }
	}
	if p, ok := w.(http.Pusher); ok {
		can["Push"] = func() { _ = p.Push("", nil) }
	}
	return can
}

func TestAWrappedWriterCanDoWhatItCouldAndNoMore(t *testing.T) {
	for set := range 16 {
		all := &capable{ResponseWriter: httptest.NewRecorder()}
		want := map[string]bool{"Flush": true, "FlushError": true}
		var c closeNotifier
		var h http.Hijacker
		var r io.ReaderFrom
		var p http.Pusher
		if set&1 != 0 {
			c, want["CloseNotify"] = all, true
		}
		if set&2 != 0 {
			h, want["Hijack"] = all, true
		}
		if set&4 != 0 {
			r, want["ReadFrom"] = all, true
		}
		if set&8 != 0 {
			p, want["Push"] = all, true
		}
		base := &flushing{all, all, func(next func() error) error { return next() }}
		some := base.with(c, h, r, p)
		flushes := 0
		wrapped := Wrap(some, httpsnoop.Hooks{}, func(next func() error) error { flushes++; return next() })
		for layer, w := range map[string]http.ResponseWriter{"with": some, "wrapWriter": wrapped} {
			can := optional(w)
			for name, call := range can {
				all.called = ""
				if call(); name == "Flush" {
					name = "FlushError"
				}
				if !want[name] || all.called != name {
					t.Errorf("set %d, %s: %s ended in %q", set, layer, name, all.called)
				}
			}
			if len(can) != len(want) {
				t.Errorf("set %d, %s: it can %d things, want %v", set, layer, len(can), want)
			}
		}
		if flushes != 2 {
			t.Errorf("set %d: %d flushes were seen, want 2", set, flushes)
		}
		if err := http.NewResponseController(wrapped).Flush(); err != errOfFlush {
			t.Errorf("set %d: the error of a flush is %v", set, err)
		}
		if wrapped.(interface{ Unwrap() http.ResponseWriter }).Unwrap() != some {
			t.Errorf("set %d: it does not unwrap to what was wrapped", set)
		}
	}
}

// A writer whose flush has no error must not be said to have one.
func TestAWrappedWriterWithoutFlushErrorHasNone(t *testing.T) {
	for name, w := range map[string]http.ResponseWriter{
		"a Flusher": httptest.NewRecorder(),
		"nothing":   struct{ http.ResponseWriter }{httptest.NewRecorder()},
	} {
		flushes := 0
		can := optional(Wrap(w, httpsnoop.Hooks{}, func(next func() error) error { flushes++; return next() }))
		if len(can) != len(optional(w)) || can["FlushError"] != nil {
			t.Errorf("%s: it can %d things, and %d before", name, len(can), len(optional(w)))
		}
		if flush := can["Flush"]; flush != nil {
			if flush(); flushes != 1 {
				t.Errorf("%s: a flush was not seen", name)
			}
		}
	}
}
