package ratelimit_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"weak"

	"github.com/go-chi/chi/v5"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/explain"
	"github.com/go-tokenbucket/ratelimit/internal/dryrun"
)

func mine(*http.Request) (string, error) { return "user:5", nil }

func empty(*http.Request) (string, error) { return "", nil }

func TestKeysAreExplained(t *testing.T) {
	r := requestWith("X-Tenant", "acme-corporation")
	r.RemoteAddr, r.Pattern = "192.0.2.7:1234", "GET /items/{id}"
	tenant, _ := ratelimit.Header("X-Tenant")(r)
	asker := ratelimit.RemoteIP()
	for name, tt := range map[string]struct {
		key  ratelimit.KeyFunc
		want string
	}{
		"Static":     {ratelimit.Static("all"), "Static = static:all"},
		"RemoteIP":   {ratelimit.RemoteIP(), "RemoteIP = ip:192.0.2.7"},
		"ClientIP":   {ratelimit.ClientIP(ratelimit.IPConfig{}), "ClientIP = ip:192.0.2.7"},
		"Route":      {ratelimit.Route(), "Route = route:GET /items/{id}"},
		"Header":     {ratelimit.Header("X-Tenant"), "Header X-Tenant = " + tenant},
		"No header":  {ratelimit.Header("X-None"), "Header X-None ! ratelimit: no key: no X-None header"},
		"ContextKey": {ratelimit.ContextKey(func(context.Context) (string, bool) { return "ann", true }), "ContextKey = context:ann"},
		"FirstOf": {ratelimit.FirstOf(ratelimit.Header("X-None"), empty, ratelimit.RemoteIP(), mine),
			"FirstOf = ip:192.0.2.7 (Header X-None ! ratelimit: no key: no X-None header)" +
				" (github.com/go-tokenbucket/ratelimit_test.empty ! ratelimit: no key: the KeyFunc returned an empty one) (RemoteIP = ip:192.0.2.7)"},
		"Join": {ratelimit.Join(ratelimit.FirstOf(mine), ratelimit.Static("x")),
			"Join = join:user:5|static:x (FirstOf = user:5 (github.com/go-tokenbucket/ratelimit_test.mine = user:5)) (Static = static:x)"},
		"A function of the program": {mine, "github.com/go-tokenbucket/ratelimit_test.mine = user:5"},
		"A function of the program that asks": {func(r *http.Request) (string, error) { return asker(r) },
			"github.com/go-tokenbucket/ratelimit_test.TestKeysAreExplained.func2 = ip:192.0.2.7"},
		"A function of the program with an error": {func(r *http.Request) (string, error) {
			return "", fmt.Errorf("no tenant \x1b[31m%s", strings.Repeat("x", 300))
		},
			"github.com/go-tokenbucket/ratelimit_test.TestKeysAreExplained.func3 ! no tenant \\x1b[31m" + strings.Repeat("x", 256-len("no tenant \x1b[31m")) + "…"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := outline(found(t, tt.key, r)); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

// What a function does otherwise does not change how it is explained: it may panic, or ask others at the same time, also
// after it has returned. Run with -race.
func TestOddFunctionsAreExplained(t *testing.T) {
	r := requestWith()
	r.RemoteAddr = "192.0.2.7:1234"

	t.Run("It panics", func(t *testing.T) {
		ctx, run, end := dryrun.Begin(r.Context(), r)
		defer end()
		l := ratelimit.Must(ratelimit.New(ratelimit.Config{}))
		defer l.Close()
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic was swallowed")
				}
			}()
			panics := func(*http.Request) (string, error) { panic("odd") }
			l.Decide(r.WithContext(ctx), ratelimit.Policy{Name: "api", Key: ratelimit.FirstOf(panics), Limit: ratelimit.PerHour(100)})
		}()
		step := run.Took()
		if step == nil || step.Err != dryrun.ErrPanicked.Error() || len(step.Tried) != 1 || step.Tried[0].Err != step.Err {
			t.Errorf("got %+v", step)
		}
	})

	t.Run("It asks others at the same time", func(t *testing.T) {
		var left sync.WaitGroup
		defer left.Wait()
		leave := make(chan struct{})
		defer close(leave)
		crowd := func(r *http.Request) (string, error) {
			var all sync.WaitGroup
			for i := range 20 {
				all.Go(func() {
					ratelimit.FirstOf(ratelimit.Header("X-None"), ratelimit.RemoteIP())(r)
					ratelimit.Join(ratelimit.RemoteIP(), ratelimit.Static(fmt.Sprint(i)))(r)
				})
			}
			all.Wait()
			left.Go(func() {
				for {
					select {
					case <-leave:
						return
					default:
						ratelimit.FirstOf(ratelimit.RemoteIP())(r)
					}
				}
			})
			return "crowd", nil
		}
		step := found(t, ratelimit.Join(crowd, crowd), r)
		if step == nil || step.By != "Join" || step.Key != "join:crowd|crowd" {
			t.Fatalf("got %+v", step)
		}
		if _, err := json.Marshal(step); err != nil {
			t.Error(err)
		}
	})

	t.Run("It asks without an end", func(t *testing.T) {
		step := found(t, func(r *http.Request) (string, error) {
			for range 5000 {
				ratelimit.FirstOf(ratelimit.RemoteIP())(r)
				ratelimit.RemoteIP()(r)
			}
			return "long", nil
		}, r)
		if len(step.Tried) > 1000 || len(step.Notes) > 201 {
			t.Errorf("%d steps and %d notes", len(step.Tried), len(step.Notes))
		}
	})
}

// The key of Route keeps the sub-routers that it has found, and those of an explanation are made for it alone.
func TestRouteKeepsNothingOfAnExplanation(t *testing.T) {
	route := ratelimit.Route()
	explained := func() weak.Pointer[chi.Mux] {
		var got string
		root, sub := chi.NewRouter(), chi.NewRouter()
		sub.Get("/{id}", func(http.ResponseWriter, *http.Request) {})
		root.With(func(http.Handler) http.Handler {
			return http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = found(t, route, r).Key })
		}).Mount("/items", sub)
		root.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/items/7", nil))
		if got != "route:GET /items/{id}" {
			t.Fatalf("the key is %q", got)
		}
		return weak.Make(root)
	}()
	for range 5 {
		runtime.GC() // also what is in pools
	}
	if explained.Value() != nil {
		t.Error("the router is kept")
	}
	runtime.KeepAlive(route)
}

// The credentials of a request are not in an explanation, even if an error quotes them.
func TestCredentialsAreNotExplained(t *testing.T) {
	r := requestWith(
		"Authorization", "Bearer canary-token", "Proxy-Authorization", "Basic Y2FuYXJ5OmNhbmFyeQ==",
		"Cookie", "session=canary-session; a=b", "X-Api-Key", "canary-api-key",
	)
	quotes := func(r *http.Request) (string, error) {
		return "", fmt.Errorf("%w: %v %v", ratelimit.ErrNoKey, r.Header["Authorization"], r.Header)
	}
	step := found(t, ratelimit.FirstOf(ratelimit.Header("X-Api-Key")), r)
	other := found(t, ratelimit.FirstOf(quotes, func(r *http.Request) (string, error) {
		_, err := r.Cookie("session")
		return "", errors.Join(err, fmt.Errorf("canary: %q", r.Header.Get("Cookie")))
	}), r)
	for _, step := range []*explain.Step{step, other} {
		text, err := json.Marshal(step)
		if err != nil {
			t.Fatal(err)
		}
		for _, secret := range []string{"canary-token", "Y2FuYXJ5", "canary-session", "canary-api-key"} {
			if strings.Contains(string(text), secret) && (secret != "canary-api-key" || step != other) {
				t.Errorf("%s is in %s", secret, text)
			}
		}
	}
}
