package connectratelimit_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/contrib/connectratelimit"
	"github.com/go-tokenbucket/ratelimit/store"
)

// lines returns the rate limit headers and others that a denial has. Each must stand there once.
func lines(t *testing.T, h http.Header) map[string]string {
	t.Helper()
	found := make(map[string]string)
	for name, values := range h {
		if strings.HasPrefix(name, "X-Ratelimit-") || name == "Retry-After" || name == "Cache-Control" || name == "Grpc-Retry-Pushback-Ms" {
			if len(values) != 1 {
				t.Errorf("%s: %q", name, values)
			}
			found[name] = values[0]
		}
	}
	return found
}

func isGRPC(client string) bool { return strings.Contains(strings.ToLower(client), "grpc") }

func TestTheSixthCallIsDeniedToEachClient(t *testing.T) {
	limits := newLimits(t, ratelimit.Config{Policies: []ratelimit.Policy{perIP("api", ratelimit.PerHour(5))}})
	for name, call := range callers(t, serveLogin(t, echo, with(limits.Interceptor()))) {
		t.Run(name, func(t *testing.T) {
			reset(t, limits, "api")
			for _, left := range []string{"4", "3", "2", "1", "0"} {
				r := call(t.Context(), login)
				if r.code != 0 || r.value != "hello" {
					t.Fatalf("code %v, %q, message %q", r.code, r.value, r.message)
				}
				if h := lines(t, r.header); len(h) != 3 || h["X-Ratelimit-Limit"] != "5" || h["X-Ratelimit-Remaining"] != left || h["X-Ratelimit-Reset"] == "" {
					t.Errorf("headers %v", h)
				}
			}
			r := call(t.Context(), login)
			if r.code != connect.CodeResourceExhausted || r.message != "rate limit exceeded" {
				t.Errorf("code %v, message %q", r.code, r.message)
			}
			if r.retry != 12*time.Minute || !slices.Equal(r.violated, []string{"api"}) {
				t.Errorf("details: retry %v, violated %q", r.retry, r.violated)
			}
			h := lines(t, r.header)
			if h["X-Ratelimit-Limit"] != "5" || h["X-Ratelimit-Remaining"] != "0" || h["X-Ratelimit-Reset"] == "" || h["Retry-After"] != "720" {
				t.Errorf("headers %v", h)
			}
			if isGRPC(name) {
				if h["Grpc-Retry-Pushback-Ms"] != "720000" || len(h) != 5 {
					t.Errorf("headers %v", h)
				}
			} else if h["Cache-Control"] != "no-store" || len(h) != 5 {
				t.Errorf("headers %v", h)
			}
			if strings.HasPrefix(name, "raw") && r.status != http.StatusTooManyRequests {
				t.Errorf("status %d", r.status)
			}
		})
	}
}

var errSecret = errors.New("a secret")

// down is a store that fails.
type down struct{}

func (down) Take(context.Context, []store.Charge, []store.State) (bool, error) {
	return false, errSecret
}

func reset(t *testing.T, limits *connectratelimit.Limiter, policy string) {
	t.Helper()
	if _, err := limits.Reset(t.Context(), ratelimit.Policy{Name: policy}, "ip:127.0.0.1"); err != nil {
		t.Fatal(err)
	}
}

// left returns the tokens of the client.
func left(t *testing.T, limits *connectratelimit.Limiter, p ratelimit.Policy) int64 {
	t.Helper()
	r, err := limits.Peek(t.Context(), p, "ip:127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	return r.Remaining
}

// A client of gRPC reads the headers of a denial beside its status.
func TestADenialIsInTheTrailersOfGRPC(t *testing.T) {
	limits := newLimits(t, ratelimit.Config{})
	url := serveLogin(t, echo, with(
		limits.Interceptor(perIP("outer", ratelimit.PerHour(5))),
		limits.Interceptor(perIP("inner", ratelimit.PerHour(1)))))
	conn := newGRPC(t, url)
	for _, denied := range []bool{false, true} {
		var header, trailer metadata.MD
		err := conn.Invoke(t.Context(), login, wrapperspb.String(""), new(text), grpc.Header(&header), grpc.Trailer(&trailer))
		if (err != nil) != denied {
			t.Fatal(err)
		}
		for _, name := range []string{"x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"} {
			if (len(header[name]) == 1) == denied || (len(trailer[name]) == 1) != denied {
				t.Errorf("denied %v: %s in header %q, in trailer %q", denied, name, header[name], trailer[name])
			}
		}
	}
}

func TestAnotherReasonHasACodeAndAFixedText(t *testing.T) {
	fails := func(err error) ratelimit.KeyFunc {
		return func(*http.Request) (string, error) { return "", err }
	}
	for name, tt := range map[string]struct {
		policy  ratelimit.Policy
		store   ratelimit.Config
		code    connect.Code
		message string
		status  int
		retry   time.Duration
		push    string
	}{
		"no key":      {ratelimit.Policy{Key: fails(ratelimit.ErrNoKey)}, ratelimit.Config{}, connect.CodePermissionDenied, "forbidden", 403, 0, "-1"},
		"bad request": {ratelimit.Policy{Key: fails(ratelimit.ErrBadRequest)}, ratelimit.Config{}, connect.CodeInvalidArgument, "bad request", 400, 0, "-1"},
		"key fails":   {ratelimit.Policy{Key: fails(errSecret)}, ratelimit.Config{}, connect.CodeUnavailable, "temporarily unavailable", 503, 5 * time.Second, "5000"},
		"fail closed": {ratelimit.Policy{Key: ratelimit.RemoteIP(), FailClosed: true}, ratelimit.Config{Store: down{}}, connect.CodeUnavailable, "temporarily unavailable", 503, 5 * time.Second, "5000"},
		"never":       {ratelimit.Policy{Key: ratelimit.RemoteIP(), Cost: func(*http.Request) int64 { return 6 }}, ratelimit.Config{}, connect.CodeResourceExhausted, "rate limit exceeded", 429, 0, "-1"},
	} {
		t.Run(name, func(t *testing.T) {
			limits := newLimits(t, tt.store)
			tt.policy.Name = "p"
			if tt.policy.Limit == (ratelimit.Limit{}) {
				tt.policy.Limit = ratelimit.PerHour(5)
			}
			calls := 0
			counted := func(ctx context.Context, req *connect.Request[text]) (*connect.Response[text], error) {
				calls++
				return echo(ctx, req)
			}
			for name, call := range callers(t, serveLogin(t, counted, with(limits.Interceptor(tt.policy)))) {
				r := call(t.Context(), login)
				if r.code != tt.code || r.message != tt.message || r.retry != tt.retry {
					t.Errorf("%s: code %v, message %q, retry %v", name, r.code, r.message, r.retry)
				}
				if strings.HasPrefix(name, "raw") && (r.status != tt.status || r.header.Get("Cache-Control") != "no-store") {
					t.Errorf("%s: status %d, headers %v", name, r.status, r.header)
				}
				if want := map[bool]string{true: "5", false: ""}[tt.retry > 0]; r.header.Get("Retry-After") != want {
					t.Errorf("%s: Retry-After %q, want %q", name, r.header.Get("Retry-After"), want)
				}
				if isGRPC(name) && r.header.Get("Grpc-Retry-Pushback-Ms") != tt.push {
					t.Errorf("%s: pushback %q, want %q", name, r.header.Get("Grpc-Retry-Pushback-Ms"), tt.push)
				}
			}
			if calls != 0 {
				t.Errorf("%d calls of the handler", calls)
			}
		})
	}
}

func TestAFailingStoreLetsCallsThroughWithoutHeaders(t *testing.T) {
	limits := newLimits(t, ratelimit.Config{Store: down{}})
	for name, call := range callers(t, serveLogin(t, echo, with(limits.Interceptor(perIP("api", ratelimit.PerHour(1)))))) {
		if r := call(t.Context(), login); r.code != 0 || len(lines(t, r.header)) != 0 {
			t.Errorf("%s: code %v, headers %v", name, r.code, r.header)
		}
	}
}

func TestAHiddenPolicyAndASkippedProcedureShowNothing(t *testing.T) {
	hidden := perIP("hidden", ratelimit.PerHour(1))
	hidden.Hidden = true
	limits := newLimits(t, ratelimit.Config{
		Policies: []ratelimit.Policy{hidden},
		Skip:     func(r *http.Request) bool { return r.URL.Path == search },
	})
	for name, call := range callers(t, serveLogin(t, echo, with(limits.Interceptor()))) {
		reset(t, limits, "hidden")
		if r := call(t.Context(), login); r.code != 0 || len(lines(t, r.header)) != 0 {
			t.Errorf("%s: hidden: code %v, headers %v", name, r.code, r.header)
		}
		r := call(t.Context(), login)
		if h := lines(t, r.header); r.code != connect.CodeResourceExhausted || r.violated != nil || r.retry != time.Hour || h["Retry-After"] != "3600" || h["X-Ratelimit-Limit"] != "" {
			t.Errorf("%s: hidden: code %v, violated %q, retry %v, headers %v", name, r.code, r.violated, r.retry, h)
		}
		if r := call(t.Context(), search); r.code != 0 || len(lines(t, r.header)) != 0 {
			t.Errorf("%s: skipped: code %v, headers %v", name, r.code, r.header)
		}
	}
}

func TestReloadReplacesPolicies(t *testing.T) {
	limits := newLimits(t, ratelimit.Config{Policies: []ratelimit.Policy{perIP("api", ratelimit.PerHour(1))}})
	call := connectCaller(t, "connect", serveLogin(t, echo, with(limits.Interceptor())))
	call(t.Context(), login)
	if r := call(t.Context(), login); r.code != connect.CodeResourceExhausted {
		t.Fatalf("code %v", r.code)
	}
	shadow := perIP("api", ratelimit.PerHour(1))
	shadow.Shadow = true
	if err := limits.Reload(shadow); err != nil {
		t.Fatal(err)
	}
	if r := call(t.Context(), login); r.code != 0 {
		t.Errorf("code %v", r.code)
	}
}
