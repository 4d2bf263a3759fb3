package rateheader

import (
	"bufio"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"

	"github.com/felixge/httpsnoop"

	"github.com/go-tokenbucket/ratelimit/internal/respwriter"
)

// Handler wraps next, which adds rate limit headers to those that are set already. They become one set. It is
// headers.Merge.
func Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		outer := Take(w.Header())
		if outer == nil {
			next.ServeHTTP(w, r)
			return
		}
		m := &merger{header: w.Header, outer: outer}
		defer m.merge()
		next.ServeHTTP(m.wrap(w), r)
	})
}

// A merger merges headers at the moment when a response's header is written.
type merger struct {
	header   func() http.Header
	outer    http.Header // what was set before; once it is hijacked, what was merged
	merged   bool
	hijacked bool
}

func (m *merger) merge() {
	if !m.merged {
		m.merged = true
		Merge(m.header(), m.outer)
	}
}

func (m *merger) wrap(w http.ResponseWriter) http.ResponseWriter {
	return respwriter.Wrap(w, httpsnoop.Hooks{
		Header: func(header httpsnoop.HeaderFunc) httpsnoop.HeaderFunc {
			return func() http.Header {
				if m.hijacked {
					m.mergeAgain()
				}
				return header()
			}
		},
		WriteHeader: func(writeHeader httpsnoop.WriteHeaderFunc) httpsnoop.WriteHeaderFunc {
			return func(code int) {
				if code >= 200 || code == http.StatusSwitchingProtocols {
					m.merge()
				}
				writeHeader(code)
			}
		},
		Write: func(write httpsnoop.WriteFunc) httpsnoop.WriteFunc {
			return func(b []byte) (int, error) { m.merge(); return write(b) }
		},
		ReadFrom: func(readFrom httpsnoop.ReadFromFunc) httpsnoop.ReadFromFunc {
			return func(src io.Reader) (int64, error) { m.merge(); return readFrom(src) }
		},
		Hijack: func(hijack httpsnoop.HijackFunc) httpsnoop.HijackFunc {
			return func() (net.Conn, *bufio.ReadWriter, error) {
				conn, rw, err := hijack()
				if err == nil {
					m.hijack()
				}
				return conn, rw, err
			}
		},
	}, func(flush func() error) error { m.merge(); return flush() })
}

// hijack merges when next has taken the connection over and may write the header itself, as a ReverseProxy does
// when it switches protocols. It adds its own before, and asks for the header once more to write it.
func (m *merger) hijack() {
	m.merge()
	m.hijacked = true
	m.keep()
}

// mergeAgain merges what was added since hijack.
func (m *merger) mergeAgain() {
	h := m.header()
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

// keep leaves in the header what was merged, and remembers it.
func (m *merger) keep() {
	h := m.header()
	m.outer = Take(h)
	maps.Copy(h, m.outer)
}
