package grpcratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/contrib/grpcratelimit"
	"github.com/go-tokenbucket/ratelimit/denial"
)

// retrying is a service config by which a client retries almost at once, unless the server says when.
var retrying = grpc.WithDefaultServiceConfig(`{"methodConfig": [{
	"name": [{}],
	"retryPolicy": {
		"maxAttempts": 4, "initialBackoff": "0.001s", "maxBackoff": "0.001s", "backoffMultiplier": 1,
		"retryableStatusCodes": ["RESOURCE_EXHAUSTED", "UNAVAILABLE", "PERMISSION_DENIED", "INVALID_ARGUMENT"]
	}
}]}`)

// pause is the time until a bucket has its next token.
const pause = 250 * time.Millisecond

func once(name string) ratelimit.Policy { return perIP(name, ratelimit.Every(pause)) }

// The client comes again when the server has said, and is admitted then. The headers of a limiter that allowed the call
// must not be sent before an inner one has denied it.
func TestARetryPolicyObeys(t *testing.T) {
	for name, interceptors := range map[string]func(*grpcratelimit.Limiter) []any{
		"a limiter": func(l *grpcratelimit.Limiter) []any { return []any{l.Unary(once("api")), l.Stream(once("api"))} },
		"an inner limiter": func(l *grpcratelimit.Limiter) []any {
			outer := perIP("outer", ratelimit.PerHour(100))
			return []any{l.Unary(outer), l.Stream(outer), l.Unary(once("inner")), l.Stream(once("inner"))}
		},
		"a denied message": func(l *grpcratelimit.Limiter) []any {
			return []any{l.Stream(perIP("streams", ratelimit.PerHour(100))), l.Messages(once("messages"))}
		},
	} {
		for _, k := range kinds {
			messages := name == "a denied message"
			if messages && k == unary {
				continue
			}
			t.Run(name+" "+string(k), func(t *testing.T) {
				t.Parallel()
				conn, seen := serve(t, nil, chained(interceptors(newLimiter(t, ratelimit.Config{}))...), retrying)
				if r := call(t, conn, k); r.err != nil {
					t.Fatalf("first call: %v", r.err)
				}
				r := call(t, conn, k)
				times := seen.times()
				if r.err != nil || len(times) != 3 {
					t.Fatalf("second call: %v after %d attempts", r.err, len(times)-1)
				}
				// The bucket was empty since the first call, and the denial was a little after the second attempt.
				waited, since := times[2].Sub(times[1]), times[2].Sub(times[0])
				if since < pause || waited < pause-times[1].Sub(times[0]) || waited > pause+5*time.Second {
					t.Errorf("the client came again after %v, %v after the first call", waited, since)
				}
				if !messages && only(t, r.header, "x-ratelimit-remaining") != "0" || r.trailer["retry-after"] != nil {
					t.Errorf("in the end: %v, trailer %v", r.header, r.trailer)
				}
			})
		}
	}
}

func TestARetryPolicyDoesNotRetryWhatCannotSucceed(t *testing.T) {
	noKey := ratelimit.Policy{Name: "api", Limit: ratelimit.PerHour(1), Key: func(*http.Request) (string, error) { return "", ratelimit.ErrNoKey }}
	malformed := noKey
	malformed.Key = func(*http.Request) (string, error) { return "", ratelimit.ErrBadRequest }
	costly := perIP("api", ratelimit.PerHour(5))
	costly.Cost = func(*http.Request) int64 { return 6 }
	for want, policy := range map[codes.Code]ratelimit.Policy{
		codes.ResourceExhausted: costly, codes.PermissionDenied: noKey, codes.InvalidArgument: malformed,
	} {
		for _, k := range kinds {
			conn, seen := serve(t, nil, limited(newLimiter(t, ratelimit.Config{}), policy), retrying)
			if r, n := call(t, conn, k), len(seen.times()); r.code() != want || n != 1 {
				t.Errorf("%s: %v, %d attempts", k, r.err, n)
			}
		}
	}
}

// With MaxWait no call of callers in parallel is denied, so none needs a retry.
func TestCallersInParallelWaitInTurn(t *testing.T) {
	policy := perIP("api", ratelimit.Every(10*time.Millisecond))
	policy.MaxWait = time.Minute
	for _, k := range kinds {
		t.Run(string(k), func(t *testing.T) {
			t.Parallel()
			conn, seen := serve(t, nil, limited(newLimiter(t, ratelimit.Config{}), policy), retrying)
			var callers sync.WaitGroup
			for range 4 {
				callers.Go(func() {
					for range 15 {
						if r := call(t, conn, k); r.err != nil {
							t.Error(r.err)
						}
					}
				})
			}
			callers.Wait()
			if n := len(seen.times()); n != 60 {
				t.Errorf("60 calls took %d attempts", n)
			}
		})
	}
}

// The pushback for a store that failed is five seconds. A client whose deadline is before that gives up.
func TestAPushbackBeyondTheDeadline(t *testing.T) {
	policy := perIP("api", ratelimit.PerHour(1))
	policy.FailClosed = true
	conn, seen := serve(t, nil, limited(newLimiter(t, ratelimit.Config{Store: failing{errors.New("broken")}}), policy), retrying)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if r, n := callWith(ctx, conn, unary, 1), len(seen.times()); r.code() != codes.DeadlineExceeded || n != 1 {
		t.Errorf("%v, %d attempts", r.err, n)
	}
}

// serveHTTP starts net/http with a gRPC server in wrap.
func serveHTTP(t *testing.T, wrap func(http.Handler) http.Handler, options []grpc.ServerOption, client ...grpc.DialOption) (*grpc.ClientConn, *attempts) {
	t.Helper()
	seen := new(attempts)
	s := grpc.NewServer(options...)
	testgrpc.RegisterTestServiceServer(s, &service{handle: func(context.Context) error { return nil }})
	inner := wrap(s)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen.add()
		inner.ServeHTTP(w, r)
	}))
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	t.Cleanup(server.Close)
	return dial(t, server.Listener.Addr().String(), client...), seen
}

// Around grpc.Server.ServeHTTP the limiter of net/http answers, whose denial is one part.
func TestARetryPolicyObeysTheLimiterOfNetHTTP(t *testing.T) {
	for _, k := range kinds {
		t.Run(string(k), func(t *testing.T) {
			t.Parallel()
			// The pushback is in whole seconds, as Retry-After.
			l := newLimiter(t, ratelimit.Config{Deny: denial.Handler{GRPC: true}})
			conn, seen := serveHTTP(t, l.Limiter.Limit(perIP("api", ratelimit.Every(pause))), nil, retrying)
			if r := call(t, conn, k); r.err != nil {
				t.Fatal(r.err)
			}
			r := call(t, conn, k)
			if times := seen.times(); r.err != nil || len(times) != 3 || times[2].Sub(times[1]) < time.Second {
				t.Errorf("%v after attempts at %v", r.err, times)
			}
		})
	}
}

// An interceptor under grpc.Server.ServeHTTP denies, but grpc-go sends its answer in two parts, which are not retried.
// If this fails, the package comment is out of date.
func TestServeHTTPCannotPushBack(t *testing.T) {
	l := newLimiter(t, ratelimit.Config{})
	conn, seen := serveHTTP(t, func(h http.Handler) http.Handler { return h }, limited(l, once("api")), retrying)
	call(t, conn, unary)
	r := call(t, conn, unary)
	if n := len(seen.times()); r.code() != codes.ResourceExhausted || n != 2 {
		t.Errorf("%v, %d attempts", r.err, n)
	}
	retry, _ := details(t, r.err)
	if d := retry.GetRetryDelay().AsDuration(); d <= 0 || d > pause || only(t, r.trailer, "grpc-retry-pushback-ms") == "" {
		t.Errorf("RetryInfo %v, trailer %v", d, map[string][]string(r.trailer))
	}
	if text := fmt.Sprint(map[string][]string(r.header)); strings.Contains(text, "retry") {
		t.Errorf("header %s", text)
	}
}
