package grpcratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/go-tokenbucket/ratelimit"
)

var logins = ratelimit.Policy{Name: "logins", Key: ratelimit.RemoteIP(), Limit: ratelimit.PerHour(5), Settle: ratelimit.FailedLogins}

// recovery returns interceptors that answer a panic with INTERNAL, as those of go-grpc-middleware.
func recovery() []any {
	fromPanic := func(err *error) {
		if p := recover(); p != nil {
			*err = status.Errorf(codes.Internal, "panic: %v", p)
		}
	}
	return []any{
		grpc.UnaryServerInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (_ any, err error) {
			defer fromPanic(&err)
			return next(ctx, req)
		}),
		grpc.StreamServerInterceptor(func(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) (err error) {
			defer fromPanic(&err)
			return next(srv, ss)
		}),
	}
}

// mapping returns interceptors that give every error another code.
func mapping(to codes.Code) []any {
	mapped := func(err error) error {
		if err != nil {
			err = status.Error(to, "mapped")
		}
		return err
	}
	return []any{
		grpc.UnaryServerInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			reply, err := next(ctx, req)
			return reply, mapped(err)
		}),
		grpc.StreamServerInterceptor(func(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			return mapped(next(srv, ss))
		}),
	}
}

type plainError struct{ error }

// An okError has the status OK, and is an error all the same.
type okError struct{ error }

func (okError) GRPCStatus() *status.Status { return status.New(codes.OK, "") }

// Six failed logins by each way of failing: the sixth is denied. Before, five good ones cost nothing.
func TestSixFailedLogins(t *testing.T) {
	fails := func(err error) func(context.Context) error { return func(context.Context) error { return err } }
	panics := func(context.Context) error { panic("failed") }
	for _, c := range []struct {
		name          string
		way           func(context.Context) error
		outer, inside []any
		code          codes.Code
	}{
		{name: "status", way: fails(status.Error(codes.Unauthenticated, "")), code: codes.Unauthenticated},
		{name: "wrapped status", way: fails(fmt.Errorf("login: %w", status.Error(codes.PermissionDenied, ""))), code: codes.PermissionDenied},
		{name: "plain error", way: fails(plainError{errors.New("wrong password")}), code: codes.Unknown},
		{name: "context error", way: fails(context.DeadlineExceeded), code: codes.DeadlineExceeded},
		{name: "mapped inside", way: fails(errors.New("wrong password")), inside: mapping(codes.Unauthenticated), code: codes.Unauthenticated},
		{name: "mapped outside", way: fails(errors.New("wrong password")), outer: mapping(codes.Unauthenticated), code: codes.Unauthenticated},
		{name: "panic, recovery outside", way: panics, outer: recovery(), code: codes.Internal},
		{name: "panic, recovery inside", way: panics, inside: recovery(), code: codes.Internal},
		{name: "SetCost", way: func(ctx context.Context) error {
			if !ratelimit.SetCost(ctx, "logins", 1) {
				return errors.New("no such policy")
			}
			return nil
		}, code: codes.OK},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, k := range kinds {
				way := func(context.Context) error { return nil }
				l := newLimiter(t, ratelimit.Config{Policies: []ratelimit.Policy{logins}})
				interceptors := append(append(append([]any{}, c.outer...), l.Unary(), l.Stream()), c.inside...)
				conn, _ := serve(t, func(ctx context.Context) error { return way(ctx) }, chained(interceptors...))
				for range 6 {
					if r := call(t, conn, k); r.err != nil {
						t.Fatalf("%s: a good login: %v", k, r.err)
					}
				}
				way = c.way
				for i := range 5 {
					r := call(t, conn, k)
					if r.code() != c.code {
						t.Fatalf("%s: failed login %d: %v", k, i+1, r.err)
					}
					if md := r.trailer; c.code != codes.OK {
						if only(t, md, "x-ratelimit-limit") != "5" || md["retry-after"] != nil || md["grpc-retry-pushback-ms"] != nil {
							t.Errorf("%s: failed login: %v", k, map[string][]string(md))
						}
					}
				}
				want := codes.ResourceExhausted
				if c.name == "mapped outside" {
					want = c.code
				}
				if r := call(t, conn, k); r.code() != want || only(t, r.trailer, "retry-after") == "" {
					t.Errorf("%s: failed login 6: %v", k, r.err)
				}
			}
		})
	}
}

func TestSetCostAndFromContextInAHandler(t *testing.T) {
	llm := perIP("llm", ratelimit.PerHour(100))
	llm.Settle = func(*http.Request, ratelimit.Response) int64 { return 1 }
	outer := perIP("outer", ratelimit.PerHour(50))
	for _, k := range kinds {
		var names []string
		handle := func(ctx context.Context) error {
			d, ok := ratelimit.FromContext(ctx)
			if !ok || !d.Allowed {
				return errors.New("no decision")
			}
			names = nil
			for _, r := range d.Results {
				names = append(names, fmt.Sprint(r.Policy, r.Remaining))
			}
			if !ratelimit.SetCost(ctx, "llm", 40) || ratelimit.SetCost(ctx, "outer", 1) {
				return errors.New("SetCost")
			}
			return nil
		}
		l := newLimiter(t, ratelimit.Config{})
		conn, _ := serve(t, handle, append(limited(l, outer), limited(l, llm)...))
		for _, want := range []string{"[outer49 llm99]", "[outer48 llm59]", "[outer47 llm19]"} {
			if r := call(t, conn, k); r.err != nil || fmt.Sprint(names) != want {
				t.Errorf("%s: %v, %v, want %s", k, r.err, names, want)
			}
		}
	}
}

// A Settle gets the HTTP status of the code, and the size of what was sent.
func TestTheResponseOfASettle(t *testing.T) {
	var mu sync.Mutex
	var got ratelimit.Response
	policy := perIP("api", ratelimit.PerHour(1000))
	policy.Settle = func(_ *http.Request, response ratelimit.Response) int64 {
		mu.Lock()
		defer mu.Unlock()
		got = response
		return 0
	}
	var way func() error
	l := newLimiter(t, ratelimit.Config{})
	interceptors := append(recovery(), l.Unary(policy), l.Stream(policy))
	conn, _ := serve(t, func(context.Context) error { return way() }, chained(interceptors...))
	last := func() ratelimit.Response {
		mu.Lock()
		defer mu.Unlock()
		return got
	}
	for code, want := range map[codes.Code]int{codes.OK: 200, codes.Canceled: 499, codes.Unauthenticated: 401, 77: 500} {
		way = func() error { return status.Error(code, "") }
		for _, k := range kinds {
			call(t, conn, k)
			r := last()
			if r.Status != want || !r.Written || r.Panicked || r.Cost != 1 || code != codes.OK && r.Bytes != 0 && k == unary {
				t.Errorf("%s, %v: %+v", k, code, r)
			}
		}
	}
	way = func() error { return nil }
	sizes := map[kind]int64{
		unary: int64(proto.Size(&testgrpc.SimpleResponse{Username: "a user"})), input: int64(proto.Size(&testgrpc.StreamingInputCallResponse{AggregatedPayloadSize: 1})),
	}
	for _, k := range kinds {
		call(t, conn, k)
		if r := last(); r.Bytes != sizes[k] {
			t.Errorf("%s: %+v, want %d bytes", k, r, sizes[k])
		}
	}
	way = func() error { return okError{errors.New("failed")} }
	for _, k := range kinds {
		call(t, conn, k)
		if r := last(); r.Status != 500 {
			t.Errorf("%s, an error with OK: %+v", k, r)
		}
	}
	way = func() error { panic("failed") }
	for _, k := range kinds {
		call(t, conn, k)
		if r := last(); r.Status != 0 || r.Written || !r.Panicked {
			t.Errorf("%s that panics: %+v", k, r)
		}
	}
}

// An outer FailedLogins counts what an inner limiter denies as a failure, as in net/http.
func TestStackedLimiters(t *testing.T) {
	for _, k := range kinds {
		l := newLimiter(t, ratelimit.Config{})
		conn, _ := serve(t, nil, append(limited(l, perIP("outer", ratelimit.PerHour(3))), limited(l, perIP("inner", ratelimit.PerHour(2)))...))
		for _, left := range []string{"1", "0"} {
			r := call(t, conn, k)
			if r.err != nil || only(t, r.header, "x-ratelimit-limit") != "2" || only(t, r.header, "x-ratelimit-remaining") != left || len(r.trailer) > 0 {
				t.Errorf("%s: %v %v", k, r.err, map[string][]string(r.header))
			}
		}
		// The inner one denies, and the outer one has been charged.
		r := call(t, conn, k)
		if r.code() != codes.ResourceExhausted || only(t, r.trailer, "x-ratelimit-limit") != "2" || only(t, r.trailer, "grpc-retry-pushback-ms") == "" || len(r.header) > 0 {
			t.Errorf("%s: %v %v", k, r.err, map[string][]string(r.trailer))
		}
		if _, quota := details(t, r.err); len(quota.GetViolations()) != 1 || quota.Violations[0].QuotaId != "inner" {
			t.Errorf("%s: %v", k, quota)
		}
		if r := call(t, conn, k); r.code() != codes.ResourceExhausted || only(t, r.trailer, "x-ratelimit-limit") != "3" || only(t, r.trailer, "grpc-retry-pushback-ms") == "" {
			t.Errorf("%s: %v %v", k, r.err, map[string][]string(r.trailer))
		}
	}
}

// An interceptor between two limiters may answer what the inner one denies.
func TestADenialThatIsReplaced(t *testing.T) {
	for _, k := range []kind{unary, input} {
		l := newLimiter(t, ratelimit.Config{})
		replace := []any{
			grpc.UnaryServerInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
				_, _ = next(ctx, req)
				return &testgrpc.SimpleResponse{}, nil
			}),
			grpc.StreamServerInterceptor(func(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
				if next(srv, ss) != nil {
					return ss.SendMsg(&testgrpc.StreamingInputCallResponse{})
				}
				return nil
			}),
		}
		interceptors := append([]any{l.Unary(perIP("outer", ratelimit.PerHour(3))), l.Stream(perIP("outer", ratelimit.PerHour(3)))}, replace...)
		conn, _ := serve(t, nil, append(chained(interceptors...), limited(l, perIP("inner", ratelimit.PerHour(1)))...))
		for range 2 {
			r := call(t, conn, k)
			if r.err != nil || only(t, r.header, "x-ratelimit-limit") != "1" || r.header["retry-after"] != nil || r.header["grpc-retry-pushback-ms"] != nil || len(r.trailer) > 0 {
				t.Errorf("%s: %v, %v, trailer %v", k, r.err, map[string][]string(r.header), map[string][]string(r.trailer))
			}
		}
	}
}
