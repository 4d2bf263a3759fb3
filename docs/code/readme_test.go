package code_test

import (
	"context"
	"log"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/go-chi/chi/v5"
	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/ratetest"
	"github.com/go-tokenbucket/ratelimit/store/fallback"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

func TestAStoreInRedis(t *testing.T) {
	var config ratelimit.Config

	options, err := redisstore.Options("redis://localhost:6379")
	if err != nil {
		log.Fatal(err)
	}
	buckets := ratelimit.Must(redisstore.New(redis.NewClient(options), redisstore.Config{}))
	config.Store = ratelimit.Must(fallback.New(buckets, nil, fallback.Config{Replicas: 3})) // three replicas share the limit in an outage

	if _, err := ratelimit.New(config); err != nil {
		t.Error(err)
	}
}

func TestLimitsPerRoute(t *testing.T) {
	limiter := ratetest.NewLimiter(t, ratelimit.Config{Policies: []ratelimit.Policy{ratetest.PerIP("api", ratelimit.PerMinute(60))}})
	login := ratetest.PerIP("login", ratelimit.PerMinute(1))
	perMember, perOrg := ratetest.PerIP("member", ratelimit.PerMinute(5)), ratetest.PerIP("org", ratelimit.PerMinute(2))
	h := ratetest.OK

	r := chi.NewRouter()
	r.Use(limiter.Handler) // the policies of Config
	r.With(limiter.Limit(login)).Post("/login", h)
	r.With(limiter.Limit(perMember, perOrg)).Get("/search", h) // takes from both buckets or from neither

	path := func(path string) func(*http.Request) { return func(r *http.Request) { r.URL.Path = path } }
	ratetest.WantStatuses(t, r, []int{200, 429}, path("/login"), ratetest.Method("POST"))
	ratetest.WantStatuses(t, r, []int{200, 200, 429}, path("/search"))
}

func TestAPolicyForLogins(t *testing.T) {
	login := ratelimit.Policy{
		Name:       "login",
		Key:        ratelimit.RemoteIP(),
		Limit:      ratelimit.Every(15 * time.Minute).WithBurst(5), // 5 failures, then one more each 15 minutes
		Settle:     ratelimit.FailedLogins,                         // a login that succeeds gets its token back
		FailClosed: true,                                           // 503 while Redis is unavailable
	}

	status := 200
	h := ratetest.Quiet(t).Limit(login)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
	ratetest.WantStatuses(t, h, []int{200, 200, 200, 200, 200, 200})
	status = 401
	ratetest.WantStatuses(t, h, []int{401, 401, 401, 401, 401, 429})
}

func TestDiagnoseOfAServer(t *testing.T) {
	server := miniredis.RunT(t)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()
	buckets, ctx := ratelimit.Must(redisstore.New(rdb, redisstore.Config{})), context.Background()

	var text strings.Builder
	log.SetOutput(&text)
	defer log.SetOutput(os.Stderr)
	for _, finding := range buckets.Diagnose(ctx) {
		log.Print(finding)
	}
	if !strings.Contains(text.String(), "DialTimeout") {
		t.Errorf("of a client with the defaults of go-redis, it says:\n%s", text.String())
	}
}
