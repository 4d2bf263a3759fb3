package connectratelimit

import (
	"context"
	"net/http"

	"connectrpc.com/connect"

	"github.com/go-tokenbucket/ratelimit"
)

// Config configures a [Limiter]. It has no fields yet.
type Config struct{}

// A Limiter limits calls of Connect, gRPC and gRPC-Web. Make it with [New].
type Limiter struct{ *ratelimit.Limiter }

// New returns a [Limiter] that makes interceptors for handlers. It panics if limiter is nil.
func New(limiter *ratelimit.Limiter, _ Config) *Limiter {
	if limiter == nil {
		panic("connectratelimit: New: limiter must not be nil")
	}
	return &Limiter{limiter}
}

// Interceptor returns an interceptor that enforces policies on each call of a handler. A stream is one call. Without
// policies it enforces those of [ratelimit.Config]. It panics where [ratelimit.Limiter.Limit] and
// [ratelimit.Limiter.Handler] do. It does not limit the calls of a client.
func (l *Limiter) Interceptor(policies ...ratelimit.Policy) connect.Interceptor {
	return interceptor{l.mount(policies)}
}

// Messages is like [Limiter.Interceptor], but takes tokens for each message that a client sends on a stream. When a
// message is denied, the handler gets the denial from Receive, and the stream ends with it. A unary call is one message.
//
// A message has no response, and holds no slot. So Messages panics if a policy has a Settle or a [ratelimit.Concurrency].
// For a Settle in [ratelimit.Config] all messages count as failed.
func (l *Limiter) Messages(policies ...ratelimit.Policy) connect.Interceptor {
	mustEndAtOnce("Messages", policies)
	return messages{interceptor{l.mount(policies)}}
}

// Gate is like [Limiter.Interceptor], but decides before a message is read. Then a denied call costs the least. It is an
// argument of [connect.WithRequestGate], whose calls [connect.WithRecover] does not cover.
//
// A gate does not see the response, nor when the call ends. So Gate panics if a policy has a Settle or a
// [ratelimit.Concurrency]. For a Settle in [ratelimit.Config] all calls count as failed. Allowed calls get no rate limit
// headers of a gate. The method of their requests is POST, also for a GET. With HTTP/1.1 a gate does not notice that a
// client leaves while its call waits, because the message is not read yet.
func (l *Limiter) Gate(policies ...ratelimit.Policy) connect.RequestGateFunc {
	mustEndAtOnce("Gate", policies)
	h := l.mount(policies)
	return func(ctx context.Context, spec connect.Spec, peer connect.Peer, header http.Header) (context.Context, error) {
		c := &call{Context: ctx}
		c.decide(h, spec, peer, header)
		return c.inside, c.err
	}
}

// mustEndAtOnce panics if a policy needs to know how or when a call ends.
func mustEndAtOnce(function string, policies []ratelimit.Policy) {
	for _, p := range policies {
		if p.Settle != nil {
			panic("connectratelimit: " + function + ": policy " + p.Name + ": Settle needs a response: use Interceptor")
		}
		if p.Limit.IsConcurrency() {
			panic("connectratelimit: " + function + ": policy " + p.Name + ": Limit " + p.Limit.String() + " needs the end of the call: use Interceptor")
		}
	}
}

// mount returns policies, or [ratelimit.Config.Policies] if there are none, in front of a call.
func (l *Limiter) mount(policies []ratelimit.Policy) http.Handler {
	if len(policies) == 0 {
		return l.Limiter.Handler(http.HandlerFunc(proceed))
	}
	return l.Limiter.Limit(policies...)(http.HandlerFunc(proceed))
}

type interceptor struct{ limit http.Handler }

func (i interceptor) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		spec := req.Spec()
		if spec.IsClient {
			return next(ctx, req)
		}
		c := &call{Context: ctx, unary: next, request: req}
		c.decide(i.limit, spec, req.Peer(), req.Header())
		return c.response, c.err
	}
}

func (i interceptor) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

func (i interceptor) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		c := &call{Context: ctx, stream: next, StreamingHandlerConn: conn}
		c.decide(i.limit, conn.Spec(), conn.Peer(), conn.RequestHeader())
		return c.err
	}
}

type messages struct{ interceptor }

func (m messages) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		limited := &limitedConn{StreamingHandlerConn: conn, ctx: ctx, limit: m.limit}
		if err := next(ctx, limited); err != nil {
			return err
		}
		return limited.denied
	}
}

// A limitedConn is a stream on which each message that it receives takes tokens.
type limitedConn struct {
	connect.StreamingHandlerConn
	ctx    context.Context
	limit  http.Handler
	denied error
}

func (l *limitedConn) Receive(message any) error {
	if l.denied != nil {
		return l.denied
	}
	if err := l.StreamingHandlerConn.Receive(message); err != nil {
		return err
	}
	c := &call{Context: l.ctx, late: true}
	c.decide(l.limit, l.Spec(), l.Peer(), l.RequestHeader())
	l.denied = c.err
	return l.denied
}
