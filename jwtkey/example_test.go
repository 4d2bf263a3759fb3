package jwtkey_test

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/golang-jwt/jwt/v5"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/jwtkey"
)

// Members are limited by the claim "sub" of their tokens, and guests by address.
func ExampleNew() {
	secret := []byte("32 bytes from a secret manager..")
	members, err := jwtkey.New(jwtkey.Config{Methods: []string{"HS256"}, Key: secret})
	if err != nil {
		fmt.Println(err)
		return
	}
	limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{
		Policies: []ratelimit.Policy{{
			Name:  "api",
			Key:   ratelimit.FirstOf(members.Claim("sub"), ratelimit.RemoteIP()),
			Limit: ratelimit.PerMinute(1),
		}},
	}))
	defer limiter.Close()
	handler := limiter.Handler(hello)

	token := func(member string) string {
		claims := jwt.MapClaims{"sub": member, "exp": time.Now().Add(time.Hour).Unix()}
		signed, _ := jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString(secret)
		return signed
	}
	printResponse(handler, "GET", "/", "Authorization", "Bearer "+token("5"))
	printResponse(handler, "GET", "/", "Authorization", "Bearer "+token("5"))
	printResponse(handler, "GET", "/", "Authorization", "Bearer "+token("6"))
	printResponse(handler, "GET", "/")
	// Output:
	// GET / 200
	// GET / 429
	// GET / 200
	// GET / 200
}

// An outer limiter limits each address before an inner limiter checks any signature.
func ExampleKeys() {
	secrets := map[string][]byte{"2026": []byte("32 bytes from a secret manager..")}
	checked := 0
	members, err := jwtkey.New(jwtkey.Config{
		Methods: []string{"HS256"},
		Keyfunc: func(_ context.Context, token *jwt.Token) (any, error) {
			checked++
			kid, _ := token.Header["kid"].(string)
			if secret, ok := secrets[kid]; ok {
				return secret, nil
			}
			return nil, errors.New("no such kid")
		},
		Tokens: []jwtkey.TokenFunc{jwtkey.BearerToken(), jwtkey.CookieToken("__Host-token")},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{}))
	defer limiter.Close()
	perAddress := ratelimit.Policy{Name: "address", Key: ratelimit.RemoteIP(), Limit: ratelimit.PerMinute(60).WithBurst(3)}
	perMember := ratelimit.Policy{Name: "member", Key: members.Claim("sub"), Limit: ratelimit.PerMinute(30)}

	r := chi.NewRouter()
	r.Use(limiter.Limit(perAddress))
	r.With(limiter.Limit(perMember)).Get("/", hello)

	token := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{"sub": "5", "exp": time.Now().Add(time.Hour).Unix()})
	token.Header["kid"] = "2026"
	signed, _ := token.SignedString(secrets["2026"])
	forged, _ := token.SignedString([]byte("a guess"))
	printResponse(r, "GET", "/", "Cookie", "__Host-token="+signed)
	printResponse(r, "GET", "/", "Cookie", "__Host-token="+signed) // remembered
	printResponse(r, "GET", "/", "Authorization", "Bearer "+forged)
	printResponse(r, "GET", "/", "Authorization", "Bearer "+forged)
	fmt.Println(checked, "signatures were checked")
	// Output:
	// GET / 200
	// GET / 200
	// GET / 403
	// GET / 429
	// 2 signatures were checked
}

// One token names the member and the organisation.
func ExampleKeys_ClaimAs() {
	secret := []byte("32 bytes from a secret manager..")
	tokens, err := jwtkey.New(jwtkey.Config{Methods: []string{"HS256"}, Key: secret})
	if err != nil {
		fmt.Println(err)
		return
	}
	member, org := tokens.Claim("sub"), tokens.ClaimAs("org", "org_id")

	token, _ := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{
		"sub": "5", "org_id": 7, "exp": time.Now().Add(time.Hour).Unix(),
	}).SignedString(secret)
	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set("Authorization", "Bearer "+token)
	fmt.Println(member(r))
	fmt.Println(org(r))
	// Output:
	// member:5 <nil>
	// org:7 <nil>
}
