package conformance

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gorilla/mux"

	"github.com/go-tokenbucket/ratelimit"
)

// An explanation cannot look into gorilla's router, and says so, with the policies that may be mounted inside.
func TestExplainNamesAGorillaRouter(t *testing.T) {
	perIP := func(name string) ratelimit.Policy {
		return ratelimit.Policy{Name: name, Key: ratelimit.RemoteIP(), Limit: ratelimit.PerMinute(60)}
	}
	limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{Policies: []ratelimit.Policy{perIP("api")}}))
	defer limiter.Close()
	r := mux.NewRouter()
	r.Use(limiter.Limit(perIP("login")))
	r.HandleFunc("/login/{id}", func(http.ResponseWriter, *http.Request) { t.Error("a handler ran") })
	h := limiter.Handler(r)
	for name, server := range map[string]http.Handler{"with its server": h, "with the router alone": r} {
		asked := httptest.NewRequest(http.MethodGet, "/login/7", nil)
		e := limiter.Explain(asked.WithContext(context.WithValue(asked.Context(), http.ServerContextKey, &http.Server{Handler: server})))
		if len(e.Limiters) != 1 || e.Limiters[0].Policies[0].Name != "api" || e.Status != 0 {
			t.Errorf("%s: %v", name, e)
		}
		if all := strings.Join(e.Unknown, "\n"); !strings.Contains(all, "*mux.Router cannot be looked into: policies that may be mounted inside: login") {
			t.Errorf("%s: unknown: %s", name, all)
		}
	}
}
