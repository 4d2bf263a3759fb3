// Jwks is an API whose members have tokens that are verified with the keys of a key server. No request waits for the
// key server.
//
//	cd examples/jwks && JWKS_URL=https://issuer.example/.well-known/jwks.json JWT_ISSUER=https://issuer.example/ go run .
package main

import (
	"context"
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
	url, issuer := os.Getenv("JWKS_URL"), os.Getenv("JWT_ISSUER")
	if url == "" || issuer == "" {
		log.Fatal("JWKS_URL, JWT_ISSUER: must be set to the address of the issuer's key set, and the issuer's name in its tokens")
	}
	keys := newKeyring(url)
	keys.fetched = func(err error) {
		if err != nil {
			log.Printf("the keys stay as they are: %v", err)
		}
	}
	go keys.keepUp(context.Background())

	handler, err := newAPI(nil, keys, issuer)
	if err != nil {
		log.Fatal(err)
	}
	server := &http.Server{Addr: "127.0.0.1:8080", Handler: handler, ReadHeaderTimeout: 5 * time.Second}
	log.Printf("listening on http://%s", server.Addr)
	log.Fatal(server.ListenAndServe())
}

func newAPI(buckets store.Store, keys *keyring, issuer string) (http.Handler, error) {
	members, err := jwtkey.New(jwtkey.Config{
		Methods: []string{"RS256", "ES256", "EdDSA"},
		Keyfunc: keys.find,
		Issuer:  issuer,
	})
	if err != nil {
		return nil, err
	}
	limiter, err := ratelimit.New(ratelimit.Config{Store: buckets})
	if err != nil {
		return nil, err
	}
	// Two calls of Limit: the outer one decides before the inner one has a signature checked.
	perAddress := limiter.Limit(ratelimit.Policy{
		Name:  "address",
		Key:   ratelimit.RemoteIP(),
		Limit: ratelimit.PerMinute(600),
	})
	perMember := limiter.Limit(ratelimit.Policy{
		Name:  "member",
		Key:   ratelimit.FirstOf(members.Claim("sub"), ratelimit.RemoteIP()),
		Limit: ratelimit.PerMinute(60),
	})
	return perAddress(perMember(http.HandlerFunc(hello))), nil
}

func hello(w http.ResponseWriter, r *http.Request) {
	if d, ok := ratelimit.FromContext(r.Context()); ok {
		fmt.Fprintln(w, "hello,", d.Results[len(d.Results)-1].Key)
	}
}
