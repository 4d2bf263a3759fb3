package connectratelimit_test

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/go-tokenbucket/ratelimit"
)

// files are handlers of streams. Upload returns all messages, Watch sends the request thrice, Talk echoes.
type files struct{ end func() error }

func (f files) ended() error {
	if f.end == nil {
		return nil
	}
	return f.end()
}

func (f files) upload(_ context.Context, in *connect.ClientStream[text]) (*connect.Response[text], error) {
	var all []string
	for in.Receive() {
		all = append(all, in.Msg().Value)
	}
	if err := errors.Join(in.Err()); err != nil {
		return nil, err
	}
	return connect.NewResponse(wrapperspb.String(strings.Join(all, ","))), f.ended()
}

func (f files) watch(_ context.Context, req *connect.Request[text], out *connect.ServerStream[text]) error {
	for range 3 {
		if err := out.Send(req.Msg); err != nil {
			return err
		}
	}
	return f.ended()
}

func (f files) talk(_ context.Context, both *connect.BidiStream[text, text]) error {
	for {
		m, err := both.Receive()
		if errors.Is(err, io.EOF) {
			return f.ended()
		}
		if err == nil {
			err = both.Send(m)
		}
		if err != nil {
			return err
		}
	}
}

func (f files) handler(options ...connect.HandlerOption) http.Handler {
	mux := http.NewServeMux()
	mux.Handle(upload, connect.NewClientStreamHandler(upload, f.upload, options...))
	mux.Handle(watch, connect.NewServerStreamHandler(watch, f.watch, options...))
	mux.Handle(talk, connect.NewBidiStreamHandler(talk, f.talk, options...))
	return mux
}

// A streamer sends messages to a procedure. It receives an answer to each one from talk, before it sends the next one.
type streamer func(ctx context.Context, procedure string, messages ...string) (got []string, r reply)

func streamers(t testing.TB, url string) map[string]streamer {
	all := map[string]streamer{"grpc-go": grpcStreamer(t, url)}
	for _, protocol := range []string{"connect", "connect JSON", "gRPC", "gRPC-Web"} {
		all[protocol] = connectStreamer(t, protocol, url)
	}
	return all
}

func connectStreamer(t testing.TB, protocol, url string) streamer {
	http2 := newHTTPClient(t, true)
	return func(ctx context.Context, procedure string, messages ...string) (got []string, r reply) {
		t.Helper()
		client := connect.NewClient[text, text](http2, url+procedure, protocols[protocol]...)
		end := func(err error, header, trailer http.Header) ([]string, reply) {
			if err != nil && !errors.Is(err, io.EOF) {
				return got, failed(t, err)
			}
			r.header = header.Clone()
			for name, values := range trailer {
				r.header[name] = append(r.header[name], values...)
			}
			return got, r
		}
		switch procedure {
		case watch:
			in, err := client.CallServerStream(ctx, connect.NewRequest(wrapperspb.String(messages[0])))
			if err != nil {
				return nil, failed(t, err)
			}
			defer in.Close()
			for in.Receive() {
				got = append(got, in.Msg().Value)
			}
			return end(in.Err(), in.ResponseHeader(), in.ResponseTrailer())
		case upload:
			out := client.CallClientStream(ctx)
			for _, m := range messages {
				if err := out.Send(wrapperspb.String(m)); err != nil {
					break // CloseAndReceive has the reason
				}
			}
			resp, err := out.CloseAndReceive()
			if err != nil {
				return nil, failed(t, err)
			}
			got = []string{resp.Msg.Value}
			return end(nil, resp.Header(), resp.Trailer())
		}
		both := client.CallBidiStream(ctx)
		defer both.CloseResponse()
		for _, m := range messages {
			if err := both.Send(wrapperspb.String(m)); err != nil && !errors.Is(err, io.EOF) {
				t.Error(err)
			}
			echoed, err := both.Receive()
			if err != nil {
				both.CloseRequest()
				return end(err, both.ResponseHeader(), both.ResponseTrailer())
			}
			got = append(got, echoed.Value)
		}
		both.CloseRequest()
		_, err := both.Receive()
		return end(err, both.ResponseHeader(), both.ResponseTrailer())
	}
}

func grpcStreamer(t testing.TB, url string) streamer {
	conn := newGRPC(t, url)
	return func(ctx context.Context, procedure string, messages ...string) (got []string, r reply) {
		t.Helper()
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, procedure)
		if err != nil {
			t.Fatal(err)
		}
		end := func(err error) ([]string, reply) {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			header, _ := stream.Header()
			return got, grpcReply(t, err, "", header, stream.Trailer())
		}
		receive := func() error {
			var m text
			err := stream.RecvMsg(&m)
			if err == nil {
				got = append(got, m.Value)
			}
			return err
		}
		for _, m := range messages {
			if err := stream.SendMsg(wrapperspb.String(m)); err != nil {
				break // RecvMsg has the reason
			}
			if procedure == talk {
				if err := receive(); err != nil {
					return end(err)
				}
			}
		}
		stream.CloseSend()
		for {
			if err := receive(); err != nil {
				return end(err)
			}
		}
	}
}

func TestTheSixthStreamIsDenied(t *testing.T) {
	limits := newLimits(t, ratelimit.Config{Policies: []ratelimit.Policy{perIP("api", ratelimit.PerHour(5))}})
	want := map[string][]string{upload: {"a,b,c"}, watch: {"a", "a", "a"}, talk: {"a", "b", "c"}}
	for name, stream := range streamers(t, serve(t, files{}.handler(with(limits.Interceptor())))) {
		for procedure, want := range want {
			t.Run(name+procedure, func(t *testing.T) {
				messages := []string{"a", "b", "c"}
				if procedure == watch {
					messages = messages[:1]
				}
				reset(t, limits, "api")
				for _, left := range []string{"4", "3", "2", "1", "0"} {
					got, r := stream(t.Context(), procedure, messages...)
					if r.code != 0 || !slices.Equal(got, want) {
						t.Fatalf("code %v, got %q, want %q", r.code, got, want)
					}
					if h := lines(t, r.header); len(h) != 3 || h["X-Ratelimit-Remaining"] != left {
						t.Errorf("headers %v", h)
					}
				}
				got, r := stream(t.Context(), procedure, messages...)
				if r.code != connect.CodeResourceExhausted || r.message != "rate limit exceeded" || len(got) != 0 {
					t.Errorf("code %v, message %q, got %q", r.code, r.message, got)
				}
				if h := lines(t, r.header); h["X-Ratelimit-Remaining"] != "0" || h["Retry-After"] != "720" || r.retry != 12*time.Minute || !slices.Equal(r.violated, []string{"api"}) {
					t.Errorf("headers %v, retry %v, violated %q", h, r.retry, r.violated)
				}
			})
		}
	}
}

func TestAMessageAboveTheLimitEndsTheStream(t *testing.T) {
	limits := newLimits(t, ratelimit.Config{})
	policy := perIP("messages", ratelimit.PerHour(3))
	for name, stream := range streamers(t, serve(t, files{}.handler(with(limits.Messages(policy))))) {
		reset(t, limits, "messages")
		got, r := stream(t.Context(), talk, "a", "b", "c")
		if r.code != 0 || len(got) != 3 || len(lines(t, r.header)) != 0 {
			t.Errorf("%s: code %v, got %q, headers %v", name, r.code, got, r.header)
		}
		reset(t, limits, "messages")
		got, r = stream(t.Context(), talk, "a", "b", "c", "d")
		h := lines(t, r.header)
		if r.code != connect.CodeResourceExhausted || len(got) != 3 || r.retry != 20*time.Minute || h["Retry-After"] != "1200" || h["X-Ratelimit-Limit"] != "3" {
			t.Errorf("%s: code %v, got %q, retry %v, headers %v", name, r.code, got, r.retry, h)
		}
		reset(t, limits, "messages")
		if _, r = stream(t.Context(), upload, "a", "b", "c", "d"); r.code != connect.CodeResourceExhausted || r.retry != 20*time.Minute {
			t.Errorf("%s: upload: code %v, retry %v", name, r.code, r.retry)
		}
		reset(t, limits, "messages")
		for i := range 4 {
			if _, r := stream(t.Context(), watch, "a"); (r.code != 0) != (i == 3) {
				t.Errorf("%s: watch %d: code %v", name, i, r.code)
			}
		}
	}
}

func TestAMessageOfAUnaryCallIsTheCall(t *testing.T) {
	limits := newLimits(t, ratelimit.Config{})
	call := connectCaller(t, "connect", serveLogin(t, echo, with(limits.Messages(perIP("messages", ratelimit.PerHour(1))))))
	for _, want := range []connect.Code{0, connect.CodeResourceExhausted} {
		if r := call(t.Context(), login); r.code != want {
			t.Errorf("code %v, want %v", r.code, want)
		}
	}
}

// The limits of streams and of their messages are in one response.
func TestADeniedMessageDoesNotRepeatTheHeadersOfItsStream(t *testing.T) {
	limits := newLimits(t, ratelimit.Config{Policies: []ratelimit.Policy{perIP("api", ratelimit.PerHour(100))}})
	inside := with(limits.Interceptor(perIP("streams", ratelimit.PerHour(50))), limits.Messages(perIP("messages", ratelimit.PerHour(1))))
	for at, h := range map[string]http.Handler{
		"interceptors": files{}.handler(inside),
		"handler":      limits.Handler(files{}.handler(inside)),
		"net/http":     limits.Limiter.Handler(files{}.handler(inside)),
	} {
		for name, stream := range streamers(t, serve(t, h)) {
			reset(t, limits, "messages")
			got, r := stream(t.Context(), talk, "a", "b")
			h := lines(t, r.header)
			if r.code != connect.CodeResourceExhausted || len(got) != 1 || h["X-Ratelimit-Limit"] == "" || h["Retry-After"] != "3600" || r.retry != time.Hour {
				t.Errorf("%s, %s: code %v, got %q, retry %v, headers %v", at, name, r.code, got, r.retry, h)
			}
			_, r = stream(t.Context(), upload, "a", "b") // it has not sent its headers when the message is denied
			if h := lines(t, r.header); r.code != connect.CodeResourceExhausted || h["X-Ratelimit-Limit"] == "" || h["Retry-After"] != "3600" {
				t.Errorf("%s, %s: upload: code %v, headers %v", at, name, r.code, h)
			}
		}
	}
}

// A handler may take any error of Receive for the end of the stream.
func TestADenialIsTheEndOfAStreamWhateverTheHandlerReturns(t *testing.T) {
	limits := newLimits(t, ratelimit.Config{})
	received := make(chan int, 1)
	h := connect.NewClientStreamHandler(upload, func(_ context.Context, in *connect.ClientStream[text]) (*connect.Response[text], error) {
		n := 0
		for in.Receive() {
			n++
		}
		reset(t, limits, "messages")
		for range 3 {
			if in.Conn().Receive(new(text)) == nil {
				n++
			}
		}
		received <- n
		return connect.NewResponse(new(text)), nil
	}, with(limits.Messages(perIP("messages", ratelimit.PerHour(1)))))
	for name, stream := range streamers(t, serve(t, h)) {
		reset(t, limits, "messages")
		_, r := stream(t.Context(), upload, "a", "b", "c", "d", "e")
		if n := <-received; r.code != connect.CodeResourceExhausted || n != 1 {
			t.Errorf("%s: code %v, %d messages", name, r.code, n)
		}
	}
}

// A stream is settled when its handler has returned.
func TestStreamsSettle(t *testing.T) {
	seen := make(chan ratelimit.Response, 1)
	p := perIP("p", ratelimit.PerHour(1000))
	p.Settle = func(_ *http.Request, r ratelimit.Response) int64 { seen <- r; return 1 }
	limits := newLimits(t, ratelimit.Config{})
	three := 3 * int64(proto.Size(wrapperspb.String("a")))
	for name, tt := range map[string]struct {
		end  func() error
		want ratelimit.Response
	}{
		"returns": {func() error { return nil }, ratelimit.Response{Status: 200, Written: true, Bytes: three, Cost: 1}},
		"fails":   {func() error { return connect.NewError(connect.CodeUnauthenticated, errSecret) }, ratelimit.Response{Status: 401, Written: true, Bytes: three, Cost: 1}},
		"panics":  {func() error { panic("x") }, ratelimit.Response{Status: 200, Written: true, Bytes: three, Cost: 1, Panicked: true}},
	} {
		t.Run(name, func(t *testing.T) {
			recovers := connect.WithRecover(onPanic)
			for _, stream := range streamers(t, serve(t, files{tt.end}.handler(recovers, with(limits.Interceptor(p))))) {
				got, _ := stream(t.Context(), watch, "a")
				if response := <-seen; response != tt.want || len(got) != 3 {
					t.Errorf("%+v, want %+v; got %q", response, tt.want, got)
				}
			}
		})
	}
}

func TestAStreamReadsTheDecisionAndSetsItsCost(t *testing.T) {
	p := failedLogins()
	limits := newLimits(t, ratelimit.Config{})
	h := connect.NewServerStreamHandler(watch, func(ctx context.Context, req *connect.Request[text], out *connect.ServerStream[text]) error {
		if d, ok := ratelimit.FromContext(ctx); !ok || !d.Allowed || !ratelimit.SetCost(ctx, "login", 3) {
			return errSecret
		}
		return nil
	}, with(limits.Interceptor(p)))
	for name, stream := range streamers(t, serve(t, h)) {
		reset(t, limits, "login")
		if _, r := stream(t.Context(), watch, "a"); r.code != 0 || left(t, limits, p) != 2 {
			t.Errorf("%s: code %v, %d left", name, r.code, left(t, limits, p))
		}
	}
}

// Both directions of a stream are used at once, which the race detector watches.
func TestBothDirectionsAtOnce(t *testing.T) {
	limits := newLimits(t, ratelimit.Config{})
	h := connect.NewBidiStreamHandler(talk, func(_ context.Context, both *connect.BidiStream[text, text]) error {
		sent := make(chan error)
		go func() {
			var err error
			for range 50 {
				both.ResponseTrailer().Set("X-Trailer", "t")
				err = errors.Join(err, both.Send(new(text)))
			}
			sent <- err
		}()
		for {
			if _, err := both.Receive(); err != nil {
				if !errors.Is(err, io.EOF) {
					return err
				}
				return <-sent
			}
		}
	}, with(limits.Interceptor(perIP("streams", ratelimit.PerHour(50))), limits.Messages(perIP("messages", ratelimit.PerHour(1000)))))
	url := serve(t, h)
	for _, protocol := range slices.Sorted(maps.Keys(protocols))[1:] {
		both := newClient(t, protocol, url, talk).CallBidiStream(t.Context())
		for range 50 {
			if err := both.Send(new(text)); err != nil {
				t.Fatal(protocol, err)
			}
		}
		both.CloseRequest()
		n := 0
		for ; ; n++ {
			if _, err := both.Receive(); err != nil {
				if !errors.Is(err, io.EOF) {
					t.Error(protocol, err)
				}
				break
			}
		}
		if n != 50 || both.ResponseHeader().Get("X-Ratelimit-Limit") != "50" {
			t.Errorf("%s: %d messages, headers %v", protocol, n, both.ResponseHeader())
		}
		both.CloseResponse()
	}
}
