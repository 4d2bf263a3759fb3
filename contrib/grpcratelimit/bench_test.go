package grpcratelimit_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/contrib/grpcratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/rounds"
)

// BenchmarkCost measures what the interceptor costs, without the network, and compares it with the middleware of net/http.
// It runs a handler bare and with the interceptor, and an http.Handler bare and with the middleware, in turn. The context is
// that of a call over TCP. It reports the median of each, and that of
//
//	(with the interceptor - bare) - (with the middleware - bare)
func BenchmarkCost(b *testing.B) {
	limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{Policies: []ratelimit.Policy{{
		Name:  "api",
		Key:   ratelimit.RemoteIP(),
		Limit: ratelimit.PerHour(1_000_000_000),
	}}}))
	defer limiter.Close()
	middleware := limiter.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	request, writer := httptest.NewRequest(http.MethodGet, "/", nil), unread{}

	ctx := contextOfACall(b)
	info := &grpc.UnaryServerInfo{FullMethod: methods[unary]}
	handler := func(context.Context, any) (any, error) { return nil, nil }
	interceptor := grpcratelimit.New(limiter, grpcratelimit.Config{}).Unary()
	serves := []func(){
		func() { _, _ = handler(ctx, nil) },
		func() { _, _ = interceptor(ctx, nil, info, handler) },
		func() { clear(writer) },
		func() { clear(writer); middleware.ServeHTTP(writer, request) },
	}
	took := rounds.Measure(b, 200, rounds.Wall, serves...)
	median := func(of []float64) float64 { return rounds.Quantile(of, 0.5) }
	b.ReportMetric(median(took[1])-median(took[0]), "adapter-adds-ns")
	b.ReportMetric(median(took[3])-median(took[2]), "middleware-adds-ns")
	b.ReportMetric(median(rounds.Minus(rounds.Minus(took[1], took[0]), rounds.Minus(took[3], took[2]))), "difference-ns")
	b.ReportMetric(testing.AllocsPerRun(100, serves[1]), "allocs")
}

// contextOfACall returns the context of a handler, which discards headers. The call lasts as long as the benchmark.
func contextOfACall(b *testing.B) context.Context {
	contexts, end := make(chan context.Context), make(chan struct{})
	conn, _ := serve(b, func(ctx context.Context) error {
		contexts <- ctx
		<-end
		return nil
	}, nil)
	go call(b, conn, unary)
	b.Cleanup(func() { close(end) })
	return grpc.NewContextWithServerTransportStream(<-contexts, discard{})
}

type discard struct{ grpc.ServerTransportStream }

func (discard) SetHeader(metadata.MD) error { return nil }

// An unread is a response that nobody reads.
type unread http.Header

func (w unread) Header() http.Header         { return http.Header(w) }
func (w unread) Write(b []byte) (int, error) { return len(b), nil }
func (w unread) WriteHeader(int)             {}
