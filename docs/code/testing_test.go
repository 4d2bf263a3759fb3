package code_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/fallback"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

// newApp is the application under test.
func newApp(cfg ratelimit.Config, logins ratelimit.Limit) (http.Handler, error) {
	limiter, err := ratelimit.New(cfg)
	if err != nil {
		return nil, err
	}
	perAddress := ratelimit.Policy{Name: "login", Key: ratelimit.RemoteIP(), Limit: logins, FailClosed: true}
	all := ratelimit.Policy{Name: "all", Key: ratelimit.RemoteIP(), Limit: ratelimit.PerSecond(100)}
	mux := http.NewServeMux()
	mux.Handle("POST /login", limiter.Limit(perAddress)(http.HandlerFunc(logIn)))
	mux.Handle("GET /items", limiter.Limit(all)(http.HandlerFunc(listItems)))
	return mux, nil
}

func logIn(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "welcome") }

func listItems(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "[]") }

// wantStatus sends a request from the address that httptest.NewRequest gives it.
func wantStatus(t *testing.T, app http.Handler, method, path string, want int) {
	t.Helper()
	w := httptest.NewRecorder()
	app.ServeHTTP(w, httptest.NewRequest(method, path, nil))
	if w.Code != want {
		t.Errorf("%s %s: %d, want %d", method, path, w.Code, want)
	}
}

func TestLoginsAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		app, err := newApp(ratelimit.Config{}, ratelimit.Every(15*time.Minute).WithBurst(5)) // inside of synctest.Test
		if err != nil {
			t.Fatal(err)
		}
		for range 5 {
			wantStatus(t, app, "POST", "/login", http.StatusOK)
		}
		wantStatus(t, app, "POST", "/login", http.StatusTooManyRequests)
		time.Sleep(15*time.Minute - time.Millisecond)
		wantStatus(t, app, "POST", "/login", http.StatusTooManyRequests)
		time.Sleep(time.Millisecond)
		wantStatus(t, app, "POST", "/login", http.StatusOK)
	})
}

func TestLoginsOverTheNetwork(t *testing.T) {
	var clock atomic.Int64 // in nanoseconds
	clock.Store(time.Now().UnixNano())
	buckets := ratelimit.Must(memstore.New(memstore.Config{Clock: func() time.Time { return time.Unix(0, clock.Load()) }}))
	defer buckets.Close()
	app, err := newApp(ratelimit.Config{Store: buckets}, ratelimit.Every(15*time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(app)
	defer server.Close()

	for _, want := range []int{http.StatusOK, http.StatusTooManyRequests} {
		wantPosted(t, server.URL+"/login", want)
	}
	clock.Add(int64(15 * time.Minute))
	wantPosted(t, server.URL+"/login", http.StatusOK)
}

func wantPosted(t *testing.T, url string, want int) {
	t.Helper()
	resp, err := http.Post(url, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != want {
		t.Errorf("%d, want %d", resp.StatusCode, want)
	}
}

func TestLoginsOnRedis(t *testing.T) {
	server := miniredis.RunT(t)
	options, err := redisstore.Options("redis://" + server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(options)
	defer client.Close()
	buckets := ratelimit.Must(redisstore.New(client, redisstore.Config{MaxDenials: -1}))
	app, err := newApp(ratelimit.Config{Store: buckets, Timeout: 5 * time.Second}, ratelimit.Every(15*time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	server.SetTime(now) // the clock of the buckets

	wantStatus(t, app, "POST", "/login", http.StatusOK)
	wantStatus(t, app, "POST", "/login", http.StatusTooManyRequests)
	server.SetTime(now.Add(15 * time.Minute))
	wantStatus(t, app, "POST", "/login", http.StatusOK)
}

// brokenStore is Redis in an outage.
type brokenStore struct{}

func (brokenStore) Take(context.Context, []store.Charge, []store.State) (bool, error) {
	return false, errors.New("redis is down")
}

func TestAnOutage(t *testing.T) {
	app, err := newApp(ratelimit.Config{
		Store:  brokenStore{},
		Logger: slog.New(slog.DiscardHandler), // each failure is logged
	}, ratelimit.PerMinute(5))
	if err != nil {
		t.Fatal(err)
	}
	wantStatus(t, app, "GET", "/items", http.StatusOK)
	wantStatus(t, app, "POST", "/login", http.StatusServiceUnavailable) // FailClosed
}

// switched is Redis with a switch.
type switched struct {
	store.Store
	down atomic.Bool
}

func (s *switched) Take(ctx context.Context, charges []store.Charge, states []store.State) (bool, error) {
	if s.down.Load() {
		return false, fmt.Errorf("redis is down: %w", store.ErrNotCharged)
	}
	return s.Store.Take(ctx, charges, states)
}

func TestAnOutageWithAFallback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		primary := &switched{Store: ratelimit.Must(memstore.New(memstore.Config{}))}
		buckets := ratelimit.Must(fallback.New(primary, nil, fallback.Config{
			ProbeEvery: time.Millisecond, // how soon it notices that Redis is back
			Logger:     slog.New(slog.DiscardHandler),
		}))
		defer buckets.Close()
		app, err := newApp(ratelimit.Config{
			Store:  buckets,
			Logger: slog.New(slog.DiscardHandler),
		}, ratelimit.PerMinute(5))
		if err != nil {
			t.Fatal(err)
		}
		for range 100 { // the burst
			wantStatus(t, app, "GET", "/items", http.StatusOK)
		}

		primary.down.Store(true)
		wantStatus(t, app, "GET", "/items", http.StatusTooManyRequests)     // as before the outage
		wantStatus(t, app, "POST", "/login", http.StatusServiceUnavailable) // FailClosed, also with a fallback
		time.Sleep(time.Second)
		for range 100 {
			wantStatus(t, app, "GET", "/items", http.StatusOK)
		}

		primary.down.Store(false)
		time.Sleep(5 * time.Millisecond)
		wantStatus(t, app, "POST", "/login", http.StatusOK)
		wantStatus(t, app, "GET", "/items", http.StatusTooManyRequests) // what was allowed in the outage is charged
	})
}

func TestWhichPolicyDenies(t *testing.T) {
	var denied []string
	app, err := newApp(ratelimit.Config{
		Observe: func(_ context.Context, e *ratelimit.Event) { denied = append(denied, e.Denied()...) },
	}, ratelimit.PerMinute(1))
	if err != nil {
		t.Fatal(err)
	}
	wantStatus(t, app, "POST", "/login", http.StatusOK)
	wantStatus(t, app, "POST", "/login", http.StatusTooManyRequests)
	if !slices.Equal(denied, []string{"login"}) {
		t.Errorf("denied by %q", denied)
	}
}

func TestManyLogins(t *testing.T) {
	app, err := newApp(ratelimit.Config{}, ratelimit.Unlimited)
	if err != nil {
		t.Fatal(err)
	}
	for range 1000 {
		wantStatus(t, app, "POST", "/login", http.StatusOK)
	}
}

func TestManyItems(t *testing.T) {
	cfg := ratelimit.Config{Skip: func(*http.Request) bool { return true }}
	app, err := newApp(cfg, ratelimit.PerMinute(5))
	if err != nil {
		t.Fatal(err)
	}
	for range 1000 {
		wantStatus(t, app, "GET", "/items", http.StatusOK)
	}
}

func TestEachClientHasItsBucket(t *testing.T) {
	app, err := newApp(ratelimit.Config{}, ratelimit.PerMinute(1))
	if err != nil {
		t.Fatal(err)
	}
	for _, addr := range []string{"192.0.2.7:1234", "192.0.2.8:1234"} {
		r := httptest.NewRequest("POST", "/login", nil)
		r.RemoteAddr = addr // otherwise 192.0.2.1:1234
		w := httptest.NewRecorder()
		app.ServeHTTP(w, r)
		if w.Code != http.StatusOK {
			t.Errorf("%s: %d", addr, w.Code)
		}
	}
}

func TestARequestWithoutAnAddress(t *testing.T) {
	app, err := newApp(ratelimit.Config{Logger: slog.New(slog.DiscardHandler)}, ratelimit.PerMinute(1))
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequest("POST", "/login", nil)
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	app.ServeHTTP(w, r)
	if w.Code != http.StatusForbidden {
		t.Errorf("%d, want 403", w.Code)
	}
}
