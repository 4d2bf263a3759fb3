package code_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/ratetest"
)

type memberKey struct{}

// memberOf returns the member that authenticate found.
func memberOf(ctx context.Context) (string, bool) {
	member, ok := ctx.Value(memberKey{}).(string)
	return member, ok
}

// authenticate is the only code that reads credentials. Everything after it uses memberOf.
func authenticate(verify func(token string) (member string, ok bool)) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if credentials := r.Header.Get("Authorization"); credentials != "" {
				member, ok := verify(strings.TrimPrefix(credentials, "Bearer "))
				if !ok {
					http.Error(w, "the token is not valid", http.StatusUnauthorized)
					return
				}
				r = r.WithContext(context.WithValue(r.Context(), memberKey{}, member))
			}
			next.ServeHTTP(w, r)
		})
	}
}

func api(limiter *ratelimit.Limiter, verify func(token string) (member string, ok bool)) http.Handler {
	perAddress := ratelimit.Policy{Name: "address", Key: ratelimit.RemoteIP(), Limit: ratelimit.PerMinute(60)}
	perMember := ratelimit.Policy{
		Name:  "member",
		Key:   ratelimit.FirstOf(ratelimit.ContextKey(memberOf), ratelimit.RemoteIP()),
		Limit: ratelimit.PerMinute(2),
	}
	r := chi.NewRouter()
	r.Use(limiter.Limit(perAddress)) // before authenticate: guesses are limited, and so is what verify costs
	r.Use(authenticate(verify))
	r.Use(limiter.Limit(perMember)) // after authenticate: it counts whom the handlers see
	r.Get("/", func(w http.ResponseWriter, r *http.Request) {
		member, _ := memberOf(r.Context())
		fmt.Fprintf(w, "hello %s\n", member)
	})
	return r
}

func verifyTokens(token string) (member string, ok bool) {
	member, ok = map[string]string{"a-token": "ann", "b-token": "bob"}[token]
	return member, ok
}

func TestMembersAreCountedAsTheHandlersSeeThem(t *testing.T) {
	h := api(ratetest.Quiet(t), verifyTokens)
	ann, bob := ratetest.With("Authorization", "Bearer a-token"), ratetest.With("Authorization", "Bearer b-token")
	ratetest.WantStatuses(t, h, []int{200, 200, 429}, ann)
	ratetest.WantStatuses(t, h, []int{200, 200, 429}, bob)
	ratetest.WantStatuses(t, h, []int{200, 200, 429})
}

// A client that repeats its credentials is still the one that the handlers see.
func TestAuthenticatingOnceLeavesNoSecondIdentity(t *testing.T) {
	h := api(ratetest.Quiet(t), verifyTokens)
	both := func(r *http.Request) {
		r.Header["Authorization"] = []string{"Bearer a-token", "Bearer b-token"}
	}
	if w := ratetest.Get(h, both); w.Body.String() != "hello ann\n" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	ratetest.WantStatuses(t, h, []int{200, 429}, both)
	ratetest.WantStatuses(t, h, []int{429}, ratetest.With("Authorization", "Bearer a-token"))
	ratetest.WantStatuses(t, h, []int{200, 200, 429}, ratetest.With("Authorization", "Bearer b-token"))
}

// Tokens that are not valid take from the limit by address, which is before authenticate.
func TestGuessesOfTokensAreLimitedByAddress(t *testing.T) {
	h := api(ratetest.Quiet(t), verifyTokens)
	statuses := make([]int, 60)
	for i := range statuses {
		statuses[i] = http.StatusUnauthorized
	}
	ratetest.WantStatuses(t, h, append(statuses, 429), ratetest.With("Authorization", "Bearer a guess"))
}
