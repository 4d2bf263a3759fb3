package command_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/admin"
	"github.com/go-tokenbucket/ratelimit/cmd/ratelimit/internal/command"
	"github.com/go-tokenbucket/ratelimit/observe"
)

// adminSite serves the admin page of a program that was used.
func adminSite(t *testing.T) *httptest.Server {
	t.Helper()
	cfg := admin.Config{Top: ratelimit.Must(observe.NewTop(observe.TopConfig{}))}
	limited := ratelimit.Policy{Name: "api", Key: func(r *http.Request) (string, error) { return "member:" + r.Header.Get("X-Key"), nil }, Limit: ratelimit.PerHour(2)}
	login := limited
	login.Name = "login"
	l := ratelimit.Must(ratelimit.New(ratelimit.Config{Policies: []ratelimit.Policy{limited, login}, Observe: cfg.Top.Observe}))
	h := l.Handler(http.NotFoundHandler())
	for key, n := range map[string]int{"busy": 4, "\u202eevil": 1} {
		for range n {
			r := httptest.NewRequest("GET", "/", nil)
			r.Header.Set("X-Key", key)
			h.ServeHTTP(httptest.NewRecorder(), r)
		}
	}
	page := admin.Handler(l, func(r *http.Request) (string, admin.Access) {
		if r.Header.Get("Authorization") == "Bearer "+canary {
			return "ann", admin.View
		}
		return "", admin.None
	}, cfg)
	server := httptest.NewServer(page)
	t.Cleanup(server.Close)
	return server
}

func TestTopText(t *testing.T) {
	text := ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, text) }))
	defer server.Close()
	for _, tt := range []struct{ text, want string }{
		{`{"version":2,"at":"2026-11-05T03:04:05Z","policy":"api","keys_left_out":7,"keys":[
			{"policy":"api","key":"ip:192.0.2.1","requests":12345,"denied":12000,"error":45,"share":0.9,"state":"limited"},
			{"policy":"api","key":"ip:192.0.2.2\u202e","requests":90,"denied":9,"share":0.0657,"state":"blocked","until":"2026-11-05T04:00:00Z"},
			{"policy":"api","key":"ip:192.0.2.3","requests":3,"share":0.002,"state":"ok"}]}`, `
2026-11-05T03:04:05Z, policy api

     requests  denied  share  state                   policy  key
12,300-12,345  12,000  90.0%  limited                 api     ip:192.0.2.1
           90       9   6.6%  blocked until 04:00:00  api     ip:192.0.2.2\u202e
            3       0   0.2%  ok                      api     ip:192.0.2.3

And 7 keys more: replicas publish only their first keys.
`[1:]},
		// The time of an answer may be anything, such as the zero time of a clock that was not set.
		{`{"version":2,"at":"0001-01-01T00:00:00Z"}`, "0001-01-01T00:00:00Z, all policies\n\nno keys lately\n"},
	} {
		text = tt.text
		if r := run(t, "top", "-admin", server.URL); r.status != 0 || r.out != tt.want {
			t.Errorf("status %d, got\n%s%s\nwant\n%s", r.status, r.out, r.err, tt.want)
		}
	}
}

func TestTop(t *testing.T) {
	server := adminSite(t)
	s := setup{env: map[string]string{
		"RATELIMIT_ADMIN":        server.URL + "/admin/",
		"RATELIMIT_ADMIN_HEADER": "Authorization: Bearer " + canary + "\nX-Other: 1",
	}}
	all := s.run(t, "top")
	all.want(t, 0, ", all policies\n", "api", "login")
	one := s.run(t, "top", "-policy", "login")
	one.want(t, 0, ", policy login\n", "login   member:busy\n", `login   member:\u202eevil`)
	if strings.Contains(one.out, "api") {
		t.Errorf("of another policy:\n%s", one.out)
	}

	for _, address := range []string{"/admin", "/admin/", "/admin/top.json", "/admin/?policy=x#y", ""} {
		s.run(t, "top", "-admin", server.URL+address).want(t, 0, "all policies\n")
	}
	s.run(t, "top", "-policy", "nowhere").want(t, 3, "nowhere")
	s.run(t, "top", "-admin", "http://127.0.0.1:1/").want(t, 3, "the admin page at 127.0.0.1:1: dial tcp")
	run(t, "top", "-admin", server.URL).want(t, 3, "refuses (403): set RATELIMIT_ADMIN_HEADER")
	run(t, "top").want(t, 2, "-admin: must be the URL of the admin page", "set RATELIMIT_ADMIN")
	for _, wrong := range []string{"localhost:8080", "redis://localhost", "/admin/", "ftp://localhost/", "http://"} {
		run(t, "top", "-admin", wrong).want(t, 2, "-admin: ")
	}
	setup{env: map[string]string{"RATELIMIT_ADMIN_HEADER": "Bearer " + canary}}.run(t, "top", "-admin", server.URL).want(t, 2, "RATELIMIT_ADMIN_HEADER: must be a header")
}

// What answers, but is no admin page, is named. A redirect is not followed, because it would get the header with the login.
func TestTopOfAnotherPage(t *testing.T) {
	got := false
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { got = true }))
	defer other.Close()
	for answer, want := range map[string]string{
		"200 <html>":              "not as the admin page does",
		"200 {}":                  "not as the admin page does",
		"404 nothing":             "not as the admin page does",
		`200 {"version":3}`:       "has version 3 of top.json, and this command knows 2",
		`503 {"error":"\u001b["}`: `\x1b[`,
		"401 x":                   "refuses (401)",
		"302 " + other.URL:        "redirects (302)",
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var status int
			fmt.Sscan(answer, &status)
			w.Header().Set("Location", answer[4:])
			w.WriteHeader(status)
			fmt.Fprint(w, answer[4:])
		}))
		setup{env: map[string]string{"RATELIMIT_ADMIN_HEADER": "X-Login: " + canary}}.run(t, "top", "-admin", server.URL).want(t, 3, want)
		server.Close()
	}
	if got {
		t.Error("the redirect was followed")
	}
}

func TestTopWatch(t *testing.T) {
	defer command.WatchEvery(time.Millisecond)()
	server := adminSite(t)
	looks := 0
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	between := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch looks++; looks {
		case 2:
			http.Error(w, "restarting", http.StatusBadGateway) // a replica that restarts does not end the watch
			return
		case 4:
			cancel()
		}
		r.URL.Path = "/admin/top.json"
		server.Config.Handler.ServeHTTP(w, r)
	}))
	defer between.Close()
	s := setup{terminal: true, env: map[string]string{"RATELIMIT_ADMIN_HEADER": "Authorization: Bearer " + canary}}
	r := s.runIn(ctx, "top", "-watch", "-admin", between.URL)
	r.want(t, 130, "answers with 502", "\x1b[H\x1b[2J")
	if n := strings.Count(r.out, "all policies"); n != 2 {
		t.Errorf("%d lists, want 2", n)
	}
}
