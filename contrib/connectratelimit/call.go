package connectratelimit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"sync/atomic"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/denial"
)

// A call is what a limiter decides about: a unary call, a stream or a message. It is the [ratelimit.Responder] of the
// limiter, which is a response writer. It is also the context of the request that key functions get, and the connection
// for the handler of a stream.
type call struct {
	context.Context              // of the call outside of this limiter
	connect.StreamingHandlerConn // of a stream

	unary    connect.UnaryFunc
	request  connect.AnyRequest
	response connect.AnyResponse
	stream   connect.StreamingHandlerFunc
	inside   context.Context // without unary and stream: the context of an allowed call
	err      error
	returned bool // the handler returned
	late     bool // a message, whose stream may have sent its header

	protocol string
	header   http.Header // of the limiter
	shared   http.Header // of the response, with the headers of interceptors outside; nil: out of reach
	shadowed bool        // the response has headers of limiters outside that are out of reach

	sent  atomic.Int64 // bytes of a stream
	began atomic.Bool  // the handler of a stream has sent something

	http http.Request
	url  url.URL
}

var _ ratelimit.Responder = (*call)(nil)

// decide makes the request for key functions, and lets h decide about c.
func (c *call) decide(h http.Handler, spec connect.Spec, peer connect.Peer, header http.Header) {
	c.protocol = peer.Protocol
	c.url.Path = spec.Procedure
	c.url.RawQuery = peer.Query.Encode()
	c.http = *new(http.Request).WithContext(c)
	r := &c.http
	r.Method, r.URL, r.Header, r.Body = http.MethodPost, &c.url, header, http.NoBody
	if c.request != nil {
		r.Method = c.request.HTTPMethod()
	}
	r.RequestURI, r.Pattern, r.RemoteAddr = spec.Procedure, spec.Procedure, peer.Addr
	if host := header["Host"]; len(host) == 1 { // Connect has put it there
		r.Host = host[0]
	}
	h.ServeHTTP(c, r)
}

// proceed is what is inside of every limiter. It passes a call on.
func proceed(w http.ResponseWriter, r *http.Request) {
	c := w.(*call)
	if c.shared != nil && !c.shadowed {
		maps.Copy(c.shared, c.header)
	}
	switch ctx := r.Context(); {
	case c.unary != nil:
		if c.response, c.err = c.unary(ctx, c.request); c.response != nil {
			for name := range c.response.Header() {
				if _, both := c.header[name]; both {
					delete(c.shared, name) // Connect would send both
				}
			}
		}
	case c.stream != nil:
		c.err = c.stream(ctx, c)
	default:
		c.inside = ctx
	}
	c.returned = true
}

type callKey struct{}

func (c *call) Value(key any) any {
	if key == (callKey{}) {
		return c
	}
	return c.Context.Value(key)
}

func (c *call) String() string { return "connectratelimit.Context" }

// Format prints String for each verb. Otherwise they print the request with its credentials.
func (c *call) Format(f fmt.State, _ rune) { io.WriteString(f, c.String()) }

// Header returns a header for the limiter. It is that of the response, or a new one if that has fields already: a denial
// moves what the limiter has set to an error.
func (c *call) Header() http.Header {
	if c.header != nil {
		return c.header
	}
	if outer, ok := c.Context.Value(callKey{}).(*call); ok {
		c.shadowed = outer.shadowed || c.late && outer.stream != nil
	} else if d, limited := ratelimit.FromContext(c.Context); limited {
		for range d.Quotas() {
			c.shadowed = true
		}
	}
	if c.unary != nil {
		if info, ok := connect.CallInfoForHandlerContext(c.Context); ok {
			c.shared = info.ResponseHeader()
		}
	} else if c.stream != nil {
		c.shared = c.ResponseHeader()
		c.shadowed = c.shadowed && c.protocol != connect.ProtocolConnect // there it is that of net/http
	}
	c.header = c.shared
	if c.shadowed || len(c.shared) > 0 || c.shared == nil {
		c.header = make(http.Header, 8)
	}
	return c.header
}

func (c *call) WriteHeader(int)             {}
func (c *call) Write(b []byte) (int, error) { return len(b), nil }

// Refuse implements [ratelimit.Responder]. The client gets a fixed text, never err.
func (c *call) Refuse(r *http.Request, status int, _ error) bool {
	if c.Err() != nil {
		c.err = connect.NewError(codeOf(c.Err()), c.Err())
		return true
	}
	rpc := denial.RPCOf(r, status, c.header)
	refusal := connect.NewError(connect.Code(rpc.Code), errors.New(rpc.Message))
	if rpc.Policies != nil {
		var violated errdetails.QuotaFailure
		for _, name := range rpc.Policies {
			violated.Violations = append(violated.Violations, &errdetails.QuotaFailure_Violation{Subject: "policy:" + name, QuotaId: name, Description: rpc.Message})
		}
		addDetail(refusal, &violated)
	}
	if rpc.RetryAfter != ratelimit.Never {
		addDetail(refusal, &errdetails.RetryInfo{RetryDelay: durationpb.New(rpc.RetryAfter)})
	}
	meta := refusal.Meta()
	for name, values := range c.header {
		delete(c.shared, name)
		if !c.shadowed || name == "Retry-After" {
			meta[name] = values
		}
	}
	if c.protocol == connect.ProtocolConnect {
		meta["Cache-Control"] = []string{"no-store"}
	} else {
		delete(meta, "Cache-Control")
		meta["Grpc-Retry-Pushback-Ms"] = []string{rpc.Pushback()}
	}
	c.err = refusal
	return true
}

func addDetail(to *connect.Error, message proto.Message) {
	if detail, err := connect.NewErrorDetail(message); err == nil {
		to.AddDetail(detail)
	}
}

// Send implements [connect.StreamingHandlerConn].
func (c *call) Send(message any) error {
	c.began.Store(true)
	err := c.StreamingHandlerConn.Send(message)
	if err == nil {
		c.sent.Add(size(message))
	}
	return err
}

// Response implements [ratelimit.Responder]. What passed a gate, and a message, has no response: it was not written.
func (c *call) Response() ratelimit.Response {
	response := ratelimit.Response{Bytes: c.sent.Load()}
	switch {
	case c.unary == nil && c.stream == nil:
	case c.returned:
		response.Status, response.Written = httpStatus(c.err), true
		if connect.IsNotModifiedError(c.err) && c.http.Method == http.MethodGet {
			response.Status = http.StatusNotModified
		}
		if c.response != nil {
			response.Bytes = size(c.response.Any())
		}
	case c.began.Load():
		response.Status, response.Written = http.StatusOK, true
	}
	return response
}

// codeOf returns the code that Connect sends for err.
func codeOf(err error) connect.Code {
	var coded *connect.Error
	switch {
	case errors.As(err, &coded):
	case errors.Is(err, context.Canceled):
		return connect.CodeCanceled
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return connect.CodeDeadlineExceeded
	}
	return connect.CodeOf(err)
}

// httpStatus returns the status that stands for err in google/rpc/code.proto.
func httpStatus(err error) int {
	if err == nil {
		return http.StatusOK
	}
	return denial.RPCStatus(uint32(codeOf(err)))
}

// size returns the size of a message without compression, 0 for messages of another codec than proto.
func size(message any) int64 {
	m, ok := message.(proto.Message)
	if !ok {
		return 0
	}
	return int64(proto.Size(m))
}
