// Production is an API that runs on several replicas behind a proxy. Its limits are in Redis, hold in an outage, and change
// while it runs. Members are limited by their token, guests by their address. It has metrics, and the page for operators.
//
//	cd examples/production && JWT_SECRET=… OPS_PASSWORD=… METRICS_PASSWORD=… [REDIS_URL=redis://host:port/db] go run . [-help]
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/admin"
	"github.com/go-tokenbucket/ratelimit/contrib/promratelimit"
	"github.com/go-tokenbucket/ratelimit/jwtkey"
	"github.com/go-tokenbucket/ratelimit/observe"
	"github.com/go-tokenbucket/ratelimit/override"
	"github.com/go-tokenbucket/ratelimit/policyfile"
	"github.com/go-tokenbucket/ratelimit/store/fallback"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

var (
	addr     = flag.String("addr", "127.0.0.1:8080", "`address` to listen on")
	replicas = flag.Int("replicas", 1, "`number` of replicas that share the limits while Redis is unavailable")
	proxies  = flag.String("trusted-proxies", "loopback", "`networks` of the proxies, such as 10.0.1.0/24")
	limits   = flag.String("limits", "limits.yaml", "`file` of policies")
)

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		log.Fatal(err)
	}
}

// run serves until ctx ends, and then finishes the requests that have begun.
func run(ctx context.Context) error {
	options, err := redisstore.Options(cmp.Or(os.Getenv("REDIS_URL"), "redis://127.0.0.1:6379"))
	if err != nil {
		return fmt.Errorf("REDIS_URL: %w", err)
	}
	buckets, err := redisstore.New(redis.NewClient(options), redisstore.Config{})
	if err != nil {
		return err
	}
	for _, finding := range buckets.Diagnose(ctx) {
		slog.Warn(finding)
	}
	backed, err := fallback.New(buckets, nil, fallback.Config{Replicas: *replicas})
	if err != nil {
		return err
	}
	defer backed.Close()
	handler, err := newHandler(ctx, backed)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", *addr)
	if err != nil {
		return err
	}
	fmt.Printf("listening on http://%s\n", listener.Addr())
	server := &http.Server{Handler: handler, ReadTimeout: 30 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute}
	finished := make(chan error, 1)
	context.AfterFunc(ctx, func() { finished <- server.Shutdown(context.WithoutCancel(ctx)) })
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return <-finished
}

func newHandler(ctx context.Context, buckets *fallback.Store) (http.Handler, error) {
	trusted, err := ratelimit.ParseNetworks(*proxies)
	if err != nil {
		return nil, fmt.Errorf("-trusted-proxies: %w", err)
	}
	members, err := jwtkey.New(jwtkey.Config{Methods: []string{"HS256"}, Key: []byte(os.Getenv("JWT_SECRET"))})
	if err != nil {
		return nil, fmt.Errorf("JWT_SECRET: %w", err)
	}
	registry := policyfile.Registry{Keys: map[string]ratelimit.KeyFunc{
		"members": members.Claim("sub"),
		"clients": ratelimit.ClientIP(ratelimit.IPConfig{TrustedProxies: trusted}),
	}}
	file, err := policyfile.Load(*limits, registry)
	if err != nil {
		return nil, err
	}
	counts, top := observe.NewCounts(observe.CountsConfig{History: true}), ratelimit.Must(observe.NewTop(observe.TopConfig{}))
	names := ratelimit.Must(observe.NewNames(nameOf, observe.NamesConfig{}))
	watched := observe.Join(counts.Observe, top.Observe, observe.LogDenials(observe.LogConfig{Names: names}))
	limiter, err := ratelimit.New(ratelimit.Config{Store: buckets, Policies: file.Everywhere(), Observe: watched})
	if err != nil {
		return nil, err
	}
	api := http.NewServeMux()
	api.Handle("GET /items/{id}", limiter.Limit(file.Named("member")...)(http.HandlerFunc(getItem)))
	api.Handle("POST /login", limiter.Limit(file.Named("login")...)(http.HandlerFunc(logIn)))
	mux := http.NewServeMux() // what is not below api is never denied: health checks, and the page for an operator who is blocked
	mux.Handle("/", limiter.Handler(api))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	// The limits change with the file, and an operator can change them on the page.
	if err := policyfile.Watch(ctx, limiter, *limits, registry, policyfile.WatchConfig{}); err != nil {
		return nil, err
	}
	overrides, err := override.Watch(ctx, limiter, buckets, override.Config{})
	if err != nil {
		return nil, err
	}
	metrics := promratelimit.New(promratelimit.Config{Counts: counts})
	metrics.Add("api", limiter)
	metrics.AddCache("jwt", members.Stats)
	prometheus.MustRegister(metrics)

	operators := admin.BasicAuth(
		admin.User{Name: "ops", Password: os.Getenv("OPS_PASSWORD"), Access: admin.Change},
		admin.User{Name: "prometheus", Password: os.Getenv("METRICS_PASSWORD"), Access: admin.View},
	)
	mux.Handle("/admin/", http.StripPrefix("/admin", admin.Handler(limiter, operators, admin.Config{Counts: counts, Top: top, Overrides: overrides, Names: names, Title: "Shop API"})))
	mux.Handle("GET /metrics", admin.Guard(operators, promhttp.Handler()))
	return mux, nil
}

// These stand for yours. The limit of failed logins counts answers with status 401, and the page has the names of members.
func getItem(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, "item", r.PathValue("id")) }

func logIn(w http.ResponseWriter, r *http.Request) {
	http.Error(w, fmt.Sprintf("wrong password for %q", r.PostFormValue("user")), http.StatusUnauthorized)
}

func nameOf(_ context.Context, _, key string) (string, error) {
	return map[string]string{"member:5": "Ann Example"}[key], nil
}
