package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"net/netip"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/admin"
	"github.com/go-tokenbucket/ratelimit/jwtkey"
	"github.com/go-tokenbucket/ratelimit/observe"
	"github.com/go-tokenbucket/ratelimit/override"
	"github.com/go-tokenbucket/ratelimit/store"
)

// newAPI returns the API with its limits, on the Store of cfg, and a page at /admin/ that shows them. If kept is not nil,
// the page also changes limits, on all processes that use the same Redis.
func newAPI(ctx context.Context, cfg ratelimit.Config, trusted []netip.Prefix, kept store.Values) (http.Handler, error) {
	secret := make([]byte, 32) // tokens are valid until the program ends
	if _, err := rand.Read(secret); err != nil {
		return nil, err
	}
	members, err := jwtkey.New(jwtkey.Config{Methods: []string{"HS256"}, Key: secret})
	if err != nil {
		return nil, err
	}
	counts := observe.NewCounts(observe.CountsConfig{History: true})
	top := ratelimit.Must(observe.NewTop(observe.TopConfig{}))
	cfg.Observe = observe.Join(counts.Observe, top.Observe)
	limiter, err := ratelimit.New(cfg)
	if err != nil {
		return nil, err
	}
	clientIP := ratelimit.ClientIP(ratelimit.IPConfig{TrustedProxies: trusted})
	memberOrIP := ratelimit.FirstOf(members.Claim("memberId"), clientIP)

	hello := limiter.Limit(ratelimit.Policy{
		Name:  "hello",
		Key:   memberOrIP,
		Limit: ratelimit.PerSecond(1).WithBurst(5),
	})
	login := limiter.Limit(ratelimit.Policy{
		Name:       "login",
		Key:        clientIP,
		Limit:      ratelimit.PerMinute(3),
		FailClosed: true, // during an outage, no logins instead of unlimited guesses
	})
	items := limiter.Limit(
		ratelimit.Policy{Name: "items", Key: memberOrIP, Limit: ratelimit.PerSecond(10)},
		ratelimit.Policy{Name: "items-route", Key: ratelimit.Route(), Limit: ratelimit.PerSecond(50)},
	)
	exports := limiter.Limit(
		ratelimit.Policy{Name: "exports", Key: memberOrIP, Limit: ratelimit.Concurrency(2)},
		ratelimit.Policy{Name: "exports-rate", Key: memberOrIP, Limit: ratelimit.PerMinute(10)},
	)

	mux := http.NewServeMux()
	mux.Handle("GET /hello", hello(http.HandlerFunc(sayHello)))
	mux.Handle("POST /login", login(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "wrong password")
	})))
	mux.Handle("GET /items/{id}", items(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "item %q\n", r.PathValue("id"))
	})))
	mux.Handle("GET /export", exports(http.HandlerFunc(export)))
	mux.HandleFunc("GET /token", func(w http.ResponseWriter, r *http.Request) { issueToken(w, r, secret) })
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	var overrides *override.Overrides
	if kept != nil {
		if overrides, err = override.Watch(ctx, limiter, kept, override.Config{}); err != nil {
			return nil, err
		}
	}
	mux.Handle("/admin/", http.StripPrefix("/admin", admin.Handler(limiter, admin.Loopback, admin.Config{
		Title:     "Quickstart",
		Counts:    counts,
		Top:       top,
		Overrides: overrides,
		Caches:    map[string]interface{ Stats() store.CacheStats }{"tokens": members},
	})))
	return mux, nil
}

// sayHello answers with the member or address that the request counts for.
func sayHello(w http.ResponseWriter, r *http.Request) {
	d, ok := ratelimit.FromContext(r.Context())
	if !ok {
		fmt.Fprintln(w, "hello: the limiter could not decide and let you through")
		return
	}
	fmt.Fprintf(w, "hello, %s\n", d.Results[0].Key)
}

// export takes three seconds, or until its client has left.
func export(w http.ResponseWriter, r *http.Request) {
	select {
	case <-time.After(3 * time.Second):
		fmt.Fprintln(w, "exported")
	case <-r.Context().Done():
	}
}

func issueToken(w http.ResponseWriter, r *http.Request, secret []byte) {
	member := r.URL.Query().Get("member")
	if member == "" {
		http.Error(w, "which member? /token?member=5", http.StatusBadRequest)
		return
	}
	token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{
		"memberId": member,
		"exp":      time.Now().Add(time.Hour).Unix(),
	}).SignedString(secret)
	if err != nil {
		http.Error(w, "no token", http.StatusInternalServerError)
		return
	}
	fmt.Fprintln(w, token)
}
