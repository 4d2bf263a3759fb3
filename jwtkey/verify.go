package jwtkey

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"errors"
	"fmt"

	"github.com/golang-jwt/jwt/v5"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/failure"
)

func (j *Keys) verify(ctx context.Context, text string) (jwt.MapClaims, error) {
	claims := jwt.MapClaims{}
	token, err := j.parser.ParseWithClaims(text, claims, func(token *jwt.Token) (any, error) { return j.keyOf(ctx, token) })
	if err != nil {
		return nil, failure.Quoting(tokenFault(err), ratelimit.ErrNoKey, err)
	}
	if _, ok := token.Header["crit"]; ok {
		return nil, errCrit
	}
	return claims, nil
}

var (
	errLongToken = failure.New(ratelimit.ErrBadRequest, "the token is longer than %d bytes", maxToken)
	errCrit      = failure.New(ratelimit.ErrNoKey, "the token has a crit header")
)

// tokenFault returns what is wrong with a token. It does not quote the token, as errors of golang-jwt may.
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

// keyOf returns the key that Keyfunc chooses, or an error if it cannot verify this method. The zero value of a map
// for an unknown "kid" must not reach the parser: everybody knows the empty secret, and a nil public key makes it
// panic.
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

var methodFamilies = map[string]string{
	"HS256": "HS", "HS384": "HS", "HS512": "HS",
	"RS256": "RS", "RS384": "RS", "RS512": "RS",
	"PS256": "PS", "PS384": "PS", "PS512": "PS",
	"ES256": "ES", "ES384": "ES", "ES512": "ES",
	"EdDSA": "EdDSA",
}

var curves = map[string]elliptic.Curve{"ES256": elliptic.P256(), "ES384": elliptic.P384(), "ES512": elliptic.P521()}

// keyFor returns the type that key must have for a method, or "" if it has it.
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
