package jwtkey_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/jwtkey"
)

// FuzzClaim checks that a token whose signature is right, whatever else it holds, is a member or no key, and
// the same wherever it comes from, remembered or not.
func FuzzClaim(f *testing.F) {
	cfg := hs256Config(jwtkey.BearerToken(), jwtkey.CookieToken("token"), jwtkey.HeaderToken("X-Token"))
	members := ratelimit.Must(jwtkey.New(cfg))
	sub := members.Claim("sub")
	cfg.CacheSize = -1
	verified := ratelimit.Must(jwtkey.New(cfg)).Claim("sub")
	f.Fuzz(func(t *testing.T, header, claims string) {
		token := sign(jwt.SigningMethodHS256, hmacSecret, header, claims)
		r := bearer(token)
		key, err := verified(r)
		if errors.Is(err, ratelimit.ErrBadRequest) {
			key = badRequest
		}
		for range 2 {
			checkKey(t, sub, r, key)
			checkKey(t, sub, requestWith("Cookie", "a=b; token="+token), key)
			checkKey(t, sub, requestWith("X-Token", token), key)
		}
		if err != nil {
			return
		}
		id, isMember := strings.CutPrefix(key, "member:")
		if !isMember || id == "" || len(id) > 256 {
			t.Errorf("got key %q", key)
		}
		read, err := members.Claims(r)
		if whole := fmt.Sprint(read["sub"]); err != nil || whole != id && hashedID(whole) != id || whole == id && strings.HasPrefix(id, "sha256:") {
			t.Errorf("got key %q of the claims %v, error %v", key, read, err)
		}
	})
}

// FuzzAuthorization checks that nobody without the secret is a member, wherever tokens are read from, and
// also next to a token that is remembered.
func FuzzAuthorization(f *testing.F) {
	cfg := hs256Config(jwtkey.HeaderToken("X-Token"), jwtkey.CookieToken("token"), jwtkey.BearerToken())
	sub := ratelimit.Must(jwtkey.New(cfg)).Claim("sub")
	token := hs256(`{"exp": 9999999999, "sub": "5"}`)
	f.Fuzz(func(t *testing.T, text string) {
		checkKey(t, sub, bearer(token), "member:5")
		for _, r := range []*http.Request{
			requestWith("Authorization", text), bearer(text),
			requestWith("X-Token", text), requestWith("X-Token", "Bearer "+text),
			requestWith("Cookie", text), requestWith("Cookie", "token="+text), requestWith("Cookie", `token="`+text+`"`),
		} {
			key, err := sub(r)
			if key != "" || errors.Is(err, ratelimit.ErrNoKey) == errors.Is(err, ratelimit.ErrBadRequest) {
				t.Errorf("got key %q, error %v; want either ErrNoKey or ErrBadRequest", key, err)
			}
		}
	})
}

// token68 is one token, or nothing.
var token68 = regexp.MustCompile(`^([-._~+/A-Za-z0-9]+=*)?$`)

// FuzzCookieToken checks that the token is in the cookie that an application gets from net/http, whatever else there
// is in the Cookie headers, and that nobody is taken for somebody without a cookie for sending too many.
func FuzzCookieToken(f *testing.F) {
	find := jwtkey.CookieToken("t")
	f.Fuzz(func(t *testing.T, first, second string) {
		for _, r := range []*http.Request{
			requestWith("Cookie", first, "Cookie", second),
			requestWith("Cookie", first+"; t=token", "Cookie", second),
			requestWith("Cookie", strings.Repeat(";", 32<<10)+first, "Cookie", "t=token"),
		} {
			var seen string
			if cookie, err := r.Cookie("t"); err == nil {
				seen = strings.Trim(cookie.Value, " ")
			}
			got, err := find(r)
			switch {
			case errors.Is(err, ratelimit.ErrBadRequest):
				if n := len(strings.Join(r.Header["Cookie"], "")); n <= 32<<10 && token68.MatchString(seen) {
					t.Errorf("refused %d bytes, and the token %q", n, seen)
				}
			case err != nil:
				if !errors.Is(err, ratelimit.ErrNoKey) || seen != "" {
					t.Errorf("%v; net/http found %q", err, seen)
				}
			case got == "" || got != seen || !token68.MatchString(got):
				t.Errorf("found %q; net/http found %q", got, seen)
			}
		}
	})
}

// FuzzCached checks that tokens which are remembered are believed as if each were verified anew, but for
// a key that was taken away within the last minute. Each byte of steps is a token, in the lower bits, that
// is shown again, or a step in time or of the keys.
func FuzzCached(f *testing.F) {
	f.Fuzz(func(t *testing.T, steps []byte, leeway uint8, size int8) {
		if len(steps) > 100 {
			return
		}
		synctest.Test(t, func(t *testing.T) { checkCachedJWT(t, steps, time.Duration(leeway)*time.Second, int(size)) })
	})
}

func checkCachedJWT(t *testing.T, steps []byte, leeway time.Duration, size int) {
	now := "old"
	secrets := map[string][]byte{"old": []byte("the old secret"), "new": []byte("the new secret")}
	subOf := func(size int, secret func(*jwt.Token) any) ratelimit.KeyFunc {
		return ratelimit.Must(jwtkey.New(jwtkey.Config{
			Methods:   []string{"HS256"},
			Keyfunc:   func(_ context.Context, token *jwt.Token) (any, error) { return secret(token), nil },
			Leeway:    leeway,
			CacheSize: size,
		})).Claim("sub")
	}
	current := func(*jwt.Token) any { return secrets[now] }
	cached, fresh := subOf(size, current), subOf(-1, current)
	forgiving := subOf(-1, func(token *jwt.Token) any { return secrets[token.Header["kid"].(string)] })

	var tokens []string
	for _, kid := range []string{"old", "new"} {
		for _, claims := range []string{
			`{"sub": "5", "exp": ` + at(time.Hour) + `}`,
			`{"sub": "6", "exp": ` + at(30*time.Second) + `}`,
			`{"sub": "7", "exp": ` + at(90*time.Second) + `, "nbf": ` + at(20*time.Second) + `}`,
			`{"sub": "8", "exp": ` + at(24*time.Hour) + `, "a": ` + strings.Repeat(`{"":`, 100) + `0` + strings.Repeat(`}`, 100) + `}`,
			`{"sub": "9"}`,
		} {
			tokens = append(tokens, sign(jwt.SigningMethodHS256, secrets[kid], `{"alg": "HS256", "kid": "`+kid+`"}`, claims))
		}
	}
	tokens = append(tokens, "", tokens[0]+"A", sign(jwt.SigningMethodHS256, secrets["old"], `{"alg": "HS256", "kid": "old", "crit": []}`, `{"sub": "5", "exp": `+at(time.Hour)+`}`))

	believed := make([]time.Time, len(tokens)) // when a fresh look last found a member
	for i, step := range steps {
		switch {
		case step < 128:
			n := int(step) % len(tokens)
			r := bearer(tokens[n])
			want, _ := fresh(r)
			got, _ := cached(r)
			if want != "" {
				believed[n] = time.Now()
			}
			if got == want {
				continue
			}
			byOldKey, _ := forgiving(r)
			if got != byOldKey || believed[n].IsZero() || time.Since(believed[n]) >= time.Minute {
				t.Fatalf("step %d, at %v: token %d is %q; a fresh look finds %q", i, time.Now(), n, got, want)
			}
		case step < 192:
			time.Sleep(time.Duration(step-127) * time.Second)
		case step < 250:
			time.Sleep(time.Duration(step-191) * time.Nanosecond)
		case now == "old":
			now = "new"
		default:
			now = "old"
		}
	}
}
