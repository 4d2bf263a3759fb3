package code_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/golang-jwt/jwt/v5"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/denial"
	"github.com/go-tokenbucket/ratelimit/internal/test/ratetest"
	"github.com/go-tokenbucket/ratelimit/jwtkey"
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
	perAddress := ratelimit.Policy{Name: "address", Key: ratelimit.RemoteIP(), Limit: ratelimit.PerMinute(300)}
	perMember := ratelimit.Policy{
		Name:  "member",
		Key:   ratelimit.FirstOf(ratelimit.ContextKey("member", memberOf), ratelimit.RemoteIP()),
		Limit: ratelimit.PerMinute(60).WithBurst(10),
	}
	r := chi.NewRouter()
	r.Use(limiter.Limit(perAddress)) // before authenticate: it limits guesses, and the work of verify
	r.Use(authenticate(verify))
	r.Use(limiter.Limit(perMember)) // after authenticate: it counts the member that the handlers see
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

// thenDenied returns the status of n requests, and 429 for the next.
func thenDenied(status, n int) []int { return append(slices.Repeat([]int{status}, n), 429) }

func TestMembersAreCountedAsTheHandlersSeeThem(t *testing.T) {
	limiter, _ := moved(t)
	h := api(limiter, verifyTokens)
	ann, bob := ratetest.With("Authorization", "Bearer a-token"), ratetest.With("Authorization", "Bearer b-token")
	both := func(r *http.Request) { r.Header["Authorization"] = []string{"Bearer a-token", "Bearer b-token"} }
	if w := ratetest.Get(h, both); w.Body.String() != "hello ann\n" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	ratetest.WantStatuses(t, h, thenDenied(200, 9), ann)
	ratetest.WantStatuses(t, h, []int{429}, both)
	ratetest.WantStatuses(t, h, thenDenied(200, 10), bob)
	ratetest.WantStatuses(t, h, thenDenied(200, 10))
	ratetest.WantStatuses(t, h, thenDenied(401, 300-34), ratetest.With("Authorization", "Bearer a guess")) // by address
}

func TestMembersByTheirTokens(t *testing.T) {
	secret, limiter := ratetest.Secret, ratetest.Quiet(t)
	perAddress := ratetest.PerIP("address", ratelimit.PerMinute(17))
	r := chi.NewRouter()

	members, err := jwtkey.New(jwtkey.Config{
		Methods:  []string{"HS256"},
		Key:      secret,
		Issuer:   "https://auth.example.com",
		Audience: "api",
	})
	if err != nil {
		log.Fatal(err)
	}
	perMember := ratelimit.Policy{
		Name:  "member",
		Key:   ratelimit.FirstOf(members.Claim("sub"), ratelimit.RemoteIP()),
		Limit: ratelimit.PerMinute(60).WithBurst(10),
	}
	r.Use(limiter.Limit(perAddress), limiter.Limit(perMember)) // perAddress first, in a separate call: forged tokens cost time

	r.Get("/", ratetest.OK)
	bearer := func(claims string) func(*http.Request) {
		return ratetest.With("Authorization", "Bearer "+ratetest.HS256(claims))
	}
	const to = `"iss": "https://auth.example.com", "aud": "api"`
	ratetest.WantStatuses(t, r, thenDenied(200, 10), bearer(ratetest.Valid(`"sub": "5", `+to)))
	ratetest.WantStatuses(t, r, []int{200}, bearer(ratetest.Valid(`"sub": "6", `+to)))
	ratetest.WantStatuses(t, r, []int{200}, bearer(`{"sub": "5", `+to+`}`))                         // without exp: by address
	ratetest.WantStatuses(t, r, []int{200}, bearer(ratetest.Valid(`"sub": "5", "iss": "another"`))) // the same
	ratetest.WantStatuses(t, r, []int{200}, bearer(ratetest.Valid(to)))                             // and without the claim
	ratetest.WantStatuses(t, r, []int{400}, bearer(ratetest.Valid(`"sub": 1.5, `+to)))
	ratetest.WantStatuses(t, r, []int{400}, func(r *http.Request) { r.Header["Authorization"] = []string{"Bearer a", "Bearer b"} })
	ratetest.WantStatuses(t, r, []int{429}, bearer(ratetest.Valid(`"sub": "7", `+to))) // the address has used its 17
}

func TestRequestsWithoutAValidTokenCanBeAnswered401(t *testing.T) {
	limiter, err := ratelimit.New(ratelimit.Config{
		Error: func(w http.ResponseWriter, r *http.Request, err error) {
			if errors.Is(err, ratelimit.ErrNoKey) && !errors.Is(err, ratelimit.ErrOutage) {
				w.Header().Set("WWW-Authenticate", "Bearer")
				http.Error(w, "a valid token is required", http.StatusUnauthorized)
				return
			}
			denial.Handler{}.ServeError(w, r, err) // the default answers, such as 400 and 503
		},
	})

	if err != nil {
		t.Fatal(err)
	}
	defer limiter.Close()
	keys := func(cfg jwtkey.Config) http.Handler {
		members := ratelimit.Must(jwtkey.New(cfg))
		p := ratelimit.Policy{Name: "member", Key: members.Claim("sub"), Limit: ratelimit.PerMinute(60), FailClosed: true}
		return limiter.Limit(p)(ratetest.OK)
	}
	h := keys(ratetest.HS256Config())
	bearer := func(token string) func(*http.Request) { return ratetest.With("Authorization", "Bearer "+token) }
	ratetest.WantStatuses(t, h, []int{200}, bearer(ratetest.HS256(ratetest.Valid(`"sub": "5"`))))
	ratetest.WantStatuses(t, h, []int{401})
	ratetest.WantStatuses(t, h, []int{401}, bearer("a.b.c"))
	ratetest.WantStatuses(t, h, []int{401}, bearer(ratetest.HS256(`{"sub": "5", "exp": `+ratetest.At(-time.Hour)+`}`)))
	ratetest.WantStatuses(t, h, []int{400}, func(r *http.Request) { r.Header["Authorization"] = []string{"Bearer a", "Bearer b"} })

	outage := jwtkey.Config{Methods: []string{"HS256"}, Keyfunc: func(context.Context, *jwt.Token) (any, error) {
		return nil, ratelimit.ErrOutage
	}}
	ratetest.WantStatuses(t, keys(outage), []int{503}, bearer(ratetest.HS256(ratetest.Valid(`"sub": "5"`))))
}

func TestAPIKeysThatAreCheckedFirst(t *testing.T) {
	limiter := ratetest.Quiet(t)
	perAddress := ratetest.PerIP("address", ratelimit.PerMinute(300))
	checkAPIKey := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if key := r.Header.Get("X-Api-Key"); key != "" && key != "a-key" {
				http.Error(w, "no such key", http.StatusUnauthorized)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
	r := chi.NewRouter()

	r.Use(limiter.Limit(perAddress)) // it limits guesses
	r.Use(checkAPIKey)               // answers 401 to a key that does not exist
	r.Use(limiter.Limit(ratelimit.Policy{Name: "customer", Key: ratelimit.Header("X-Api-Key"), Limit: ratelimit.PerMinute(60)}))

	r.Get("/", ratetest.OK)
	ratetest.WantStatuses(t, r, thenDenied(200, 60), ratetest.With("X-Api-Key", "a-key"))
	ratetest.WantStatuses(t, r, []int{401, 401, 401}, ratetest.With("X-Api-Key", "a guess"))
	ratetest.WantStatuses(t, r, []int{403})
	ratetest.WantStatuses(t, r, []int{400}, ratetest.With("X-Api-Key", "a-key"), ratetest.With("X-Api-Key", "a-key"))
}
