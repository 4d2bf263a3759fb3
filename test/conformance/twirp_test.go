package conformance

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twitchtv/twirp"
	"github.com/twitchtv/twirp/example"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
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

// A twirpFailure is a way in which a call can fail.
type twirpFailure struct {
	serve  func(limit wrapper, fail func() error) http.Handler // fail returns nil for a call that succeeds
	status int
}

func twirpFailures() map[string]twirpFailure {
	wrong := twirp.Unauthenticated.Error("wrong password")
	with := func(err error, status int) twirpFailure {
		return twirpFailure{func(limit wrapper, fail func() error) http.Handler {
			return twirpService(limit, func(context.Context) error {
				if fail() != nil {
					return err
				}
				return nil
			})
		}, status}
	}
	succeed := func(context.Context) error { return nil }
	return map[string]twirpFailure{
		"an error of Twirp":            with(wrong, http.StatusUnauthorized),
		"an error of Twirp in another": with(fmt.Errorf("login: %w", wrong), http.StatusUnauthorized),
		"any error":                    with(errors.New("no database"), http.StatusInternalServerError),
		"a panic": {func(limit wrapper, fail func() error) http.Handler {
			return twirpService(limit, func(context.Context) error {
				if fail() != nil {
					panic(http.ErrAbortHandler)
				}
				return nil
			})
		}, http.StatusInternalServerError},
		"an error of an interceptor": {func(limit wrapper, fail func() error) http.Handler {
			return twirpService(limit, succeed, twirp.WithServerInterceptors(func(next twirp.Method) twirp.Method {
				return func(ctx context.Context, request any) (any, error) {
					if fail() != nil {
						return nil, wrong
					}
					return next(ctx, request)
				}
			}))
		}, http.StatusUnauthorized},
		"an error of a hook": {func(limit wrapper, fail func() error) http.Handler {
			return twirpService(limit, succeed, twirp.WithServerHooks(&twirp.ServerHooks{
				RequestRouted: func(ctx context.Context) (context.Context, error) {
					if fail() != nil {
						return ctx, wrong
					}
					return ctx, nil
				},
			}))
		}, http.StatusUnauthorized},
	}
}

// Five failed calls are allowed, whichever way they fail, and calls that succeed do not count.
func TestFailedLoginsOnTwirp(t *testing.T) {
	t.Parallel()
	for name, way := range twirpFailures() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			login := everybody(ratelimit.Every(time.Hour).WithBurst(5))
			login.Settle = ratelimit.FailedLogins
			var failing atomic.Bool
			app, served := way.serve(newLimiter(t, ratelimit.Config{}).Limit(login), func() error {
				if failing.Load() {
					return errors.New("wrong password")
				}
				return nil
			}), make(chan bool, 1)
			url := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				defer func() { served <- true }()
				app.ServeHTTP(w, r)
			})) + makeHat
			want := func(status int) {
				t.Helper()
				if a := send(t, url, method("POST"), protobuf); a.StatusCode != status {
					t.Fatalf("status %d, want %d", a.StatusCode, status)
				}
				<-served // and settled
			}
			for range 6 {
				want(http.StatusOK)
			}
			failing.Store(true)
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

// A tellingStore reports each call after it was made.
type tellingStore struct {
	store.Store
	calls chan []store.Charge
}

func (s tellingStore) Take(ctx context.Context, charges []store.Charge, states []store.State) (bool, error) {
	ok, err := s.Store.Take(ctx, charges, states)
	s.calls <- slices.Clone(charges)
	return ok, err
}

// A client that leaves while it waits gives its tokens back, and one that leaves later has used them.
func TestClientsThatLeaveTwirp(t *testing.T) {
	t.Parallel()
	memory := memstore.New(memstore.Config{})
	defer memory.Close()
	buckets := tellingStore{memory, make(chan []store.Charge, 100)}
	events := make(chan *ratelimit.Event, 100)
	l := newLimiter(t, ratelimit.Config{Store: buckets, Observe: func(_ context.Context, e *ratelimit.Event) { events <- e }})
	responses := make(chan ratelimit.Response, 100)
	p := everybody(ratelimit.Every(time.Hour))
	p.MaxWait = 2 * time.Hour
	p.Settle = func(r *http.Request, response ratelimit.Response) int64 {
		responses <- response
		return ratelimit.FailedLogins(r, response)
	}
	started, ended := make(chan bool), make(chan error, 1)
	url := serve(t, twirpService(l.Limit(p), func(ctx context.Context) error {
		started <- true
		<-ctx.Done()
		ended <- ctx.Err()
		return ctx.Err()
	})) + makeHat
	call := func(ctx context.Context) {
		r, _ := http.NewRequestWithContext(ctx, http.MethodPost, url, nil)
		protobuf(r)
		if resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(r); err == nil {
			resp.Body.Close()
		}
	}

	handled, leave := context.WithCancel(t.Context())
	defer leave()
	go call(handled)
	<-started
	<-buckets.calls
	<-events

	waiting, leaveQueue := context.WithCancel(t.Context())
	defer leaveQueue()
	go call(waiting)
	<-buckets.calls
	leaveQueue()
	if back := <-buckets.calls; len(back) != 1 || back[0].Cost != -1 {
		t.Errorf("a client that waited left, and the next call is %+v", back)
	}
	if e := <-events; e.Allowed || !errors.Is(e.Err, context.Canceled) || e.Waited == 0 {
		t.Errorf("a client that waited left: %+v", e)
	}

	leave()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the context of a call whose client left ended with %v", err)
	}
	if r := <-responses; r.Cost != 1 || ratelimit.FailedLogins(nil, r) != 1 {
		t.Errorf("a client left while it was served: %+v", r)
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

// A brokenStore fails.
type brokenStore struct{}

func (brokenStore) Take(context.Context, []store.Charge, []store.State) (bool, error) {
	return false, errors.New("broken")
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
		"an outage":       {policy: closed, store: brokenStore{}, want: twirp.Unavailable, status: 503},
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
