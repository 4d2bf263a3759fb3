package connectratelimit_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/contrib/connectratelimit"
)

// A stack is a way to mount an outer and an inner limit.
type stack struct {
	mount func(l *connectratelimit.Limiter, outer, inner ratelimit.Policy, service func(...connect.HandlerOption) http.Handler) http.Handler

	// Its responses have only the headers of the outer policy.
	outerOnly bool
}

var stacks = map[string]stack{
	"interceptors": {mount: func(l *connectratelimit.Limiter, outer, inner ratelimit.Policy, service func(...connect.HandlerOption) http.Handler) http.Handler {
		return service(with(l.Interceptor(outer), l.Interceptor(inner)))
	}},
	"options": {mount: func(l *connectratelimit.Limiter, outer, inner ratelimit.Policy, service func(...connect.HandlerOption) http.Handler) http.Handler {
		return service(with(l.Interceptor(outer)), with(l.Interceptor(inner)))
	}},
	"net/http, another between": {outerOnly: true, mount: func(l *connectratelimit.Limiter, outer, inner ratelimit.Policy, service func(...connect.HandlerOption) http.Handler) http.Handler {
		return l.Limit(outer)(service(with(l.Interceptor(perIP("between", ratelimit.PerHour(100))), l.Interceptor(inner))))
	}},
	"gate": {mount: func(l *connectratelimit.Limiter, outer, inner ratelimit.Policy, service func(...connect.HandlerOption) http.Handler) http.Handler {
		return service(connect.WithRequestGate(l.Gate(outer)), with(l.Interceptor(inner)))
	}},
	"net/http": {outerOnly: true, mount: func(l *connectratelimit.Limiter, outer, inner ratelimit.Policy, service func(...connect.HandlerOption) http.Handler) http.Handler {
		return l.Limit(outer)(service(with(l.Interceptor(inner))))
	}},
	"gate in net/http": {outerOnly: true, mount: func(l *connectratelimit.Limiter, outer, inner ratelimit.Policy, service func(...connect.HandlerOption) http.Handler) http.Handler {
		return l.Limit(outer)(service(connect.WithRequestGate(l.Gate(inner))))
	}},
}

func TestStackedLimitsHaveOneHeaderEach(t *testing.T) {
	for name, s := range stacks {
		t.Run(name, func(t *testing.T) {
			outer, inner := perIP("outer", ratelimit.PerHour(10)), perIP("inner", ratelimit.PerHour(2))
			limits := newLimits(t, ratelimit.Config{Policies: []ratelimit.Policy{outer}})
			url := serve(t, s.mount(limits, outer, inner, func(options ...connect.HandlerOption) http.Handler {
				return logins(echo, options...)
			}))
			tightest := "2"
			if s.outerOnly {
				tightest = "10"
			}
			for client, call := range callers(t, url) {
				reset(t, limits, "outer")
				reset(t, limits, "inner")
				for i := range 3 {
					r := call(t.Context(), login)
					h := lines(t, r.header)
					if (r.code != 0) != (i == 2) || h["X-Ratelimit-Limit"] != tightest || h["X-Ratelimit-Remaining"] == "" || h["X-Ratelimit-Reset"] == "" {
						t.Errorf("%s: call %d: code %v, headers %v", client, i, r.code, h)
					}
					if (i == 2) != (h["Retry-After"] == "1800") || (i == 2) != (r.retry == 30*time.Minute) || strings.Join(r.violated, ",") != map[bool]string{true: "inner"}[i == 2] {
						t.Errorf("%s: call %d: headers %v, retry %v, violated %q", client, i, h, r.retry, r.violated)
					}
				}
				if r := call(t.Context(), login); strings.HasPrefix(client, "connect") && lines(t, r.header)["Cache-Control"] != "no-store" {
					t.Errorf("%s: a denial may be stored: headers %v", client, r.header)
				}
				if got := left(t, limits, outer); got != 6 {
					t.Errorf("%s: %d left outside, want 6: a denial inside gives nothing back", client, got)
				}
			}
		})
	}
}

func TestStackedLimitsOfStreamsHaveOneHeaderEach(t *testing.T) {
	for name, s := range stacks {
		t.Run(name, func(t *testing.T) {
			outer, inner := perIP("outer", ratelimit.PerHour(10)), perIP("inner", ratelimit.PerHour(2))
			limits := newLimits(t, ratelimit.Config{Policies: []ratelimit.Policy{outer}})
			url := serve(t, s.mount(limits, outer, inner, files{}.handler))
			for client, stream := range streamers(t, url) {
				reset(t, limits, "outer")
				reset(t, limits, "inner")
				tightest := "2"
				// The header of a stream of Connect is that of net/http.
				if s.outerOnly && (name == "gate in net/http" || isGRPC(client)) {
					tightest = "10"
				}
				for i := range 3 {
					_, r := stream(t.Context(), watch, "a")
					h := lines(t, r.header)
					if (r.code != 0) != (i == 2) || h["X-Ratelimit-Limit"] != tightest || (i == 2) != (h["Retry-After"] == "1800") || (i == 2) != (r.retry == 30*time.Minute) {
						t.Errorf("%s: stream %d: code %v, headers %v, retry %v", client, i, r.code, h, r.retry)
					}
				}
			}
		})
	}
}

// An interceptor may set headers for all responses.
func TestHeadersOfOtherInterceptorsStay(t *testing.T) {
	limits := newLimits(t, ratelimit.Config{})
	sets := connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc {
		return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
			if info, ok := connect.CallInfoForHandlerContext(ctx); ok {
				info.ResponseHeader().Set("X-Request-Id", "7")
			}
			return next(ctx, req)
		}
	})
	h := func(ctx context.Context, req *connect.Request[text]) (*connect.Response[text], error) {
		resp := connect.NewResponse(wrapperspb.String(req.Msg.Value))
		resp.Header().Set("X-Answer", "8")
		return resp, nil
	}
	for name, call := range callers(t, serveLogin(t, h, with(sets, limits.Interceptor(perIP("api", ratelimit.PerHour(1)))))) {
		reset(t, limits, "api")
		for i := range 2 {
			r := call(t.Context(), login)
			if r.header.Get("X-Request-Id") != "7" || len(r.header["X-Request-Id"]) != 1 || (r.header.Get("X-Answer") == "8") != (i == 0) || lines(t, r.header)["X-Ratelimit-Remaining"] != "0" {
				t.Errorf("%s: call %d: %v", name, i, r.header)
			}
		}
	}
}

// As with net/http, headers that a handler sets replace those of the limiter.
func TestHeadersOfTheHandlerReplaceThoseOfTheLimiter(t *testing.T) {
	limits := newLimits(t, ratelimit.Config{Policies: []ratelimit.Policy{perIP("api", ratelimit.PerHour(1000))}})
	for name, h := range map[string]unary{
		"response": func(context.Context, *connect.Request[text]) (*connect.Response[text], error) {
			resp := connect.NewResponse(new(text))
			resp.Header().Set("X-RateLimit-Limit", "7")
			return resp, nil
		},
		"context": func(ctx context.Context, req *connect.Request[text]) (*connect.Response[text], error) {
			if info, ok := connect.CallInfoForHandlerContext(ctx); ok {
				info.ResponseHeader().Set("X-RateLimit-Limit", "7")
			}
			return echo(ctx, req)
		},
	} {
		inside := with(limits.Interceptor())
		for at, h := range map[string]http.Handler{
			"one":     logins(h, inside),
			"stacked": logins(h, inside, with(limits.Interceptor(perIP("inner", ratelimit.PerHour(500))))),
		} {
			url := serve(t, h)
			for _, client := range []string{"connect", "gRPC", "gRPC-Web"} {
				r := connectCaller(t, client, url)(t.Context(), login)
				if got := lines(t, r.header)["X-Ratelimit-Limit"]; got != "7" {
					t.Errorf("%s, %s, %s: %v", name, at, client, r.header)
				}
			}
		}
	}
}

// The header of net/http belongs to the goroutine that serves the request. A handler may run in another one.
func TestATimeoutHandlerBetween(t *testing.T) {
	limits := newLimits(t, ratelimit.Config{})
	var ended sync.WaitGroup
	slow := connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc {
		return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
			<-ctx.Done()
			return next(context.WithoutCancel(ctx), req)
		}
	})
	h := logins(echo, with(slow, limits.Interceptor(perIP("inner", ratelimit.PerHour(1)))))
	timeout := http.TimeoutHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer ended.Done()
		h.ServeHTTP(w, r)
	}), 5*time.Millisecond, "")
	url := serve(t, limits.Limit(perIP("outer", ratelimit.PerHour(1000)))(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ended.Add(1)
		timeout.ServeHTTP(w, r)
	})))
	for range 20 {
		if r := connectCaller(t, "connect", url)(t.Context(), login); r.code != connect.CodeUnavailable {
			t.Errorf("code %v, want that of the timeout", r.code)
		}
	}
	ended.Wait()
}
