package jwtkey_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/jwtkey"
)

var rsaKey = sync.OnceValue(func() *rsa.PrivateKey { return ratelimit.Must(rsa.GenerateKey(rand.Reader, 2048)) })

func ecKey(curve elliptic.Curve) *ecdsa.PrivateKey {
	return ratelimit.Must(ecdsa.GenerateKey(curve, rand.Reader))
}

// hashedID returns what stands for a long id in a key.
func hashedID(id string) string {
	sum := sha256.Sum256([]byte(id))
	return "sha256:" + base64.RawURLEncoding.EncodeToString(sum[:])
}

func bearer(token string) *http.Request { return requestWith("Authorization", "Bearer "+token) }

// checkMember checks that the member of a request is want, and that without one FirstOf finds its address.
func checkMember(t *testing.T, cfg jwtkey.Config, r *http.Request, want string) {
	t.Helper()
	sub := ratelimit.Must(jwtkey.New(cfg)).Claim("sub")
	r.RemoteAddr = "192.0.2.1:1234"
	checkKey(t, sub, r, want)
	if want == "" {
		want = "ip:192.0.2.1"
	}
	checkKey(t, ratelimit.FirstOf(sub, ratelimit.RemoteIP()), r, want)
}

func TestEverySigningMethodIsVerified(t *testing.T) {
	ed25519Public, ed25519Private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	p256, p384, p521 := ecKey(elliptic.P256()), ecKey(elliptic.P384()), ecKey(elliptic.P521())
	for _, tt := range []struct {
		alg          string
		private, key any
	}{
		{"HS256", hmacSecret, hmacSecret},
		{"HS384", hmacSecret, hmacSecret},
		{"HS512", hmacSecret, hmacSecret},
		{"RS256", rsaKey(), &rsaKey().PublicKey},
		{"RS384", rsaKey(), &rsaKey().PublicKey},
		{"RS512", rsaKey(), &rsaKey().PublicKey},
		{"PS256", rsaKey(), &rsaKey().PublicKey},
		{"PS384", rsaKey(), &rsaKey().PublicKey},
		{"PS512", rsaKey(), &rsaKey().PublicKey},
		{"ES256", p256, &p256.PublicKey},
		{"ES384", p384, &p384.PublicKey},
		{"ES512", p521, &p521.PublicKey},
		{"EdDSA", ed25519Private, ed25519Public},
	} {
		t.Run(tt.alg, func(t *testing.T) {
			cfg := jwtkey.Config{Methods: []string{tt.alg}, Key: tt.key}
			token := sign(jwt.GetSigningMethod(tt.alg), tt.private, `{"alg": "`+tt.alg+`", "typ": "JWT"}`, valid(`"sub": "5"`))
			checkMember(t, cfg, bearer(token), "member:5")

			// Any other claims, and any other signature, are not believed.
			parts := strings.Split(token, ".")
			checkMember(t, cfg, bearer(parts[0]+"."+segment(valid(`"sub": "6"`))+"."+parts[2]), "")
			checkMember(t, cfg, bearer(parts[0]+"."+parts[1]+"."+segment(strings.Repeat("\x00", len(parts[2])*3/4))), "")
			checkMember(t, cfg, bearer(parts[0]+"."+parts[1]+"."), "")

			cfg.Key, cfg.Keyfunc = nil, func(context.Context, *jwt.Token) (any, error) { return tt.key, nil }
			checkMember(t, cfg, bearer(token), "member:5")
		})
	}
}

func TestSignaturesThatAreNotAskedFor(t *testing.T) {
	public := &rsaKey().PublicKey
	der := ratelimit.Must(x509.MarshalPKIXPublicKey(public))
	asPEM := func(kind string, der []byte) []byte {
		return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	}
	p256 := ecKey(elliptic.P256())
	byKeyfunc := func(method string) jwtkey.Config {
		return jwtkey.Config{Methods: []string{method}, Keyfunc: func(context.Context, *jwt.Token) (any, error) { return public, nil }}
	}
	rs256 := jwtkey.Config{Methods: []string{"RS256"}, Key: public}
	fails := hs256Config()
	fails.Key, fails.Keyfunc = nil, func(context.Context, *jwt.Token) (any, error) { return nil, errors.New("no such kid") }
	claims := valid(`"sub": "5"`)
	hs := func(secret []byte) string { return sign(jwt.SigningMethodHS256, secret, `{"alg": "HS256"}`, claims) }
	none := segment(`{"alg": "none"}`) + "." + segment(claims) + "."
	for _, tt := range []struct {
		name  string
		cfg   jwtkey.Config
		token string
	}{
		{"None", hs256Config(), none},
		{"None in other letters", hs256Config(), segment(`{"alg": "nOnE"}`) + "." + segment(claims) + "."},
		{"None with a signature", hs256Config(), none + strings.Split(hs(hmacSecret), ".")[2]},
		{"None for a key pair", rs256, none},
		{"No alg", hs256Config(), sign(jwt.SigningMethodHS256, hmacSecret, `{}`, claims)},
		{"An alg that is no string", hs256Config(), sign(jwt.SigningMethodHS256, hmacSecret, `{"alg": ["HS256"]}`, claims)},
		{"An alg in small letters", hs256Config(), sign(jwt.SigningMethodHS256, hmacSecret, `{"alg": "hs256"}`, claims)},
		{"An unknown alg", hs256Config(), sign(jwt.SigningMethodHS256, hmacSecret, `{"alg": "HS1"}`, claims)},
		{"A header that is null", hs256Config(), sign(jwt.SigningMethodHS256, hmacSecret, `null`, claims)},
		{"Another secret", hs256Config(), hs([]byte("another"))},
		{"An empty secret", hs256Config(), hs(nil)},
		{"A method of the family that is not listed", hs256Config(), sign(jwt.SigningMethodHS512, hmacSecret, `{"alg": "HS512"}`, claims)},
		{"PS for RS, with the right key", rs256, sign(jwt.SigningMethodPS256, rsaKey(), `{"alg": "PS256"}`, claims)},
		{"RS384 for RS256, with the right key", rs256, sign(jwt.SigningMethodRS384, rsaKey(), `{"alg": "RS384"}`, claims)},
		{"A signature of another method than the header says", rs256, sign(jwt.SigningMethodPS256, rsaKey(), `{"alg": "RS256"}`, claims)},
		{"ES for RS", rs256, sign(jwt.SigningMethodES256, p256, `{"alg": "ES256"}`, claims)},
		{"Another RSA key", jwtkey.Config{Methods: []string{"RS256"}, Key: &ratelimit.Must(rsa.GenerateKey(rand.Reader, 2048)).PublicKey},
			sign(jwt.SigningMethodRS256, rsaKey(), `{"alg": "RS256"}`, claims)},
		{"Another EC key", jwtkey.Config{Methods: []string{"ES256"}, Key: &ecKey(elliptic.P256()).PublicKey},
			sign(jwt.SigningMethodES256, p256, `{"alg": "ES256"}`, claims)},
		{"The public key's DER as a secret", rs256, hs(der)},
		{"The public key's PEM as a secret", rs256, hs(asPEM("PUBLIC KEY", der))},
		{"The public key's PKCS 1 DER as a secret", rs256, hs(x509.MarshalPKCS1PublicKey(public))},
		{"The public key's PKCS 1 PEM as a secret", rs256, hs(asPEM("RSA PUBLIC KEY", x509.MarshalPKCS1PublicKey(public)))},
		{"The public key of a Keyfunc as a secret", byKeyfunc("RS256"), hs(asPEM("PUBLIC KEY", der))},
		{"The public key of a Keyfunc where secrets are meant", byKeyfunc("HS256"), hs(asPEM("PUBLIC KEY", der))},
		{"A Keyfunc that finds no key", fails, hs(hmacSecret)},
	} {
		t.Run(tt.name, func(t *testing.T) { checkMember(t, tt.cfg, bearer(tt.token), "") })
	}
}

func TestKeyfuncChoosesByTheHeader(t *testing.T) {
	cfg := jwtkey.Config{Methods: []string{"HS256"}, Keyfunc: func(_ context.Context, token *jwt.Token) (any, error) {
		if token.Header["kid"] == "2026" {
			return hmacSecret, nil
		}
		return []byte("of last year"), nil
	}}
	claims := valid(`"sub": "5"`)
	checkMember(t, cfg, bearer(sign(jwt.SigningMethodHS256, hmacSecret, `{"alg": "HS256", "kid": "2026"}`, claims)), "member:5")
	checkMember(t, cfg, bearer(sign(jwt.SigningMethodHS256, hmacSecret, `{"alg": "HS256", "kid": "2025"}`, claims)), "")
}

// A Keyfunc that looks into a map returns the zero value for a "kid" that is not there.
func TestAKeyThatIsNoneVerifiesNothing(t *testing.T) {
	claims := valid(`"sub": "5"`)
	public := rsaKey().Public()
	for _, tt := range []struct {
		name, alg string
		forger    jwt.SigningMethod // whose signature is as long as that of alg
		key       any
	}{
		{"No secret", "HS256", jwt.SigningMethodHS256, []byte(nil)},
		{"An empty secret", "HS512", jwt.SigningMethodHS512, []byte{}},
		{"No RSA key", "RS256", jwt.SigningMethodHS256, (*rsa.PublicKey)(nil)},
		{"No RSA key for PSS", "PS256", jwt.SigningMethodHS256, (*rsa.PublicKey)(nil)},
		{"No ECDSA key", "ES256", jwt.SigningMethodHS512, (*ecdsa.PublicKey)(nil)},
		{"An ECDSA key without a curve", "ES256", jwt.SigningMethodHS512, new(ecdsa.PublicKey)},
		{"No Ed25519 key", "EdDSA", jwt.SigningMethodHS512, ed25519.PublicKey(nil)},
		{"A set without keys", "HS256", jwt.SigningMethodHS256, jwt.VerificationKeySet{}},
		{"A set of no secret", "HS256", jwt.SigningMethodHS256, jwt.VerificationKeySet{Keys: []jwt.VerificationKey{[]byte(nil), public}}},
		{"A set of no RSA key", "RS256", jwt.SigningMethodHS256, jwt.VerificationKeySet{Keys: []jwt.VerificationKey{(*rsa.PublicKey)(nil)}}},
		{"Nothing", "HS256", jwt.SigningMethodHS256, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg := jwtkey.Config{Methods: []string{tt.alg}, Keyfunc: func(context.Context, *jwt.Token) (any, error) { return tt.key, nil }}
			checkMember(t, cfg, bearer(sign(tt.forger, []byte{}, `{"alg": "`+tt.alg+`"}`, claims)), "")
		})
	}
	// Of a set those count that are keys.
	cfg := jwtkey.Config{Methods: []string{"RS256"}, Keyfunc: func(context.Context, *jwt.Token) (any, error) {
		return jwt.VerificationKeySet{Keys: []jwt.VerificationKey{(*rsa.PublicKey)(nil), hmacSecret, public}}, nil
	}}
	checkMember(t, cfg, bearer(sign(jwt.SigningMethodRS256, rsaKey(), `{"alg": "RS256"}`, claims)), "member:5")
}

func TestRegisteredClaims(t *testing.T) {
	strict, lenient := hs256Config(), hs256Config()
	strict.Issuer, strict.Audience = "https://issuer", "api"
	lenient.Leeway = time.Minute
	from := func(iss, aud string) string {
		return valid(`"sub": "5", "iss": ` + iss + `, "aud": ` + aud)
	}
	// The clock cannot be moved. What lies 30 seconds on either side of an edge can take that long to check.
	for _, tt := range []struct {
		name   string
		cfg    jwtkey.Config
		claims string
		want   string
	}{
		{"A token that still lives", hs256Config(), `{"sub": "5", "exp": ` + at(30*time.Second) + `}`, "member:5"},
		{"A token that has expired", hs256Config(), `{"sub": "5", "exp": ` + at(-1*time.Second) + `}`, ""},
		{"A token that expires now", hs256Config(), `{"sub": "5", "exp": ` + at(0) + `}`, ""},
		{"No exp", hs256Config(), `{"sub": "5"}`, ""},
		{"An exp of 0", hs256Config(), `{"sub": "5", "exp": 0}`, ""},
		{"An exp of null", hs256Config(), `{"sub": "5", "exp": null}`, ""},
		{"An exp of text", hs256Config(), `{"sub": "5", "exp": "` + at(time.Hour) + `"}`, ""},
		{"A negative exp", hs256Config(), `{"sub": "5", "exp": -1}`, ""},
		{"An exp with a fraction", hs256Config(), `{"sub": "5", "exp": ` + at(time.Hour) + `.5}`, "member:5"},
		{"Of two exps the last counts", hs256Config(), `{"sub": "5", "exp": ` + at(time.Hour) + `, "exp": 1}`, ""},
		{"An nbf in the past", hs256Config(), valid(`"sub": "5", "nbf": ` + at(-time.Second)), "member:5"},
		{"An nbf in the future", hs256Config(), valid(`"sub": "5", "nbf": ` + at(30*time.Second)), ""},
		{"An nbf of text", hs256Config(), valid(`"sub": "5", "nbf": "soon"`), ""},
		{"An iat in the future is not checked", hs256Config(), valid(`"sub": "5", "iat": ` + at(time.Hour)), "member:5"},
		{"An exp within the leeway", lenient, `{"sub": "5", "exp": ` + at(-30*time.Second) + `}`, "member:5"},
		{"An exp beyond the leeway", lenient, `{"sub": "5", "exp": ` + at(-time.Minute-time.Second) + `}`, ""},
		{"An nbf within the leeway", lenient, valid(`"sub": "5", "nbf": ` + at(59*time.Second)), "member:5"},
		{"An nbf beyond the leeway", lenient, valid(`"sub": "5", "nbf": ` + at(90*time.Second)), ""},
		{"The right issuer and audience", strict, from(`"https://issuer"`, `"api"`), "member:5"},
		{"The audience among others", strict, from(`"https://issuer"`, `["web", "api"]`), "member:5"},
		{"Another issuer", strict, from(`"https://issuer.example"`, `"api"`), ""},
		{"An issuer in other letters", strict, from(`"https://ISSUER"`, `"api"`), ""},
		{"An empty issuer", strict, from(`""`, `"api"`), ""},
		{"An issuer that is no string", strict, from(`["https://issuer"]`, `"api"`), ""},
		{"No issuer", strict, valid(`"sub": "5", "aud": "api"`), ""},
		{"Another audience", strict, from(`"https://issuer"`, `"api2"`), ""},
		{"Other audiences", strict, from(`"https://issuer"`, `["web", "api2"]`), ""},
		{"An empty audience", strict, from(`"https://issuer"`, `""`), ""},
		{"No audiences", strict, from(`"https://issuer"`, `[]`), ""},
		{"An audience that is no string", strict, from(`"https://issuer"`, `{"api": 1}`), ""},
		{"Audiences that are not all strings", strict, from(`"https://issuer"`, `["api", 1]`), ""},
		{"No audience", strict, valid(`"sub": "5", "iss": "https://issuer"`), ""},
		{"Any issuer and audience where none is set", hs256Config(), from(`"anybody"`, `"anybody"`), "member:5"},
	} {
		t.Run(tt.name, func(t *testing.T) { checkMember(t, tt.cfg, bearer(hs256(tt.claims)), tt.want) })
	}
}

func TestMemberIDs(t *testing.T) {
	for _, tt := range []struct {
		name, claims, want string
	}{
		{"A string", `"sub": "5"`, "member:5"},
		{"A whole number", `"sub": 5`, "member:5"},
		{"Zero", `"sub": 0`, "member:0"},
		{"A negative number", `"sub": -5`, "member:-5"},
		{"2^53 + 1 is not its neighbour", `"sub": 9007199254740993`, "member:9007199254740993"},
		{"2^64 + 1 is not its neighbour", `"sub": 18446744073709551617`, "member:18446744073709551617"},
		{"A number of 256 digits", `"sub": ` + strings.Repeat("9", 256), "member:" + strings.Repeat("9", 256)},
		{"A number of 257 digits", `"sub": ` + strings.Repeat("9", 257), "member:" + hashedID(strings.Repeat("9", 257))},
		{"A fraction", `"sub": 5.5`, badRequest},
		{"A fraction of nothing", `"sub": 5.0`, badRequest},
		{"An exponent", `"sub": 5e3`, badRequest},
		{"A large exponent", `"sub": 5E3`, badRequest},
		{"Missing", `"name": "ann"`, ""},
		{"In other letters", `"Sub": "5"`, ""},
		{"Empty", `"sub": ""`, badRequest},
		{"True", `"sub": true`, badRequest},
		{"Null", `"sub": null`, badRequest},
		{"An object", `"sub": {"sub": "5"}`, badRequest},
		{"An array", `"sub": ["5"]`, badRequest},
		{"256 bytes", `"sub": "` + strings.Repeat("a", 256) + `"`, "member:" + strings.Repeat("a", 256)},
		{"257 bytes", `"sub": "` + strings.Repeat("a", 257) + `"`, "member:sha256:6NlcwrS8GYxUtAvSFN-Vivtl9ec9LC6v4Fk89cY1wfA"},
		{"129 letters of two bytes", `"sub": "` + strings.Repeat("ä", 129) + `"`, "member:" + hashedID(strings.Repeat("ä", 129))},
		{"A key of a long id is not that of another", `"sub": "` + hashedID("a") + `"`, "member:" + hashedID(hashedID("a"))},
		{"Unicode", `"sub": "köln 東京 🚀"`, "member:köln 東京 🚀"},
		{"An escape is what it stands for", `"sub": "\u0061\u0000\n"`, "member:a\x00\n"},
		{"Braces and separators", `"sub": "{a}:b|c%/*"`, "member:{a}:b|c%/*"},
		{"The key of another kind", `"sub": "ip:192.0.2.1"`, "member:ip:192.0.2.1"},
		{"A space is an id", `"sub": " "`, "member: "},
		{"Of two the last counts", `"sub": "6", "sub": "5"`, "member:5"},
	} {
		t.Run(tt.name, func(t *testing.T) { checkMember(t, hs256Config(), bearer(hs256(valid(tt.claims))), tt.want) })
	}

	t.Run("Another claim and another kind", func(t *testing.T) {
		cfg := hs256Config()
		cfg.Kind = "org"
		f := ratelimit.Must(jwtkey.New(cfg)).Claim("orgId")
		checkKey(t, f, bearer(hs256(valid(`"sub": "5", "orgId": 7`))), "org:7")
	})
}

func TestAuthorizationHeader(t *testing.T) {
	token := hs256(valid(`"sub": "5"`))
	parts := strings.Split(token, ".")
	for want, values := range map[string][]string{ // {} is the token
		"member:5": {"Bearer {}", "bearer {}", "BEARER {}", "Bearer   {}", "Bearer {}  "},
		"": {
			"", "Bearer", "Bearer ", "Bearer    ", "{}", "Basic {}",
			"Basic aBearerbearer+bearer/BEARER=", // letters that look like Bearer
			"Bearer {}A", "Bearer " + token[:len(token)-1], "Bearer {}.", "Bearer .{}", "Bearer {}=",
			"Bearer " + parts[0] + ".." + parts[1] + "." + parts[2], "Bearer " + parts[0] + "." + parts[1], "Bearer ..", "Bearer " + strings.Repeat(".", 8000),
		},
		badRequest: {
			"Bearer\t{}", "Bearer \t{}", " Bearer {}", "Bearer{}", "Bearer: {}", "Bearer,{}", "\tbearer {}", `"Bearer {}`, "NotBearer {}", "Bearers {}",
			"Bearer\u00a0{}", "Bearer\xa0{}", "\u00a0Bearer {}", // no-break spaces
			"Basic {}, Bearer {}", "Bearer {}, Bearer {}", "Bearer {} {}", "Bearer {} x", "Bearer {} , x",
			"Bearer a=b", "Bearer ==", "Bearer {},", "Bearer {}!", "Bearer {}\x00", `Bearer "{}"`, "Bearer " + strings.ReplaceAll(token, ".", "%2E"),
		},
	} {
		for _, value := range values {
			t.Run(value[:min(len(value), 40)], func(t *testing.T) {
				checkMember(t, hs256Config(), requestWith("Authorization", strings.ReplaceAll(value, "{}", token)), want)
			})
		}
	}
	checkMember(t, hs256Config(), requestWith(), "")
	for _, second := range []string{"Bearer " + token, ""} {
		checkMember(t, hs256Config(), requestWith("Authorization", "Bearer "+token, "Authorization", second), badRequest)
	}

	t.Run("A token in the query or a cookie", func(t *testing.T) {
		r := requestWith("Cookie", "Authorization="+token, "Proxy-Authorization", "Bearer "+token)
		r.URL.RawQuery = "access_token=" + token
		checkMember(t, hs256Config(), r, "")
	})
}

func TestBase64ThatIsNotCanonical(t *testing.T) {
	// The last of 43 letters has two bits to spare. All four forms of it decode to the same signature.
	token := hs256(valid(`"sub": "5"`))
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	last := strings.IndexByte(letters, token[len(token)-1])
	if last%4 != 0 {
		t.Fatalf("%q ends in a letter that is not canonical", token)
	}
	for i := range 4 {
		want := ""
		if i == 0 {
			want = "member:5"
		}
		checkMember(t, hs256Config(), bearer(token[:len(token)-1]+letters[last+i:last+i+1]), want)
	}
}

func TestCritIsRefused(t *testing.T) {
	for _, header := range []string{
		`{"alg": "HS256", "crit": ["exp"]}`,
		`{"alg": "HS256", "crit": ["b64"], "b64": false}`,
		`{"alg": "HS256", "crit": []}`,
		`{"alg": "HS256", "crit": null}`,
	} {
		t.Run(header, func(t *testing.T) {
			checkMember(t, hs256Config(), bearer(sign(jwt.SigningMethodHS256, hmacSecret, header, valid(`"sub": "5"`))), "")
		})
	}
}

func TestTokensAreReadUpTo8KiB(t *testing.T) {
	// A kid moves the length to where the base64 of the claims cannot.
	ofLength := func(length int) string {
		for kid := range 4 {
			header := `{"alg": "HS256", "kid": "` + strings.Repeat("a", kid) + `"}`
			for pad := length*3/4 - 200; pad < length; pad++ {
				claims := valid(`"sub": "5", "pad": "` + strings.Repeat("a", pad) + `"`)
				if got := len(segment(header)) + len(segment(claims)) + len("..") + 43; got == length {
					return sign(jwt.SigningMethodHS256, hmacSecret, header, claims)
				} else if got > length {
					break
				}
			}
		}
		t.Fatalf("no token has %d bytes", length)
		return ""
	}
	for _, tt := range []struct {
		name   string
		length int
		want   string
	}{
		{"8,000 bytes", 8000, "member:5"},
		{"8 KiB", 8 << 10, "member:5"},
		{"8 KiB and a byte", 8<<10 + 1, badRequest},
		{"64 KiB", 64 << 10, badRequest},
	} {
		t.Run(tt.name, func(t *testing.T) { checkMember(t, hs256Config(), bearer(ofLength(tt.length)), tt.want) })
	}
}

func TestClaimsAreThoseOfTheToken(t *testing.T) {
	members := ratelimit.Must(jwtkey.New(hs256Config()))
	claims, err := members.Claims(bearer(hs256(valid(`"sub": "5", "tier": "gold", "quota": 9007199254740993`))))
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprintf("%v %v %v", claims["sub"], claims["tier"], claims["quota"]); got != "5 gold 9007199254740993" {
		t.Errorf("got %s", got)
	}

	claims, err = members.Claims(bearer(hs256(`{"sub": "5", "tier": "gold", "exp": 1}`)))
	if !errors.Is(err, ratelimit.ErrNoKey) || !errors.Is(err, jwt.ErrTokenExpired) || len(claims) != 0 {
		t.Errorf("of an expired token: got claims %v, error %v; want none, and ErrNoKey and ErrTokenExpired", claims, err)
	}
}

func TestErrorsDoNotRepeatTheToken(t *testing.T) {
	// They may end up in a log, where a token would be good for whoever reads it.
	token := hs256(`{"sub": "5", "exp": ` + at(time.Hour) + `}`)
	cfg := hs256Config()
	cfg.Issuer = "https://issuer"
	_, err := ratelimit.Must(jwtkey.New(cfg)).Claim("sub")(bearer(token))
	if err == nil || strings.Contains(err.Error(), strings.Split(token, ".")[2]) {
		t.Errorf("got error %v", err)
	}
}

func TestNewNamesEveryFault(t *testing.T) {
	p256 := &ecKey(elliptic.P256()).PublicKey
	keyfunc := func(context.Context, *jwt.Token) (any, error) { return hmacSecret, nil }
	for _, tt := range []struct {
		name  string
		cfg   jwtkey.Config
		wants []string
	}{
		{"Nothing is set", jwtkey.Config{}, []string{"Methods: ", "Key, Keyfunc: "}},
		{"None", jwtkey.Config{Methods: []string{"none"}, Keyfunc: keyfunc}, []string{`Methods: "none"`}},
		{"A method in small letters", jwtkey.Config{Methods: []string{"hs256"}, Key: hmacSecret}, []string{`Methods: "hs256"`}},
		{"An empty method", jwtkey.Config{Methods: []string{"HS256", ""}, Key: hmacSecret}, []string{`Methods: ""`}},
		{"Two unknown methods", jwtkey.Config{Methods: []string{"HS1", "RS1"}, Keyfunc: keyfunc}, []string{`"HS1"`, `"RS1"`}},
		{"Secrets mixed with key pairs", jwtkey.Config{Methods: []string{"RS256", "HS256"}, Keyfunc: keyfunc}, []string{"Methods: HS must not be mixed"}},
		{"Key and Keyfunc", jwtkey.Config{Methods: []string{"HS256"}, Key: hmacSecret, Keyfunc: keyfunc}, []string{"Key, Keyfunc: "}},
		{"An empty secret", jwtkey.Config{Methods: []string{"HS256"}, Key: []byte{}}, []string{"Key: is a []uint8", "HS256"}},
		{"A secret that is a string", jwtkey.Config{Methods: []string{"HS256"}, Key: "secret"}, []string{"Key: is a string", "[]byte"}},
		{"A secret for RS", jwtkey.Config{Methods: []string{"RS256"}, Key: hmacSecret}, []string{"Key: ", "*rsa.PublicKey", "RS256"}},
		{"An RSA key for HS", jwtkey.Config{Methods: []string{"HS256"}, Key: &rsaKey().PublicKey}, []string{"Key: ", "*rsa.PublicKey", "[]byte"}},
		{"An RSA key for ES", jwtkey.Config{Methods: []string{"ES256"}, Key: &rsaKey().PublicKey}, []string{"Key: ", "*ecdsa.PublicKey"}},
		{"An EC key for PS", jwtkey.Config{Methods: []string{"PS256"}, Key: p256}, []string{"Key: ", "*rsa.PublicKey"}},
		{"An EC key for EdDSA", jwtkey.Config{Methods: []string{"EdDSA"}, Key: p256}, []string{"Key: ", "ed25519.PublicKey"}},
		{"An Ed25519 key that is too short", jwtkey.Config{Methods: []string{"EdDSA"}, Key: ed25519.PublicKey("short")}, []string{"Key: "}},
		{"A private key", jwtkey.Config{Methods: []string{"RS256"}, Key: rsaKey()}, []string{"Key: is a *rsa.PrivateKey"}},
		{"A key that is no pointer", jwtkey.Config{Methods: []string{"RS256"}, Key: rsaKey().PublicKey}, []string{"Key: is a rsa.PublicKey"}},
		{"A nil RSA key", jwtkey.Config{Methods: []string{"RS256"}, Key: (*rsa.PublicKey)(nil)}, []string{"Key: "}},
		{"A nil EC key", jwtkey.Config{Methods: []string{"ES256"}, Key: (*ecdsa.PublicKey)(nil)}, []string{"Key: "}},
		{"An EC key without a curve", jwtkey.Config{Methods: []string{"ES256"}, Key: &ecdsa.PublicKey{}}, []string{"Key: "}},
		{"An EC key of another curve", jwtkey.Config{Methods: []string{"ES384"}, Key: p256}, []string{"Key: ", "ES384"}},
		{"One key for two methods", jwtkey.Config{Methods: []string{"RS256", "ES256"}, Key: &rsaKey().PublicKey}, []string{"Key: ", "ES256"}},
		{"A kind with a separator", jwtkey.Config{Methods: []string{"HS256"}, Key: hmacSecret, Kind: "a:b"}, []string{`Kind "a:b"`}},
		{"A kind of this package's", jwtkey.Config{Methods: []string{"HS256"}, Key: hmacSecret, Kind: "ip"}, []string{`Kind "ip"`}},
		{"A TokenFunc that is nil", jwtkey.Config{Methods: []string{"HS256"}, Key: hmacSecret, Tokens: []jwtkey.TokenFunc{jwtkey.BearerToken(), nil}}, []string{"Tokens[1]: "}},
		{"A negative leeway", jwtkey.Config{Methods: []string{"HS256"}, Key: hmacSecret, Leeway: -time.Second}, []string{"Leeway -1s"}},
		{
			"Everything at once",
			jwtkey.Config{Methods: []string{"HS256", "RS256", "none"}, Key: hmacSecret, Keyfunc: keyfunc, Kind: "join", Leeway: -1},
			[]string{`"none"`, "HS must not be mixed", "Key, Keyfunc", "Key: is a []uint8", `Kind "join"`, "Leeway"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			members, err := jwtkey.New(tt.cfg)
			if err == nil || members != nil {
				t.Fatalf("got %v, error %v; want an error about %q", members, err, tt.wants)
			}
			checkText(t, err.Error(), append(tt.wants, "jwtkey: New: ")...)
		})
	}

	for _, kind := range []string{"", "ip", "join", "static", "header", "route", "a:b", "a/b", "a.b", "a b", "ä", "{a}", strings.Repeat("a", 64)} {
		cfg := hs256Config()
		cfg.Kind = kind
		if _, err := jwtkey.New(cfg); (err == nil) != (kind == "") {
			t.Errorf("kind %q: got error %v", kind, err)
		}
	}
	t.Run("A claim without a name panics", func(t *testing.T) {
		checkPanic(t, func() { ratelimit.Must(jwtkey.New(hs256Config())).Claim("") }, "Claim: name")
	})
}

func TestChangingJWTConfigAfterwardsHasNoEffect(t *testing.T) {
	cfg := hs256Config(jwtkey.BearerToken())
	sub := ratelimit.Must(jwtkey.New(cfg)).Claim("sub")
	cfg.Methods[0], cfg.Tokens[0] = "HS512", jwtkey.CookieToken("token")
	checkKey(t, sub, bearer(hs256(valid(`"sub": "5"`))), "member:5")
}

func TestClaimAs(t *testing.T) {
	verified := 0
	cfg := hs256Config()
	cfg.Key, cfg.Keyfunc = nil, func(context.Context, *jwt.Token) (any, error) {
		verified++
		return hmacSecret, nil
	}
	keys := ratelimit.Must(jwtkey.New(cfg))
	r := bearer(hs256(valid(`"sub": "5", "org_id": "5"`)))
	checkKey(t, keys.Claim("sub"), r, "member:5")
	checkKey(t, keys.ClaimAs("org", "org_id"), r, "org:5")
	checkKey(t, keys.ClaimAs("team", "team_id"), r, "")
	if verified != 1 {
		t.Errorf("the token was verified %d times for one request", verified)
	}
	checkPanic(t, func() { keys.ClaimAs("org", "") }, "jwtkey: ClaimAs: name must not be empty")
	for _, kind := range []string{"", "ip", "a:b", "a b", "route"} {
		checkPanic(t, func() { keys.ClaimAs(kind, "sub") }, "jwtkey: ClaimAs: kind", "must be letters")
	}
}

func TestAFloodOfForgedTokensCostsAtMostBurstSignatures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const burst, flood = 7, 500
		keys := keyServer{secret: hmacSecret}
		members := ratelimit.Must(jwtkey.New(keys.config()))
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
			sub, address := ratelimit.Must(jwtkey.New(bb.cfg)).Claim("sub"), ratelimit.RemoteIP()
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
