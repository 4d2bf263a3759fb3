package connectratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/go-tokenbucket/ratelimit"
)

func failedLogins() ratelimit.Policy {
	p := perIP("login", ratelimit.PerHour(5))
	p.Settle = ratelimit.FailedLogins
	return p
}

// onPanic is the error of connect.WithRecover.
func onPanic(context.Context, connect.Spec, http.Header, any) error {
	return connect.NewError(connect.CodeInternal, errors.New("recovered"))
}

func TestSixFailedLoginsWhateverWayTheyFail(t *testing.T) {
	failing := func(err error) unary {
		return func(context.Context, *connect.Request[text]) (*connect.Response[text], error) { return nil, err }
	}
	panicking := func(v any) unary {
		return func(context.Context, *connect.Request[text]) (*connect.Response[text], error) { panic(v) }
	}
	recovers := connect.WithRecover(onPanic)
	coded := connect.NewError(connect.CodeUnauthenticated, errSecret)
	for name, tt := range map[string]struct {
		handler unary
		outside []connect.HandlerOption
		inside  []connect.HandlerOption
		code    connect.Code
	}{
		"code":                 {handler: failing(coded), code: connect.CodeUnauthenticated},
		"code in another":      {handler: failing(fmt.Errorf("login: %w", coded)), code: connect.CodeUnauthenticated},
		"error":                {handler: failing(errSecret), code: connect.CodeUnknown},
		"context":              {handler: failing(fmt.Errorf("login: %w", context.Canceled)), code: connect.CodeCanceled},
		"a handler's deadline": {handler: failing(context.DeadlineExceeded), code: connect.CodeDeadlineExceeded},
		"nil of a type":        {handler: failing((*connect.Error)(nil)), code: connect.CodeUnknown},
		"interceptor": {handler: failing(errSecret), code: connect.CodePermissionDenied,
			inside: []connect.HandlerOption{with(mapping(connect.CodePermissionDenied))}},
		"panic":                    {handler: panicking("x"), code: connect.CodeUnavailable},
		"panic, recovered outside": {handler: panicking("x"), outside: []connect.HandlerOption{recovers}, code: connect.CodeInternal},
		"panic, recovered inside":  {handler: panicking("x"), inside: []connect.HandlerOption{recovers}, code: connect.CodeInternal},
		"abort":                    {handler: panicking(http.ErrAbortHandler), outside: []connect.HandlerOption{recovers}, code: connect.CodeUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			limits := newLimits(t, ratelimit.Config{})
			var bad atomic.Bool
			h := func(ctx context.Context, req *connect.Request[text]) (*connect.Response[text], error) {
				if bad.Load() {
					return tt.handler(ctx, req)
				}
				return echo(ctx, req)
			}
			options := append(tt.outside, append([]connect.HandlerOption{with(limits.Interceptor(failedLogins()))}, tt.inside...)...)
			url := serveLogin(t, h, options...)
			for protocol := range protocols {
				reset(t, limits, "login")
				call := connectCaller(t, protocol, url)
				bad.Store(false)
				for range 10 {
					if r := call(t.Context(), login); r.code != 0 {
						t.Fatalf("%s: a good login: code %v", protocol, r.code)
					}
				}
				bad.Store(true)
				for i := range 5 {
					r := call(t.Context(), login)
					if tt.code == connect.CodeUnavailable && r.code != 0 {
						continue // the client saw no response, and net/http may have sent a GET again
					}
					if r.code != tt.code {
						t.Fatalf("%s: bad login %d: code %v, want %v", protocol, i, r.code, tt.code)
					}
					if lines(t, r.header)["X-Ratelimit-Limit"] != "5" {
						t.Errorf("%s: headers %v", protocol, r.header)
					}
				}
				if r := call(t.Context(), login); r.code != connect.CodeResourceExhausted {
					t.Errorf("%s: sixth bad login: code %v", protocol, r.code)
				}
			}
		})
	}
}

// mapping is an interceptor that gives errors a code.
func mapping(code connect.Code) connect.Interceptor {
	return connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc {
		return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
			resp, err := next(ctx, req)
			if err != nil {
				err = connect.NewError(code, errors.New("mapped"))
			}
			return resp, err
		}
	})
}

func TestAResponseThatWasNotModifiedIsAGoodOne(t *testing.T) {
	limits := newLimits(t, ratelimit.Config{})
	url := serveLogin(t, func(context.Context, *connect.Request[text]) (*connect.Response[text], error) {
		return nil, connect.NewNotModifiedError(nil)
	}, with(limits.Interceptor(failedLogins())))
	for protocol, want := range map[string]int64{"connect GET": 5, "connect": 4, "gRPC": 4} {
		reset(t, limits, "login")
		connectCaller(t, protocol, url)(t.Context(), login)
		if got := left(t, limits, failedLogins()); got != want {
			t.Errorf("%s: %d left, want %d", protocol, got, want)
		}
	}
}

func TestSettleSeesTheStatusOfEachCode(t *testing.T) {
	var seen ratelimit.Response
	p := perIP("p", ratelimit.PerHour(1000))
	p.Settle = func(_ *http.Request, r ratelimit.Response) int64 { seen = r; return 1 }
	var answer error
	h := func(ctx context.Context, req *connect.Request[text]) (*connect.Response[text], error) {
		if answer != nil {
			return nil, answer
		}
		return echo(ctx, req)
	}
	limits := newLimits(t, ratelimit.Config{Policies: []ratelimit.Policy{p}})
	call := connectCaller(t, "connect", serveLogin(t, h, with(limits.Interceptor())))
	for code, status := range map[connect.Code]int{
		0: 200, connect.CodeCanceled: 499, connect.CodeInternal: 500, connect.CodeUnauthenticated: 401,
	} {
		answer = nil
		bytes := int64(proto.Size(wrapperspb.String("hello")))
		if code != 0 {
			answer, bytes = connect.NewError(code, context.Canceled), 0
		}
		call(t.Context(), login)
		if want := (ratelimit.Response{Status: status, Written: true, Bytes: bytes, Cost: 1}); seen != want {
			t.Errorf("%v: %+v, want %+v", code, seen, want)
		}
	}
}

func TestHandlersSetTheCostAndReadTheDecision(t *testing.T) {
	p := failedLogins()
	limits := newLimits(t, ratelimit.Config{Policies: []ratelimit.Policy{p}})
	cost, faults := int64(0), atomic.Int32{}
	h := func(ctx context.Context, req *connect.Request[text]) (*connect.Response[text], error) {
		if d, ok := ratelimit.FromContext(ctx); !ok || !d.Allowed || d.Results[0].Policy != "login" {
			faults.Add(1)
		}
		if !ratelimit.SetCost(ctx, "login", cost) {
			faults.Add(1)
		}
		return echo(ctx, req)
	}
	for name, call := range callers(t, serveLogin(t, h, with(limits.Interceptor()))) {
		for _, cost = range []int64{0, 1, 3} {
			reset(t, limits, "login")
			call(t.Context(), login)
			if got := left(t, limits, p); got != 5-cost {
				t.Errorf("%s: %d left after a cost of %d", name, got, cost)
			}
		}
	}
	if faults.Load() != 0 {
		t.Errorf("%d faults in handlers", faults.Load())
	}
}
