// Example is a service of Connect with limits, in memory, to try with curl, or with a client of gRPC:
//
//	go run ./example [-addr 127.0.0.1:8080]
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/contrib/connectratelimit"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "`address` to listen on")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *addr, os.Stdout); err != nil {
		slog.Error("example", "error", err)
		os.Exit(1)
	}
}

// run serves until ctx ends.
func run(ctx context.Context, addr string, out io.Writer) error {
	buckets := memstore.New(memstore.Config{}) // several replicas: a redisstore
	defer buckets.Close()
	service, err := newService(buckets)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, `Try:
  curl -i --json '"gopher"' http://%[1]v/acme.v1.Greeter/Hello    # 5 at once, then one each second
  curl -i --json '"wrong"' http://%[1]v/acme.v1.Greeter/Login     # 2 failures in a minute; "secret" costs nothing
`, listener.Addr())
	server := &http.Server{Handler: service, ReadHeaderTimeout: 5 * time.Second, Protocols: new(http.Protocols)}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetUnencryptedHTTP2(true) // for gRPC
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		return server.Shutdown(context.WithoutCancel(ctx))
	}
}

type text = wrapperspb.StringValue

var errPassword = connect.NewError(connect.CodeUnauthenticated, errors.New("wrong password"))

// newService returns the service. Generated code takes the same options.
func newService(buckets *memstore.Store) (http.Handler, error) {
	limiter, err := ratelimit.New(ratelimit.Config{
		Store: buckets,
		Policies: []ratelimit.Policy{{
			Name:  "api",
			Key:   ratelimit.RemoteIP(),
			Limit: ratelimit.PerSecond(1).WithBurst(5),
		}},
	})
	if err != nil {
		return nil, err
	}
	limits := connectratelimit.New(limiter, connectratelimit.Config{})
	login := ratelimit.Policy{
		Name:   "login",
		Key:    ratelimit.RemoteIP(),
		Limit:  ratelimit.PerMinute(2),
		Settle: ratelimit.FailedLogins,
	}

	all := connect.WithInterceptors(limits.Interceptor())
	mux := http.NewServeMux()
	handle := func(procedure string, f func(context.Context, *text) (*text, error), options ...connect.HandlerOption) {
		mux.Handle(procedure, connect.NewUnaryHandlerSimple(procedure, f, options...))
	}
	handle("/acme.v1.Greeter/Hello", func(_ context.Context, name *text) (*text, error) {
		return wrapperspb.String("Hello, " + name.Value), nil
	}, all)
	handle("/acme.v1.Greeter/Login", func(_ context.Context, password *text) (*text, error) {
		if password.Value != "secret" {
			return nil, errPassword
		}
		return wrapperspb.String("welcome"), nil
	}, all, connect.WithInterceptors(limits.Interceptor(login)))
	return mux, nil
}
