// Chi is an API on a chi router with limits per route, per group, per member and per organisation.
//
//	JWT_SECRET=… [REDIS_URL=redis://host:port/db] go run ./examples/chi
package main

import (
	"fmt"
	"log"
	"net/http"
	"os"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/jwtkey"
	"github.com/go-tokenbucket/ratelimit/skip"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

func main() {
	var buckets store.Store // in memory
	if url := os.Getenv("REDIS_URL"); url != "" {
		options, err := redisstore.Options(url)
		if err != nil {
			log.Fatal(err)
		}
		if buckets, err = redisstore.New(redis.NewClient(options), redisstore.Config{}); err != nil {
			log.Fatal(err)
		}
	}
	secret := os.Getenv("JWT_SECRET")
	if secret == "" {
		log.Fatal("JWT_SECRET: must be set to the secret of the HS256 tokens")
	}
	handler, err := newAPI(buckets, []byte(secret))
	if err != nil {
		log.Fatal(err)
	}
	server := &http.Server{Addr: "127.0.0.1:8080", Handler: handler, ReadHeaderTimeout: 5 * time.Second}
	log.Printf("listening on http://%s", server.Addr)
	log.Fatal(server.ListenAndServe())
}

func newAPI(buckets store.Store, secret []byte) (http.Handler, error) {
	tokens, err := jwtkey.New(jwtkey.Config{Methods: []string{"HS256"}, Key: secret})
	if err != nil {
		return nil, err
	}

	limiter, err := ratelimit.New(ratelimit.Config{
		Store: buckets,
		// By address, for all requests, before any code reads a token.
		Policies: []ratelimit.Policy{{
			Name:  "ip",
			Key:   ratelimit.RemoteIP(),
			Limit: ratelimit.PerSecond(100),
		}},
		Skip: skip.Paths("GET /healthz"),
	})
	if err != nil {
		return nil, err
	}

	// A search takes from the member's bucket and from the organisation's, or from neither.
	perMember := ratelimit.Policy{Name: "search-member", Key: tokens.Claim("sub"), Limit: ratelimit.PerMinute(30).WithBurst(10)}
	perOrg := ratelimit.Policy{Name: "search-org", Key: tokens.ClaimAs("org", "org"), Limit: ratelimit.PerMinute(300).WithBurst(50)}

	// Each route of a group has one bucket, for all clients together.
	perRoute := ratelimit.Policy{Name: "admin-route", Key: ratelimit.Route(), Limit: ratelimit.PerSecond(5)}

	// After three wrong passwords, an address has one attempt every 15 minutes. A login that has succeeded gets its
	// token back.
	login := ratelimit.Policy{
		Name:       "login",
		Key:        ratelimit.RemoteIP(),
		Limit:      ratelimit.Every(15 * time.Minute).WithBurst(3),
		Settle:     ratelimit.FailedLogins,
		FailClosed: true,
	}

	r := chi.NewRouter()
	r.Use(limiter.Handler)
	r.Get("/healthz", reply("ok"))
	r.With(limiter.Limit(login)).Post("/login", logIn)
	r.With(limiter.Limit(perMember, perOrg)).Get("/search", reply("nothing found"))
	r.Route("/admin", func(r chi.Router) {
		r.Use(limiter.Limit(perRoute))
		r.Get("/members/{id}", reply("a member"))
		r.Get("/reports/{year}", reply("a report"))
	})
	return r, nil
}

func logIn(w http.ResponseWriter, r *http.Request) {
	if r.PostFormValue("password") != "sesame" {
		http.Error(w, "wrong password", http.StatusUnauthorized)
		return
	}
	fmt.Fprintln(w, "welcome") // if the handler wrote nothing, FailedLogins would count a failure
}

func reply(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, text) }
}
