package ratelimit_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/jwtkey"
)

// Credentials are not in an explanation, whatever functions of the program do with them, except make them a key.
func TestExplanationsHoldNoCredentials(t *testing.T) {
	members, err := jwtkey.New(hs256Config(jwtkey.BearerToken(), jwtkey.CookieToken("token"), jwtkey.HeaderToken("X-Token")))
	if err != nil {
		t.Fatal(err)
	}
	valid, expired := hs256(valid(`"sub": "5", "email": "canary@example.com"`)), hs256(`{"exp": 1, "sub": "canary"}`)
	quoting := func(r *http.Request) error {
		return fmt.Errorf("quoted: %v, %q, %v", r.Header["Authorization"], r.Header.Get("Cookie"), r.Header["Proxy-Authorization"])
	}
	for name, key := range map[string]ratelimit.KeyFunc{
		"Claim":           members.Claim("sub"),
		"A missing claim": members.Claim("org"),
		"FirstOf":         ratelimit.FirstOf(members.Claim("org"), ratelimit.Header("X-Api-Key"), ratelimit.RemoteIP()),
		"Header":          ratelimit.Header("X-Api-Key"),
		"An error":        func(r *http.Request) (string, error) { return "", quoting(r) },
		"No key":          func(r *http.Request) (string, error) { return "", fmt.Errorf("%w: %w", ratelimit.ErrNoKey, quoting(r)) },
		"A bad request":   func(r *http.Request) (string, error) { return "", errors.Join(ratelimit.ErrBadRequest, quoting(r)) },
		"A panic":         func(r *http.Request) (string, error) { panic(quoting(r)) },
		"A panic within":  ratelimit.FirstOf(func(r *http.Request) (string, error) { panic(quoting(r)) }),
		"The library's":   func(r *http.Request) (string, error) { _, err := members.Claims(r); return "", err },
		"Wrapped": func(r *http.Request) (string, error) {
			_, err := members.Claims(r)
			return "", fmt.Errorf("mine: %w", err)
		},
		"An error in Join": ratelimit.Join(ratelimit.RemoteIP(), func(r *http.Request) (string, error) { return "", quoting(r) }),
	} {
		for _, lines := range [][]string{
			{"Authorization", "Bearer " + valid, "Cookie", "session=canary-of-a-session; token=" + expired},
			{"Authorization", "Bearer " + expired, "Proxy-Authorization", "Basic Y2FuYXJ5OmNhbmFyeQ=="},
			{"Authorization", "Bearer e30.canary-token.e30"},
			{"Authorization", "Basic Y2FuYXJ5OmNhbmFyeQ==", "Cookie", "token=" + valid},
			{"Cookie", `a="canary-of-a-cookie"`, "X-Token", valid, "X-Api-Key", "canary-of-an-api-key"},
		} {
			for _, optional := range []bool{false, true} {
				l := newLimiter(t, ratelimit.Config{Policies: []ratelimit.Policy{
					{Name: "api", Key: key, Limit: ratelimit.PerMinute(60), Optional: optional},
					{Name: "after", Key: ratelimit.RemoteIP(), Limit: ratelimit.PerMinute(60)},
				}})
				h := l.Handler(okHandler)
				e := l.Explain(requestWith(lines...))
				text, err := json.Marshal(e)
				if err != nil {
					t.Fatal(err)
				}
				if len(e.Limiters) != 1 || len(e.Limiters[0].Policies) != 2 {
					t.Fatalf("%s: %s", name, text)
				}
				all := string(text) + e.String()
				for _, secret := range []string{"canary", valid, expired, "Y2FuYXJ5", "e30"} {
					if strings.Contains(all, secret) {
						t.Errorf("%s: %.20s is in %s", name, secret, text)
					}
				}
				runtime.KeepAlive(h)
			}
		}
	}
}

// A function of the program that asks others at the same time, or goes on after it has returned, can be explained while
// requests are served. Run with -race.
func TestFunctionsThatGoOnAreExplained(t *testing.T) {
	address := ratelimit.FirstOf(ratelimit.Header("X-None"), ratelimit.RemoteIP())
	left := make(chan struct{}, 1000)
	key := func(r *http.Request) (string, error) {
		asked := make(chan string)
		for range 4 {
			go func() {
				key, _ := address(r)
				select {
				case asked <- key:
				case <-time.After(time.Minute):
				}
				address(r)
				left <- struct{}{}
			}()
		}
		first := <-asked
		go func() {
			for range 3 {
				<-asked
			}
		}()
		return first, nil
	}
	l := newLimiter(t, ratelimit.Config{Policies: []ratelimit.Policy{
		{Name: "api", Key: ratelimit.Join(key, ratelimit.Static("x")), Limit: ratelimit.PerMinute(10_000)},
		{Name: "other", Key: key, Limit: ratelimit.PerMinute(10_000)},
	}})
	h := l.Handler(okHandler)
	for range 10 {
		e := l.Explain(requestWith())
		if e.Status != 0 || len(e.Limiters) != 1 || e.Limiters[0].Policies[1].Key != "ip:192.0.2.1" {
			t.Fatalf("%v", e)
		}
		if _, err := json.Marshal(e); err != nil {
			t.Fatal(err)
		}
		wantStatuses(t, h, []int{http.StatusOK})
	}
	for range 10 * 2 * 2 * 4 {
		<-left
	}
}
