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

// A service makes the handlers of a service, with options.
type service = func(...connect.HandlerOption) http.Handler

// A stack is a way to mount an outer and an inner limit.
type stack struct {
	mount func(l *connectratelimit.Limiter, outer, inner ratelimit.Policy, of service) http.Handler

	// Its responses have only the headers of the outer policy.
	outerOnly bool
}

var stacks = map[string]stack{
	"interceptors": {mount: func(l *connectratelimit.Limiter, outer, inner ratelimit.Policy, of service) http.Handler {
		return of(with(l.Interceptor(outer), l.Interceptor(inner)))
	}},
	"options": {mount: func(l *connectratelimit.Limiter, outer, inner ratelimit.Policy, of service) http.Handler {
		return of(with(l.Interceptor(outer)), with(l.Interceptor(inner)))
	}},
	"net/http, another between": {outerOnly: true, mount: func(l *connectratelimit.Limiter, outer, inner ratelimit.Policy, of service) http.Handler {
		return l.Limit(outer)(of(with(l.Interceptor(perIP("between", ratelimit.PerHour(100))), l.Interceptor(inner))))
	}},
	"gate": {mount: func(l *connectratelimit.Limiter, outer, inner ratelimit.Policy, of service) http.Handler {
		return of(connect.WithRequestGate(l.Gate(outer)), with(l.Interceptor(inner)))
	}},
	"net/http": {outerOnly: true, mount: func(l *connectratelimit.Limiter, outer, inner ratelimit.Policy, of service) http.Handler {
		return l.Limit(outer)(of(with(l.Interceptor(inner))))
	}},
	"gate in net/http": {outerOnly: true, mount: func(l *connectratelimit.Limiter, outer, inner ratelimit.Policy, of service) http.Handler {
		return l.Limit(outer)(of(connect.WithRequestGate(l.Gate(inner))))
	}},
}

func TestStackedLimitsHaveOneHeaderEach(t *testing.T) {
	for name, s := range stacks {
		t.Run(name, func(t *testing.T) {
			outer, inner := perIP("outer", ratelimit.PerHour(10)), perIP("inner", ratelimit.PerHour(2))
			limits := newLimits(t, ratelimit.Config{Policies: []ratelimit.Policy{outer}})
			check := func(client, tightest string, call func() reply) {
				t.Helper()
				reset(t, limits, "outer")
				reset(t, limits, "inner")
				for i := range 3 {
					r, denied := call(), i == 2
					h := lines(t, r.header)
					if (r.code != 0) != denied || h["X-Ratelimit-Limit"] != tightest || h["X-Ratelimit-Remaining"] == "" || h["X-Ratelimit-Reset"] == "" {
						t.Errorf("%s: call %d: code %v, headers %v", client, i, r.code, h)
					}
					if denied != (h["Retry-After"] == "1800") || denied != (r.retry == 30*time.Minute) || strings.Join(r.violated, ",") != map[bool]string{true: "inner"}[denied] {
						t.Errorf("%s: call %d: headers %v, retry %v, violated %q", client, i, h, r.retry, r.violated)
					}
				}
				if got := left(t, limits, outer); got != 7 {
					t.Errorf("%s: %d left outside, want 7: a denial inside gives nothing back", client, got)
				}
			}
			url := serve(t, s.mount(limits, outer, inner, func(options ...connect.HandlerOption) http.Handler { return logins(echo, options...) }))
			for client, call := range callers(t, url) {
				tightest := "2"
				if s.outerOnly {
					tightest = "10"
				}
				check(client, tightest, func() reply { return call(t.Context(), login) })
				if r := call(t.Context(), login); strings.HasPrefix(client, "connect") && lines(t, r.header)["Cache-Control"] != "no-store" {
					t.Errorf("%s: a denial may be stored: headers %v", client, r.header)
				}
			}
			url = serve(t, s.mount(limits, outer, inner, files{}.handler))
			for client, stream := range streamers(t, url) {
				tightest := "2"
				// The header of a stream of Connect is that of net/http.
				if s.outerOnly && (name == "gate in net/http" || isGRPC(client)) {
					tightest = "10"
				}
				check(client+", a stream", tightest, func() reply {
					_, r := stream(t.Context(), watch, "a")
					return r
				})
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
