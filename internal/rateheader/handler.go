package rateheader

import (
	"bufio"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"

	"github.com/go-tokenbucket/ratelimit/internal/respwriter"
)

// Handler wraps next and merges the rate limit headers that next adds with those that are already set. It is
// headers.Merge.
func Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		outer := Take(w.Header())
		if outer == nil {
			next.ServeHTTP(w, r)
			return
		}
		m := &merger{Base: respwriter.Base{ResponseWriter: w}, outer: outer}
		defer m.merge()
		next.ServeHTTP(respwriter.Narrow(m), r)
	})
}

// A merger merges headers at the time when the header of the response is written.
type merger struct {
	respwriter.Base
	outer    http.Header // the headers set before; after a hijack, the merged ones
	merged   bool
	hijacked bool
}

func (m *merger) merge() {
	if !m.merged {
		m.merged = true
		Merge(m.Base.Header(), m.outer)
	}
}

func (m *merger) Header() http.Header {
	if m.hijacked {
		m.mergeAgain()
	}
	return m.Base.Header()
}

func (m *merger) WriteHeader(status int) {
	if status >= 200 || status == http.StatusSwitchingProtocols {
		m.merge()
	}
	m.Base.WriteHeader(status)
}

func (m *merger) Write(p []byte) (int, error) {
	m.merge()
	return m.Base.Write(p)
}

func (m *merger) ReadFrom(src io.Reader) (int64, error) {
	m.merge()
	return m.Base.ReadFrom(src)
}

func (m *merger) FlushError() error {
	m.merge()
	return m.Base.FlushError()
}

func (m *merger) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := m.Base.Hijack()
	if err == nil {
		m.keepHijacked()
	}
	return conn, rw, err
}

// keepHijacked merges when next has taken over the connection and may write the header itself, as a ReverseProxy does
// to switch protocols. It has added its own headers before, and calls Header once more to write them.
func (m *merger) keepHijacked() {
	m.merge()
	m.hijacked = true
	m.keep()
}

// mergeAgain merges headers that were added after keepHijacked.
func (m *merger) mergeAgain() {
	h := m.Base.Header()
	for name, values := range Take(h) {
		if before := m.outer[name]; len(values) >= len(before) && slices.Equal(values[:len(before)], before) {
			values = values[len(before):]
		}
		if len(values) > 0 {
			h[name] = values
		}
	}
	Merge(h, m.outer)
	m.keep()
}

// keep leaves the merged headers in the header, and remembers them.
func (m *merger) keep() {
	h := m.Base.Header()
	m.outer = Take(h)
	maps.Copy(h, m.outer)
}
