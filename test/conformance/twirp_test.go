package conformance

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/twitchtv/twirp"
	"github.com/twitchtv/twirp/example"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/store"
)

// service is the path prefix of the service, and makeHat the path of its method.
const (
	service = "/twirp/twitch.twirp.example.Haberdasher/"
	makeHat = service + "MakeHat"
)

// protobuf makes a request one with an empty message.
func protobuf(r *http.Request) { r.Header.Set("Content-Type", "application/protobuf") }

// A haberdasher makes hats by a function.
type haberdasher func(context.Context) error

func (f haberdasher) MakeHat(ctx context.Context, size *example.Size) (*example.Hat, error) {
	return &example.Hat{Size: size.GetInches()}, f(ctx)
}

func twirpGuide(limiter *ratelimit.Limiter, hats ratelimit.Policy, _ http.Handler) http.Handler {
	server := example.NewHaberdasherServer(haberdasher(func(context.Context) error { return nil }))
	mux := http.NewServeMux()
	mux.Handle(server.PathPrefix(), limiter.Handler(server))
	mux.Handle("POST "+server.PathPrefix()+"MakeHat", limiter.Limit(hats)(server))
	return mux
}

func haberdashery(limit wrapper) http.Handler {
	server := example.NewHaberdasherServer(haberdasher(func(context.Context) error { return nil }))
	mux := http.NewServeMux()
	for _, method := range []string{"MakeHat"} {
		mux.Handle("POST "+server.PathPrefix()+method, limit(server))
	}
	mux.Handle(server.PathPrefix(), limit(server))
	return mux
}

func twirpTables() []routerTable {
	return []routerTable{{"Twirp", haberdashery, []routed{
		{"POST", makeHat, "POST " + makeHat},
		{"GET", makeHat, service}, // answered 404 by the service
		{madeUp, makeHat, service},
		{"POST", service + "MadeUp", service},
		{"POST", "/twirp/made.up/MakeHat", notLimited},
	}}}
}

// twirpService is a service whose method calls do.
func twirpService(limit wrapper, do func(context.Context) error, options ...any) http.Handler {
	server := example.NewHaberdasherServer(haberdasher(do), options...)
	mux := http.NewServeMux()
	mux.Handle(server.PathPrefix(), limit(server))
	return mux
}

// Five failed calls are allowed, whichever way they fail, and calls that succeed do not count.
func TestFailedLoginsOnTwirp(t *testing.T) {
	t.Parallel()
	wrong := twirp.Unauthenticated.Error("wrong password")
	fail := func(err error) func(context.Context) error { return func(context.Context) error { return err } }
	for name, way := range map[string]struct {
		do     func(context.Context) error
		option any
		status int
	}{
		"an error of Twirp":            {do: fail(wrong), status: http.StatusUnauthorized},
		"an error of Twirp in another": {do: fail(fmt.Errorf("login: %w", wrong)), status: http.StatusUnauthorized},
		"any error":                    {do: fail(errors.New("no database")), status: http.StatusInternalServerError},
		"a panic":                      {do: func(context.Context) error { panic(http.ErrAbortHandler) }, status: http.StatusInternalServerError},
		"an error of an interceptor": {do: fail(nil), status: http.StatusUnauthorized, option: twirp.WithServerInterceptors(func(twirp.Method) twirp.Method {
			return func(context.Context, any) (any, error) { return nil, wrong }
		})},
		"an error of a hook": {do: fail(nil), status: http.StatusUnauthorized, option: twirp.WithServerHooks(&twirp.ServerHooks{
			RequestRouted: func(ctx context.Context) (context.Context, error) { return ctx, wrong },
		})},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			login := everybody(ratelimit.Every(time.Hour).WithBurst(5))
			login.Settle = ratelimit.FailedLogins
			limit := newLimiter(t, ratelimit.Config{}).Limit(login)
			var options []any
			if way.option != nil {
				options = append(options, way.option)
			}
			good, bad := twirpService(limit, fail(nil)), twirpService(limit, way.do, options...)
			served := make(chan bool, 1)
			url := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				defer func() { served <- true }()
				if r.Header.Get("Good") != "" {
					good.ServeHTTP(w, r)
				} else {
					bad.ServeHTTP(w, r)
				}
			})) + makeHat
			want := func(status int, change ...func(*http.Request)) {
				t.Helper()
				if a := send(t, url, append(change, method("POST"), protobuf)...); a.StatusCode != status {
					t.Fatalf("status %d, want %d", a.StatusCode, status)
				}
				<-served // and settled
			}
			for range 6 {
				want(http.StatusOK, with("Good", "yes"))
			}
			for range 5 {
				want(way.status)
			}
			want(http.StatusTooManyRequests)
		})
	}
}

func TestHandlersOfTwirpKnowTheDecision(t *testing.T) {
	t.Parallel()
	p := everybody(ratelimit.PerHour(5))
	p.Settle = ratelimit.FailedLogins
	url := serve(t, twirpService(newLimiter(t, ratelimit.Config{}).Limit(p), func(ctx context.Context) error {
		if d, ok := ratelimit.FromContext(ctx); !ok || len(d.Results) != 1 || d.Results[0].Remaining != 4 {
			t.Errorf("FromContext returned %+v, %v", d, ok)
		}
		if !ratelimit.SetCost(ctx, "api", 3) {
			t.Error("SetCost found no policy")
		}
		return nil
	})) + makeHat
	a := send(t, url, method("POST"), protobuf)
	if got := a.Header.Values("X-Ratelimit-Remaining"); a.StatusCode != http.StatusOK || !slices.Equal(got, []string{"4"}) {
		t.Errorf("status %d, X-RateLimit-Remaining %q", a.StatusCode, got)
	}
}

// denyTwirp answers denied requests as a Twirp service does.
var denyTwirp = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
	err := twirp.ResourceExhausted.Error("too many requests")
	if after := w.Header().Get("Retry-After"); after != "" { // clients do not see headers
		err = err.WithMeta("retry_after", after+"s")
	}
	twirp.WriteError(w, err)
})

// refuseTwirp answers requests that are refused for another reason as a Twirp service does.
func refuseTwirp(w http.ResponseWriter, _ *http.Request, err error) {
	code := twirp.Unavailable
	switch {
	case errors.Is(err, ratelimit.ErrBadRequest):
		code = twirp.Malformed
	case errors.Is(err, ratelimit.ErrNoKey) && !errors.Is(err, ratelimit.ErrOutage):
		code = twirp.PermissionDenied
	}
	twirp.WriteError(w, code.Error("the request is refused"))
}

// Clients of Twirp get refusals as errors of Twirp.
func TestRefusalsInTheFormOfTwirp(t *testing.T) {
	t.Parallel()
	perKey := everybody(ratelimit.PerHour(1))
	perKey.Key = ratelimit.Header("X-Api-Key")
	closed := everybody(ratelimit.PerHour(1))
	closed.FailClosed = true
	for name, c := range map[string]struct {
		policy ratelimit.Policy
		store  store.Store
		header http.Header
		want   twirp.ErrorCode // of the second call
		status int
		after  string
	}{
		"denied":          {policy: everybody(ratelimit.Every(time.Hour)), want: twirp.ResourceExhausted, status: 429, after: "3600s"},
		"denied for ever": {policy: never(), want: twirp.ResourceExhausted, status: 429},
		"no key":          {policy: perKey, want: twirp.PermissionDenied, status: 403},
		"two keys":        {policy: perKey, header: http.Header{"X-Api-Key": {"a", "b"}}, want: twirp.Malformed, status: 400},
		"an outage":       {policy: closed, store: broken{}, want: twirp.Unavailable, status: 503},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			limiter := newLimiter(t, ratelimit.Config{Store: c.store, Deny: denyTwirp, Error: refuseTwirp})
			url := serve(t, haberdashery(limiter.Limit(c.policy)))
			for _, client := range []example.Haberdasher{
				example.NewHaberdasherJSONClient(url, http.DefaultClient),
				example.NewHaberdasherProtobufClient(url, http.DefaultClient),
			} {
				ctx, err := twirp.WithHTTPRequestHeaders(t.Context(), c.header)
				if err != nil {
					t.Fatal(err)
				}
				client.MakeHat(ctx, &example.Size{Inches: 1})
				_, err = client.MakeHat(ctx, &example.Size{Inches: 1})
				var got twirp.Error
				if !errors.As(err, &got) || got.Code() != c.want || got.Meta("http_error_from_intermediary") != "" || got.Meta("retry_after") != c.after {
					t.Errorf("error %v, code %v, meta %v", err, got.Code(), got.MetaMap())
				}
			}
			a := send(t, url+makeHat, method("POST"), protobuf, func(r *http.Request) {
				for _, key := range c.header["X-Api-Key"] {
					r.Header.Add("X-Api-Key", key)
				}
			})
			if a.StatusCode != c.status || a.Header.Get("Cache-Control") != "no-store" {
				t.Errorf("status %d, %v", a.StatusCode, a.Header)
			}
		})
	}
}
