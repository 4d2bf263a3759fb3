package jwtkey

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/go-tokenbucket/ratelimit/internal/dryrun"
)

// explain is claims, for the token of a request that is explained. It changes nothing: the token is not remembered, and
// neither a hit nor a miss is counted. Of the token it notes the headers alg and kid, and the claims that decide whether
// it is valid.
func (j *Keys) explain(run *dryrun.Run, ctx context.Context, token string) (jwt.MapClaims, error) {
	stated := jwt.MapClaims{}
	if parsed, _, err := j.parser.ParseUnverified(token, stated); err == nil {
		noteHeader(run, parsed.Header)
	}
	if j.cache != nil {
		if m, ok := j.cache.peek(digestOf(token), time.Now()); ok {
			run.Note("its signature was verified at %s, and is remembered", textOf(m.verified))
			noteClaims(run, m.claims)
			return m.claims, nil
		}
	}
	claims, err := j.verify(ctx, token)
	switch {
	case err == nil:
		run.Note("its signature is verified now")
		noteClaims(run, claims)
	case errors.Is(err, jwt.ErrTokenInvalidClaims): // which are looked at only if the signature is right
		run.Note("its signature is right, and it is refused: %s", tokenFault(err))
		noteClaims(run, stated)
	case errors.Is(err, jwt.ErrTokenUnverifiable):
		run.Note("it is refused: %s: Keyfunc has returned an error, or no key for its alg", tokenFault(err))
	case errors.Is(err, errCrit):
		run.Note("it is refused: it has a crit header")
	default:
		run.Note("it is refused: %s", tokenFault(err))
	}
	return claims, err
}

func noteHeader(run *dryrun.Run, header map[string]any) {
	alg, _ := header["alg"].(string)
	if kid, ok := header["kid"].(string); ok {
		run.Note(`its header says alg "%s" and kid "%s"`, alg, kid)
	} else {
		run.Note(`its header says alg "%s" and no kid`, alg)
	}
}

func noteClaims(run *dryrun.Run, claims jwt.MapClaims) {
	if iss, err := claims.GetIssuer(); err == nil && iss != "" {
		run.Note(`its iss is "%s"`, iss)
	}
	if exp, err := claims.GetExpirationTime(); err == nil && exp != nil {
		run.Note("its exp is %s", textOf(exp.Time))
	}
	if nbf, err := claims.GetNotBefore(); err == nil && nbf != nil {
		run.Note("its nbf is %s", textOf(nbf.Time))
	}
}

func textOf(at time.Time) string { return at.UTC().Format(time.RFC3339) }

// noteID notes that a claim has the id of a key.
func noteID(run *dryrun.Run, name, id string) {
	if shortID(id) != id {
		run.Note(`claim "%s" has %d bytes: its SHA-256 is in the key`, name, len(id))
		return
	}
	run.Note(`claim "%s" is in the key`, name)
}

// noteToken notes where a TokenFunc has found a token.
func noteToken(r *http.Request, has string) {
	if run := dryrun.OfRequest(r); run != nil {
		run.Note("%s", has)
	}
}

// noteFound notes what Tokens[i] has returned.
func noteFound(run *dryrun.Run, i int, token string, err error) {
	if err != nil {
		run.Note("Tokens[%d]: %v", i, err)
		return
	}
	run.Secret(token, "the token")
}
