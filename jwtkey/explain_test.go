package jwtkey_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/jwtkey"
)

func TestTokensAreExplained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // whose clock stands at 2000-01-01
		members := ratelimit.Must(jwtkey.New(hs256Config(jwtkey.BearerToken(), jwtkey.CookieToken("token"))))
		of := func(header, claims string) string { return sign(jwt.SigningMethodHS256, hmacSecret, header, claims) }
		const header = `{"alg": "HS256", "kid": "k1\u001b[31m"}`
		token := of(header, valid(`"sub": "5", "iss": "https://issuer.example", "email": "canary"`))
		for _, tt := range []struct {
			name string
			r    *http.Request
			by   string
			err  string
			want string // the notes
		}{
			{"A token that is verified", bearer(token), "Claim sub", "", `
				Authorization has a Bearer token
				the token has 207 bytes, and the SHA-256 …
				its header says alg "HS256" and kid "k1\x1b[31m"
				its signature is verified now
				its iss is "https://issuer.example"
				its exp is 2000-01-01T01:00:00Z
				claim "sub" is in the key`},
			{"A token in a cookie", requestWith("Cookie", "token="+hs256(valid(`"sub": 5, "nbf": 946684800`))), "Claim sub", "", `
				Tokens[0]: ratelimit: no key: no Authorization header
				cookie token has a token
				the token has 129 bytes, and the SHA-256 …
				its header says alg "HS256" and no kid
				its signature is verified now
				its exp is 2000-01-01T01:00:00Z
				its nbf is 2000-01-01T00:00:00Z
				claim "sub" is in the key`},
			{"No token", requestWith(), "Claim sub", "ratelimit: no key: no Authorization header; no token in cookie token", `
				Tokens[0]: ratelimit: no key: no Authorization header
				Tokens[1]: ratelimit: no key: no token in cookie token`},
			{"A token that has expired", bearer(of(header, `{"exp": 900000000, "sub": "canary"}`)), "Claim sub", "ratelimit: no key: token is expired", `
				Authorization has a Bearer token
				the token has 144 bytes, and the SHA-256 …
				its header says alg "HS256" and kid "k1\x1b[31m"
				its signature is right, and it is refused: token is expired
				its exp is 1998-07-09T16:00:00Z`},
			{"A forged token", bearer(token[:len(token)-3]), "Claim sub", "ratelimit: no key: token signature is invalid", `
				Authorization has a Bearer token
				the token has 204 bytes, and the SHA-256 …
				its header says alg "HS256" and kid "k1\x1b[31m"
				it is refused: token signature is invalid`},
			{"No token of this kind", bearer("canary.canary.canary"), "Claim sub", "ratelimit: no key: token is malformed", `
				Authorization has a Bearer token
				the token has 20 bytes, and the SHA-256 …
				it is refused: token is malformed`},
			{"A crit header", bearer(of(`{"alg": "HS256", "crit": ["exp"]}`, valid(`"sub": "5"`))), "Claim sub", "ratelimit: no key: the token has a crit header", `
				Authorization has a Bearer token
				the token has 129 bytes, and the SHA-256 …
				its header says alg "HS256" and no kid
				it is refused: it has a crit header`},
			{"Two headers", requestWith("Authorization", "Bearer canary", "Authorization", "Bearer canary"), "Claim sub", "ratelimit: bad request: more than one Authorization header", `
				Tokens[0]: ratelimit: bad request: more than one Authorization header`},
		} {
			step := found(t, members.Claim("sub"), tt.r)
			var notes strings.Builder
			for _, note := range step.Notes {
				if at := strings.Index(note, "SHA-256 "); at >= 0 {
					if sum := note[at+len("SHA-256 "):]; len(sum) != 8+len("…") {
						t.Errorf("%s: the SHA-256 is %s", tt.name, sum)
					}
					note = note[:at] + "SHA-256 …"
				}
				notes.WriteString("\n\t\t\t\t" + note)
			}
			if step.By != tt.by || step.Err != tt.err || notes.String() != tt.want {
				t.Errorf("%s: %s ! %s%s\nwant %s ! %s%s", tt.name, step.By, step.Err, notes.String(), tt.by, tt.err, tt.want)
			}
			if text := string(ratelimit.Must(json.Marshal(step))); strings.Contains(text, "canary") {
				t.Errorf("%s: a secret is in %s", tt.name, text)
			}
		}
	})
}

// An explanation reads the cache of verified tokens. It neither changes nor counts anything.
func TestAnExplanationLeavesTheCacheAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys := keyServer{secret: hmacSecret}
		members := ratelimit.Must(jwtkey.New(keys.sized(2)))
		of := func(id string) *http.Request { return bearer(hs256(valid(`"sub": "` + id + `"`))) }
		explained := func(r *http.Request, want string) {
			t.Helper()
			before := members.Stats()
			step := found(t, members.Claim("sub"), r)
			if notes := strings.Join(step.Notes, "\n"); !strings.Contains(notes, want) || !strings.HasPrefix(step.Key, "member:") {
				t.Errorf("key %q, and no %q in\n%s", step.Key, want, notes)
			}
			if after := members.Stats(); after != before {
				t.Errorf("from %+v to %+v", before, after)
			}
		}

		explained(of("1"), "verified now")
		explained(of("1"), "verified now") // it was not remembered
		keys.checkAsked(t, 2)

		oldest, older := of("1"), of("2")
		checkKey(t, members.Claim("sub"), oldest, "member:1")
		checkKey(t, members.Claim("sub"), older, "member:2")
		keys.checkAsked(t, 2)
		time.Sleep(time.Second)
		explained(oldest, "its signature was verified at 2000-01-01T00:00:00Z, and is remembered")
		keys.checkAsked(t, 0)

		// The cache is full. If the explanation had been a use, the oldest token would be spared.
		checkKey(t, members.Claim("sub"), of("3"), "member:3")
		keys.checkAsked(t, 1)
		checkKey(t, members.Claim("sub"), older, "member:2")
		keys.checkAsked(t, 0)
		checkKey(t, members.Claim("sub"), oldest, "member:1")
		keys.checkAsked(t, 1)

		time.Sleep(time.Minute)
		explained(older, "verified now")
	})
}

// What a TokenFunc and a Keyfunc of the program return is explained without the token, also if they quote it.
func TestErrorsWithTokensAreExplained(t *testing.T) {
	token := hs256(valid(`"sub": "5", "email": "canary"`))
	cfg := hs256Config(func(r *http.Request) (string, error) {
		return "", fmt.Errorf("%w: %q", ratelimit.ErrNoKey, r.Header.Get("Authorization"))
	}, jwtkey.HeaderToken("X-Token"))
	r := requestWith("Authorization", "Bearer "+token, "X-Token", token)
	quotes := keyServer{secret: hmacSecret, err: errors.New("no key for " + token)}
	for name, keys := range map[string]*jwtkey.Keys{
		"TokenFunc": ratelimit.Must(jwtkey.New(cfg)),
		"Keyfunc":   ratelimit.Must(jwtkey.New(quotes.config())),
	} {
		text := string(ratelimit.Must(json.Marshal(found(t, ratelimit.FirstOf(keys.Claim("sub"), ratelimit.RemoteIP()), r))))
		for part := range strings.SplitSeq(token, ".") {
			if strings.Contains(text, part) {
				t.Errorf("%s: a part of the token is in %s", name, text)
			}
		}
		if strings.Contains(text, "canary") {
			t.Errorf("%s: a claim is in %s", name, text)
		}
	}
}
