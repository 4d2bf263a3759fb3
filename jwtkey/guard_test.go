package jwtkey_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/jwtkey"
)

func TestAFloodOfForgedTokensCostsAtMostBurstSignatures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const burst, flood = 7, 500
		keys := keyServer{secret: hmacSecret}
		members := must(jwtkey.New(keys.config()))
		limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{}))
		defer limiter.Close()
		perAddress := limiter.Limit(ratelimit.Policy{Name: "address", Key: ratelimit.RemoteIP(), Limit: ratelimit.PerMinute(60).WithBurst(burst)})
		perMember := limiter.Limit(ratelimit.Policy{Name: "member", Key: members.Claim("sub"), Limit: ratelimit.PerMinute(600), Optional: true})
		guarded := perAddress(perMember(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))

		flooded := func() (through int) {
			for i := range flood {
				// Each token is another one, and none is signed by who may.
				r := bearer(sign(jwt.SigningMethodHS256, []byte("another"), `{"alg": "HS256"}`, valid(fmt.Sprintf(`"sub": "%d"`, i))))
				r.RemoteAddr = "192.0.2.1:1234"
				w := httptest.NewRecorder()
				guarded.ServeHTTP(w, r)
				if w.Code == http.StatusOK {
					through++
				}
			}
			return through
		}
		if n := flooded(); n != burst {
			t.Errorf("%d were let through; want %d", n, burst)
		}
		keys.checkAsked(t, burst)
		time.Sleep(2 * time.Second) // two tokens
		flooded()
		keys.checkAsked(t, 2)

		// Another address is not concerned.
		r := bearer(hs256(valid(`"sub": "5"`)))
		r.RemoteAddr = "198.51.100.1:1234"
		w := httptest.NewRecorder()
		guarded.ServeHTTP(w, r)
		if w.Code != http.StatusOK {
			t.Errorf("a member at another address: status %d", w.Code)
		}
		keys.checkAsked(t, 1)

		// In one limiter, all policies find their keys before any is charged.
		keys.asked = 0
		both := ratelimit.Must(ratelimit.New(ratelimit.Config{Policies: []ratelimit.Policy{
			{Name: "address", Key: ratelimit.RemoteIP(), Limit: ratelimit.PerMinute(60).WithBurst(burst)},
			{Name: "member", Key: members.Claim("sub"), Limit: ratelimit.PerMinute(600), Optional: true},
		}}))
		defer both.Close()
		guarded = both.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		flooded()
		keys.checkAsked(t, flood)
	})
}
