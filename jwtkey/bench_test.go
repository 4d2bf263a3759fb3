package jwtkey_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/jwtkey"
)

// BenchmarkClaim measures the key of a member, whose token is remembered or not, against that of an address.
// They take turns, so that whatever else the machine does slows them alike. Most of it is the SHA-256 of the
// token, which grows with its length, and is several times as fast where the processor has instructions for it.
func BenchmarkClaim(b *testing.B) {
	claims := valid(`"sub": "5", "iss": "https://issuer.example/", "aud": ["api"], "iat": 1700000000, "scope": "` + strings.Repeat("read:items ", 10) + `"`)
	rs256 := sign(jwt.SigningMethodRS256, rsaKey(), `{"alg": "RS256", "typ": "JWT", "kid": "2026"}`, claims)
	for _, bb := range []struct {
		name   string
		cfg    jwtkey.Config
		source string
		token  string
	}{
		{"HS256, a number and its end", hs256Config(), "Authorization", "Bearer " + hs256(valid(`"sub": "5"`))},
		{"HS256", hs256Config(), "Authorization", "Bearer " + hs256(claims)},
		{"RS256", jwtkey.Config{Methods: []string{"RS256"}, Key: &rsaKey().PublicKey}, "Authorization", "Bearer " + rs256},
		{"RS256 in a cookie", jwtkey.Config{
			Methods: []string{"RS256"}, Key: &rsaKey().PublicKey, Tokens: []jwtkey.TokenFunc{jwtkey.CookieToken("token")},
		}, "Cookie", "token=" + rs256},
		{"RS256, not remembered", jwtkey.Config{Methods: []string{"RS256"}, Key: &rsaKey().PublicKey, CacheSize: -1}, "Authorization", "Bearer " + rs256},
	} {
		b.Run(bb.name, func(b *testing.B) {
			r := requestWith(bb.source, bb.token)
			r.RemoteAddr = "192.0.2.1:1234"
			sub, address := must(jwtkey.New(bb.cfg)).Claim("sub"), ratelimit.RemoteIP()
			checked := func(f ratelimit.KeyFunc, r *http.Request) time.Duration {
				start := time.Now()
				for range 100 {
					if _, err := f(r); err != nil {
						b.Fatal(err)
					}
				}
				return time.Since(start)
			}
			var member, ip time.Duration
			rounds := 0
			for b.Loop() {
				member += checked(sub, r)
				ip += checked(address, r)
				rounds++
			}
			each := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / float64(rounds*100) }
			b.ReportMetric(0, "ns/op") // of a round of both says nothing
			b.ReportMetric(each(member), "ns/claim")
			b.ReportMetric(each(ip), "ns/ip")
			b.ReportMetric(each(member-ip), "ns/more")
		})
	}
}
