// Package jwtkey has keys from verified JSON Web Tokens: [New] makes them, [Keys.Claim] is a [ratelimit.KeyFunc].
package jwtkey

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/keyerr"
)

const (
	// maxToken bounds the tokens that are looked at, in bytes.
	maxToken = 8 << 10

	// maxID bounds the claims that are a part of the key as they are, in bytes. Longer ones are hashed.
	maxID = 256

	// hashedID begins an id that stands for a longer one.
	hashedID = "sha256:"
)

// Config says which tokens [New] believes.
type Config struct {
	// Methods are the signing methods that are accepted, of RFC 7518 and RFC 8037: "HS256", "RS256",
	// "PS256", "ES256" and their 384 and 512, "EdDSA". Required, and never "none". Methods with a secret
	// (HS) and with a key pair must not be mixed.
	Methods []string

	// Key verifies the signature: []byte for HS, *rsa.PublicKey for RS and PS, *ecdsa.PublicKey on the
	// method's curve for ES, ed25519.PublicKey for EdDSA. Either Key or Keyfunc is required.
	Key any

	// Keyfunc chooses the key by the token's header, by its "kid" for example. It runs before the token
	// is verified, for every request that carries one which is not remembered (CacheSize): it must not do
	// anything slow, such as ask a key server; examples/jwks shows how to have its keys at hand. It must
	// choose by the token alone: the context is the request's, for tracing and to end with, but what was
	// verified once is believed of all requests. What it returns must be as Key is, or a jwt.VerificationKeySet
	// of such keys: anything else, as an empty secret, verifies nothing.
	//
	// If Keyfunc returns an error, the request has no key, as if its token were not valid. So in an outage of a key
	// server, members whose token is not remembered count as guests, or are answered 403. An error that wraps
	// [ratelimit.ErrOutage] or [ratelimit.ErrBadRequest] is handled as that. Anybody can send a token that names any
	// key: do not wrap [ratelimit.ErrOutage] around an error that the token causes.
	Keyfunc func(context.Context, *jwt.Token) (any, error)

	// Tokens say where the token of a request is, in order of preference. The first token that is found decides,
	// valid or not. If a TokenFunc that is called before returns ratelimit.ErrBadRequest, the request is refused with 400.
	// Default: BearerToken().
	Tokens []TokenFunc

	// CacheSize is how many verified tokens are remembered, by their SHA-256, so that their signatures need
	// not be checked again: each for a minute at most, and not beyond its "exp", with no Leeway. So a token
	// whose key was taken away counts for up to a minute more. It also bounds the memory, to 4 KiB for each: a
	// token with claims that take more counts for several. Default 4096; negative: none is remembered.
	CacheSize int

	// Kind starts the keys that Claim makes, as in "member:5". Default "member". Where there are tokens of
	// several issuers, give each Keys a Kind of its own: else the "5" of one counts as that of another.
	Kind string

	// Issuer and Audience, if set, must be the token's "iss" and be among its "aud".
	Issuer, Audience string

	// Leeway is by how much the issuer's clock may differ when "exp" and "nbf" are checked. Default 0.
	Leeway time.Duration
}

// Keys verify the tokens of requests, for keys and for tiers. Make them with New. A request whose token is not
// valid has no key (ratelimit.ErrNoKey): it counts as one without a token.
//
// Checking a signature takes from 2 to some 100 µs, by the method, and reading what the token says before that
// up to a millisecond, if somebody made it for the purpose: anybody can send tokens. Have a limit by address
// decide before. It must be a limiter around that of the members, because the policies of one limiter find all
// their keys before they are charged:
//
//	r.Use(limiter.Limit(perAddress))
//	r.With(limiter.Limit(perMember)).Get("/", h)
type Keys struct {
	parser  *jwt.Parser
	keyfunc func(context.Context, *jwt.Token) (any, error)
	tokens  []TokenFunc
	cache   *tokenCache // nil: none is remembered
	kind    string
}

// New returns Keys by cfg, or an error that names every field at fault.
func New(cfg Config) (*Keys, error) {
	faults := cfg.faults()
	if len(faults) > 0 {
		return nil, fmt.Errorf("jwtkey: New: %w", errors.Join(faults...))
	}
	options := []jwt.ParserOption{
		jwt.WithValidMethods(slices.Clone(cfg.Methods)),
		jwt.WithExpirationRequired(),
		jwt.WithLeeway(cfg.Leeway),
		jwt.WithStrictDecoding(),
		jwt.WithJSONNumber(), // an id above 2^53 must not be rounded to its neighbour's
	}
	if cfg.Issuer != "" {
		options = append(options, jwt.WithIssuer(cfg.Issuer))
	}
	if cfg.Audience != "" {
		options = append(options, jwt.WithAudience(cfg.Audience))
	}
	keyfunc, key := cfg.Keyfunc, cfg.Key
	if secret, ok := key.([]byte); ok {
		key = slices.Clone(secret)
	}
	if keyfunc == nil {
		keyfunc = func(context.Context, *jwt.Token) (any, error) { return key, nil }
	}
	j := &Keys{
		parser:  jwt.NewParser(options...),
		keyfunc: keyfunc,
		tokens:  slices.Clone(cfg.Tokens),
		kind:    cmp.Or(cfg.Kind, "member"),
	}
	if len(j.tokens) == 0 {
		j.tokens = []TokenFunc{BearerToken()}
	}
	if cfg.CacheSize >= 0 {
		j.cache = newTokenCache(cmp.Or(cfg.CacheSize, defaultCacheSize))
	}
	return j, nil
}

func (cfg Config) faults() (faults []error) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if len(cfg.Methods) == 0 {
		fault(`Methods: must name the accepted ones, "RS256" for example`)
	}
	families := make(map[string]bool)
	for _, m := range cfg.Methods {
		family, ok := methodFamilies[m]
		if !ok {
			fault("Methods: %q is not one of HS, RS, PS or ES with 256, 384 or 512, or EdDSA", m)
			continue
		}
		families[family] = true
	}
	if families["HS"] && len(families) > 1 {
		fault("Methods: HS must not be mixed with others: a public key would pass for a secret")
	}
	if (cfg.Key == nil) == (cfg.Keyfunc == nil) {
		fault("Key, Keyfunc: exactly one must be set")
	}
	if cfg.Key != nil {
		for _, m := range cfg.Methods {
			if want := keyFor(m, cfg.Key); want != "" {
				fault("Key: is a %T: must be %s for %s", cfg.Key, want, m)
			}
		}
	}
	for i, find := range cfg.Tokens {
		if find == nil {
			fault(`Tokens[%d]: must not be nil, but BearerToken() or CookieToken("__Host-token") for example`, i)
		}
	}
	if !validKind(cfg.Kind) {
		fault("Kind %q: %s", cfg.Kind, kindRule)
	}
	if cfg.Leeway < 0 {
		fault("Leeway %v: must not be negative", cfg.Leeway)
	}
	return faults
}

var methodFamilies = map[string]string{
	"HS256": "HS", "HS384": "HS", "HS512": "HS",
	"RS256": "RS", "RS384": "RS", "RS512": "RS",
	"PS256": "PS", "PS384": "PS", "PS512": "PS",
	"ES256": "ES", "ES384": "ES", "ES512": "ES",
	"EdDSA": "EdDSA",
}

var curves = map[string]elliptic.Curve{"ES256": elliptic.P256(), "ES384": elliptic.P384(), "ES512": elliptic.P521()}

// keyFor returns what key must be for a method, "" if it is that.
func keyFor(method string, key any) string {
	switch methodFamilies[method] {
	case "HS":
		if secret, ok := key.([]byte); !ok || len(secret) == 0 {
			return "a []byte that is not empty"
		}
	case "RS", "PS":
		if public, ok := key.(*rsa.PublicKey); !ok || public == nil {
			return "an *rsa.PublicKey"
		}
	case "ES":
		curve := curves[method]
		if public, ok := key.(*ecdsa.PublicKey); !ok || public == nil || public.Curve != curve {
			return "an *ecdsa.PublicKey on " + curve.Params().Name
		}
	case "EdDSA":
		if public, ok := key.(ed25519.PublicKey); !ok || len(public) != ed25519.PublicKeySize {
			return "an ed25519.PublicKey"
		}
	}
	return ""
}

const kindRule = `must be letters, digits or any of "-_", and none of ip, join, static, header, route, context`

// validKind keeps the keys of members apart from those of other kinds.
func validKind(kind string) bool {
	switch kind {
	case "ip", "join", "static", "header", "route", "context":
		return false
	}
	other := func(c rune) bool {
		return !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_')
	}
	return len(kind) <= 63 && !strings.ContainsFunc(kind, other)
}

// Claim returns the value of a claim of the request's verified token as a key, "member:<value>", where "member" is
// [Config].Kind. The claim must be a string that is not empty, or a number without fraction and exponent. One that is
// longer than 256 bytes, or begins with "sha256:", is "member:sha256:<SHA-256>", in base64url without padding.
//
// It returns [ratelimit.ErrNoKey] if there is no valid token, or if the token has no such claim. It returns
// [ratelimit.ErrBadRequest] if the claim has another value, such as "", 1.5, true and null, and where Claims does. It
// panics if name is empty.
func (j *Keys) Claim(name string) ratelimit.KeyFunc { return j.claim("Claim", j.kind, name) }

// ClaimAs is [Keys.Claim] with another kind than [Config].Kind, for tokens that name several identities, such as a
// member and an organisation: keys.ClaimAs("org", "org_id") returns "org:<value>". One token is verified once for all
// the claims of a request, unless CacheSize is negative. It panics if kind or name is empty, or if kind is malformed.
func (j *Keys) ClaimAs(kind, name string) ratelimit.KeyFunc {
	if kind == "" || !validKind(kind) {
		panic(fmt.Sprintf("jwtkey: ClaimAs: kind %q: %s", kind, kindRule))
	}
	return j.claim("ClaimAs", kind, name)
}

func (j *Keys) claim(function, kind, name string) ratelimit.KeyFunc {
	if name == "" {
		panic("jwtkey: " + function + ": name must not be empty")
	}
	absent := keyerr.New(ratelimit.ErrNoKey, "the token has no claim %q", name)
	unusable := keyerr.New(ratelimit.ErrBadRequest, "claim %q of the token is not a string or a whole number", name)
	return func(r *http.Request) (string, error) {
		claims, err := j.claims(r)
		if err != nil {
			return "", err
		}
		claim, ok := claims[name]
		if !ok {
			return "", absent
		}
		var id string
		switch value := claim.(type) {
		case string:
			id = value
		case json.Number:
			if id = value.String(); strings.ContainsAny(id, ".eE") {
				return "", unusable
			}
		}
		if id == "" {
			return "", unusable
		}
		return kind + ":" + shortID(id), nil
	}
}

// shortID returns an id of up to maxID bytes as it is, and one that stands for it otherwise. An id that looks like
// such a stand-in is hashed, too, so that no two ids share one.
func shortID(id string) string {
	if len(id) <= maxID && !strings.HasPrefix(id, hashedID) {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return hashedID + base64.RawURLEncoding.EncodeToString(sum[:])
}

// Claims returns a copy of the claims of the request's verified token, for a LimitFunc. Numbers are json.Number.
//
// It returns [ratelimit.ErrNoKey] if Config.Tokens find no token. It does so, too, if the token is not valid, has no
// "exp", or has a "crit" header, because no extension is supported (RFC 7515, section 4.1.11). It returns
// [ratelimit.ErrBadRequest] if the token is longer than 8 KiB. Other errors are those of Config.Tokens and Keyfunc.
func (j *Keys) Claims(r *http.Request) (jwt.MapClaims, error) {
	claims, err := j.claims(r)
	if err != nil {
		return nil, err
	}
	return cloneClaims(claims), nil
}

// claims returns what Claims does, but as other requests have it, too. Those that come with a new token at
// once all verify it, because a signature is soon checked, and none should wait for another's Keyfunc.
func (j *Keys) claims(r *http.Request) (jwt.MapClaims, error) {
	token, err := firstToken(j.tokens, r)
	if err != nil {
		return nil, err
	}
	if len(token) > maxToken {
		return nil, errLongToken
	}
	if j.cache == nil {
		return j.verify(r.Context(), token)
	}
	before, digest := time.Now(), digestOf(token)
	if claims, ok := j.cache.get(digest, before); ok {
		return claims, nil
	}
	claims, err := j.verify(r.Context(), token)
	if err == nil {
		j.cache.put(digest, claims, before, time.Now())
	}
	return claims, err
}

func (j *Keys) verify(ctx context.Context, text string) (jwt.MapClaims, error) {
	claims := jwt.MapClaims{}
	token, err := j.parser.ParseWithClaims(text, claims, func(token *jwt.Token) (any, error) { return j.keyOf(ctx, token) })
	if err != nil {
		return nil, keyerr.WithKind(tokenFault(err), fmt.Errorf("%w: %w", ratelimit.ErrNoKey, err))
	}
	if _, ok := token.Header["crit"]; ok {
		return nil, errCrit
	}
	return claims, nil
}

var (
	errLongToken = keyerr.New(ratelimit.ErrBadRequest, "the token is longer than %d bytes", maxToken)
	errCrit      = keyerr.New(ratelimit.ErrNoKey, "the token has a crit header")
)

// tokenFault returns what is wrong with a token without quoting it, as the text of an error of golang-jwt may.
func tokenFault(err error) string {
	for _, fault := range tokenFaults {
		if errors.Is(err, fault) {
			return fault.Error()
		}
	}
	return "token is not valid"
}

var tokenFaults = []error{
	jwt.ErrTokenMalformed,
	jwt.ErrTokenUnverifiable,
	jwt.ErrTokenSignatureInvalid,
	jwt.ErrTokenExpired,
	jwt.ErrTokenNotValidYet,
	jwt.ErrTokenInvalidAudience,
	jwt.ErrTokenInvalidIssuer,
	jwt.ErrTokenRequiredClaimMissing,
	jwt.ErrTokenInvalidClaims,
}

// keyOf returns the key that Keyfunc chooses, if it is one. What a map has for a "kid" that it does not hold
// must not reach the parser: an empty secret is known to all, and a nil public key makes it panic.
func (j *Keys) keyOf(ctx context.Context, token *jwt.Token) (any, error) {
	key, err := j.keyfunc(ctx, token)
	if err != nil {
		return nil, err
	}
	if set, ok := key.(jwt.VerificationKeySet); ok {
		var fit jwt.VerificationKeySet
		for _, key := range set.Keys {
			if keyFor(token.Method.Alg(), key) == "" {
				fit.Keys = append(fit.Keys, key)
			}
		}
		return fit, nil
	}
	if want := keyFor(token.Method.Alg(), key); want != "" {
		return nil, fmt.Errorf("the key is a %T: must be %s", key, want)
	}
	return key, nil
}
