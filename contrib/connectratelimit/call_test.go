package connectratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/go-chi/chi/v5"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/contrib/connectratelimit"
)

func TestRouteIsTheProcedure(t *testing.T) {
	var seen atomic.Pointer[ratelimit.Event]
	limits := newLimits(t, ratelimit.Config{Observe: func(_ context.Context, e *ratelimit.Event) { seen.Store(e) }})
	interceptor := with(limits.Interceptor(ratelimit.Policy{Name: "route", Key: ratelimit.Route(), Limit: ratelimit.PerHour(100)}))
	under := chi.NewRouter()
	under.Mount("/acme.v1.Auth/", logins(echo, interceptor))
	for name, tt := range map[string]struct {
		h             http.Handler
		prefix, route string
	}{
		"ServeMux":    {h: logins(echo, interceptor)},
		"StripPrefix": {h: http.StripPrefix("/api", logins(echo, interceptor)), prefix: "/api"},
		"chi":         {h: under, route: "/acme.v1.Auth/* "},
	} {
		url := serve(t, tt.h)
		for _, procedure := range []string{login, search} {
			if r := connectCaller(t, "connect", url+tt.prefix)(t.Context(), procedure); r.code != 0 {
				t.Fatalf("%s: %v", name, r.code)
			}
			e := seen.Load()
			if want := tt.route + procedure; e.Route != want || e.Results[0].Key != "route:"+want {
				t.Errorf("%s: route %q, key %q, want %q", name, e.Route, e.Results[0].Key, want)
			}
		}
	}

	url := serve(t, files{}.handler(interceptor))
	for name, stream := range streamers(t, url) {
		for _, procedure := range []string{upload, watch, talk} {
			stream(t.Context(), procedure, "a")
			if got := seen.Load().Route; got != procedure {
				t.Errorf("%s: route %q, want %q", name, got, procedure)
			}
		}
	}
	before := seen.Load()
	if r := connectCaller(t, "connect", url)(t.Context(), "/acme.v1.Made/Up"); r.code != connect.CodeUnimplemented || seen.Load() != before {
		t.Errorf("an unknown procedure: code %v, event %v", r.code, seen.Load())
	}
}

type nameKey struct{}

// The functions of a policy get a request with what is known of the call.
func TestKeyFunctionsGetARequest(t *testing.T) {
	var seen atomic.Pointer[http.Request]
	limits := newLimits(t, ratelimit.Config{})
	p := ratelimit.Policy{Name: "p", Limit: ratelimit.PerHour(1000), Key: ratelimit.Join(
		func(r *http.Request) (string, error) { seen.Store(r); return "x", nil },
		ratelimit.RemoteIP(), ratelimit.Header("X-Api-Key"),
		ratelimit.ContextKey("user", func(ctx context.Context) (string, bool) { name, ok := ctx.Value(nameKey{}).(string); return name, ok }))}
	named := func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), nameKey{}, "alice")))
		})
	}
	for mounted, option := range map[string]connect.HandlerOption{
		"interceptor": with(limits.Interceptor(p)), "gate": connect.WithRequestGate(limits.Gate(p)), "messages": with(limits.Messages(p)),
	} {
		url := serve(t, named(logins(echo, option)))
		for name, call := range callers(t, url) {
			if r := call(t.Context(), login, "X-Api-Key", "k"); r.code != 0 {
				t.Fatalf("%s, %s: code %v, message %q", mounted, name, r.code, r.message)
			}
			r, method := seen.Load(), "POST"
			if strings.HasSuffix(name, "GET") && mounted != "gate" {
				method = "GET"
			}
			if r.Method != method || r.URL.Path != login || r.Pattern != login || r.Header.Get("X-Api-Key") != "k" || !strings.HasPrefix(r.RemoteAddr, "127.0.0.1:") || "http://"+r.Host != url || r.Body != http.NoBody {
				t.Errorf("%s, %s: %+v", mounted, name, r)
			}
			if (r.URL.Query().Get("message") != "") != strings.HasSuffix(name, "GET") {
				t.Errorf("%s, %s: query %q", mounted, name, r.URL.RawQuery)
			}
		}
		for name, call := range callers(t, url) {
			if r := call(t.Context(), login); r.code != connect.CodePermissionDenied {
				t.Errorf("%s, %s: without a key: code %v", mounted, name, r.code)
			}
			if r := call(t.Context(), login, "X-Api-Key", "a", "X-Api-Key", "b"); r.code != connect.CodeInvalidArgument {
				t.Errorf("%s, %s: with two keys: code %v", mounted, name, r.code)
			}
		}
	}
}

// Connect ignores the Content-Type of a GET.
func TestAContentTypeDoesNotHideTheMessageOfAGET(t *testing.T) {
	limits := newLimits(t, ratelimit.Config{})
	p := perIP("bytes", ratelimit.PerHour(1000))
	p.Cost = func(r *http.Request) int64 { return int64(len(r.URL.RawQuery)) }
	for mounted, option := range map[string]connect.HandlerOption{"interceptor": with(limits.Interceptor(p)), "gate": connect.WithRequestGate(limits.Gate(p))} {
		url := serveLogin(t, echo, option)
		for _, contentType := range []string{"", "application/json", "text/plain"} {
			reset(t, limits, "bytes")
			const query = "connect=v1&encoding=json&message=%22hello%22"
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+login+"?"+query, nil)
			if err != nil {
				t.Fatal(err)
			}
			if contentType != "" {
				req.Header.Set("Content-Type", contentType)
			}
			resp, err := newHTTPClient(t, false).Do(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if got, want := left(t, limits, p), int64(1000-len(query)); resp.StatusCode != 200 || got != want {
				t.Errorf("%s, %q: status %d, %d left, want %d", mounted, contentType, resp.StatusCode, got, want)
			}
		}
	}
}

func TestAGateDecidesBeforeTheMessage(t *testing.T) {
	limits := newLimits(t, ratelimit.Config{})
	h := func(ctx context.Context, req *connect.Request[text]) (*connect.Response[text], error) {
		if d, ok := ratelimit.FromContext(ctx); !ok || !d.Allowed {
			return nil, errSecret
		}
		return echo(ctx, req)
	}
	url := serveLogin(t, h, connect.WithRequestGate(limits.Gate(perIP("gate", ratelimit.PerHour(1)))))
	for name, call := range callers(t, url) {
		reset(t, limits, "gate")
		if r := call(t.Context(), login); r.code != 0 || r.value != "hello" {
			t.Errorf("%s: code %v, message %q", name, r.code, r.message)
		}
		r := call(t.Context(), login)
		if h := lines(t, r.header); r.code != connect.CodeResourceExhausted || h["Retry-After"] != "3600" || h["X-Ratelimit-Limit"] != "1" || r.retry != time.Hour {
			t.Errorf("%s: code %v, headers %v, retry %v", name, r.code, h, r.retry)
		}
	}

	// A message that does not come, and one that cannot be read.
	never, end := io.Pipe()
	defer end.Close()
	for name, body := range map[string]io.Reader{"none": never, "malformed": strings.NewReader("{")} {
		resp, err := newHTTPClient(t, true).Post(url+login, "application/json", body)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusTooManyRequests {
			t.Errorf("%s: %s", name, resp.Status)
		}
	}
}

// A Settle without a response must not give tokens back.
func TestASettleWithoutAResponseCountsTheCallAsFailed(t *testing.T) {
	limits := newLimits(t, ratelimit.Config{Policies: []ratelimit.Policy{failedLogins()}})
	for name, option := range map[string]connect.HandlerOption{"gate": connect.WithRequestGate(limits.Gate()), "messages": with(limits.Messages())} {
		reset(t, limits, "login")
		stream := connectStreamer(t, "gRPC", serve(t, files{}.handler(option)))
		if _, r := stream(t.Context(), watch, "a"); r.code != 0 || left(t, limits, failedLogins()) != 4 {
			t.Errorf("%s: code %v, %d left, want 4", name, r.code, left(t, limits, failedLogins()))
		}
	}
}

// A client that leaves while its call waits gives its place back.
func TestAClientThatLeavesWhileItWaits(t *testing.T) {
	limits := newLimits(t, ratelimit.Config{})
	waits := perIP("waits", ratelimit.PerHour(1))
	waits.MaxWait = 3 * time.Hour
	entered := make(chan struct{}, 1)
	waits.Cost = func(*http.Request) int64 { entered <- struct{}{}; return 1 }
	resets := func(want time.Duration) {
		t.Helper()
		for r := (ratelimit.Bucket{}); r.ResetAfter != want; time.Sleep(time.Millisecond) { // until the server has noticed
			var err error
			if r, err = limits.Peek(t.Context(), waits, "ip:127.0.0.1"); err != nil {
				t.Fatal(err)
			}
		}
	}
	for mounted, option := range map[string]connect.HandlerOption{"interceptor": with(limits.Interceptor(waits)), "gate": connect.WithRequestGate(limits.Gate(waits))} {
		url := serveLogin(t, echo, option)
		for _, name := range []string{"connect", "gRPC", "gRPC-Web", "grpc-go"} {
			if mounted == "gate" && name != "gRPC" && name != "grpc-go" {
				continue // with HTTP/1.1 the server notices only after it has read the message
			}
			call := callers(t, url)[name]
			reset(t, limits, "waits")
			if r := call(t.Context(), login); r.code != 0 {
				t.Fatalf("%s: code %v", name, r.code)
			}
			<-entered
			ctx, leave := context.WithCancel(t.Context())
			go func() {
				<-entered
				resets(2 * time.Hour)
				leave()
			}()
			if r := call(ctx, login); r.code != connect.CodeCanceled {
				t.Errorf("%s, %s: code %v", mounted, name, r.code)
			}
			resets(time.Hour)

			// It does not wait if its time would pass before.
			ctx, leave = context.WithTimeout(t.Context(), time.Minute)
			if r := call(ctx, login); r.code != connect.CodeResourceExhausted {
				t.Errorf("%s, %s: code %v, message %q", mounted, name, r.code, r.message)
			}
			leave()
			<-entered
		}
	}
}

// A client that leaves while its call is handled pays for it.
func TestAClientThatLeavesWhileItIsServed(t *testing.T) {
	seen := make(chan ratelimit.Response)
	p := perIP("p", ratelimit.PerHour(5))
	p.Settle = func(_ *http.Request, r ratelimit.Response) int64 { seen <- r; return ratelimit.FailedLogins(nil, r) }
	limits := newLimits(t, ratelimit.Config{})
	entered := make(chan struct{}, 1)
	url := serveLogin(t, func(ctx context.Context, _ *connect.Request[text]) (*connect.Response[text], error) {
		entered <- struct{}{}
		<-ctx.Done()
		return nil, fmt.Errorf("login: %w", ctx.Err())
	}, with(limits.Interceptor(p)))
	for _, name := range []string{"connect", "gRPC", "gRPC-Web", "grpc-go"} {
		ctx, leave := context.WithCancel(t.Context())
		go func() { <-entered; leave() }()
		if r := callers(t, url)[name](ctx, login); r.code != connect.CodeCanceled {
			t.Errorf("%s: code %v", name, r.code)
		}
		if r := <-seen; r != (ratelimit.Response{Status: 499, Written: true, Cost: 1}) {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// A call whose own time is up is refused with the code for that, and not as an outage.
func TestACallWithoutTime(t *testing.T) {
	limits := newLimits(t, ratelimit.Config{})
	slow := ratelimit.Policy{Name: "slow", Limit: ratelimit.PerHour(5), Key: func(r *http.Request) (string, error) {
		<-r.Context().Done()
		return "", ratelimit.ErrOutage
	}}
	next := func(context.Context, connect.AnyRequest) (connect.AnyResponse, error) {
		t.Error("the call went on")
		return nil, nil
	}
	call := limits.Interceptor(slow).WrapUnary(next)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancel := context.WithDeadline(t.Context(), time.Now())
	defer cancel()
	for want, ctx := range map[connect.Code]context.Context{connect.CodeCanceled: ended, connect.CodeDeadlineExceeded: late} {
		_, err := call(ctx, connect.NewRequest(new(text)))
		var coded *connect.Error
		if !errors.As(err, &coded) || coded.Code() != want || coded.Message() != ctx.Err().Error() || len(coded.Details()) != 0 {
			t.Errorf("%v, want %v", err, want)
		}
	}
}

// An interceptor is for both sides.
func TestAClientIsNotLimited(t *testing.T) {
	limits := newLimits(t, ratelimit.Config{})
	interceptor := limits.Interceptor(ratelimit.Policy{Name: "p", Key: ratelimit.Static("all"), Limit: ratelimit.PerHour(1)})
	unary := connect.NewClient[text, text](newHTTPClient(t, false), serveLogin(t, echo)+login, connect.WithInterceptors(interceptor))
	streams := connect.NewClient[text, text](newHTTPClient(t, true), serve(t, files{}.handler())+watch, connect.WithInterceptors(interceptor))
	for range 3 {
		if _, err := unary.CallUnary(t.Context(), connect.NewRequest(wrapperspb.String("a"))); err != nil {
			t.Error(err)
		}
		s, err := streams.CallServerStream(t.Context(), connect.NewRequest(wrapperspb.String("a")))
		if err != nil {
			t.Fatal(err)
		}
		for s.Receive() {
		}
		if s.Err() != nil {
			t.Error(s.Err())
		}
		s.Close()
	}
}

// The context of a call stands in log lines of others, as does the response writer in those of a HeaderFunc.
func TestAContextDoesNotPrintTheRequest(t *testing.T) {
	limits := newLimits(t, ratelimit.Config{Skip: func(r *http.Request) bool { return r.Header.Get("Skip") != "" }})
	var printed string
	h := func(ctx context.Context, req *connect.Request[text]) (*connect.Response[text], error) {
		inner, cancel := context.WithCancel(ctx)
		defer cancel()
		printed = fmt.Sprintf("%v %+v %#v %s %v", ctx, ctx, ctx, ctx, inner)
		return echo(ctx, req)
	}
	p := perIP("p", ratelimit.PerHour(5))
	p.Key = func(r *http.Request) (string, error) {
		printed = fmt.Sprintf("%v %+v %#v", r.Context(), r.Context(), r.Context())
		if r.Header.Get("Authorization") == "" || strings.Contains(printed, "secret") {
			t.Error(printed)
		}
		return "k", nil
	}
	url := serveLogin(t, h, with(limits.Interceptor(p)))
	for _, skip := range []string{"", "yes"} {
		connectCaller(t, "connect", url)(t.Context(), login, "Authorization", "secret", "Skip", skip)
		if printed == "" || strings.Contains(printed, "secret") {
			t.Errorf("%q", printed)
		}
	}
}

func TestMistakesAreFoundAtMounting(t *testing.T) {
	limits := newLimits(t, ratelimit.Config{})
	settles := failedLogins()
	for want, mount := range map[string]func(){
		"connectratelimit: New: limiter must not be nil": func() { connectratelimit.New(nil, connectratelimit.Config{}) },
		"Config.Policies is empty":                       func() { limits.Interceptor() },
		"Config.Policies is empty: nothing":              func() { limits.Messages() },
		"Config.Policies is empty: nothing would":        func() { limits.Gate() },
		"Limit: must be set":                             func() { limits.Interceptor(ratelimit.Policy{Name: "p", Key: ratelimit.RemoteIP()}) },
		"connectratelimit: Messages: policy login: ":     func() { limits.Messages(settles) },
		"connectratelimit: Gate: policy login: ":         func() { limits.Gate(perIP("first", ratelimit.PerHour(1)), settles) },
		"connectratelimit: Messages: policy slots: ":     func() { limits.Messages(perIP("slots", ratelimit.Concurrency(1))) },
		"connectratelimit: Gate: policy slots: ":         func() { limits.Gate(perIP("slots", ratelimit.Concurrency(1))) },
	} {
		func() {
			defer func() {
				if got := fmt.Sprint(recover()); !strings.Contains(got, want) {
					t.Errorf("panic %q, want %q", got, want)
				}
			}()
			mount()
		}()
	}
}
