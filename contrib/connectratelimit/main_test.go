package connectratelimit_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"log"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"go.uber.org/goleak"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/contrib/connectratelimit"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	login  = "/acme.v1.Auth/Login" // unary
	search = "/acme.v1.Auth/Search"
	upload = "/acme.v1.Files/Upload" // messages of the client
	watch  = "/acme.v1.Files/Watch"  // messages of the server
	talk   = "/acme.v1.Files/Talk"   // both
)

type (
	text  = wrapperspb.StringValue
	unary = func(context.Context, *connect.Request[text]) (*connect.Response[text], error)
)

func echo(_ context.Context, req *connect.Request[text]) (*connect.Response[text], error) {
	return connect.NewResponse(wrapperspb.String(req.Msg.Value)), nil
}

// A clock is the time of a store.
type clock struct{ atomic.Int64 }

func (c *clock) now() time.Time { return time.Unix(1_800_000_000, 0).Add(time.Duration(c.Load())) }

// newLimits returns a Limiter on memory for which no time passes.
func newLimits(t testing.TB, cfg ratelimit.Config) *connectratelimit.Limiter {
	t.Helper()
	if cfg.Store == nil {
		s := ratelimit.Must(memstore.New(memstore.Config{Clock: new(clock).now}))
		t.Cleanup(func() { s.Close() })
		cfg.Store = s
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return connectratelimit.New(ratelimit.Must(ratelimit.New(cfg)), connectratelimit.Config{})
}

func perIP(name string, limit ratelimit.Limit) ratelimit.Policy {
	return ratelimit.Policy{Name: name, Key: ratelimit.RemoteIP(), Limit: limit}
}

// serve serves h over TCP with HTTP/1.1 and HTTP/2 without TLS.
func serve(t testing.TB, h http.Handler) (url string) {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.Start()
	t.Cleanup(s.Close)
	return s.URL
}

// with returns handler options with interceptors, the first one outermost.
func with(interceptors ...connect.Interceptor) connect.HandlerOption {
	return connect.WithInterceptors(interceptors...)
}

// serveLogin serves f as login and search.
func serveLogin(t testing.TB, f unary, options ...connect.HandlerOption) (url string) {
	t.Helper()
	return serve(t, logins(f, options...))
}

func logins(f unary, options ...connect.HandlerOption) http.Handler {
	options = append(options, connect.WithIdempotency(connect.IdempotencyNoSideEffects))
	mux := http.NewServeMux()
	for _, procedure := range []string{login, search} {
		mux.Handle(procedure, connect.NewUnaryHandler(procedure, f, options...))
	}
	return mux
}

// newHTTPClient returns a client of HTTP/2 without TLS, or of HTTP/1.1.
func newHTTPClient(t testing.TB, http2 bool) *http.Client {
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetHTTP1(!http2)
	transport.Protocols.SetUnencryptedHTTP2(http2)
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// protocols are the options of connect-go's clients.
var protocols = map[string][]connect.ClientOption{
	"connect":      nil,
	"connect JSON": {connect.WithProtoJSON()},
	"connect GET":  {connect.WithHTTPGet(), connect.WithIdempotency(connect.IdempotencyNoSideEffects)},
	"gRPC":         {connect.WithGRPC()},
	"gRPC-Web":     {connect.WithGRPCWeb()},
}

func newClient(t testing.TB, protocol, url, procedure string) *connect.Client[text, text] {
	http2 := protocol == "gRPC" || procedure == talk
	return connect.NewClient[text, text](newHTTPClient(t, http2), url+procedure, protocols[protocol]...)
}

// A reply is what a client sees of a response.
type reply struct {
	code     connect.Code // 0: none
	message  string
	header   http.Header // with trailers
	violated []string
	retry    time.Duration // of RetryInfo, 0: none
	value    string        // of the message
	status   int           // of HTTP, by a raw caller
}

func (r *reply) addDetails(t testing.TB, details ...proto.Message) {
	for _, d := range details {
		switch d := d.(type) {
		case *errdetails.RetryInfo:
			r.retry = d.RetryDelay.AsDuration()
		case *errdetails.QuotaFailure:
			for _, v := range d.Violations {
				if v.Subject != "policy:"+v.QuotaId {
					t.Errorf("violation %v", v)
				}
				r.violated = append(r.violated, v.QuotaId)
			}
		}
	}
}

// failed returns the reply for an error of connect-go's client.
func failed(t testing.TB, err error) reply {
	var coded *connect.Error
	if !errors.As(err, &coded) {
		t.Fatal(err)
	}
	r := reply{code: coded.Code(), message: coded.Message(), header: coded.Meta()}
	for _, d := range coded.Details() {
		message, err := d.Value()
		if err != nil {
			t.Error(err)
		}
		r.addDetails(t, message)
	}
	return r
}

// A caller calls a unary procedure once. The headers of a request are pairs.
type caller func(ctx context.Context, procedure string, headers ...string) reply

// callers returns a caller for each kind of client.
func callers(t testing.TB, url string) map[string]caller {
	all := map[string]caller{
		"grpc-go":  grpcCaller(t, url),
		"raw POST": rawCaller(t, url, false),
		"raw GET":  rawCaller(t, url, true),
	}
	for name := range protocols {
		all[name] = connectCaller(t, name, url)
	}
	return all
}

func connectCaller(t testing.TB, protocol, url string) caller {
	client := newHTTPClient(t, protocol == "gRPC")
	return func(ctx context.Context, procedure string, headers ...string) reply {
		t.Helper()
		req := connect.NewRequest(wrapperspb.String("hello"))
		for pair := range slices.Chunk(headers, 2) {
			req.Header().Add(pair[0], pair[1])
		}
		resp, err := connect.NewClient[text, text](client, url+procedure, protocols[protocol]...).CallUnary(ctx, req)
		if err != nil {
			return failed(t, err)
		}
		h := resp.Header().Clone()
		maps.Copy(h, resp.Trailer())
		return reply{header: h, value: resp.Msg.Value}
	}
}

func newGRPC(t testing.TB, at string, options ...grpc.DialOption) *grpc.ClientConn {
	options = append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))
	conn, err := grpc.NewClient("passthrough:///"+strings.TrimPrefix(at, "http://"), options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func grpcCaller(t testing.TB, url string) caller {
	conn := newGRPC(t, url)
	return func(ctx context.Context, procedure string, headers ...string) reply {
		t.Helper()
		var header, trailer metadata.MD
		var out text
		err := conn.Invoke(metadata.AppendToOutgoingContext(ctx, headers...), procedure, wrapperspb.String("hello"), &out, grpc.Header(&header), grpc.Trailer(&trailer))
		return grpcReply(t, err, out.Value, header, trailer)
	}
}

// grpcReply fails if anything stands in header and trailer.
func grpcReply(t testing.TB, err error, value string, header, trailer metadata.MD) reply {
	t.Helper()
	s := status.Convert(err)
	r := reply{code: connect.Code(s.Code()), message: s.Message(), value: value, header: make(http.Header)}
	for _, d := range s.Details() {
		r.addDetails(t, d.(proto.Message))
	}
	for _, md := range []metadata.MD{header, trailer} {
		for name, values := range md {
			r.header[http.CanonicalHeaderKey(name)] = append(r.header[http.CanonicalHeaderKey(name)], values...)
		}
	}
	return r
}

// rawCaller speaks Connect without a library.
func rawCaller(t testing.TB, at string, get bool) caller {
	client := newHTTPClient(t, false)
	return func(ctx context.Context, procedure string, headers ...string) reply {
		t.Helper()
		method, target, body := http.MethodPost, at+procedure, `"hello"`
		if get {
			method, target, body = http.MethodGet, target+"?connect=v1&encoding=json&message="+url.QueryEscape(body), ""
		}
		req, err := http.NewRequestWithContext(ctx, method, target, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if !get {
			req.Header.Set("Content-Type", "application/json")
		}
		for pair := range slices.Chunk(headers, 2) {
			req.Header.Add(pair[0], pair[1])
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		return rawReply(t, resp)
	}
}

func rawReply(t testing.TB, resp *http.Response) reply {
	t.Helper()
	r := reply{status: resp.StatusCode, header: resp.Header}
	var wire struct {
		Code    connect.Code
		Message string
		Details []struct{ Type, Value string }
	}
	var to any = &wire
	if r.status == http.StatusOK {
		to = &r.value
	}
	if err := json.NewDecoder(resp.Body).Decode(to); err != nil {
		t.Fatal(err)
	}
	r.code, r.message = wire.Code, wire.Message
	for _, d := range wire.Details {
		var message proto.Message = new(errdetails.RetryInfo)
		if d.Type == "google.rpc.QuotaFailure" {
			message = new(errdetails.QuotaFailure)
		}
		value, err := base64.RawStdEncoding.DecodeString(d.Value)
		if err == nil {
			err = proto.Unmarshal(value, message)
		}
		if err != nil {
			t.Error(err)
		}
		r.addDetails(t, message)
	}
	return r
}
