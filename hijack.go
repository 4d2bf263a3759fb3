package ratelimit

import (
	"bufio"
	"net"
	"net/http"
	"sync"

	"github.com/go-tokenbucket/ratelimit/internal/respwriter"
)

// watch returns w for a handler that may take over the connection, which then holds the slots until it is closed.
func (h *heldSlots) watch(w http.ResponseWriter) http.ResponseWriter {
	switch adapter := w.(type) {
	case connWrapper:
		adapter.WrapConn(h.wrap)
		return w
	case Responder:
		return w
	}
	if !respwriter.Hijacks(w) {
		return w
	}
	return respwriter.Narrow(&slotWriter{respwriter.Base{ResponseWriter: w}, h})
}

// A connWrapper is a Responder of a framework whose handlers can take over the connection. It gives them what wrap returns.
type connWrapper interface {
	Responder
	WrapConn(wrap func(net.Conn) net.Conn)
}

// A slotWriter is the writer of a request that holds slots.
type slotWriter struct {
	respwriter.Base
	held *heldSlots
}

func (w *slotWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := w.Base.Hijack()
	if err == nil {
		conn = w.held.wrap(conn)
	}
	return conn, rw, err
}

// wrap returns conn as a user of the slots until it is closed.
func (h *heldSlots) wrap(conn net.Conn) net.Conn {
	if !h.join() {
		return conn
	}
	if h.request != nil { // its router may use it for another one before the connection is closed
		h.request, h.route = nil, h.l.routeOf(h.request)
	}
	c := &slotConn{Conn: conn, held: h}
	if half, ok := conn.(writeCloser); ok {
		return struct {
			*slotConn
			writeCloser
		}{c, half}
	}
	return c
}

// A writeCloser is a connection that can be closed for writing alone.
type writeCloser interface{ CloseWrite() error }

// A slotConn is a connection that holds the slots of its request.
type slotConn struct {
	net.Conn
	held  *heldSlots
	close sync.Once
}

// NetConn returns the connection of the server, as that of a tls.Conn does.
func (c *slotConn) NetConn() net.Conn { return c.Conn }

func (c *slotConn) Close() error {
	defer c.close.Do(c.held.done)
	return c.Conn.Close()
}
