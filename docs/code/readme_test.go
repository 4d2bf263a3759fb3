package code_test

import (
	"context"
	"log"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/go-chi/chi/v5"
	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/ratetest"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

func TestLimitsPerRoute(t *testing.T) {
	limiter := ratetest.NewLimiter(t, ratelimit.Config{Policies: []ratelimit.Policy{ratetest.PerIP("api", ratelimit.PerMinute(60))}})
	login := ratetest.PerIP("login", ratelimit.PerMinute(1))
	perMember, perOrg := ratetest.PerIP("member", ratelimit.PerMinute(5)), ratetest.PerIP("org", ratelimit.PerMinute(2))
	h := ratetest.OK

	r := chi.NewRouter()
	r.Use(limiter.Handler)
	r.With(limiter.Limit(login)).Post("/login", h)
	r.With(limiter.Limit(perMember, perOrg)).Get("/search", h) // both buckets are charged, or neither

	path := func(path string) func(*http.Request) { return func(r *http.Request) { r.URL.Path = path } }
	ratetest.WantStatuses(t, r, []int{200, 429}, path("/login"), ratetest.Method("POST"))
	ratetest.WantStatuses(t, r, []int{200, 200, 429}, path("/search"))
}

func TestAPolicyForLogins(t *testing.T) {
	login :=
		ratelimit.Policy{
			Name:       "login",
			Key:        ratelimit.RemoteIP(),
			Limit:      ratelimit.PerHour(3),
			Settle:     ratelimit.FailedLogins, // a successful response costs nothing
			FailClosed: true,                   // 503 while Redis is away; default: let through
		}

	status := 200
	h := ratetest.Quiet(t).Limit(login)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
	ratetest.WantStatuses(t, h, []int{200, 200, 200, 200})
	status = 401
	ratetest.WantStatuses(t, h, []int{401, 401, 401, 429})
}

func TestTheClientBehindALoadBalancer(t *testing.T) {
	key :=
		ratelimit.ClientIP(ratelimit.IPConfig{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}})

	checkClient(t, key, "10.0.0.7:4711", "ip:198.51.100.5", "X-Forwarded-For", "203.0.113.99, 198.51.100.5")
}

func TestDiagnoseOfAServer(t *testing.T) {
	server := miniredis.RunT(t)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()
	buckets, ctx := redisstore.New(rdb, redisstore.Config{}), context.Background()

	var text strings.Builder
	log.SetOutput(&text)
	defer log.SetOutput(os.Stderr)
	for _, finding := range buckets.Diagnose(ctx) {
		log.Print(finding)
	}
	if !strings.Contains(text.String(), "ContextTimeoutEnabled") {
		t.Errorf("of a client with the defaults of go-redis, it says:\n%s", text.String())
	}
}
