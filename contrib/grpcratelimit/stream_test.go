package grpcratelimit_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/go-tokenbucket/ratelimit"
)

// duplexer opens a duplex call.
func duplexer(t *testing.T, ctx context.Context, conn *grpc.ClientConn) grpc.BidiStreamingClient[testgrpc.StreamingOutputCallRequest, testgrpc.StreamingOutputCallResponse] {
	t.Helper()
	stream, err := testgrpc.NewTestServiceClient(conn).FullDuplexCall(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

func TestMessages(t *testing.T) {
	l := newLimiter(t, ratelimit.Config{})
	policy := perIP("messages", ratelimit.PerHour(5))
	conn, _ := serve(t, nil, chained(l.Messages(policy)))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream := duplexer(t, ctx, conn)
	for i := range 5 {
		if err := stream.Send(&testgrpc.StreamingOutputCallRequest{}); err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); err != nil {
			t.Fatalf("message %d: %v", i+1, err)
		}
	}
	if header, _ := stream.Header(); len(header["x-ratelimit-limit"]) > 0 {
		t.Errorf("header %v", map[string][]string(header))
	}
	if left, _ := l.Peek(t.Context(), policy, "ip:127.0.0.1"); left.Remaining != 0 {
		t.Errorf("%d tokens left", left.Remaining)
	}
	_ = stream.Send(&testgrpc.StreamingOutputCallRequest{})
	_, err := stream.Recv()
	if status.Code(err) != codes.ResourceExhausted || only(t, stream.Trailer(), "x-ratelimit-limit") != "5" || only(t, stream.Trailer(), "grpc-retry-pushback-ms") == "" || only(t, stream.Trailer(), "retry-after") != "720" {
		t.Errorf("message 6: %v, %v", err, map[string][]string(stream.Trailer()))
	}
	if retry, quota := details(t, err); retry == nil || len(quota.GetViolations()) != 1 {
		t.Errorf("message 6: %v, %v", retry, quota)
	}
}

// The messages of all kinds of streams are charged, and only when they were received.
func TestMessagesAreChargedWhenTheyCome(t *testing.T) {
	for _, k := range streams {
		l := newLimiter(t, ratelimit.Config{})
		policy := perIP("messages", ratelimit.PerHour(5))
		conn, _ := serve(t, nil, chained(l.Messages(policy)))
		n := 3
		if k == output {
			n = 1
		}
		if r := callWith(t.Context(), conn, k, n); r.err != nil {
			t.Fatal(r.err)
		}
		if r, _ := l.Peek(t.Context(), policy, "ip:127.0.0.1"); r.Remaining != 5-int64(n) {
			t.Errorf("%s: %d tokens left", k, r.Remaining)
		}
	}

	// A client that sends nothing pays nothing.
	l := newLimiter(t, ratelimit.Config{})
	policy := perIP("messages", ratelimit.PerHour(5))
	began := make(chan struct{})
	conn, _ := serve(t, func(context.Context) error { close(began); return nil }, chained(l.Messages(policy)))
	ctx, cancel := context.WithCancel(t.Context())
	duplexer(t, ctx, conn)
	<-began
	cancel()
	if r, _ := l.Peek(t.Context(), policy, "ip:127.0.0.1"); r.Used {
		t.Errorf("%d tokens left", r.Remaining)
	}
}

// serveStream serves f as a method of an unknown service.
func serveStream(t *testing.T, options []grpc.ServerOption, f func(stream grpc.ServerStream) error) *grpc.ClientConn {
	t.Helper()
	unknown := grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error { return f(stream) })
	conn, _ := serve(t, nil, append(options, unknown))
	return conn
}

// callOther calls what serveStream serves, with messages.
func callOther(ctx context.Context, conn *grpc.ClientConn, messages int) (r reply) {
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, "/other.Service/Method")
	if err != nil {
		return reply{err: err}
	}
	for range messages {
		_ = stream.SendMsg(new(testgrpc.Empty)) // fails with io.EOF if the stream has ended
	}
	_ = stream.CloseSend()
	for r.err == nil {
		if r.err = stream.RecvMsg(new(testgrpc.Empty)); r.err == nil {
			r.messages++
		}
	}
	if r.err == io.EOF {
		r.err = nil
	}
	r.header, _ = stream.Header()
	r.trailer = stream.Trailer()
	return r
}

func TestADeniedMessageEndsTheStream(t *testing.T) {
	own := status.Error(codes.Aborted, "own")
	for name, c := range map[string]struct {
		end  error
		code codes.Code
	}{
		"ignored":  {nil, codes.ResourceExhausted},
		"replaced": {own, codes.Aborted},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLimiter(t, ratelimit.Config{})
			policy := perIP("messages", ratelimit.PerHour(2))
			var received, denied, afterwards int
			conn := serveStream(t, chained(l.Messages(policy)), func(stream grpc.ServerStream) error {
				for range 5 {
					switch err := stream.RecvMsg(new(testgrpc.Empty)); {
					case err == nil && denied == 0:
						received++
					case status.Code(err) == codes.ResourceExhausted:
						denied++
						l.Reset(t.Context(), policy, "ip:127.0.0.1") // the next message would be allowed
					default:
						afterwards++
					}
				}
				return c.end
			})
			r := callOther(t.Context(), conn, 5)
			if r.code() != c.code || received != 2 || denied != 3 || afterwards != 0 {
				t.Errorf("%v, received %d, denied %d, others %d", r.err, received, denied, afterwards)
			}
		})
	}
}

func TestFromContextOfAMessage(t *testing.T) {
	l := newLimiter(t, ratelimit.Config{})
	var got []string
	see := func(ctx context.Context) {
		d, ok := ratelimit.FromContext(ctx)
		if !ok {
			got = append(got, "none")
			return
		}
		var b strings.Builder
		for _, r := range d.Results {
			b.WriteString(r.Policy)
			b.WriteByte('0' + byte(r.Remaining))
		}
		got = append(got, b.String())
	}
	conn := serveStream(t, chained(l.Stream(perIP("s", ratelimit.PerHour(9))), l.Messages(perIP("m", ratelimit.PerHour(2)))), func(stream grpc.ServerStream) error {
		see(stream.Context())
		for range 3 {
			err := stream.RecvMsg(new(testgrpc.Empty))
			see(stream.Context())
			if err != nil {
				return err
			}
		}
		return nil
	})
	r := callOther(t.Context(), conn, 3)
	if want := "s8,s8m1,s8m0,s8m0"; r.code() != codes.ResourceExhausted || strings.Join(got, ",") != want {
		t.Errorf("%v, %q, want %s", r.err, got, want)
	}
}

// In either order, each header stands once.
func TestStreamAndMessages(t *testing.T) {
	for _, messagesFirst := range []bool{false, true} {
		for _, answersFirst := range []bool{false, true} {
			l := newLimiter(t, ratelimit.Config{})
			interceptors := []any{l.Stream(perIP("streams", ratelimit.PerHour(9))), l.Messages(perIP("messages", ratelimit.PerHour(1)))}
			if messagesFirst {
				interceptors[0], interceptors[1] = interceptors[1], interceptors[0]
			}
			conn := serveStream(t, chained(interceptors...), func(stream grpc.ServerStream) error {
				if answersFirst {
					if err := stream.SendMsg(new(testgrpc.Empty)); err != nil {
						return err
					}
				}
				for {
					if err := stream.RecvMsg(new(testgrpc.Empty)); err != nil {
						return err
					}
				}
			})
			r := callOther(t.Context(), conn, 2)
			if r.code() != codes.ResourceExhausted || only(t, r.trailer, "x-ratelimit-limit") != "1" || only(t, r.trailer, "retry-after") == "" || only(t, r.trailer, "grpc-retry-pushback-ms") == "" {
				t.Errorf("messages first %t: %v, trailer %v", messagesFirst, r.err, map[string][]string(r.trailer))
			}
			if answersFirst {
				if only(t, r.header, "x-ratelimit-limit") != "9" {
					t.Errorf("messages first %t: header %v", messagesFirst, r.header)
				}
			} else if len(r.header) > 0 {
				t.Errorf("messages first %t: header %v", messagesFirst, r.header)
			}
		}
	}
}

// A Settle of Config.Policies, which Messages cannot see, is called at once and refunds no message.
func TestASettleOfMessages(t *testing.T) {
	l := newLimiter(t, ratelimit.Config{Policies: []ratelimit.Policy{logins}})
	conn := serveStream(t, chained(l.Messages()), func(stream grpc.ServerStream) error {
		for {
			if err := stream.RecvMsg(new(testgrpc.Empty)); err != nil {
				return err
			}
			if ratelimit.SetCost(stream.Context(), "logins", 0) {
				return errors.New("the message was not settled")
			}
		}
	})
	if r := callOther(t.Context(), conn, 6); r.code() != codes.ResourceExhausted {
		t.Error(r.err)
	}
}

// The limiter must not hold messages back.
func TestTheFirstMessageComesBeforeTheHandlerEnds(t *testing.T) {
	l := newLimiter(t, ratelimit.Config{Policies: []ratelimit.Policy{perIP("api", ratelimit.PerHour(5))}})
	seen := make(chan struct{})
	conn := serveStream(t, chained(l.Stream()), func(stream grpc.ServerStream) error {
		if err := stream.SendMsg(new(testgrpc.Empty)); err != nil {
			return err
		}
		<-seen
		return nil
	})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, "/other.Service/Method")
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.RecvMsg(new(testgrpc.Empty)); err != nil {
		t.Error(err)
	}
	if header, err := stream.Header(); err != nil || only(t, header, "x-ratelimit-remaining") != "4" {
		t.Errorf("%v, header %v", err, header)
	}
	close(seen)
	if err := stream.RecvMsg(new(testgrpc.Empty)); err != io.EOF {
		t.Error(err)
	}
}

// A handler may send the header early, with other metadata.
func TestAHandlerThatSendsTheHeader(t *testing.T) {
	l := newLimiter(t, ratelimit.Config{Policies: []ratelimit.Policy{perIP("api", ratelimit.PerHour(5))}})
	own := metadata.Pairs("own", "1")
	conn, _ := serve(t, func(ctx context.Context) error { return grpc.SendHeader(ctx, own) }, limited(l))
	if r := call(t, conn, unary); r.err != nil || only(t, r.header, "own") != "1" || only(t, r.trailer, "x-ratelimit-limit") != "5" {
		t.Errorf("unary: %v, %v, %v", r.err, r.header, r.trailer)
	}
	conn = serveStream(t, limited(l), func(stream grpc.ServerStream) error { return stream.SendHeader(own) })
	if r := callOther(t.Context(), conn, 0); r.err != nil || only(t, r.header, "own") != "1" || only(t, r.header, "x-ratelimit-limit") != "5" || len(r.trailer) > 0 {
		t.Errorf("stream: %v, %v, %v", r.err, r.header, r.trailer)
	}
	conn = serveStream(t, limited(l), func(stream grpc.ServerStream) error { stream.SetTrailer(own); return stream.SetHeader(own) })
	if r := callOther(t.Context(), conn, 0); r.err != nil || only(t, r.header, "own") != "1" || only(t, r.header, "x-ratelimit-limit") != "5" || only(t, r.trailer, "own") != "1" {
		t.Errorf("stream: %v, %v, %v", r.err, r.header, r.trailer)
	}
}

// grpc.SendHeader does not pass the limiter. Its metadata then stands in the trailer, once.
func TestAHeaderThatPassesTheLimiter(t *testing.T) {
	for messages, code := range []codes.Code{codes.OK, codes.OK, codes.ResourceExhausted} {
		l := newLimiter(t, ratelimit.Config{})
		conn := serveStream(t, chained(l.Stream(perIP("streams", ratelimit.PerHour(9))), l.Messages(perIP("messages", ratelimit.PerHour(1)))), func(stream grpc.ServerStream) error {
			if err := grpc.SendHeader(stream.Context(), metadata.Pairs("own", "1")); err != nil {
				return err
			}
			for {
				if err := stream.SendMsg(new(testgrpc.Empty)); err != nil {
					return err
				}
				if err := stream.RecvMsg(new(testgrpc.Empty)); err == io.EOF {
					return nil
				} else if err != nil {
					return err
				}
			}
		})
		r := callOther(t.Context(), conn, messages)
		if r.code() != code || only(t, r.header, "own") != "1" || len(r.header["x-ratelimit-limit"]) > 0 || only(t, r.trailer, "x-ratelimit-limit") == "" || (r.trailer["retry-after"] != nil) != (code != codes.OK) {
			t.Errorf("%d messages: %v, header %v, trailer %v", messages, r.err, map[string][]string(r.header), map[string][]string(r.trailer))
		}
	}
}

// A call that waits for its turn and is cancelled gives its place back.
func TestAClientThatLeavesWhileItWaits(t *testing.T) {
	for _, k := range kinds {
		t.Run(string(k), func(t *testing.T) {
			events := make(chan *ratelimit.Event, 10)
			l := newLimiter(t, ratelimit.Config{MaxWaiting: 1, Observe: func(_ context.Context, e *ratelimit.Event) { events <- e }})
			policy := perIP("api", ratelimit.PerHour(1))
			policy.MaxWait = 3 * time.Hour
			waits := make(chan struct{}, 10)
			policy.Cost = func(*http.Request) int64 { waits <- struct{}{}; return 1 }
			conn, seen := serve(t, nil, limited(l, policy))
			if r := call(t, conn, k); r.err != nil {
				t.Fatal(r.err)
			}
			<-events
			<-waits
			ctx, cancel := context.WithCancel(t.Context())
			left := make(chan reply)
			go func() { left <- callWith(ctx, conn, k, 1) }()
			<-waits
			cancel()
			if r := <-left; r.code() != codes.Canceled {
				t.Error(r.err)
			}
			if e := <-events; !errors.Is(e.Err, context.Canceled) || e.Allowed {
				t.Errorf("%+v", e)
			}
			r, err := l.Peek(t.Context(), policy, "ip:127.0.0.1")
			if err != nil || r.Remaining < 0 {
				t.Errorf("%+v, %v", r, err)
			}
			if ended := seen.ended(2); !slices.Equal(ended, []codes.Code{codes.OK, codes.Canceled}) {
				t.Errorf("the calls ended with %v", ended)
			}
		})
	}
}

// A wait that the deadline of the call does not allow is a denial at once.
func TestADeadlineBeforeTheTurn(t *testing.T) {
	l := newLimiter(t, ratelimit.Config{})
	policy := perIP("api", ratelimit.PerHour(1))
	policy.MaxWait = 3 * time.Hour
	conn, _ := serve(t, nil, limited(l, policy))
	for _, k := range kinds {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		r := callWith(ctx, conn, k, 1)
		cancel()
		if want := map[bool]codes.Code{true: codes.OK, false: codes.ResourceExhausted}[k == unary]; r.code() != want {
			t.Errorf("%s: %v", k, r.err)
		}
	}
}

// The call of a client that leaves is settled.
func TestAClientThatLeavesWhileItIsServed(t *testing.T) {
	for _, k := range kinds {
		began, settled := make(chan struct{}), make(chan ratelimit.Response, 1)
		policy := perIP("api", ratelimit.PerHour(5))
		policy.Settle = func(_ *http.Request, r ratelimit.Response) int64 { settled <- r; return 1 }
		l := newLimiter(t, ratelimit.Config{})
		conn, _ := serve(t, func(ctx context.Context) error {
			close(began)
			<-ctx.Done()
			return ctx.Err()
		}, limited(l, policy))
		ctx, cancel := context.WithCancel(t.Context())
		go func() { <-began; cancel() }()
		if r := callWith(ctx, conn, k, 1); r.code() != codes.Canceled {
			t.Errorf("%s: %v", k, r.err)
		}
		if r := <-settled; r.Status != 499 || !r.Written {
			t.Errorf("%s: %+v", k, r)
		}
	}
}

// MaxWait makes a client slower instead of ending its stream.
func TestMessagesThatWait(t *testing.T) {
	l := newLimiter(t, ratelimit.Config{})
	policy := perIP("messages", ratelimit.Every(20*time.Millisecond))
	policy.MaxWait = time.Minute
	conn, _ := serve(t, nil, chained(l.Messages(policy)))
	start := time.Now()
	if r := callWith(t.Context(), conn, duplex, 6); r.err != nil || r.messages != 6 || time.Since(start) < 100*time.Millisecond {
		t.Errorf("%v, %d messages after %v", r.err, r.messages, time.Since(start))
	}
}

// A handler may send and receive at once, while a message is denied.
func TestSendingWhileAMessageIsDenied(t *testing.T) {
	l := newLimiter(t, ratelimit.Config{})
	conn := serveStream(t, chained(l.Stream(perIP("streams", ratelimit.PerHour(9))), l.Messages(perIP("messages", ratelimit.PerHour(1)))), func(stream grpc.ServerStream) error {
		var sending sync.WaitGroup
		sending.Go(func() {
			for range 10 {
				_ = stream.SendMsg(new(testgrpc.Empty))
			}
		})
		defer sending.Wait()
		for {
			if err := stream.RecvMsg(new(testgrpc.Empty)); err != nil {
				return err
			}
		}
	})
	r := callOther(t.Context(), conn, 2)
	if r.code() != codes.ResourceExhausted || only(t, r.trailer, "grpc-retry-pushback-ms") == "" {
		t.Errorf("%v, %v", r.err, map[string][]string(r.trailer))
	}
}
