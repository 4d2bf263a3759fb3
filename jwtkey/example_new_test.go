package jwtkey_test

import (
	"fmt"
	"net/http/httptest"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/jwtkey"
)

// Members are counted by the claim of a valid token, guests by address.
func ExampleNew() {
	secret := []byte("32 bytes from a secret manager..")
	members, err := jwtkey.New(jwtkey.Config{Methods: []string{"HS256"}, Key: secret, Issuer: "https://login.example"})
	if err != nil {
		fmt.Println(err)
		return
	}
	key := ratelimit.FirstOf(members.Claim("sub"), ratelimit.RemoteIP())

	r := httptest.NewRequest("GET", "/", nil)
	fmt.Println(key(r))
	for _, issuer := range []string{"https://login.example", "https://other.example"} {
		token, _ := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{
			"sub": "5", "iss": issuer, "exp": time.Now().Add(time.Hour).Unix(),
		}).SignedString(secret)
		r.Header.Set("Authorization", "Bearer "+token)
		fmt.Println(key(r))
	}
	// Output:
	// ip:192.0.2.1 <nil>
	// member:5 <nil>
	// ip:192.0.2.1 <nil>
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
