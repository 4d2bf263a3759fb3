package connectratelimit_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/contrib/connectratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/rounds"
)

// unseen is a response that nobody reads.
type unseen http.Header

func (w unseen) Header() http.Header         { return http.Header(w) }
func (w unseen) Write(b []byte) (int, error) { return len(b), nil }
func (w unseen) WriteHeader(int)             {}
func (w unseen) Flush()                      {}

// requests returns a function that sends an empty message to h.
func requests(h http.Handler, contentType string, body []byte) func() {
	r := httptest.NewRequest(http.MethodPost, login, nil)
	r.Header.Set("Content-Type", contentType)
	w, reader := unseen{}, bytes.NewReader(body)
	r.Body = io.NopCloser(reader)
	return func() {
		clear(w)
		reader.Reset(body)
		h.ServeHTTP(w, r)
	}
}

func setHeaders(h http.Header) {
	values := make([]string, 3)
	for i, name := range [...]string{"X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset"} {
		values[i] = "1800000000"
		h[name] = values[i : i+1 : i+1]
	}
}

// headersOnly is an interceptor that sets as many headers as a limiter does.
var headersOnly = connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		if info, ok := connect.CallInfoForHandlerContext(ctx); ok {
			setHeaders(info.ResponseHeader())
		}
		return next(ctx, req)
	}
})

// BenchmarkCost compares an interceptor with the middleware of net/http around the same handler. Connect copies each
// header of an interceptor once or twice, whoever sets it. So the cost of the two is what they take above an interceptor
// and a middleware that only set headers.
func BenchmarkCost(b *testing.B) {
	handler := func(options ...connect.HandlerOption) http.Handler {
		return connect.NewUnaryHandler(login, func(context.Context, *connect.Request[emptypb.Empty]) (*connect.Response[emptypb.Empty], error) {
			return connect.NewResponse(new(emptypb.Empty)), nil
		}, options...)
	}
	limits := func() *connectratelimit.Limiter {
		return newLimits(b, ratelimit.Config{Policies: []ratelimit.Policy{perIP("api", ratelimit.PerHour(1_000_000_000))}})
	}
	bare := handler()
	for _, c := range []struct {
		name, contentType string
		body              []byte
	}{{"Connect", "application/proto", nil}, {"gRPC", "application/grpc", make([]byte, 5)}} {
		b.Run(c.name, func(b *testing.B) {
			names := [...]string{"interceptor", "interceptor-of-headers", "middleware", "middleware-of-headers"}
			handlers := [len(names)]http.Handler{
				handler(with(limits().Interceptor())),
				handler(with(headersOnly)),
				limits().Limiter.Handler(bare),
				http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					setHeaders(w.Header())
					bare.ServeHTTP(w, r)
				}),
			}
			var serve [len(names)]func()
			for i, h := range handlers {
				serve[i] = requests(h, c.contentType, c.body)
			}
			// The fastest round is the one that no other process has disturbed.
			var fastest [len(names)]float64
			for i, took := range rounds.Measure(b, 20, rounds.Wall, serve[:]...) {
				fastest[i] = slices.Min(took)
				b.ReportMetric(fastest[i], names[i]+"-ns")
			}
			b.ReportMetric(fastest[0]-fastest[1], "adapter-adds-ns")
			b.ReportMetric(fastest[2]-fastest[3], "middleware-adds-ns")
		})
	}
}
