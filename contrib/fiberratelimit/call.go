package fiberratelimit

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"

	"github.com/gofiber/fiber/v3"

	"github.com/go-tokenbucket/ratelimit"
)

// A call is one request on its way through a limiter. It is the limiter's response writer, and the context of the
// request that key functions get.
type call struct {
	context.Context // of Fiber, before the limiter

	request http.Request
	url     url.URL
	values  [10]string  // room for the header of request
	header  http.Header // of the response
	before  []string    // names of what Fiber had in the response when header was made
	room    [48]byte    // for a line of it

	errors bool
	passed bool  // the limiter let the request through
	wrote  bool  // the limiter has answered
	err    error // to return to Fiber

	wrapConn func(net.Conn) net.Conn // nil if the request holds no slot

	mu     sync.Mutex
	c      fiber.Ctx // nil after the handler has returned
	locals bool      // Value reads the values of c
}

type callKey struct{}

// Value returns a value of Fiber's context. Until the limiter has decided, it also finds the Locals of Fiber, where
// middleware keeps identities. Later it must not read them, because a goroutine of a handler may still use this context.
// Handlers write Locals without a lock, and Fiber reuses c for another request.
func (x *call) Value(key any) any {
	if key == (callKey{}) {
		return x
	}
	if v := x.Context.Value(key); v != nil {
		return v
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.locals {
		return nil
	}
	return x.c.Value(key)
}

// decided passes the decision on, and ends the use of Locals.
func (x *call) decided(r *http.Request) {
	x.c.SetContext(r.Context())
	x.mu.Lock()
	x.locals = false
	x.mu.Unlock()
}

// headers holds empty headers for responses. As in net/http, nobody may use one after the handler has returned.
var headers = sync.Pool{New: func() any { return make(http.Header) }}

func (x *call) end() {
	if x.header != nil {
		clear(x.header)
		headers.Put(x.header)
		x.header = nil
	}
	x.mu.Lock()
	x.locals, x.c = false, nil
	x.mu.Unlock()
}

// Header returns the header of the response, with what Fiber's handlers have set before.
func (x *call) Header() http.Header {
	if x.header != nil {
		return x.header
	}
	x.header = headers.Get().(http.Header)
	for name, value := range x.c.Response().Header.All() {
		if !isManaged(name) {
			x.before = append(x.before, string(name))
			x.header.Add(string(name), string(value))
		}
	}
	return x.header
}

// isManaged reports whether Fiber keeps a header apart, and may return a default for it. They can be written, but not
// read.
func isManaged(name []byte) bool {
	switch string(name) {
	case "Content-Type", "Content-Length", "Content-Encoding", "Connection", "Server", "Trailer":
		return true
	}
	return false
}

// flush replaces the header of Fiber's response.
func (x *call) flush() {
	to := &x.c.Response().Header
	for _, name := range x.before {
		to.Del(name)
	}
	for name, values := range x.header {
		if name == "Content-Length" { // of the body, but a HEAD has none
			if n, err := strconv.Atoi(x.header.Get(name)); err == nil && x.request.Method == http.MethodHead {
				to.SetContentLength(n)
			}
			continue
		}
		for i, value := range values {
			value = oneLine(value)
			if i > 0 && name != "Set-Cookie" { // SetCanonical adds a Set-Cookie
				to.Add(name, value)
				continue
			}
			line := append(append(x.room[:0], name...), value...) // conversions would be allocations
			to.SetCanonical(line[:len(name)], line[len(name):])
		}
	}
}

// oneLine replaces line breaks, as net/http does when it writes a header. fasthttp would write them.
func oneLine(value string) string {
	if strings.IndexByte(value, '\n') < 0 && strings.IndexByte(value, '\r') < 0 {
		return value
	}
	return strings.NewReplacer("\n", " ", "\r", " ").Replace(value)
}

// WriteHeader writes the status and the header of a refusal.
func (x *call) WriteHeader(status int) {
	if x.wrote || status < 200 && status != http.StatusSwitchingProtocols {
		return
	}
	x.wrote = true
	x.flush()
	x.c.Response().ResetBody()
	x.c.Status(status)
}

// Write writes to the body of a refusal.
func (x *call) Write(p []byte) (int, error) {
	x.WriteHeader(http.StatusOK)
	if response := x.c.Response(); len(response.Body()) == 0 && x.header.Get("Content-Type") == "" {
		response.Header.SetContentType(http.DetectContentType(p))
	}
	return x.c.Write(p)
}

// Refuse keeps a refusal for Fiber's error handling, if that was asked for.
func (x *call) Refuse(r *http.Request, status int, err error) bool {
	x.decided(r)
	if x.errors {
		x.flush()
		x.err = &refusal{fiber.NewError(status), err}
	}
	return x.errors
}

// A refusal is an error for Fiber. Its text never has that of the reason.
type refusal struct {
	status *fiber.Error
	reason error // nil for a 429
}

func (r *refusal) Error() string { return r.status.Error() }

func (r *refusal) Unwrap() []error {
	if r.reason == nil {
		return []error{r.status}
	}
	return []error{r.status, r.reason}
}

// WrapConn implements a part of [ratelimit.Responder].
func (x *call) WrapConn(wrap func(net.Conn) net.Conn) { x.wrapConn = wrap }

// keepSlot keeps the slot after the handler has returned. fasthttp writes a stream later, and serves a connection that a
// handler has taken over. It closes user values after that. It closes none if the timeout middleware has answered.
func (x *call) keepSlot() {
	ctx := x.c.RequestCtx()
	if x.wrapConn != nil && (x.c.Response().IsBodyStream() || ctx.Hijacked()) && !x.c.IsAbandoned() && ctx.LastTimeoutErrorResponse() == nil {
		ctx.SetUserValue(x, x.wrapConn(noConn{}))
	}
}

// A noConn stands for the connection, which fasthttp does not give away.
type noConn struct{ net.Conn }

func (noConn) Close() error { return nil }

// Response returns how Fiber answered, for the Settle of a policy. An error that a handler has returned is handled now,
// as Fiber's Logger does, because only its ErrorHandler knows the status. It is not returned again: handling an
// error twice would write two bodies.
func (x *call) Response() ratelimit.Response {
	if x.c.IsAbandoned() {
		// The timeout middleware has answered, and the handler may still write to the response.
		return ratelimit.Response{Status: http.StatusRequestTimeout, Written: true}
	}
	if err := x.err; err != nil {
		x.err = nil
		if x.c.App().ErrorHandler(x.c, err) != nil {
			_ = x.c.SendStatus(http.StatusInternalServerError) // always nil, and what Fiber does then
		}
	}
	sent := x.c.Response()
	response := ratelimit.Response{Status: sent.StatusCode(), Hijacked: x.c.RequestCtx().Hijacked()}
	if !sent.IsBodyStream() { // Body would read all of a stream
		response.Bytes = int64(len(sent.Body()))
	}
	response.Written = response.Status != http.StatusOK || response.Bytes > 0 || sent.IsBodyStream()
	return response
}
