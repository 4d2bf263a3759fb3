package ratelimit_test

import (
	"context"
	"fmt"
	"net/http"

	"github.com/go-tokenbucket/ratelimit"
)

// Authenticate before the limiter, put the member into the request's context, and limit by that. Then each request
// counts for the member that the handlers see.
func ExampleContextKey() {
	type memberKey struct{}
	memberOf := func(ctx context.Context) (string, bool) {
		member, ok := ctx.Value(memberKey{}).(string)
		return member, ok
	}
	members := map[string]string{"Bearer a-token": "ann", "Bearer b-token": "bob"}
	authenticate := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			member := members[r.Header.Get("Authorization")]
			next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), memberKey{}, member)))
		})
	}
	limiter, err := ratelimit.New(ratelimit.Config{
		Policies: []ratelimit.Policy{{
			Name:  "member",
			Key:   ratelimit.FirstOf(ratelimit.ContextKey(memberOf), ratelimit.RemoteIP()),
			Limit: ratelimit.PerMinute(1),
		}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer limiter.Close()
	handler := authenticate(limiter.Handler(hello))

	request(handler, "GET", "/", "Authorization", "Bearer a-token")
	request(handler, "GET", "/", "Authorization", "Bearer a-token")
	request(handler, "GET", "/", "Authorization", "Bearer b-token")
	request(handler, "GET", "/") // by its address
	// Output:
	// GET / 200
	// GET / 429
	// GET / 200
	// GET / 200
}
