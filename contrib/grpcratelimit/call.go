package grpcratelimit

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"net/textproto"
	"net/url"
	"strings"
	"sync"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/denial"
)

// A call is what a limiter decides about: a call, a stream or a message. It is the [ratelimit.Responder] of the limiter,
// which is a response writer, and the context of the request that key functions get.
type call struct {
	context.Context // of the call outside of this limiter

	request  http.Request
	url      url.URL
	header   http.Header
	err      error
	returned bool // the handler returned

	scope *scope
	own   scope
}

// A scope is what all limiters of a call or stream share: the metadata to send.
type scope struct {
	mu     sync.Mutex
	header http.Header
	denied bool

	tried, sent bool // with the header of the response
}

type scopeKey struct{}

// join makes c a part of the scope of ctx, or the first one of a new scope.
func (c *call) join(ctx context.Context) {
	c.Context = ctx
	if c.scope, _ = ctx.Value(scopeKey{}).(*scope); c.scope == nil {
		c.scope = &c.own
	}
}

func (c *call) Value(key any) any {
	if key == (scopeKey{}) {
		return c.scope
	}
	return c.Context.Value(key)
}

func (c *call) String() string { return "grpcratelimit.Context" }

// Format prints String for each verb. Otherwise %v prints the request with its credentials.
func (c *call) Format(f fmt.State, _ rune) { io.WriteString(f, c.String()) }

// begin makes the request for key functions.
func (c *call) begin(ctx context.Context, method, pattern string) {
	c.join(ctx)
	c.url.Path = method
	c.request = *new(http.Request).WithContext(c)
	r := &c.request
	r.Method, r.URL, r.RequestURI, r.Pattern = http.MethodPost, &c.url, method, pattern
	r.Proto, r.ProtoMajor, r.Body = "HTTP/2.0", 2, http.NoBody
	r.Header, r.Host = headerOf(ctx)
	if p, ok := peer.FromContext(ctx); ok {
		r.RemoteAddr = text(p.Addr)
		switch info := p.AuthInfo.(type) { // not by an if, which would put the large info on the heap in any case
		case credentials.TLSInfo:
			r.TLS = &info.State
		}
	}
}

// headerOf returns the metadata of a call as headers, and its authority.
func headerOf(ctx context.Context) (h http.Header, host string) {
	md, _ := metadata.FromIncomingContext(ctx)
	h = make(http.Header, len(md))
	for name, values := range md {
		header, ok := canonical(name)
		switch {
		case len(values) == 0:
		case ok:
			h[header] = values
		case name == ":authority":
			host = values[0]
		}
	}
	return h, host
}

func text(addr net.Addr) string {
	switch addr := addr.(type) {
	case nil:
		return ""
	case *net.TCPAddr:
		at := addr.AddrPort()
		return netip.AddrPortFrom(at.Addr().Unmap(), at.Port()).String()
	default:
		return addr.String()
	}
}

// pattern returns the route of a stream. A stream of an [grpc.UnknownServiceHandler] has any name that the client likes.
func pattern(server any, info *grpc.StreamServerInfo) string {
	if server == nil {
		return "unmatched"
	}
	return info.FullMethod
}

func (c *call) Header() http.Header {
	if c.header == nil {
		c.header = make(http.Header, 8)
	}
	return c.header
}

func (c *call) WriteHeader(int)             {}
func (c *call) Write(b []byte) (int, error) { return len(b), nil }

// announce adds the headers of the limiter to what will be sent.
func (c *call) announce() { c.scope.add(c.header, false) }

func (s *scope) add(h http.Header, denied bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.denied = s.denied || denied
	if s.header == nil {
		s.header = h
	} else {
		maps.Copy(s.header, h)
	}
}

// A sender sends metadata. A [grpc.ServerStream] is one.
type sender interface {
	SetHeader(metadata.MD) error
	SetTrailer(metadata.MD)
}

// finish sends the metadata when the outermost limiter is left.
//
// With an error it is all in the trailer. The retry policy of a client acts only on a response that has nothing else,
// and the first header would make it two parts. So headers are not set before it is known that there is no error, or
// before the first message.
func (c *call) finish(to sender) {
	s := c.scope
	if s != &c.own {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	ok := c.returned && c.err == nil
	if ok {
		s.setHeader(to)
	}
	if !s.sent || !ok && s.denied {
		to.SetTrailer(s.metadata(!ok))
	}
}

// began sends the metadata with the header of a stream, before anything else is sent.
func (s *scope) began(to sender) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.setHeader(to)
}

func (s *scope) setHeader(to sender) {
	if !s.tried {
		s.tried = true
		s.sent = to.SetHeader(s.metadata(false)) == nil // fails if the handler has sent the header
	}
}

// metadata returns the headers under the names of metadata. Without a refusal it leaves out when to retry. A message may
// be denied before a stream has sent its header, or an interceptor between two limiters may replace the error.
func (s *scope) metadata(refusal bool) metadata.MD {
	md := make(metadata.MD, len(s.header))
	for _, n := range usual {
		if values, ok := s.header[n.header]; ok {
			md[n.metadata] = values
		}
	}
	if len(md) == len(s.header) {
		return md // without a loop over a map and ToLower, which are slow
	}
	for name, values := range s.header {
		if name != "Cache-Control" && (refusal || name != "Retry-After" && name != pushback) {
			md[strings.ToLower(name)] = values
		}
	}
	return md
}

// A name is the name of a header and of metadata.
type name struct{ header, metadata string }

// usual are the headers of an allowed call by default.
var usual = [...]name{
	{"X-Ratelimit-Limit", "x-ratelimit-limit"},
	{"X-Ratelimit-Remaining", "x-ratelimit-remaining"},
	{"X-Ratelimit-Reset", "x-ratelimit-reset"},
}

// canonical returns the header that stands for metadata, false if none does: for the authority and binary values.
func canonical(name string) (header string, ok bool) {
	if strings.HasPrefix(name, ":") || strings.HasSuffix(name, "-bin") {
		return "", false
	}
	return textproto.CanonicalMIMEHeaderKey(name), true
}

// pushback is when a retry policy may send the call again, in milliseconds. After a negative number it does not.
const pushback = "Grpc-Retry-Pushback-Ms"

// Refuse implements [ratelimit.Responder]. The client gets a fixed text, never err.
func (c *call) Refuse(r *http.Request, code int, err error) bool {
	if c.Err() != nil {
		c.err = status.FromContextError(c.Err()).Err()
		return true
	}
	h := c.Header()
	rpc := denial.RPCOf(r, code, h)
	h.Set(pushback, rpc.Pushback())
	s := status.New(codes.Code(rpc.Code), rpc.Message)
	var details []protoadapt.MessageV1
	if rpc.Policies != nil {
		var violated errdetails.QuotaFailure
		for _, name := range rpc.Policies {
			violated.Violations = append(violated.Violations, &errdetails.QuotaFailure_Violation{Subject: "policy:" + name, QuotaId: name, Description: rpc.Message})
		}
		details = append(details, &violated)
	}
	if rpc.RetryAfter != ratelimit.Never {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(rpc.RetryAfter)})
	}
	if detailed, err := s.WithDetails(details...); err == nil {
		s = detailed
	}
	c.scope.add(h, true)
	c.err = s.Err()
	return true
}

// response describes the answer for [ratelimit.Policy.Settle].
func (c *call) response(bytes int64) ratelimit.Response {
	if !c.returned {
		return ratelimit.Response{Bytes: bytes}
	}
	return ratelimit.Response{Status: httpStatus(c.err), Written: true, Bytes: bytes}
}

// httpStatus returns the status that stands for err in google/rpc/code.proto.
func httpStatus(err error) int {
	if err == nil {
		return http.StatusOK
	}
	s, ok := status.FromError(err)
	if !ok {
		s = status.FromContextError(err) // as the server does
	}
	return denial.RPCStatus(uint32(s.Code()))
}

// size returns the size of a message without compression, 0 for messages of another codec than proto.
func size(message any) int64 {
	m, ok := message.(proto.Message)
	if !ok {
		return 0
	}
	return int64(proto.Size(m))
}
