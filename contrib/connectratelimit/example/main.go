// Example is a service of Connect with limits, in memory, to try with curl, or with a client of gRPC:
//
//	go run ./example [-addr 127.0.0.1:8080]
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/contrib/connectratelimit"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "`address` to listen on")
	flag.Parse()
	listener, err := net.Listen("tcp", *addr)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf(`Try:
  curl -i --json '"gopher"' http://%[1]v/acme.v1.Greeter/Hello    # 5 at once, then one each second
  curl -i --json '"wrong"' http://%[1]v/acme.v1.Greeter/Login     # 2 failures in a minute; "secret" costs nothing
`, listener.Addr())
	server := &http.Server{Handler: newService(), ReadHeaderTimeout: 5 * time.Second, Protocols: new(http.Protocols)}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetUnencryptedHTTP2(true) // for gRPC
	log.Fatal(server.Serve(listener))
}

type text = wrapperspb.StringValue

var errPassword = connect.NewError(connect.CodeUnauthenticated, errors.New("wrong password"))

// newService returns the service. Generated code takes the same options.
func newService() http.Handler {
	limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{
		Policies: []ratelimit.Policy{{
			Name:  "api",
			Key:   ratelimit.RemoteIP(),
			Limit: ratelimit.PerSecond(1).WithBurst(5),
		}},
	}))
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
	return mux
}
