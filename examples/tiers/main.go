// Tiers is an API whose limits depend on the member's plan, which is a claim of their token.
//
//	JWT_SECRET=… go run ./examples/tiers
package main

import (
	"fmt"
	"log"
	"net/http"
	"os"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/jwtkey"
	"github.com/go-tokenbucket/ratelimit/store"
)

func main() {
	secret := os.Getenv("JWT_SECRET")
	if secret == "" {
		log.Fatal("JWT_SECRET: must be set to the secret of the HS256 tokens")
	}
	handler, err := newAPI(nil, []byte(secret))
	if err != nil {
		log.Fatal(err)
	}
	server := &http.Server{Addr: "127.0.0.1:8080", Handler: handler, ReadHeaderTimeout: 5 * time.Second}
	log.Printf("listening on http://%s", server.Addr)
	log.Fatal(server.ListenAndServe())
}

// guest is the limit of requests without a token, and of unknown plans.
var guest = ratelimit.PerMinute(10)

var plans = map[string]ratelimit.Limit{
	"free":       ratelimit.PerMinute(60).WithBurst(20),
	"pro":        ratelimit.PerMinute(600).WithBurst(100),
	"enterprise": ratelimit.Unlimited,
}

func newAPI(buckets store.Store, secret []byte) (http.Handler, error) {
	members, err := jwtkey.New(jwtkey.Config{Methods: []string{"HS256"}, Key: secret})
	if err != nil {
		return nil, err
	}
	limiter, err := ratelimit.New(ratelimit.Config{
		Store: buckets,
		Policies: []ratelimit.Policy{{
			Name:  "api",
			Key:   ratelimit.FirstOf(members.Claim("sub"), ratelimit.RemoteIP()),
			Limit: guest,
			LimitFunc: func(r *http.Request) ratelimit.Limit {
				claims, err := members.Claims(r)
				if err != nil {
					return guest
				}
				plan, _ := claims["plan"].(string)
				return plans[plan] // the zero Limit of an unknown plan means Policy.Limit
			},
		}},
	})
	if err != nil {
		return nil, err
	}
	return limiter.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d, ok := ratelimit.FromContext(r.Context())
		if !ok {
			fmt.Fprintln(w, "unlimited")
			return
		}
		fmt.Fprintf(w, "%s is allowed %v\n", d.Results[0].Key, d.Results[0].Limit)
	})), nil
}
