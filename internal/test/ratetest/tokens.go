package ratetest

import (
	"encoding/base64"
	"fmt"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/jwtkey"
)

// Secret signs the tokens of HS256.
var Secret = []byte("a secret of the tests, 32 bytes.")

// HS256Config verifies what HS256 returns, in any of tokens.
func HS256Config(tokens ...jwtkey.TokenFunc) jwtkey.Config {
	return jwtkey.Config{Methods: []string{"HS256"}, Key: Secret, Tokens: tokens}
}

// Sign returns a token of a header and claims as they stand, in JSON, which may be wrong in any way.
func Sign(method jwt.SigningMethod, key any, header, claims string) string {
	text := Segment(header) + "." + Segment(claims)
	return text + "." + Segment(string(ratelimit.Must(method.Sign(text, key))))
}

// Segment returns text as a part of a token.
func Segment(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }

// At returns the time in d as a NumericDate.
func At(d time.Duration) string { return fmt.Sprint(time.Now().Add(d).Unix()) }

// Valid returns claims that expire in an hour, and those of more, which is like `"sub": "5"`.
func Valid(more string) string { return `{"exp": ` + At(time.Hour) + `, ` + more + `}` }

// HS256 returns a token of claims for the Keys of HS256Config.
func HS256(claims string) string {
	return Sign(jwt.SigningMethodHS256, Secret, `{"alg": "HS256"}`, claims)
}
