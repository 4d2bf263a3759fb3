package ratelimit_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"

	"github.com/go-tokenbucket/ratelimit"
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

// Authenticate once, put the member into the context, and limit by that: then no request counts for another member
// than the one that the handlers see.
func ExampleContextKey() {
	tokens := map[string]string{"a-token": "ann", "b-token": "bob"}
	limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{}))
	defer limiter.Close()
	h := api(limiter, func(token string) (string, bool) { member, ok := tokens[token]; return member, ok })

	request(h, "GET", "/", "Authorization", "Bearer a-token")
	request(h, "GET", "/", "Authorization", "Bearer a-token")
	request(h, "GET", "/", "Authorization", "Bearer a-token")
	request(h, "GET", "/", "Authorization", "Bearer b-token")
	request(h, "GET", "/", "Authorization", "Bearer a guess")
	request(h, "GET", "/")
	// Output:
	// GET / 200
	// GET / 200
	// GET / 429
	// GET / 200
	// GET / 401
	// GET / 200
}

// A client that repeats its credentials is still the one that the handlers see.
func TestAuthenticatingOnceLeavesNoSecondIdentity(t *testing.T) {
	tokens := map[string]string{"a-token": "ann", "b-token": "bob"}
	h := api(quiet(t), func(token string) (string, bool) { member, ok := tokens[token]; return member, ok })
	both := func(r *http.Request) {
		r.Header["Authorization"] = []string{"Bearer a-token", "Bearer b-token"}
	}
	if w := get(h, both); w.Body.String() != "hello ann\n" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	wantStatuses(t, h, []int{200, 429}, both)
	wantStatuses(t, h, []int{429}, with("Authorization", "Bearer a-token"))
	wantStatuses(t, h, []int{200, 200, 429}, with("Authorization", "Bearer b-token"))
}

// The guide shows this code.
func TestTheWiringOfTheIdentityGuide(t *testing.T) {
	guide, err := os.ReadFile("docs/identity.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("example_identity_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, code, found := strings.Cut(string(guide), "```go\n")
	code, _, ends := strings.Cut(code, "```")
	if !found || !ends || !strings.Contains(string(source), code) {
		t.Error("docs/identity.md shows other code than example_identity_test.go")
	}
}
