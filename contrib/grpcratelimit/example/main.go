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
	"log"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/contrib/grpcratelimit"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "`address` to listen on")
	call := flag.String("call", "", "call the server at this `address` eight times instead")
	flag.Parse()
	err := error(nil)
	if *call != "" {
		err = callEightTimes(*call)
	} else {
		err = serve(*addr)
	}
	if err != nil {
		log.Fatal(err)
	}
}

func serve(addr string) error {
	limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{
		Policies: []ratelimit.Policy{{
			Name:  "calls",
			Key:   ratelimit.Join(ratelimit.RemoteIP(), ratelimit.Route()),
			Limit: ratelimit.PerSecond(5),
		}},
	}))
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
	fmt.Printf("Listening: %s\n\nTry:\n", listener.Addr())
	fmt.Printf("  go run ./example -call %s   # 5 at once, then 5 per second\n", listener.Addr())
	fmt.Printf("  grpcurl -v -plaintext %s grpc.health.v1.Health/Check\n", listener.Addr())
	return server.Serve(listener)
}

// callEightTimes makes calls without a pause. The retry policy waits for those that are denied.
func callEightTimes(addr string) error {
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
		reply, err := healthgrpc.NewHealthClient(conn).Check(context.Background(), &healthgrpc.HealthCheckRequest{})
		if err != nil {
			return errors.New(status.Convert(err).Message())
		}
		fmt.Printf("%s after %v\n", reply.Status, time.Since(start).Round(time.Millisecond))
	}
	return nil
}
