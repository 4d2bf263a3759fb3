package jwtkey_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/golang-jwt/jwt/v5"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/jwtkey"
)

func TestCookieToken(t *testing.T) {
	token, other := hs256(valid(`"sub": "5"`)), hs256(valid(`"sub": "6"`))
	const name = "__Host-token"
	for want, cookies := range map[string][]string{ // N is the name, {} the token, {2} another one, and | begins another line
		"member:5": {
			"N={}", `N="{}"`, "a=b; N={}; token={2}", "a=b|N={}", "a=b;N={};",
			"N={}; N={2}", "N={}|N={2}", "N=\x01; N={}", // the first that net/http does not pass over
			strings.Repeat("a=b; ", 2000) + "N={}",
			"N={}" + strings.Repeat(" ", 32<<10-len(name+"="+token)), // 32 KiB
		},
		"": {
			"", "N=", `N=""`, "N", "token={}", "__host-token={}", "aN={}", "N2={}",
			"N=; N={}", "N; N={}", "N={}A; N={}", `N="{}`, `N={}"`, `N="`, "N={}\x00",
		},
		badRequest: {
			"N=Bearer {}", "N={} {}", "N={},{}", "N=a b; N={}", "N={}" + strings.Repeat("A", 8<<10),
			"N={}" + strings.Repeat(" ", 32<<10), strings.Repeat(strings.Repeat("a", 1<<10)+"|", 33), strings.Repeat(";", 1<<20),
		},
	} {
		for _, cookie := range cookies {
			t.Run(cookie[:min(len(cookie), 40)], func(t *testing.T) {
				r := requestWith()
				r.Header["Cookie"] = strings.Split(strings.NewReplacer("N", name, "{}", token, "{2}", other).Replace(cookie), "|")
				checkMember(t, hs256Config(jwtkey.CookieToken(name)), r, want)
			})
		}
	}
	checkMember(t, hs256Config(jwtkey.CookieToken(name)), requestWith(), "")
	checkMember(t, hs256Config(jwtkey.CookieToken("Authorization")), bearer(token), "") // not from another header
}

func TestHeaderToken(t *testing.T) {
	token, other := hs256(valid(`"sub": "5"`)), hs256(valid(`"sub": "6"`))
	for want, lines := range map[string][]string{ // {} is the token, {2} another one, and | begins another line
		"member:5": {"{}", "Bearer {}", "bearer   {}", " {}  "},
		"":         {"", " ", "Bearer", "Bearer "},
		badRequest: {
			"{}|{2}", "{}|{}", "{}|", "{}, {}", "JWT {}", "Bearer\t{}", "Bearer {} x", "Bearer Bearer {}", `"{}"`, "{}\t", "{}" + strings.Repeat("A", 8<<10),
		},
	} {
		for _, line := range lines {
			t.Run(line[:min(len(line), 40)], func(t *testing.T) {
				r := requestWith()
				r.Header["X-Access-Token"] = strings.Split(strings.NewReplacer("{}", token, "{2}", other).Replace(line), "|")
				checkMember(t, hs256Config(jwtkey.HeaderToken("x-access-token")), r, want)
			})
		}
	}
	checkMember(t, hs256Config(jwtkey.HeaderToken("x-access-token")), requestWith(), "")
}

func TestTheFirstTokenThatIsFoundDecides(t *testing.T) {
	cfg := hs256Config(jwtkey.CookieToken("token"), jwtkey.HeaderToken("X-Token"), jwtkey.BearerToken())
	five, six, seven := hs256(valid(`"sub": "5"`)), hs256(valid(`"sub": "6"`)), hs256(valid(`"sub": "7"`))
	for _, tt := range []struct {
		name  string
		lines []string
		want  string
	}{
		{"All of them", []string{"Cookie", "token=" + five, "X-Token", six, "Authorization", "Bearer " + seven}, "member:5"},
		{"The last two", []string{"X-Token", six, "Authorization", "Bearer " + seven}, "member:6"},
		{"The last", []string{"Authorization", "Bearer " + seven}, "member:7"},
		{"One that is not valid", []string{"Cookie", "token=" + five + "A", "Authorization", "Bearer " + seven}, ""},
		{"One that is too long", []string{"Cookie", "token=" + strings.Repeat("A", 8<<10+1), "Authorization", "Bearer " + seven}, badRequest},
		{"Two cookies are the first", []string{"Cookie", "token=" + five + "; token=" + six, "Authorization", "Bearer " + seven}, "member:5"},
		{"Two headers are refused", []string{"X-Token", six, "X-Token", six, "Authorization", "Bearer " + seven}, badRequest},
		{"Two headers that do not decide", []string{"Cookie", "token=" + five, "X-Token", six, "X-Token", six}, "member:5"},
		{"An empty one is none", []string{"Cookie", "token=", "X-Token", "", "Authorization", "Bearer " + seven}, "member:7"},
		{"None", nil, ""},
	} {
		t.Run(tt.name, func(t *testing.T) { checkMember(t, cfg, requestWith(tt.lines...), tt.want) })
	}
}

func TestATokenFuncOfOnesOwnIsNotBelieved(t *testing.T) {
	token := hs256(valid(`"sub": "5"`))
	for value, want := range map[string]string{
		token:                             "member:5",
		"":                                "",
		" ":                               "",
		token + " ":                       "",
		token + strings.Repeat("A", 8192): badRequest,
	} {
		own := func(*http.Request) (string, error) { return value, nil }
		checkMember(t, hs256Config(own), requestWith(), want)
		checkMember(t, hs256Config(own, jwtkey.BearerToken()), bearer(token), want)
	}
	for failure, want := range map[error]string{ratelimit.ErrNoKey: "", ratelimit.ErrBadRequest: badRequest} {
		fails := func(*http.Request) (string, error) { return token, failure }
		checkMember(t, hs256Config(fails), requestWith(), want)
	}
}

func TestNamesThatTokensCannotHave(t *testing.T) {
	for _, name := range []string{"", "a b", "a=b", "a;b", "a,b", "ä", `"a"`, "a\n"} {
		checkPanic(t, func() { jwtkey.CookieToken(name) }, "CookieToken: name")
		checkPanic(t, func() { jwtkey.HeaderToken(name) }, "HeaderToken: name")
	}
	checkPanic(t, func() { jwtkey.HeaderToken("host") }, "HeaderToken: name", "Host")
}

func TestKeyfuncGetsTheContextOfTheRequest(t *testing.T) {
	type tenant struct{}
	cfg := hs256Config()
	cfg.Key, cfg.Keyfunc = nil, func(ctx context.Context, _ *jwt.Token) (any, error) {
		if ctx.Value(tenant{}) != "ann" {
			t.Errorf("got context %v", ctx)
		}
		return hmacSecret, nil
	}
	r := bearer(hs256(valid(`"sub": "5"`)))
	checkMember(t, cfg, r.WithContext(context.WithValue(r.Context(), tenant{}, "ann")), "member:5")
}

func TestAKeyfuncWhoseContextEndedFindsNoKey(t *testing.T) {
	// Any other error would let through, unlimited, whoever sends a forged token and hangs up.
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	cfg := hs256Config()
	cfg.Key, cfg.Keyfunc = nil, func(ctx context.Context, _ *jwt.Token) (any, error) { return nil, ctx.Err() }
	r := bearer(hs256(valid(`"sub": "5"`))).WithContext(ctx)
	checkMember(t, cfg, r, "")
	if _, err := ratelimit.Must(jwtkey.New(cfg)).Claim("sub")(r); !errors.Is(err, context.Canceled) {
		t.Errorf("got error %v; want it to say why", err)
	}
}

// What these read from Authorization, widely used applications do: go-chi/jwtauth, auth0/go-jwt-middleware, and what
// is written by hand.
var applications = map[string]func(credentials string) string{
	"the first seven bytes": func(c string) string {
		if len(c) > 7 && strings.ToUpper(c[:6]) == "BEARER" {
			return c[7:]
		}
		return ""
	},
	"two words": func(c string) string {
		if words := strings.Fields(c); len(words) == 2 && strings.ToLower(words[0]) == "bearer" {
			return words[1]
		}
		return ""
	},
	"the second word": func(c string) string {
		if words := strings.Fields(c); len(words) > 1 && strings.EqualFold(words[0], "Bearer") {
			return words[1]
		}
		return ""
	},
	"after the prefix": func(c string) string {
		token, ok := strings.CutPrefix(strings.TrimSpace(c), "Bearer")
		if !ok {
			return ""
		}
		return strings.TrimSpace(token)
	},
	"what is between": func(c string) string {
		if parts := strings.Split(c, "Bearer "); len(parts) > 1 {
			return parts[1]
		}
		return ""
	},
}

// To look at each byte of a megabyte takes a millisecond. So what is too long is refused for its length, before anybody
// knows that its last byte is not one of a token.
func TestTooLongForAToken(t *testing.T) {
	long := strings.Repeat("A", 8<<10) + "\x01"
	for name, c := range map[string]struct {
		find          jwtkey.TokenFunc
		header, value string
		want          string
	}{
		"Bearer":           {jwtkey.BearerToken(), "Authorization", "Bearer " + long, "the token is longer than 8192 bytes"},
		"Bearer of 1 MB":   {jwtkey.BearerToken(), "Authorization", "Bearer " + strings.Repeat("A", 1<<20), "the Authorization header is longer than 65536 bytes"},
		"Basic of 64 KiB":  {jwtkey.BearerToken(), "Authorization", "Basic " + strings.Repeat("A", 64<<10-len("Basic ")), "no Bearer token"},
		"Basic of 1 MB":    {jwtkey.BearerToken(), "Authorization", "Basic " + strings.Repeat("A", 1<<20), "the Authorization header is longer than 65536 bytes"},
		"header":           {jwtkey.HeaderToken("X-Token"), "X-Token", long, "the token is longer than 8192 bytes"},
		"header of spaces": {jwtkey.HeaderToken("X-Token"), "X-Token", strings.Repeat(" ", 1<<20) + "A", "the X-Token header is longer than 65536 bytes"},
		"cookie":           {jwtkey.CookieToken("token"), "Cookie", "token=" + strings.Repeat("A", 8<<10) + " A", "the token is longer than 8192 bytes"},
	} {
		if _, err := c.find(requestWith(c.header, c.value)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", name, err, c.want)
		}
	}
}

// FuzzBearerToken checks that BearerToken finds the token that an application finds, or refuses the request: it never
// takes it for one without a token.
func FuzzBearerToken(f *testing.F) {
	find := jwtkey.BearerToken()
	const token = "eyJhbGciOiJIUzI1NiJ9.e30.c2ln-_"
	for _, of := range [][4]string{
		{"", "Bearer", " ", ""}, {"", "bearer", "\t", ""}, {"", "BEARER", ",", ""}, {"", "Bearer", " ", " x"}, {"", "Bearer", " ", " , x"},
		{"", "Bearer", "\u00a0", ""}, {" ", "Bearer", " ", ""}, {"\u2003", "Bearer", "  ", "\t"}, {"x", "Bearer", " ", ""}, {"Basic eDp5, ", "Bearer", " ", ""},
		{"", "Bearer", "", ""}, {"\"", "Bearer", " ", "\""}, {"\x85", "Bearer", "\x85", ""},
	} {
		f.Add(of[0], of[1], of[2], of[3])
	}
	f.Fuzz(func(t *testing.T, before, scheme, between, after string) {
		credentials := before + scheme + between + token + after
		r := requestWith()
		r.Header["Authorization"] = []string{credentials}
		got, err := find(r)
		if err != nil && errors.Is(err, ratelimit.ErrBadRequest) == errors.Is(err, ratelimit.ErrNoKey) {
			t.Errorf("%q: error %v", credentials, err)
		}
		for name, application := range applications {
			if application(credentials) == token && got != token && !errors.Is(err, ratelimit.ErrBadRequest) {
				t.Errorf("%q: an application that takes %s finds the token; got %q, error %v", credentials, name, got, err)
			}
		}
	})
}
