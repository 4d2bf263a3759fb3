package command_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
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

// The time of an answer may be anything, such as the zero time of a clock that was not set.
func TestTopAtTheBeginningOfTime(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, `{"version":1,"at":"0001-01-01T00:00:00Z","since":"2026-01-01T00:00:00Z","requests":1}`)
	}))
	defer server.Close()
	run(t, "top", "-admin", server.URL).want(t, 0, "1 requests", " in −106,752 d")
}

func TestTop(t *testing.T) {
	server := adminSite(t)
	s := setup{env: map[string]string{
		"RATELIMIT_ADMIN":        server.URL + "/admin/",
		"RATELIMIT_ADMIN_HEADER": "Authorization: Bearer " + canary + "\nX-Other: 1",
	}}
	all := s.run(t, "top")
	all.want(t, 0, "all policies: 10 requests, 4 denied", "Most requests", "Most denied")
	one := s.run(t, "top", "-policy", "login")
	when := regexp.MustCompile(`^\S+Z|in [\d.]+ m?s`)
	if got, want := when.ReplaceAllString(one.out, "<>"), `
<>, policy login: 5 requests, 2 denied <>

Most requests
  4  80.0%  login  member:busy
  1  20.0%  login  member:\u202eevil

Most denied
  2  100.0%  login  member:busy
`[1:]; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}

	for _, address := range []string{"/admin", "/admin/", "/admin/top.json", "/admin/?policy=x#y", ""} {
		s.run(t, "top", "-admin", server.URL+address).want(t, 0, "all policies: 10 requests")
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
		`200 {"version":2}`:       "has version 2 of top.json",
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
	if n := strings.Count(r.out, "Most denied"); n != 2 {
		t.Errorf("%d lists, want 2", n)
	}
}
