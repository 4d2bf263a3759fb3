package code_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/go-chi/chi/v5"
	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/denial"
	"github.com/go-tokenbucket/ratelimit/headers"
	"github.com/go-tokenbucket/ratelimit/internal/test/ratetest"
	"github.com/go-tokenbucket/ratelimit/jwtkey"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

func TestMigratingFromAWindow(t *testing.T) {
	for _, c := range []struct {
		limit ratelimit.Limit
		span  time.Duration
		want  int
	}{
		{ratelimit.PerMinute(100), time.Minute, 199},
		{ratelimit.PerMinute(100), time.Minute + 1, 200},
		{ratelimit.PerMinute(80).WithBurst(20), time.Minute + 1, 100},
	} {
		if got := admitted(t, c.limit, c.span); got != c.want {
			t.Errorf("%v admits %d requests in %v, want %d", c.limit, got, c.span, c.want)
		}
	}
}

func fromHTTPRate(r chi.Router) *ratelimit.Limiter {
	limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{
		Policies: []ratelimit.Policy{{
			Name:  "api",
			Key:   ratelimit.ClientIP(ratelimit.IPConfig{TrustedProxies: ratelimit.Must(ratelimit.ParseNetworks("10.0.0.0/8"))}),
			Limit: ratelimit.PerMinute(80).WithBurst(20),
		}},
	}))
	r.Use(limiter.Handler)
	return limiter
}

func TestMigratingFromHTTPRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := chi.NewRouter()
		defer fromHTTPRate(r).Close()
		r.Get("/", ratetest.OK)
		get := func(client string) *httptest.ResponseRecorder {
			return sendTo(r, "GET", "/", "10.0.0.1", "", "X-Forwarded-For", "1.2.3.4, "+client)
		}

		// A client that asks all the time is allowed 100 requests in any minute, 20 of them at once.
		var allowed []time.Time
		for range 2 * 60 * 4 {
			w := get("203.0.113.5")
			for ; w.Code == http.StatusOK; w = get("203.0.113.5") {
				allowed = append(allowed, time.Now())
			}
			if w.Header().Get("Retry-After") != "1" {
				t.Fatalf("Retry-After %q", w.Header().Get("Retry-After"))
			}
			time.Sleep(time.Second / 4)
		}
		most := 0
		for i, from := range allowed {
			n, _ := slices.BinarySearchFunc(allowed, from.Add(time.Minute), time.Time.Compare)
			most = max(most, n-i)
		}
		if most != 99 && most != 100 {
			t.Errorf("at most %d requests were allowed in a minute, want 99 or 100", most)
		}
		if w := get("203.0.113.6"); w.Header().Get("X-RateLimit-Limit") != "20" {
			t.Errorf("X-RateLimit-Limit %q, want the burst", w.Header().Get("X-RateLimit-Limit"))
		}
	})
}

func fromRedisRate(rdb *redis.Client, tooMany func(after time.Duration) error) func(context.Context) error {
	limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{
		Store: ratelimit.Must(redisstore.New(rdb, redisstore.Config{})),
	}))
	projects := ratelimit.Policy{Name: "projects", Limit: ratelimit.PerSecond(10), FailClosed: true}

	return func(ctx context.Context) error {
		result, err := limiter.Take(ctx, projects, "project:123", 1)
		if err != nil {
			return err
		}
		if !result.Allowed {
			return tooMany(result.RetryAfter)
		}
		return nil
	}
}

// untilInTime calls f again if a call of it was not answered in time, which is 100 ms in the code of the guides: on a busy
// machine, a server in this process may take longer.
func untilInTime(f func() error) {
	for range 50 {
		if err := f(); !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, store.ErrOverloaded) {
			return
		}
	}
}

func TestMigratingFromRedisRate(t *testing.T) {
	server := miniredis.RunT(t)
	server.SetTime(time.Now()) // it stands still
	rdb := redis.NewClient(ratelimit.Must(redisstore.Options("redis://" + server.Addr())))
	defer rdb.Close()
	denied := errors.New("denied")
	var after time.Duration
	var ten, eleventh error
	untilInTime(func() error {
		server.FlushAll()
		allow := fromRedisRate(rdb, func(d time.Duration) error { after = d; return denied })
		ten = nil
		for range 10 {
			ten = errors.Join(ten, allow(t.Context()))
		}
		eleventh = allow(t.Context())
		return errors.Join(ten, eleventh)
	})
	if ten != nil || !errors.Is(eleventh, denied) || after != time.Second/10 {
		t.Errorf("ten calls: %v, the eleventh: %v, retry after %v", ten, eleventh, after)
	}
	if !server.Exists("ratelimit:{project:123}:projects") {
		t.Errorf("the keys are %q", server.Keys())
	}
	server.Close()
	if err := fromRedisRate(rdb, nil)(t.Context()); err == nil {
		t.Error("no error without Redis")
	}
}

func fromUlule(client *redis.Client, h http.Handler) (http.Handler, error) {
	limit, err := ratelimit.ParseLimit("1000/hour")
	if err != nil {
		return nil, err
	}
	limiter, err := ratelimit.New(ratelimit.Config{
		Store:    ratelimit.Must(redisstore.New(client, redisstore.Config{Prefix: "your_own_prefix"})),
		Policies: []ratelimit.Policy{{Name: "api", Key: ratelimit.RemoteIP(), Limit: limit}},
	})
	if err != nil {
		return nil, err
	}
	return limiter.Handler(h), nil
}

func TestMigratingFromUlule(t *testing.T) {
	server := miniredis.RunT(t)
	server.SetTime(time.Now())
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	h, err := fromUlule(client, ratetest.OK)
	if err != nil {
		t.Fatal(err)
	}
	var w *httptest.ResponseRecorder
	untilInTime(func() error {
		if w = sendTo(h, "GET", "/", "192.0.2.1", ""); w.Header().Get("X-RateLimit-Limit") == "" {
			return context.DeadlineExceeded // it was let through
		}
		return nil
	})
	if w.Code != 200 || w.Header().Get("X-RateLimit-Limit") != "1000" || !server.Exists("your_own_prefix:{ip:192.0.2.1}:api") {
		t.Errorf("%d %v, keys %q", w.Code, w.Header(), server.Keys())
	}
	for ours, theirs := range map[string]ratelimit.Limit{
		"5/s": ratelimit.PerSecond(5), "10/min": ratelimit.PerMinute(10), "2000/day": ratelimit.PerDay(2000),
	} {
		if limit, err := ratelimit.ParseLimit(ours); err != nil || limit != theirs {
			t.Errorf("%s: %v, %v", ours, limit, err)
		}
	}
}

func fromThrottled(mux *http.ServeMux, list http.Handler) *ratelimit.Limiter {
	limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{Headers: headers.DeltaSeconds}))
	perRoute := ratelimit.Policy{
		Name:  "route",
		Key:   ratelimit.Join(ratelimit.RemoteIP(), ratelimit.Route()),
		Limit: ratelimit.PerMinute(20).WithBurst(6), // MaxBurst 5, and the request itself
	}
	mux.Handle("GET /items", limiter.Limit(perRoute)(list))
	return limiter
}

func TestMigratingFromThrottled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mux := http.NewServeMux()
		defer fromThrottled(mux, ratetest.OK).Close()
		w := sendTo(mux, "GET", "/items", "192.0.2.1", "")
		if h := w.Header(); h.Get("X-RateLimit-Limit") != "6" || h.Get("X-RateLimit-Remaining") != "5" || h.Get("X-RateLimit-Reset") != "3" {
			t.Errorf("%v", h)
		}
		for range 5 {
			sendTo(mux, "GET", "/items", "192.0.2.1", "")
		}
		if w := sendTo(mux, "GET", "/items", "192.0.2.1", ""); w.Code != 429 || w.Header().Get("Retry-After") != "3" {
			t.Errorf("the seventh request: %d, Retry-After %q", w.Code, w.Header().Get("Retry-After"))
		}
	})
}

func fromExpress() (*ratelimit.Limiter, error) {
	limiter, err := ratelimit.New(ratelimit.Config{
		Policies: []ratelimit.Policy{{
			Name:  "api",
			Key:   ratelimit.ClientIP(ratelimit.IPConfig{ProxyCount: 1, IPv6Bits: 56}),
			Limit: ratelimit.Limit{Rate: 80, Per: 15 * time.Minute, Burst: 20},
		}},
		Headers: headers.IETF,
		Deny: denial.Handler{Text: func(*http.Request, int, time.Duration) denial.Text {
			return denial.Text{Title: "Too many requests, please try again later."}
		}},
	})
	return limiter, err
}

func TestMigratingFromExpress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter, err := fromExpress()
		if err != nil {
			t.Fatal(err)
		}
		defer limiter.Close()
		h := limiter.Handler(ratetest.OK)
		w := sendTo(h, "GET", "/", "10.0.0.1", "", "X-Forwarded-For", "2001:db8:1:2ff::1")
		if policy, left := w.Header().Get("RateLimit-Policy"), w.Header().Get("RateLimit"); policy != `"api";q=20;w=225` || left != `"api";r=19;t=214` {
			t.Errorf("RateLimit-Policy %s, RateLimit %s", policy, left)
		}
		for range 19 {
			w = sendTo(h, "GET", "/", "10.0.0.1", "", "X-Forwarded-For", "2001:db8:1:200::1")
		}
		if w.Code != 200 {
			t.Errorf("the twentieth request: %d", w.Code)
		}
		w = sendTo(h, "GET", "/", "10.0.0.1", "", "X-Forwarded-For", "2001:db8:1:200::2", "Accept", "text/plain")
		if w.Code != 429 || w.Header().Get("Retry-After") != "12" || !strings.HasPrefix(w.Body.String(), "Too many requests, please try again later.") {
			t.Errorf("%d, Retry-After %q, body %q", w.Code, w.Header().Get("Retry-After"), w.Body)
		}
	})
}

func fromSpring(mux *http.ServeMux, members *jwtkey.Keys, proxy *httputil.ReverseProxy) *ratelimit.Limiter {
	limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{Headers: headers.Spring}))
	perMember := ratelimit.Policy{
		Name:  "requestratelimiter_route",
		Key:   members.Claim("sub"),
		Limit: ratelimit.PerSecond(10).WithBurst(20),
	}
	mux.Handle("/items/", limiter.Limit(perMember)(proxy))
	return limiter
}

func TestMigratingFromSpring(t *testing.T) {
	backend := httptest.NewServer(ratetest.OK)
	defer backend.Close()
	target := ratelimit.Must(url.Parse(backend.URL))
	mux := http.NewServeMux()
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}
	defer fromSpring(mux, ratelimit.Must(jwtkey.New(ratetest.HS256Config())), proxy).Close()

	token := "Bearer " + ratetest.HS256(ratetest.Valid(`"sub": "5"`))
	w := sendTo(mux, "GET", "/items/1", "192.0.2.1", "", "Authorization", token)
	for name, want := range map[string]string{
		"X-RateLimit-Remaining": "19", "X-RateLimit-Replenish-Rate": "10", "X-RateLimit-Burst-Capacity": "20", "X-RateLimit-Requested-Tokens": "1",
	} {
		if got := w.Header().Get(name); w.Code != 200 || got != want {
			t.Errorf("%d, %s %q, want %s", w.Code, name, got, want)
		}
	}
	if w := sendTo(mux, "GET", "/items/1", "192.0.2.1", ""); w.Code != http.StatusForbidden {
		t.Errorf("without a key: %d, want 403", w.Code)
	}
}

func fromBucket4j(limiter *ratelimit.Limiter, mux *http.ServeMux, key ratelimit.KeyFunc, list http.Handler) {
	perMinute := ratelimit.Policy{Name: "minute", Key: key, Limit: ratelimit.PerMinute(10).WithBurst(20)}
	perHour := ratelimit.Policy{Name: "hour", Key: key, Limit: ratelimit.PerHour(100)}
	mux.Handle("GET /items", limiter.Limit(perMinute, perHour)(list))
}

func TestMigratingFromBucket4j(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mux := http.NewServeMux()
		fromBucket4j(ratetest.Quiet(t), mux, ratelimit.RemoteIP(), ratetest.OK)
		allowed := 0
		for range 100 {
			for sendTo(mux, "GET", "/items", "192.0.2.1", "").Code == http.StatusOK {
				allowed++
			}
			if allowed < 20 {
				t.Fatalf("%d requests were allowed at once, want 20", allowed)
			}
			time.Sleep(6 * time.Second)
		}
		if allowed != 116 { // by the minute it would be 119
			t.Errorf("%d requests were allowed in 594 seconds, want 116", allowed)
		}
	})
}
