package adaptertest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"

	"github.com/go-tokenbucket/ratelimit"
)

// A Context is the framework's context of a request, as handlers of the list see it. Each method does what a user of the
// framework would do. Frameworks on net/http embed [NetHTTP], and override the methods
// that they have own functions for.
type Context interface {
	// Context returns the context of the request, such as c.Request.Context().
	Context() context.Context

	// FromContext returns what FromContext of the adapter returns.
	FromContext() (*ratelimit.Decision, bool)

	// Query returns a parameter of the query.
	Query(name string) string

	// Text answers with a status and a body of text.
	Text(status int, body string) error

	// Status answers with a status and no body.
	Status(status int) error

	// Redirect answers with a 302.
	Redirect(to string) error

	// Stream answers 200 with what write writes. flush sends what was written to the client.
	Stream(write func(w io.Writer, flush func() error) error) error

	// Hijack takes over the connection, answers 101 Switching Protocols, and calls serve, perhaps later.
	Hijack(serve func(net.Conn)) error

	// Writer returns the http.ResponseWriter, nil if the framework has none.
	Writer() http.ResponseWriter
}

// NetHTTP is the Context of a request of net/http.
type NetHTTP struct {
	W http.ResponseWriter
	R *http.Request
}

var _ Context = NetHTTP{}

func (c NetHTTP) Context() context.Context { return c.R.Context() }

func (c NetHTTP) FromContext() (*ratelimit.Decision, bool) {
	return ratelimit.FromContext(c.R.Context())
}

func (c NetHTTP) Query(name string) string { return c.R.URL.Query().Get(name) }

func (c NetHTTP) Text(status int, body string) error {
	c.W.WriteHeader(status)
	_, err := io.WriteString(c.W, body)
	return err
}

func (c NetHTTP) Status(status int) error {
	c.W.WriteHeader(status)
	return nil
}

func (c NetHTTP) Redirect(to string) error {
	http.Redirect(c.W, c.R, to, http.StatusFound)
	return nil
}

func (c NetHTTP) Stream(write func(w io.Writer, flush func() error) error) error {
	return write(c.W, http.NewResponseController(c.W).Flush)
}

func (c NetHTTP) Hijack(serve func(net.Conn)) error {
	hijacker, ok := c.W.(http.Hijacker) // as libraries for WebSockets take it
	if !ok {
		return errors.New("the writer is no http.Hijacker")
	}
	conn, rw, err := hijacker.Hijack()
	if err != nil {
		return err
	}
	defer conn.Close()
	fmt.Fprint(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	if err := rw.Flush(); err != nil {
		return err
	}
	serve(conn)
	return nil
}

func (c NetHTTP) Writer() http.ResponseWriter { return c.W }
