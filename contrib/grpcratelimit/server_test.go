package grpcratelimit_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/contrib/grpcratelimit"
	"github.com/go-tokenbucket/ratelimit/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A kind is one of the four kinds of calls.
type kind string

const (
	unary  kind = "unary"
	input  kind = "client stream"
	output kind = "server stream"
	duplex kind = "duplex"
)

var (
	kinds   = []kind{unary, input, output, duplex}
	streams = kinds[1:]
)

var methods = map[kind]string{
	unary:  testgrpc.TestService_UnaryCall_FullMethodName,
	input:  testgrpc.TestService_StreamingInputCall_FullMethodName,
	output: testgrpc.TestService_StreamingOutputCall_FullMethodName,
	duplex: testgrpc.TestService_FullDuplexCall_FullMethodName,
}

// A service calls handle in all methods, with the context of the handler. A stream that receives does so first.
type service struct {
	testgrpc.UnimplementedTestServiceServer
	handle func(context.Context) error
}

func (s *service) UnaryCall(ctx context.Context, _ *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
	return &testgrpc.SimpleResponse{Username: "a user"}, s.handle(ctx)
}

func (s *service) StreamingInputCall(stream grpc.ClientStreamingServer[testgrpc.StreamingInputCallRequest, testgrpc.StreamingInputCallResponse]) error {
	var n int32
	for {
		switch _, err := stream.Recv(); {
		case err == io.EOF:
			if err := s.handle(stream.Context()); err != nil {
				return err
			}
			return stream.SendAndClose(&testgrpc.StreamingInputCallResponse{AggregatedPayloadSize: n})
		case err != nil:
			return err
		}
		n++
	}
}

func (s *service) StreamingOutputCall(_ *testgrpc.StreamingOutputCallRequest, stream grpc.ServerStreamingServer[testgrpc.StreamingOutputCallResponse]) error {
	if err := s.handle(stream.Context()); err != nil {
		return err
	}
	return stream.Send(&testgrpc.StreamingOutputCallResponse{})
}

func (s *service) FullDuplexCall(stream grpc.BidiStreamingServer[testgrpc.StreamingOutputCallRequest, testgrpc.StreamingOutputCallResponse]) error {
	if err := s.handle(stream.Context()); err != nil {
		return err
	}
	for {
		switch _, err := stream.Recv(); {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
		if err := stream.Send(&testgrpc.StreamingOutputCallResponse{}); err != nil {
			return err
		}
	}
}

// serve starts a server on TCP, and returns a connection to it. Attempts get the time of each call that arrives.
func serve(t testing.TB, handle func(context.Context) error, server []grpc.ServerOption, client ...grpc.DialOption) (*grpc.ClientConn, *attempts) {
	t.Helper()
	if handle == nil {
		handle = func(context.Context) error { return nil }
	}
	seen := new(attempts)
	s := grpc.NewServer(append([]grpc.ServerOption{grpc.UnaryInterceptor(seen.unary), grpc.StreamInterceptor(seen.stream)}, server...)...)
	testgrpc.RegisterTestServiceServer(s, &service{handle: handle})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(listener) }()
	t.Cleanup(func() {
		s.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return dial(t, listener.Addr().String(), client...), seen
}

func dial(t testing.TB, addr string, options ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(addr, append([]grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// limited returns the options of a server with limits on unary calls and on streams.
func limited(l *grpcratelimit.Limiter, policies ...ratelimit.Policy) []grpc.ServerOption {
	return chained(l.Unary(policies...), l.Stream(policies...))
}

// chained returns the options of a server with interceptors, which are those of unary calls or of streams.
func chained(interceptors ...any) (options []grpc.ServerOption) {
	for _, i := range interceptors {
		switch i := i.(type) {
		case grpc.UnaryServerInterceptor:
			options = append(options, grpc.ChainUnaryInterceptor(i))
		case grpc.StreamServerInterceptor:
			options = append(options, grpc.ChainStreamInterceptor(i))
		default:
			panic("no interceptor")
		}
	}
	return options
}

type attempts struct {
	mu    sync.Mutex
	all   []time.Time
	codes []codes.Code // of calls that have ended
}

func (a *attempts) unary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	a.add()
	reply, err := next(ctx, req)
	a.end(err)
	return reply, err
}

func (a *attempts) stream(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	a.add()
	err := next(srv, ss)
	a.end(err)
	return err
}

func (a *attempts) add() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all = append(a.all, time.Now())
}

func (a *attempts) end(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.codes = append(a.codes, status.Code(err))
}

// ended returns the codes of calls, when n have ended on the server.
func (a *attempts) ended(n int) []codes.Code {
	for {
		a.mu.Lock()
		ended := slices.Clone(a.codes)
		a.mu.Unlock()
		if len(ended) >= n {
			return ended
		}
		time.Sleep(time.Millisecond)
	}
}

func (a *attempts) times() []time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.all)
}

// A reply is what a client got.
type reply struct {
	header, trailer metadata.MD
	messages        int // received
	err             error
}

func (r reply) code() codes.Code { return status.Code(r.err) }

// call makes a call of a kind, with one message for the server. metadata are names and values.
func call(t testing.TB, conn *grpc.ClientConn, k kind, md ...string) reply {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	return callWith(metadata.AppendToOutgoingContext(ctx, md...), conn, k, 1)
}

func callWith(ctx context.Context, conn *grpc.ClientConn, k kind, messages int) (r reply) {
	if k == unary {
		r.err = conn.Invoke(ctx, methods[k], &testgrpc.SimpleRequest{}, &testgrpc.SimpleResponse{}, grpc.Header(&r.header), grpc.Trailer(&r.trailer))
		return r
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: k != output, ServerStreams: k != input}, methods[k])
	if err != nil {
		return reply{err: err}
	}
	for range messages {
		if err := stream.SendMsg(&testgrpc.StreamingOutputCallRequest{}); err == io.EOF {
			break
		} else if err != nil {
			return reply{err: err}
		}
	}
	if err := stream.CloseSend(); err != nil {
		return reply{err: err}
	}
	for {
		err := stream.RecvMsg(new(testgrpc.StreamingOutputCallResponse))
		if err == nil {
			r.messages++
			if k == input {
				err = io.EOF // RecvMsg has read the status, too
			}
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				r.err = err
			}
			break
		}
	}
	r.header, _ = stream.Header()
	r.trailer = stream.Trailer()
	return r
}

// newLimiter returns a limiter with enough time for a machine that is busy.
func newLimiter(t *testing.T, cfg ratelimit.Config) *grpcratelimit.Limiter {
	t.Helper()
	cfg.Timeout = 5 * time.Second
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	l, err := ratelimit.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return grpcratelimit.New(l, grpcratelimit.Config{})
}

func perIP(name string, limit ratelimit.Limit) ratelimit.Policy {
	return ratelimit.Policy{Name: name, Key: ratelimit.RemoteIP(), Limit: limit}
}

// A storeFunc is a store that never fails.
type storeFunc func([]store.Charge, []store.State) bool

func (f storeFunc) Take(_ context.Context, charges []store.Charge, states []store.State) (bool, error) {
	return f(charges, states), nil
}

// denying denies everything for so long.
func denying(after time.Duration) store.Store {
	return storeFunc(func(_ []store.Charge, states []store.State) bool {
		for i := range states {
			states[i] = store.State{RetryAfter: after, ResetAfter: time.Minute}
		}
		return false
	})
}

// A failing is a store that fails.
type failing struct{ error }

func (f failing) Take(context.Context, []store.Charge, []store.State) (bool, error) {
	return false, f.error
}
