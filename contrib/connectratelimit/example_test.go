package connectratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/contrib/connectratelimit"
)

// The client waits as long as the server says.
func Example() {
	limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{Policies: []ratelimit.Policy{{
		Name:  "api",
		Key:   ratelimit.Join(ratelimit.RemoteIP(), ratelimit.Route()),
		Limit: ratelimit.Every(100 * time.Millisecond),
	}}}))
	defer limiter.Close()
	limits := connectratelimit.New(limiter, connectratelimit.Config{})

	const procedure = "/acme.v1.Greeter/Hello"
	mux := http.NewServeMux()
	mux.Handle(procedure, connect.NewUnaryHandlerSimple(procedure, func(_ context.Context, name *wrapperspb.StringValue) (*wrapperspb.StringValue, error) {
		return wrapperspb.String("Hello, " + name.Value), nil
	}, connect.WithInterceptors(limits.Interceptor())))
	server := httptest.NewServer(mux)
	defer server.Close()

	client := connect.NewClient[wrapperspb.StringValue, wrapperspb.StringValue](server.Client(), server.URL+procedure)
	for range 3 {
		reply, err := client.CallUnary(context.Background(), connect.NewRequest(wrapperspb.String("gopher")))
		for err != nil {
			time.Sleep(retryDelay(err))
			reply, err = client.CallUnary(context.Background(), connect.NewRequest(wrapperspb.String("gopher")))
		}
		fmt.Println(reply.Msg.Value)
	}
	// Output:
	// Hello, gopher
	// Hello, gopher
	// Hello, gopher
}

func retryDelay(err error) time.Duration {
	var coded *connect.Error
	if errors.As(err, &coded) {
		for _, detail := range coded.Details() {
			if message, err := detail.Value(); err == nil {
				if info, ok := message.(*errdetails.RetryInfo); ok {
					return info.RetryDelay.AsDuration()
				}
			}
		}
	}
	return time.Second
}

// A policy for all calls, one for failed logins, and one for the messages of a stream. Generated code takes the options.
func ExampleLimiter() {
	limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{
		Policies: []ratelimit.Policy{{Name: "api", Key: ratelimit.RemoteIP(), Limit: ratelimit.PerMinute(60)}},
	}))
	defer limiter.Close()
	limits := connectratelimit.New(limiter, connectratelimit.Config{})
	login := ratelimit.Policy{
		Name: "login", Key: ratelimit.RemoteIP(), Settle: ratelimit.FailedLogins,
		Limit: ratelimit.Every(15 * time.Minute).WithBurst(5),
		LimitFunc: func(r *http.Request) ratelimit.Limit {
			if r.Pattern != "/acme.v1.AuthService/Login" {
				return ratelimit.Unlimited
			}
			return ratelimit.Limit{} // that of the policy
		},
	}
	messages := ratelimit.Policy{Name: "messages", Key: ratelimit.Header("X-Api-Key"), Limit: ratelimit.PerSecond(20), MaxWait: time.Second}

	option := connect.WithInterceptors(
		limits.Interceptor(),      // the policies of Config
		limits.Interceptor(login), // one more
		limits.Messages(messages), // for each message of a stream
	)
	connect.NewUnaryHandler("/acme.v1.AuthService/Login", signIn, option)
	// Output:
}

func signIn(context.Context, *connect.Request[wrapperspb.StringValue]) (*connect.Response[wrapperspb.StringValue], error) {
	return nil, connect.NewError(connect.CodeUnauthenticated, errors.New("wrong password"))
}
