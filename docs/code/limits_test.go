package code_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/admin"
	"github.com/go-tokenbucket/ratelimit/limits"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

func watched(ctx context.Context, client *redis.Client, policies []ratelimit.Policy, mux *http.ServeMux, server *http.Server, authorize func(*http.Request) (string, admin.Access), then func(*ratelimit.Limiter, *limits.Limits, http.Handler)) error {
	buckets := ratelimit.Must(redisstore.New(client, redisstore.Config{}))
	limiter, err := ratelimit.New(ratelimit.Config{Store: buckets, Policies: policies})
	if err != nil {
		return err
	}
	server.Handler = limiter.Handler(mux)
	changed, err := limits.Watch(ctx, limiter, buckets, limits.Config{})
	if err != nil {
		return err
	}
	page := admin.Handler(limiter, authorize, admin.Config{Limits: changed})
	then(limiter, changed, page)
	return nil
}

func inGo(ctx context.Context, changed *limits.Limits) error {
	err := changed.Set(ctx, limits.Change{Policy: "api", Limit: "120/1m burst 20", By: "alice", Why: "sale"})
	return err
}

func TestLimitsAreChanged(t *testing.T) {
	server := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	policies := []ratelimit.Policy{{Name: "api", Key: ratelimit.RemoteIP(), Limit: ratelimit.PerMinute(60).WithBurst(10)}}
	err := watched(t.Context(), client, policies, http.NewServeMux(), new(http.Server), func(*http.Request) (string, admin.Access) { return "ann", admin.Change }, func(l *ratelimit.Limiter, changed *limits.Limits, page http.Handler) {
		inForce := func() string { return l.Policies()[0].Limit.String() }
		if err := inGo(t.Context(), changed); err != nil || inForce() != "120/1m burst 20" {
			t.Errorf("%s, %v", inForce(), err)
		}
		post := func(form url.Values) {
			r := httptest.NewRequest("POST", "/admin/limits", strings.NewReader(form.Encode()))
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			w := httptest.NewRecorder()
			if page.ServeHTTP(w, r); w.Code != 303 {
				t.Errorf("status %d: %s", w.Code, w.Body)
			}
		}
		post(url.Values{"policy": {"api"}, "end": {"1"}})
		post(url.Values{"policy": {"api"}, "limit": {"120/1m burst 20"}, "was": {"60/1m burst 10"}, "why": {"sale"}})
		fields, _ := server.HKeys("ratelimit:limits")
		if inForce() != "120/1m burst 20" || len(fields) != 6 { // three changes, "#n", "#since" and api
			t.Errorf("%s, %q", inForce(), fields)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}
