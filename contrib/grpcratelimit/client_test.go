package grpcratelimit_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/contrib/grpcratelimit"
	"github.com/go-tokenbucket/ratelimit/denial"
	"github.com/go-tokenbucket/ratelimit/headers"
	"github.com/go-tokenbucket/ratelimit/outbound"
)

// within returns the options of a client that keeps within a quota.
func within(t *testing.T, limit ratelimit.Limit, maxWait time.Duration) []grpc.DialOption {
	t.Helper()
	q, err := outbound.NewQuota(outbound.Config{
		Limiter: newLimiter(t, ratelimit.Config{}).Limiter,
		Policy:  ratelimit.Policy{Name: "api", Limit: limit, MaxWait: maxWait},
	})
	if err != nil {
		t.Fatal(err)
	}
	return []grpc.DialOption{grpc.WithUnaryInterceptor(grpcratelimit.UnaryClient(q)), grpc.WithStreamInterceptor(grpcratelimit.StreamClient(q))}
}

func TestAClientWaitsForItsTurn(t *testing.T) {
	for _, k := range kinds {
		conn, seen := serve(t, nil, nil, within(t, ratelimit.Every(50*time.Millisecond), 0)...)
		begin := time.Now()
		for range 4 {
			if r := call(t, conn, k); r.err != nil {
				t.Fatal(r.err)
			}
		}
		if took := seen.times()[3].Sub(begin); took < 149*time.Millisecond {
			t.Errorf("%s: the fourth call came after %v, want 150ms", k, took)
		}
	}
}

func TestAClientWithoutAQuotaLeft(t *testing.T) {
	for _, k := range kinds {
		conn, seen := serve(t, nil, nil, within(t, ratelimit.PerHour(1), time.Second)...)
		call(t, conn, k)
		r := call(t, conn, k)
		var late *outbound.Error
		if r.code() != codes.ResourceExhausted || !errors.As(r.err, &late) || late.RetryAfter < 50*time.Minute || len(seen.times()) != 1 {
			t.Errorf("%s: %v, %d calls", k, r.err, len(seen.times()))
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if r := callWith(ctx, conn, k, 1); r.code() != codes.Canceled {
			t.Errorf("%s: %v", k, r.err)
		}
	}
}

// The server has a lower limit than the client knows. It denies at most once, and tells then or before.
func TestAClientLearns(t *testing.T) {
	silent := func(http.Header, *ratelimit.Decision) {}
	for name, headers := range map[string]ratelimit.HeaderFunc{"from each response": nil, "from a denial": silent} {
		for _, k := range kinds {
			server := newLimiter(t, ratelimit.Config{Headers: headers})
			conn, seen := serve(t, nil, limited(server, perIP("api", ratelimit.PerHour(3))), within(t, ratelimit.PerHour(1000), time.Second)...)
			var last reply
			for range 6 {
				last = call(t, conn, k)
			}
			denied := 0
			for _, code := range seen.ended(1) {
				if code != codes.OK {
					denied++
				}
			}
			var late *outbound.Error
			if !errors.As(last.err, &late) || denied > 1 || (denied == 1) != (headers != nil) {
				t.Errorf("%s, %s: %v, %d denied", name, k, last.err, denied)
			}
			if headers != nil && late.RetryAfter < 19*time.Minute {
				t.Errorf("%s, %s: retry after %v", name, k, late.RetryAfter)
			}
		}
	}
}

// Other errors, and a message that is too large for the client, stop nothing.
func TestAClientIsNotStoppedByOtherErrors(t *testing.T) {
	for _, err := range []error{
		status.Error(codes.ResourceExhausted, "the message is too large"),
		status.Error(codes.Unavailable, "restarting"),
		status.Error(codes.PermissionDenied, "not yours"),
	} {
		for _, k := range kinds {
			conn, seen := serve(t, func(context.Context) error { return err }, nil, within(t, ratelimit.PerHour(1000), time.Second)...)
			for range 3 {
				call(t, conn, k)
			}
			if n := len(seen.times()); n != 3 {
				t.Errorf("%s: %d calls, %v", k, n, err)
			}
		}
	}
}

// A RetryInfo stops for its time, also without metadata.
func TestAClientObeysARetryInfo(t *testing.T) {
	for code, stops := range map[codes.Code]bool{codes.ResourceExhausted: true, codes.Unavailable: true, codes.Aborted: false} {
		s, err := status.New(code, "").WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(time.Hour)})
		if err != nil {
			t.Fatal(err)
		}
		conn, seen := serve(t, func(context.Context) error { return s.Err() }, nil, within(t, ratelimit.PerHour(1000), time.Second)...)
		call(t, conn, unary)
		r := call(t, conn, unary)
		var late *outbound.Error
		if errors.As(r.err, &late) != stops || stops && late.RetryAfter < 50*time.Minute || (len(seen.times()) == 1) != stops {
			t.Errorf("%v: %v, %d calls", code, r.err, len(seen.times()))
		}
	}
}

// A client whose store fails goes on, unless the policy fails closed.
func TestAClientWhoseStoreFails(t *testing.T) {
	for _, closed := range []bool{false, true} {
		q, err := outbound.NewQuota(outbound.Config{
			Limiter: newLimiter(t, ratelimit.Config{Store: failing{errors.New("broken")}}).Limiter,
			Policy:  ratelimit.Policy{Name: "api", Limit: ratelimit.PerHour(1), FailClosed: closed},
		})
		if err != nil {
			t.Fatal(err)
		}
		conn, _ := serve(t, nil, nil, grpc.WithUnaryInterceptor(grpcratelimit.UnaryClient(q)))
		if r := call(t, conn, unary); r.code() != map[bool]codes.Code{true: codes.Unavailable, false: codes.OK}[closed] {
			t.Errorf("fail closed %t: %v", closed, r.err)
		}
	}
}

// The limiter of net/http sends no details, only Retry-After in what a client takes for the trailer.
func TestAClientObeysTheLimiterOfNetHTTP(t *testing.T) {
	for _, k := range kinds {
		l := newLimiter(t, ratelimit.Config{Headers: headers.None, Deny: denial.Handler{GRPC: true}})
		conn, seen := serveHTTP(t, l.Limiter.Limit(perIP("api", ratelimit.PerHour(1))), nil, within(t, ratelimit.PerHour(1000), time.Second)...)
		for range 2 {
			call(t, conn, k)
		}
		r := call(t, conn, k)
		var late *outbound.Error
		if !errors.As(r.err, &late) || late.RetryAfter < 50*time.Minute || len(seen.times()) != 2 {
			t.Errorf("%s: %v, %d calls", k, r.err, len(seen.times()))
		}
	}
}
