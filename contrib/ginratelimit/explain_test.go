package ginratelimit_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/contrib/ginratelimit"
)

// An explanation cannot look into an engine, and says so. It has the policies of Handler, and the names of the others.
func TestExplainNamesTheEngine(t *testing.T) {
	perIP := func(name string) ratelimit.Policy {
		return ratelimit.Policy{Name: name, Key: ratelimit.RemoteIP(), Limit: ratelimit.PerMinute(60)}
	}
	limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{Policies: []ratelimit.Policy{perIP("api")}}))
	defer limiter.Close()
	limits := ginratelimit.New(limiter, ginratelimit.Config{})
	e := gin.New()
	e.Use(limits.Handler())
	e.GET("/login", limits.Limit(perIP("login")), func(*gin.Context) { t.Error("a handler ran") })

	r := httptest.NewRequest(http.MethodGet, "/login", nil)
	for _, tt := range []struct {
		server http.Handler
		want   []string
	}{
		{nil, []string{"ginratelimit.", "login"}},
		{e, []string{"*gin.Engine, the handler of the server, cannot be looked into", "login"}},
	} {
		asked := r
		if tt.server != nil {
			asked = r.WithContext(context.WithValue(r.Context(), http.ServerContextKey, &http.Server{Handler: tt.server}))
		}
		got := limiter.Explain(asked)
		if len(got.Limiters) != 1 || got.Limiters[0].Policies[0].Name != "api" || got.Limiters[0].Policies[0].Before == nil {
			t.Errorf("%+v", got)
		}
		for _, part := range tt.want {
			if all := strings.Join(got.Unknown, "\n"); !strings.Contains(all, part) {
				t.Errorf("unknown: %s, want %q in it", all, part)
			}
		}
	}
}
