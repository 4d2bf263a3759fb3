package grpcratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/contrib/grpcratelimit"
	"github.com/go-tokenbucket/ratelimit/outbound"
)

// The client retries by its service config. It comes back when the server says. That is enough for one caller at a time:
// for callers in parallel, set MaxWait in the policy.
func Example() {
	limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{Policies: []ratelimit.Policy{{
		Name:  "api",
		Key:   ratelimit.Join(ratelimit.RemoteIP(), ratelimit.Route()),
		Limit: ratelimit.Every(100 * time.Millisecond),
	}}}))
	defer limiter.Close()
	limits := grpcratelimit.New(limiter, grpcratelimit.Config{})

	server := grpc.NewServer(grpc.ChainUnaryInterceptor(limits.Unary()), grpc.ChainStreamInterceptor(limits.Stream()))
	healthgrpc.RegisterHealthServer(server, health.NewServer())
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	go server.Serve(listener)
	defer server.Stop()

	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultServiceConfig(`{"methodConfig": [{"name": [{}], "retryPolicy": {
			"maxAttempts": 3, "initialBackoff": "0.01s", "maxBackoff": "1s", "backoffMultiplier": 2,
			"retryableStatusCodes": ["RESOURCE_EXHAUSTED"]
		}}]}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close()

	client := healthgrpc.NewHealthClient(conn)
	for range 3 {
		_, err := client.Check(context.Background(), &healthgrpc.HealthCheckRequest{})
		fmt.Println(err)
	}
	// Output:
	// <nil>
	// <nil>
	// <nil>
}

// A client without a retry policy finds the time in the error.
func Example_retryInfo() {
	call := func() error { return errors.New("of a call") }
	for {
		err := call()
		wait := time.Duration(0)
		for _, detail := range status.Convert(err).Details() {
			if info, ok := detail.(*errdetails.RetryInfo); ok {
				wait = info.RetryDelay.AsDuration()
			}
		}
		if wait == 0 {
			break
		}
		time.Sleep(wait)
	}
}

// Wrong passwords are limited, good ones are not. Each message of a stream costs a token of another policy.
func ExampleLimiter() {
	limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{
		Policies: []ratelimit.Policy{{Name: "api", Key: ratelimit.RemoteIP(), Limit: ratelimit.PerMinute(60)}},
	}))
	limits := grpcratelimit.New(limiter, grpcratelimit.Config{})
	login := ratelimit.Policy{
		Name: "login", Key: ratelimit.RemoteIP(), Settle: ratelimit.FailedLogins,
		Limit: ratelimit.Every(15 * time.Minute).WithBurst(5),
		LimitFunc: func(r *http.Request) ratelimit.Limit {
			if r.Pattern != "/accounts.Accounts/Login" {
				return ratelimit.Unlimited
			}
			return ratelimit.Limit{} // that of the policy
		},
	}
	messages := ratelimit.Policy{Name: "messages", Key: ratelimit.Header("X-Api-Key"), Limit: ratelimit.PerSecond(20), MaxWait: time.Second}
	server := grpc.NewServer(
		grpc.ChainUnaryInterceptor(limits.Unary(), limits.Unary(login)),         // the policies of Config, and one more
		grpc.ChainStreamInterceptor(limits.Stream(), limits.Messages(messages)), // each stream, and each of its messages
	)
	server.Stop()
}

// All replicas of a service together make at most 100 calls in a second.
func ExampleUnaryClient() {
	limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{})) // Store: a redisstore, which the replicas share
	quota, err := outbound.NewQuota(outbound.Config{
		Limiter: limiter,
		Policy:  ratelimit.Policy{Name: "accounts", Limit: ratelimit.PerSecond(100), MaxWait: 2 * time.Second},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	_, _ = grpc.NewClient("dns:///accounts.example.com:443",
		grpc.WithTransportCredentials(credentials.NewTLS(nil)),
		grpc.WithChainUnaryInterceptor(grpcratelimit.UnaryClient(quota)),
		grpc.WithChainStreamInterceptor(grpcratelimit.StreamClient(quota)),
	)
}
