// Example is a gRPC server with limits, in memory, to try with grpcurl or with its own client.
//
//	go run ./example [-addr 127.0.0.1:8080]
//	go run ./example -call 127.0.0.1:8080
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/contrib/grpcratelimit"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	addr := flag.String("addr", "127.0.0.1:8080", "`address` to listen on")
	call := flag.String("call", "", "call the server at this `address` eight times instead")
	flag.Parse()
	err := error(nil)
	if *call != "" {
		err = callEightTimes(ctx, os.Stdout, *call)
	} else {
		err = serve(ctx, os.Stdout, *addr)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "example:", err)
		os.Exit(1)
	}
}

// serve serves until ctx ends.
func serve(ctx context.Context, out io.Writer, addr string) error {
	buckets := memstore.New(memstore.Config{}) // several replicas: a redisstore
	defer buckets.Close()
	limiter, err := ratelimit.New(ratelimit.Config{
		Store: buckets,
		Policies: []ratelimit.Policy{{
			Name:  "calls",
			Key:   ratelimit.Join(ratelimit.RemoteIP(), ratelimit.Route()),
			Limit: ratelimit.PerSecond(5),
		}},
	})
	if err != nil {
		return err
	}
	limits := grpcratelimit.New(limiter, grpcratelimit.Config{})
	messages := ratelimit.Policy{Name: "messages", Key: ratelimit.RemoteIP(), Limit: ratelimit.PerSecond(10)}
	server := grpc.NewServer(
		grpc.ChainUnaryInterceptor(limits.Unary()),
		grpc.ChainStreamInterceptor(limits.Stream(), limits.Messages(messages)),
	)
	healthgrpc.RegisterHealthServer(server, health.NewServer())
	reflection.Register(server)

	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "Listening: %s\n\nTry:\n", listener.Addr())
	fmt.Fprintf(out, "  go run ./example -call %s   # 5 at once, then 5 per second\n", listener.Addr())
	fmt.Fprintf(out, "  grpcurl -v -plaintext %s grpc.health.v1.Health/Check\n", listener.Addr())
	defer context.AfterFunc(ctx, server.GracefulStop)()
	return server.Serve(listener)
}

// callEightTimes makes calls without a pause. The retry policy waits for those that are denied.
func callEightTimes(ctx context.Context, out io.Writer, addr string) error {
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultServiceConfig(`{"methodConfig": [{"name": [{}], "retryPolicy": {
			"maxAttempts": 3, "initialBackoff": "0.1s", "maxBackoff": "5s", "backoffMultiplier": 2,
			"retryableStatusCodes": ["RESOURCE_EXHAUSTED"]
		}}]}`))
	if err != nil {
		return err
	}
	defer conn.Close()
	for range 8 {
		start := time.Now()
		reply, err := healthgrpc.NewHealthClient(conn).Check(ctx, &healthgrpc.HealthCheckRequest{})
		if err != nil {
			return errors.New(status.Convert(err).Message())
		}
		fmt.Fprintf(out, "%s after %v\n", reply.Status, time.Since(start).Round(time.Millisecond))
	}
	return nil
}
