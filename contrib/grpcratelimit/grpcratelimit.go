package grpcratelimit

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/go-tokenbucket/ratelimit"
)

// Config configures a [Limiter]. It has no fields yet.
type Config struct{}

// A Limiter limits calls of gRPC. Make it with [New].
type Limiter struct{ *ratelimit.Limiter }

// New returns a [Limiter] that makes interceptors for servers. It panics if limiter is nil.
func New(limiter *ratelimit.Limiter, _ Config) *Limiter {
	if limiter == nil {
		panic("grpcratelimit: New: limiter must not be nil")
	}
	return &Limiter{limiter}
}

// mount returns next behind policies, or behind [ratelimit.Config.Policies] if there are none.
func (l *Limiter) mount(policies []ratelimit.Policy, next http.HandlerFunc) http.Handler {
	if len(policies) == 0 {
		return l.Handler(next)
	}
	return l.Limit(policies...)(next)
}

// Unary returns an interceptor that enforces policies on each unary call. Without policies it enforces those of
// [ratelimit.Config]. It panics where [ratelimit.Limiter.Limit] and [ratelimit.Limiter.Handler] do.
func (l *Limiter) Unary(policies ...ratelimit.Policy) grpc.UnaryServerInterceptor {
	h := l.mount(policies, func(w http.ResponseWriter, r *http.Request) {
		c := w.(*unary)
		c.announce()
		c.reply, c.err = c.handler(r.Context(), c.message)
		c.returned = true
	})
	return func(ctx context.Context, message any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		c := &unary{message: message, handler: handler}
		c.begin(ctx, info.FullMethod, info.FullMethod)
		defer c.finish(c) // also if the handler panics
		h.ServeHTTP(c, &c.request)
		return c.reply, c.err
	}
}

type unary struct {
	call
	message, reply any
	handler        grpc.UnaryHandler
}

func (c *unary) Response() ratelimit.Response {
	if c.err != nil {
		return c.response(0)
	}
	return c.response(size(c.reply))
}

func (c *unary) SetHeader(md metadata.MD) error { return grpc.SetHeader(c.Context, md) }
func (c *unary) SetTrailer(md metadata.MD)      { _ = grpc.SetTrailer(c.Context, md) } // fails if the client has left

// Stream returns an interceptor that enforces policies once for each stream, when it begins. A slot of a
// [ratelimit.Concurrency] is held until the handler has returned. For policies see [Limiter.Unary].
func (l *Limiter) Stream(policies ...ratelimit.Policy) grpc.StreamServerInterceptor {
	h := l.mount(policies, func(w http.ResponseWriter, r *http.Request) {
		s := w.(*stream)
		s.announce()
		s.inside = r.Context()
		s.err = s.handler(s.server, s)
		s.returned = true
	})
	return func(server any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		s := &stream{ServerStream: ss, server: server, handler: handler}
		s.begin(ss.Context(), info.FullMethod, pattern(server, info))
		defer s.finish(ss)
		h.ServeHTTP(s, &s.request)
		return s.err
	}
}

// A stream is a limited stream for its handler.
type stream struct {
	grpc.ServerStream
	call
	inside  context.Context
	server  any
	handler grpc.StreamHandler
	bytes   atomic.Int64
}

func (s *stream) Context() context.Context     { return s.inside }
func (s *stream) Response() ratelimit.Response { return s.response(s.bytes.Load()) }

func (s *stream) SendHeader(md metadata.MD) error {
	s.scope.began(s.ServerStream)
	return s.ServerStream.SendHeader(md)
}

func (s *stream) SendMsg(m any) error {
	s.scope.began(s.ServerStream)
	err := s.ServerStream.SendMsg(m)
	if err == nil {
		s.bytes.Add(size(m))
	}
	return err
}

// Messages returns an interceptor that enforces policies on each message that a stream receives. For policies see
// [Limiter.Unary]. After the first message that is denied, RecvMsg always returns the error. The client gets it, too,
// unless the handler returns another one.
//
// A message is charged after it was received. With MaxWait, RecvMsg blocks, and the client has to slow down. Context
// then has the decision about the last message. Messages panics if one of policies has a Settle, because a message has
// no response. A Settle in [ratelimit.Config] is called at once, with a [ratelimit.Response] that has only a Cost.
// Messages also panics if one of policies has a [ratelimit.Concurrency], because a message holds no slot: use Stream.
func (l *Limiter) Messages(policies ...ratelimit.Policy) grpc.StreamServerInterceptor {
	for _, p := range policies {
		if p.Settle != nil {
			panic(fmt.Sprintf("grpcratelimit: Messages: policy %q: Settle must be nil: a message has no response", p.Name))
		}
		if p.Limit.IsConcurrency() {
			panic(fmt.Sprintf("grpcratelimit: Messages: policy %q: Limit %v: a message holds no slot: use Stream", p.Name, p.Limit))
		}
	}
	h := l.mount(policies, func(w http.ResponseWriter, r *http.Request) {
		w.(*message).inside = r.Context()
	})
	return func(server any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		s := &messages{ServerStream: ss}
		s.join(ss.Context())
		s.last.Store(&message{inside: &s.call})
		defer s.finish(ss)
		route := pattern(server, info)
		s.limit = func() *message {
			m := new(message)
			m.begin(&s.call, info.FullMethod, route)
			h.ServeHTTP(m, &m.request)
			return m
		}
		s.err = handler(server, s)
		if last := s.last.Load(); s.err == nil {
			s.err = last.err
		}
		s.returned = true
		return s.err
	}
}

// A messages is a stream whose messages are limited, for its handler.
type messages struct {
	grpc.ServerStream
	call
	limit func() *message
	last  atomic.Pointer[message]
}

// A message is the decision about a message.
type message struct {
	call
	inside context.Context
}

func (m *message) Response() ratelimit.Response { return ratelimit.Response{} }

func (s *messages) Context() context.Context { return s.last.Load().inside }

func (s *messages) RecvMsg(m any) error {
	last := s.last.Load()
	if last.err != nil {
		return last.err
	}
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	this := s.limit()
	if this.err != nil {
		this.inside = last.inside
	}
	s.last.Store(this)
	return this.err
}
