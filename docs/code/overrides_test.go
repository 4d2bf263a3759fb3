package code_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/admin"
	"github.com/go-tokenbucket/ratelimit/override"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

func watched(ctx context.Context, client *redis.Client, policies []ratelimit.Policy, mux *http.ServeMux, server *http.Server, authorize func(*http.Request) (string, admin.Access), then func(*ratelimit.Limiter, *override.Overrides, http.Handler)) error {
	buckets := ratelimit.Must(redisstore.New(client, redisstore.Config{}))
	limiter, err := ratelimit.New(ratelimit.Config{Store: buckets, Policies: policies})
	if err != nil {
		return err
	}
	server.Handler = limiter.Handler(mux)
	overrides, err := override.Watch(ctx, limiter, buckets, override.Config{})
	if err != nil {
		return err
	}
	page := admin.Handler(limiter, authorize, admin.Config{Overrides: overrides})
	then(limiter, overrides, page)
	return nil
}

func inGo(ctx context.Context, overrides *override.Overrides) error {
	err := overrides.Set(ctx, override.Change{
		Policy: "api", Key: "member:7", Limit: "600/1m burst 100",
		Until: time.Now().Add(72 * time.Hour), By: "alice", Why: "launch",
	})
	return err
}

func byPlan(limiter *ratelimit.Limiter, memberKey ratelimit.KeyFunc, plans map[string]ratelimit.Limit, planOf func(*http.Request) string) func(http.Handler) http.Handler {
	api := ratelimit.Policy{Name: "api", Key: memberKey, LimitFunc: func(r *http.Request) ratelimit.Limit {
		return plans[planOf(r)] // of your database, by the member alone
	}}
	return limiter.Limit(api)
}

func TestLimitsAreChanged(t *testing.T) {
	server := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	policies := []ratelimit.Policy{{Name: "api", Key: ratelimit.RemoteIP(), Limit: ratelimit.PerMinute(60).WithBurst(10)}}
	err := watched(t.Context(), client, policies, http.NewServeMux(), new(http.Server), func(*http.Request) (string, admin.Access) { return "ann", admin.Change }, func(l *ratelimit.Limiter, overrides *override.Overrides, page http.Handler) {
		inForce := func() string { return l.Policies()[0].Limit.String() }
		if err := inGo(t.Context(), overrides); err != nil {
			t.Error(err)
		}
		post := func(form url.Values) {
			r := httptest.NewRequest("POST", "/admin/overrides", strings.NewReader(form.Encode()))
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			w := httptest.NewRecorder()
			if page.ServeHTTP(w, r); w.Code != 303 {
				t.Errorf("status %d: %s", w.Code, w.Body)
			}
		}
		post(url.Values{"policy": {"api"}, "limit": {"120/1m burst 20"}, "was": {"60/1m burst 10"}, "why": {"sale"}})
		if inForce() != "120/1m burst 20" {
			t.Error(inForce())
		}
		post(url.Values{"policy": {"api"}, "key": {"member:7"}, "limit": {"600/1m burst 100"}, "until": {"72h"}})
		post(url.Values{"policy": {"api"}, "end": {"1"}})
		fields, _ := server.HKeys("ratelimit:{overrides}")
		if inForce() != "60/1m burst 10" || len(fields) != 3 || fields[2] != "api member:7" { // "", api and the key
			t.Errorf("%s, %q", inForce(), fields)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}

// An override of a member goes before the plan.
func TestAnOverrideGoesBeforeThePlan(t *testing.T) {
	l := ratelimit.Must(ratelimit.New(ratelimit.Config{}))
	defer l.Close()
	h := byPlan(l, func(r *http.Request) (string, error) { return "member:" + r.Header.Get("Member"), nil }, map[string]ratelimit.Limit{"free": ratelimit.PerHour(2)}, func(*http.Request) string { return "free" })(http.NotFoundHandler())
	if err := l.Override([]ratelimit.Override{{Policy: "api", Key: "member:7", Limit: ratelimit.PerHour(20)}}); err != nil {
		t.Fatal(err)
	}
	for member, want := range map[string]string{"7": "20", "8": "2"} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("Member", member)
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r); w.Header().Get("X-RateLimit-Limit") != want {
			t.Errorf("member %s: %v, want %s", member, w.Header(), want)
		}
	}
}
