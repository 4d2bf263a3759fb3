package ratelimit_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/jwtkey"
)

// One client that finds ever new ways to have no key leaves lines for what is wrong elsewhere.
func TestAClientDoesNotUseUpTheKindsOfRefusals(t *testing.T) {
	members := must(jwtkey.New(hs256Config(jwtkey.BearerToken(), jwtkey.HeaderToken("X-Token"), jwtkey.CookieToken("token")))).Claim("sub")
	own := func(r *http.Request) (string, error) {
		return "", fmt.Errorf("%w: no such user %s", ratelimit.ErrNoKey, r.Header.Get("Authorization"))
	}
	for name, key := range map[string]ratelimit.KeyFunc{
		"JWT":       members,
		"A FirstOf": ratelimit.FirstOf(ratelimit.Header("X-Api-Key"), own, members),
		"One's own": own,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, text := logged(t)
				var mounted []http.Handler
				for i := range 9 { // also names that differ in digits only are told apart
					mounted = append(mounted, l.Limit(ratelimit.Policy{Name: fmt.Sprint("v", i), Key: key, Limit: ratelimit.PerHour(9)})(okHandler))
				}
				for c := range 128 {
					for _, header := range []string{string(rune(c)), `{"a":` + string(rune(c)), `{"alg":"` + string(rune(c)) + `"}`} {
						token := base64.RawURLEncoding.EncodeToString([]byte(header)) + ".e30.x"
						for _, h := range mounted {
							get(h, with("Authorization", "Bearer "+token))
							get(h, with("X-Token", token+"!"))
						}
					}
				}
				if n := strings.Count(text.String(), "\n"); n < len(mounted) || n > 6*len(mounted) {
					t.Errorf("%d lines:\n%.3000s", n, text)
				}
				text.Reset()
				get(l.Limit(ratelimit.Policy{Name: "search", Key: ratelimit.Route(), Limit: ratelimit.PerHour(9)})(okHandler))
				checkText(t, text.String(), "policy search", "mount the limiter on the route's handler", "not_logged_since=0")
			})
		})
	}
}

// Errors that a client causes leave lines for a Store that fails.
func TestAClientDoesNotUseUpTheKindsOfFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, text := logged(t)
		p := ratelimit.Policy{Name: "api", Limit: ratelimit.PerHour(9), Key: func(r *http.Request) (string, error) {
			return "", fmt.Errorf("cannot read %s: %w", r.Method, errors.New("it is "+r.Method))
		}}
		h := l.Limit(p)(okHandler)
		for i := range 100 {
			get(h, method(strings.Repeat("M", i+1)))
		}
		if n := strings.Count(text.String(), "\n"); n != 1 {
			t.Errorf("%d lines:\n%s", n, text)
		}
		checkText(t, text.String(), `error="policy api: cannot read M: it is M"`)

		text.Reset()
		p.Name, p.Key = "login", finds("", errors.Join(ratelimit.ErrOutage, errors.New("the directory is away")))
		get(l.Limit(p)(okHandler))
		checkText(t, text.String(), "policy login", "the directory is away", "let_through=true not_logged_since=0")
	})
}

func TestErrorsOfPoliciesWrapThoseOfTheirFunctions(t *testing.T) {
	broken := errors.New("broken")
	_, err := quiet(t).Decide(requestWith(), ratelimit.Policy{Name: "api", Key: finds("", broken), Limit: ratelimit.PerHour(9)})
	if !errors.Is(err, broken) || err.Error() != "policy api: broken" {
		t.Errorf("got %v", err)
	}
}

func TestFaultsOfTokensAreKinds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, text := logged(t)
		h := l.Limit(ratelimit.Policy{Name: "api", Key: must(jwtkey.New(hs256Config())).Claim("sub"), Limit: ratelimit.PerHour(9)})(okHandler)
		for range 3 {
			get(h)
			get(h, with("Authorization", "Bearer a.b.c"))
			get(h, with("Authorization", "Bearer "+hs256(`{"sub": "5", "exp": 1}`)))
			get(h, with("Authorization", "Bearer "+hs256(valid(`"sub": "5"`))+"A"))
		}
		if n := strings.Count(text.String(), "\n"); n != 4 {
			t.Errorf("%d lines:\n%s", n, text)
		}
		checkText(t, text.String(), "no Authorization header", "token is malformed", "token is expired", "signature is invalid")
	})
}
