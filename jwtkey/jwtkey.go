// Package jwtkey limits requests by the claims of their JSON Web Tokens (RFC 7519). It verifies each token first.
//
//	members, err := jwtkey.New(jwtkey.Config{
//		Methods: []string{"RS256"},
//		Key:     publicKey, // an *rsa.PublicKey
//	})
//	if err != nil {
//		log.Fatal(err)
//	}
//	limiter, err := ratelimit.New(ratelimit.Config{
//		Policies: []ratelimit.Policy{{
//			Name:  "member",
//			Key:   ratelimit.FirstOf(members.Claim("sub"), ratelimit.RemoteIP()),
//			Limit: ratelimit.PerMinute(60),
//		}},
//	})
//
// [Keys.Claim] makes one bucket for each value of a claim. Requests without a valid token have no key: in the
// example, [ratelimit.FirstOf] limits them by address. With Claim alone they are answered 403. [Keys.Claims]
// returns all claims, for limits that depend on the member ([ratelimit.Policy.LimitFunc]).
//
// If your application verifies tokens itself, do that before the limiter and use [ratelimit.ContextKey] instead.
// Then the limiter and the application always see the same member. The guide [identity] lists where they can
// differ.
//
// # Valid tokens
//
// A token is valid if all of these hold:
//   - A method of [Config.Methods] verifies the signature.
//   - It has an "exp", which has not passed. Its "nbf", if it has one, has passed.
//   - "iss" and "aud" are as Config requires.
//   - It has no "crit" header, because no extension is supported (RFC 7515, section 4.1.11).
//
// A token that is not valid counts as no token. A token of more than 8 KiB is refused with 400.
//
// # Limit by address first
//
// Anybody can send tokens. Checking a signature takes between 2 and some 100 µs, depending on the method. A token
// made for the purpose can take up to a millisecond to parse. So limit each address before tokens are verified.
// Mount that limit outside, by a separate call of Limit. One call finds the keys of all its policies before it
// charges any bucket:
//
//	r.Use(limiter.Limit(perAddress))
//	r.With(limiter.Limit(perMember)).Get("/", h)
//
// # Several verification keys
//
// [Config.Keyfunc] chooses the key, for example by "kid". It runs before the token is verified, for every token
// that is not remembered. So it must not do anything slow, such as call a key server: keep the keys in memory, as
// examples/jwks does. It must choose by the token alone, because a verified token is remembered for all requests.
// Its context is the request's, for tracing and cancellation.
//
// If Keyfunc returns an error, the request has no key. So while a key server is unavailable, members whose token is
// not remembered count as guests, or are answered 403. An error that wraps [ratelimit.ErrOutage] or
// [ratelimit.ErrBadRequest] is handled as such. Anybody can send a token that names any key: do not wrap
// [ratelimit.ErrOutage] around an error that a token can cause.
//
// [identity]: https://github.com/go-tokenbucket/ratelimit/blob/main/docs/identity.md
package jwtkey

import (
	"cmp"
	"context"
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
	"github.com/go-tokenbucket/ratelimit/internal/dryrun"
	"github.com/go-tokenbucket/ratelimit/internal/failure"
	"github.com/go-tokenbucket/ratelimit/internal/keyname"
	"github.com/go-tokenbucket/ratelimit/store"
)

const (
	// maxToken bounds the tokens that are parsed, in bytes.
	maxToken = 8 << 10

	// maxID bounds the claims that are part of the key unchanged, in bytes. Longer claims are hashed.
	maxID = 256

	// hashedID is the prefix of an id that was hashed.
	hashedID = "sha256:"
)

// Config defines which tokens [New] accepts. Methods and a key are required.
type Config struct {
	// Methods are the accepted signing methods (RFC 7518, RFC 8037): "HS256", "RS256", "PS256" and "ES256", the
	// same with 384 or 512, and "EdDSA". Required. "none" is refused. Methods with a shared secret (HS) must not be
	// mixed with methods that have a key pair.
	Methods []string

	// Key verifies the signature: a []byte for HS, an *rsa.PublicKey for RS and PS, an *ecdsa.PublicKey on the
	// method's curve for ES, an ed25519.PublicKey for EdDSA. Set either Key or Keyfunc.
	Key any

	// Keyfunc returns the key for a token that is not verified yet, for example by its "kid" header. The key must
	// be as Key is, or a jwt.VerificationKeySet of such keys; any other value, such as an empty secret, verifies
	// nothing. Keyfunc must be fast and depend on the token alone. After an error the request has no key. See
	// "Several verification keys" in the package comment.
	Keyfunc func(context.Context, *jwt.Token) (any, error)

	// Tokens find the token in a request, in order of preference. The first token found is used, even if it is not
	// valid. If a TokenFunc returns [ratelimit.ErrBadRequest] before a token is found, the request is refused with
	// 400. Default: [BearerToken].
	Tokens []TokenFunc

	// CacheSize is how many verified tokens are remembered, by their SHA-256. Their signatures are not checked again
	// for up to a minute, or until "exp" without Leeway. So a token whose key was revoked is accepted for as long.
	// Default 4096; negative: none. Each takes about 1 KiB of memory, and at most 16: larger ones are verified each time.
	CacheSize int

	// Kind is the prefix of the keys that [Keys.Claim] returns, as in "member:5". Default "member". With several
	// issuers, give each Keys another Kind. Otherwise the member "5" of one issuer shares a bucket with the "5" of
	// another.
	Kind string

	// Issuer, if set, must equal the token's "iss". Audience, if set, must be one of the token's "aud".
	Issuer, Audience string

	// Leeway is the clock difference to the issuer that is tolerated when "exp" and "nbf" are checked. Default 0.
	Leeway time.Duration
}

// Keys verify the tokens of requests. They provide keys ([Keys.Claim]) and claims ([Keys.Claims]). Make them with
// [New]. A request whose token is not valid has no key ([ratelimit.ErrNoKey]), like a request without a token. Keys
// are safe for concurrent use.
type Keys struct {
	parser  *jwt.Parser
	keyfunc func(context.Context, *jwt.Token) (any, error)
	tokens  []TokenFunc
	cache   *tokenCache // nil: none is remembered
	kind    string
}

// New returns Keys for cfg, or an error that names every invalid field.
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
			fault(`Tokens[%d]: must not be nil: use BearerToken(), or CookieToken("__Host-token") for example`, i)
		}
	}
	if err := keyname.CheckKind(cmp.Or(cfg.Kind, "member")); err != nil {
		fault("Kind %q: %v", cfg.Kind, err)
	}
	if cfg.Leeway < 0 {
		fault("Leeway %v: must not be negative", cfg.Leeway)
	}
	return faults
}

// Claim returns a KeyFunc for one claim of the verified token. The key is "member:<value>", where "member" is
// [Config.Kind]. The claim must be a non-empty string, or a number without fraction and exponent. A value that is
// longer than 256 bytes, or that begins with "sha256:", becomes "member:sha256:<SHA-256 in base64url without
// padding>".
//
// The KeyFunc returns [ratelimit.ErrNoKey] if there is no valid token, or if the token has no such claim. It
// returns [ratelimit.ErrBadRequest] if the claim has another value, such as "", 1.5, true or null, and in the cases
// of [Keys.Claims]. Claim panics if name is empty.
func (j *Keys) Claim(name string) ratelimit.KeyFunc { return j.claim("Claim", j.kind, name) }

// ClaimAs is [Keys.Claim] with another prefix than [Config.Kind]. Use it for tokens that name several identities,
// such as a member and an organization: keys.ClaimAs("org", "org_id") returns "org:<value>". A token is verified
// once for all claims of a request, unless CacheSize is negative. ClaimAs panics if kind or name is empty, or if
// kind is malformed.
func (j *Keys) ClaimAs(kind, name string) ratelimit.KeyFunc {
	if err := keyname.CheckKind(kind); err != nil {
		panic(fmt.Sprintf("jwtkey: ClaimAs: kind %q: %v", kind, err))
	}
	return j.claim("ClaimAs", kind, name)
}

func (j *Keys) claim(function, kind, name string) ratelimit.KeyFunc {
	if name == "" {
		panic("jwtkey: " + function + ": name must not be empty")
	}
	called := function + " " + name
	if function == "ClaimAs" {
		called = function + " " + kind + " " + name
	}
	absent := failure.New(ratelimit.ErrNoKey, "the token has no claim %q", name)
	unusable := failure.New(ratelimit.ErrBadRequest, "claim %q of the token is not a string or a whole number", name)
	return func(r *http.Request) (string, error) {
		run := dryrun.OfRequest(r)
		run.Name(called)
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
		if run != nil {
			noteID(run, name, id)
		}
		return kind + ":" + shortID(id), nil
	}
}

// shortID returns ids of up to maxID bytes unchanged, and a hash of longer ones. An id that looks like such a hash
// is hashed, too, so that no two ids share a key.
func shortID(id string) string {
	if len(id) <= maxID && !strings.HasPrefix(id, hashedID) {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return hashedID + base64.RawURLEncoding.EncodeToString(sum[:])
}

// Claims returns a copy of the claims of the request's verified token, for example for
// [ratelimit.Policy.LimitFunc]. Numbers are json.Number.
//
// It returns [ratelimit.ErrNoKey] if the request has no token or if its token is not valid. It returns
// [ratelimit.ErrBadRequest] if the token is longer than 8 KiB. Other errors are those of [Config.Tokens] and
// Keyfunc.
func (j *Keys) Claims(r *http.Request) (jwt.MapClaims, error) {
	claims, err := j.claims(r)
	if err != nil {
		return nil, err
	}
	return cloneClaims(claims), nil
}

// Stats returns the counts of the cache of verified tokens, which [Config.CacheSize] bounds. A miss is a token that had to
// be verified, also one that is not valid. Without a cache they are 0.
func (j *Keys) Stats() store.CacheStats {
	if j.cache == nil {
		return store.CacheStats{}
	}
	return j.cache.stats()
}

// claims is Claims without the copy: the claims are shared between requests. Requests that arrive together with the
// same new token all verify it: checking a signature is fast, and no request should wait for the Keyfunc of
// another.
func (j *Keys) claims(r *http.Request) (jwt.MapClaims, error) {
	token, err := firstToken(j.tokens, r)
	if err != nil {
		return nil, err
	}
	if len(token) > maxToken {
		return nil, errLongToken
	}
	if run := dryrun.OfRequest(r); run != nil {
		return j.explain(run, r.Context(), token)
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
