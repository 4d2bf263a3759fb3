package conformance

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/prototext"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/contrib/connectratelimit"
	"github.com/go-tokenbucket/ratelimit/contrib/grpcratelimit"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
)

// A client of gRPC cannot tell grpcratelimit from connectratelimit by a refusal.
func TestServersOfGRPCAndConnectRefuseInTheSameWords(t *testing.T) {
	key := ratelimit.Header("X-Api-Key")
	costly := func(*http.Request) int64 { return 2 }
	for name, c := range map[string]struct {
		policy ratelimit.Policy
		store  store.Store
		keys   []string
		code   string
	}{
		"429":         {policy: ratelimit.Policy{Name: "api", Key: key, Limit: ratelimit.PerHour(1)}, keys: []string{"a"}, code: "ResourceExhausted"},
		"429, never":  {policy: ratelimit.Policy{Name: "api", Key: key, Limit: ratelimit.PerHour(1), Cost: costly}, keys: []string{"a"}, code: "ResourceExhausted"},
		"429, Hidden": {policy: ratelimit.Policy{Name: "api", Key: key, Limit: ratelimit.PerHour(1), Hidden: true}, keys: []string{"a"}, code: "ResourceExhausted"},
		"400":         {policy: ratelimit.Policy{Name: "api", Key: key, Limit: ratelimit.PerHour(1)}, keys: []string{"a", "b"}, code: "InvalidArgument"},
		"403":         {policy: ratelimit.Policy{Name: "api", Key: key, Limit: ratelimit.PerHour(1)}, code: "PermissionDenied"},
		"503":         {policy: ratelimit.Policy{Name: "api", Key: key, Limit: ratelimit.PerHour(1), FailClosed: true}, store: broken{}, keys: []string{"a"}, code: "Unavailable"},
	} {
		t.Run(name, func(t *testing.T) {
			newLimiter := func() *ratelimit.Limiter {
				buckets := c.store
				if buckets == nil {
					m := ratelimit.Must(memstore.New(memstore.Config{Clock: func() time.Time { return time.Unix(1_800_000_000, 0) }}))
					t.Cleanup(func() { m.Close() })
					buckets = m
				}
				return ratelimit.Must(ratelimit.New(ratelimit.Config{Store: buckets, Logger: slog.New(slog.DiscardHandler)}))
			}
			limits := grpcratelimit.New(newLimiter(), grpcratelimit.Config{})
			ofGRPC := refusalOf(t, c.keys, serveHealth(t, grpc.UnaryInterceptor(limits.Unary(c.policy))))
			if !strings.HasPrefix(ofGRPC, c.code+"\n") {
				t.Errorf("refused with %s", ofGRPC)
			}
			others := connectratelimit.New(newLimiter(), connectratelimit.Config{})
			for mounted, option := range map[string]connect.HandlerOption{
				"interceptor": connect.WithInterceptors(others.Interceptor(c.policy)),
				"gate":        connect.WithRequestGate(others.Gate(c.policy)),
			} {
				if got := refusalOf(t, c.keys, serveConnectHealth(t, option)); got != ofGRPC {
					t.Errorf("%s: refused with %s\ninstead of %s", mounted, got, ofGRPC)
				}
			}
		})
	}
}

// refusalOf calls the server at addr twice, and returns what its client sees of the second answer.
func refusalOf(t *testing.T, keys []string, addr string) string {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var header, trailer metadata.MD
	for range 2 {
		ctx := metadata.NewOutgoingContext(t.Context(), metadata.MD{"x-api-key": keys})
		header, trailer = nil, nil
		_, err = grpc_health_v1.NewHealthClient(conn).Check(ctx, new(grpc_health_v1.HealthCheckRequest), grpc.Header(&header), grpc.Trailer(&trailer))
	}
	s := status.Convert(err)
	lines := []string{s.Code().String(), s.Message(), prototext.MarshalOptions{}.Format(s.Proto())}
	all := metadata.Join(header, trailer)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		switch name {
		case "content-type", "date", "grpc-accept-encoding", "accept-encoding", "grpc-status-details-bin": // of the framework
		case "x-ratelimit-reset": // a time
			lines = append(lines, name)
		default:
			lines = append(lines, name+": "+strings.Join(all[name], ", "))
		}
	}
	return strings.Join(lines, "\n")
}

func serveHealth(t *testing.T, options ...grpc.ServerOption) (addr string) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(options...)
	grpc_health_v1.RegisterHealthServer(s, health.NewServer())
	go s.Serve(listener)
	t.Cleanup(s.Stop)
	return listener.Addr().String()
}

func serveConnectHealth(t *testing.T, options ...connect.HandlerOption) (addr string) {
	const check = grpc_health_v1.Health_Check_FullMethodName
	s := httptest.NewUnstartedServer(connect.NewUnaryHandler(check, func(context.Context, *connect.Request[grpc_health_v1.HealthCheckRequest]) (*connect.Response[grpc_health_v1.HealthCheckResponse], error) {
		return connect.NewResponse(new(grpc_health_v1.HealthCheckResponse)), nil
	}, options...))
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// A broken store always fails.
type broken struct{}

func (broken) Take(context.Context, []store.Charge, []store.State) (bool, error) {
	return false, errors.New("the store is broken")
}
