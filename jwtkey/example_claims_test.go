package jwtkey_test

import (
	"fmt"
	"net/http/httptest"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/go-tokenbucket/ratelimit/jwtkey"
)

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
