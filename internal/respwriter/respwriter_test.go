package respwriter_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-tokenbucket/ratelimit/internal/respwriter"
)

var errOfFlush = errors.New("the client has left")

// A log has the names of the methods that were called.
type log struct{ called string }

type (
	plain     struct{ http.ResponseWriter }
	flushes   struct{ *log }
	reports   struct{ *log }
	hijacks   struct{ *log }
	notifies  struct{ *log }
	readsFrom struct{ *log }
	pushes    struct{ *log }
)

func (l flushes) Flush()                    { l.called += "Flush " }
func (l reports) Flush()                    { l.called += "Flush " }
func (l reports) FlushError() error         { l.called += "FlushError "; return errOfFlush }
func (l notifies) CloseNotify() <-chan bool { l.called += "CloseNotify "; return nil }
func (l pushes) Push(string, *http.PushOptions) error {
	l.called += "Push "
	return nil
}
func (l readsFrom) ReadFrom(io.Reader) (int64, error) {
	l.called += "ReadFrom "
	return 7, nil
}
func (l hijacks) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	l.called += "Hijack "
	return nil, nil, nil
}

// writers returns a writer for each set of methods that handlers look for, by what is expected of its wrapper.
func writers(l *log, w http.ResponseWriter) map[string]http.ResponseWriter {
	p, f, e, h, n := plain{w}, flushes{l}, reports{l}, hijacks{l}, notifies{l}
	return map[string]http.ResponseWriter{
		"": p,
		"Hijack ": struct {
			plain
			hijacks
		}{p, h},
		"CloseNotify ": struct {
			plain
			notifies
		}{p, n},
		"Hijack CloseNotify ": struct {
			plain
			hijacks
			notifies
		}{p, h, n},
		"Flush ": struct {
			plain
			flushes
		}{p, f},
		"Flush Hijack ": struct {
			plain
			flushes
			hijacks
		}{p, f, h},
		"Flush CloseNotify ": struct {
			plain
			flushes
			notifies
		}{p, f, n},
		"Flush Hijack CloseNotify ": struct {
			plain
			flushes
			hijacks
			notifies
		}{p, f, h, n},
		"Flush FlushError ": struct {
			plain
			reports
		}{p, e},
		"Flush FlushError Hijack ": struct {
			plain
			reports
			hijacks
		}{p, e, h},
		"Flush FlushError CloseNotify ": struct {
			plain
			reports
			notifies
		}{p, e, n},
		"Flush FlushError Hijack CloseNotify ": struct {
			plain
			reports
			hijacks
			notifies
		}{p, e, h, n},
	}
}

// A seen wrapper counts the flushes.
type seen struct {
	respwriter.Base
	flushes int
}

func (s *seen) FlushError() error {
	s.flushes++
	return s.Base.FlushError()
}

func TestAWrappedWriterCanDoWhatItCouldAndNoMore(t *testing.T) {
	l := new(log)
	for want, inner := range writers(l, httptest.NewRecorder()) {
		s := &seen{Base: respwriter.Base{ResponseWriter: inner}}
		w := respwriter.Narrow(s)
		can, flushes := "", 0
		if f, ok := w.(http.Flusher); ok {
			can, flushes = can+"Flush ", flushes+1
			f.Flush()
		}
		if f, ok := w.(interface{ FlushError() error }); ok {
			can, flushes = can+"FlushError ", flushes+1
			if err := f.FlushError(); err != errOfFlush {
				t.Errorf("%q: the error of a flush is %v", want, err)
			}
			if err := http.NewResponseController(w).Flush(); err != errOfFlush {
				t.Errorf("%q: the error of a controller's flush is %v", want, err)
			}
			flushes++
		}
		if h, ok := w.(http.Hijacker); ok {
			can += "Hijack "
			l.called = ""
			if _, _, err := h.Hijack(); err != nil || l.called != "Hijack " {
				t.Errorf("%q: Hijack ended in %q, %v", want, l.called, err)
			}
		}
		//lint:ignore SA1019 handlers may still look for it
		if n, ok := w.(http.CloseNotifier); ok {
			can += "CloseNotify "
			l.called = ""
			if n.CloseNotify(); l.called != "CloseNotify " {
				t.Errorf("%q: CloseNotify ended in %q", want, l.called)
			}
		}
		if can != want || s.flushes != flushes {
			t.Errorf("it can %q, want %q; %d of %d flushes were seen", can, want, s.flushes, flushes)
		}
		if w.(interface{ Unwrap() http.ResponseWriter }).Unwrap() != inner {
			t.Errorf("%q: it does not unwrap to what was wrapped", want)
		}
	}
}

func TestReadFromAndPushAreAlwaysThere(t *testing.T) {
	l, body := new(log), httptest.NewRecorder()
	without := respwriter.Narrow(respwriter.Base{ResponseWriter: plain{body}})
	if n, err := without.(io.ReaderFrom).ReadFrom(strings.NewReader("hello")); n != 5 || err != nil || body.Body.String() != "hello" {
		t.Errorf("ReadFrom copied %d bytes, %v: %q", n, err, body.Body)
	}
	if err := without.(http.Pusher).Push("/a", nil); err != http.ErrNotSupported {
		t.Errorf("Push: %v, want http.ErrNotSupported", err)
	}
	with := respwriter.Narrow(respwriter.Base{ResponseWriter: struct {
		plain
		readsFrom
		pushes
	}{plain{body}, readsFrom{l}, pushes{l}}})
	if n, _ := with.(io.ReaderFrom).ReadFrom(nil); n != 7 || with.(http.Pusher).Push("/a", nil) != nil || l.called != "ReadFrom Push " {
		t.Errorf("ReadFrom returned %d; called: %s", n, l.called)
	}
}
