package policyfile_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/policyfile"
)

// handled returns the status of the answer to a request, and the names of the policies that decided about it.
func handled(t *testing.T, text string) func(method, path string) string {
	known := registry
	known.Unknown = []string{"unknown"}
	f, err := policyfile.Parse("f.yaml", []byte(text), known)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	l := ratelimit.Must(ratelimit.New(ratelimit.Config{Policies: f.Everywhere()}))
	t.Cleanup(func() { l.Close() })
	h := f.Handler(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if d, ok := ratelimit.FromContext(r.Context()); ok {
			for _, result := range d.Results {
				names = append(names, result.Policy+"="+result.Key)
			}
		}
		w.WriteHeader(201)
	}))
	return func(method, path string) string {
		names = nil
		r := httptest.NewRequest(method, path, nil)
		r.RemoteAddr = "192.0.2.1:9"
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return fmt.Sprint(w.Code, " ", names)
	}
}

func TestHandler(t *testing.T) {
	const list = "version: 1\nrouter: %s\npolicies:\n" +
		"- {name: a, key: remote_ip, limit: 100/s}\n" +
		"- {name: r, key: route, limit: 100/s}\n" +
		"- {name: l, key: {static: x}, limit: 100/s, on: [POST /login, /any]}\n" +
		"- {name: m, key: members, limit: 100/s, on: [/any]}\n" +
		"routes: ['GET /items/{id}']\n"
	const mounted = "version: 1\npolicies:\n- {name: l, key: {static: x}, limit: 1/h, on: [POST /login]}\n"
	for _, tt := range []struct{ name, text, request, want string }{
		{"a route of the list", fmt.Sprintf(list, "servemux"), "GET /items/5", "201 [a=ip:192.0.2.1 r=route:GET /items/{id}]"},
		{"a route of a policy", fmt.Sprintf(list, "servemux"), "POST /login", "201 [a=ip:192.0.2.1 r=route:POST /login l=static:x]"},
		{"a route of two policies", fmt.Sprintf(list, "servemux"), "GET /any", "201 [a=ip:192.0.2.1 r=route:/any l=static:x m=member:5]"},
		{"another method", fmt.Sprintf(list, "servemux"), "GET /login", "201 [a=ip:192.0.2.1 r=route:/]"},
		{"no route", fmt.Sprintf(list, "servemux"), "GET /other", "201 [a=ip:192.0.2.1 r=route:/]"},
		{"a route of the list, in chi", fmt.Sprintf(list, "chi"), "GET /items/5", "201 [a=ip:192.0.2.1 r=route:GET /items/{id}]"},
		{"a route of a policy, in chi", fmt.Sprintf(list, "chi"), "POST /login", "201 [a=ip:192.0.2.1 r=route:POST /login l=static:x]"},
		{"a route of two policies, in chi", fmt.Sprintf(list, "chi"), "GET /any", "201 [a=ip:192.0.2.1 r=route:GET /any l=static:x m=member:5]"},
		{"another method, in chi", fmt.Sprintf(list, "chi"), "GET /login", "201 [a=ip:192.0.2.1 r=route:unmatched]"},
		{"no route, in chi", fmt.Sprintf(list, "chi"), "GET /other", "201 [a=ip:192.0.2.1 r=route:unmatched]"},
		{"only policies of routes", mounted, "GET /other", "201 []"},
		{"no patterns", policies("key: remote_ip", "limit: 1/h"), "GET //any/../thing", "201 [a=ip:192.0.2.1]"},
		{"a policy that is left out", policies("key: unknown", "limit: 1/h", "on: [/b]"), "GET /b", "201 []"},
		{"a pattern for all", policies("key: remote_ip", "limit: 1/h", "on: [/]"), "GET /x", "201 [a=ip:192.0.2.1]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var method, path string
			fmt.Sscan(tt.request, &method, &path)
			if got := handled(t, tt.text)(method, path); got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
		})
	}
	serve := handled(t, mounted)
	if first, second, other := serve("POST", "/login"), serve("POST", "/login"), serve("GET", "/"); first != "201 [l=static:x]" || second != "429 []" || other != "201 []" {
		t.Errorf("%s, %s, %s", first, second, other)
	}
}

// Handler is around the ServeMux, as in a program, so that redirects are limited. With keys of routes it cannot be.
func TestHandlerLimitsRedirects(t *testing.T) {
	for key, want := range map[string]string{"remote_ip": "429 []", "route": "307 []", "members": "307 []", "{join: [remote_ip, route]}": "307 []"} {
		serve := handled(t, "version: 1\npolicies:\n- {name: all, key: "+key+", limit: 1/h}\nroutes: [/any]\n")
		if first, second := serve("GET", "//any"), serve("GET", "//any"); first != "307 []" || second != want {
			t.Errorf("%s: %s, %s, want 307 and %s", key, first, second, want)
		}
	}
}
