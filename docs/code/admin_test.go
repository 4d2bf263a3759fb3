package code_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/admin"
	"github.com/go-tokenbucket/ratelimit/internal/test/ratetest"
	"github.com/go-tokenbucket/ratelimit/observe"
	"github.com/go-tokenbucket/ratelimit/store"
)

func adminPage(mux *http.ServeMux, buckets store.Store, policies []ratelimit.Policy, authorize func(*http.Request) (string, admin.Access)) (*ratelimit.Limiter, error) {
	counts := observe.NewCounts(observe.CountsConfig{History: true})
	top := ratelimit.Must(observe.NewTop(observe.TopConfig{}))
	limiter, err := ratelimit.New(ratelimit.Config{
		Store:    buckets,
		Policies: policies,
		Observe:  observe.Join(counts.Observe, top.Observe),
	})
	if err != nil {
		return nil, err
	}
	page := admin.Handler(limiter, authorize, admin.Config{Counts: counts, Top: top, Title: "Shop API"})
	mux.Handle("/admin/", http.StripPrefix("/admin", page))
	return limiter, nil
}

var operators = map[string]bool{"ann@example.com": true}

func byProxy(r *http.Request) (user string, allowed admin.Access) {
	user = r.Header.Get("X-Auth-Request-Email")
	switch {
	case user == "":
		return "", admin.None
	case operators[user]:
		return user, admin.Change
	}
	return user, admin.View
}

func withPasswords(mux *http.ServeMux, limiter *ratelimit.Limiter, cfg admin.Config, metrics http.Handler) {
	passwords := admin.BasicAuth(
		admin.User{Name: "ops", Password: os.Getenv("OPS_PASSWORD"), Access: admin.Change}, // at least 12 bytes
		admin.User{Name: "prometheus", Password: os.Getenv("METRICS_PASSWORD"), Access: admin.View},
	)
	mux.Handle("/admin/", http.StripPrefix("/admin", admin.Handler(limiter, passwords, cfg)))
	mux.Handle("GET /metrics", admin.Guard(passwords, metrics))
}

func TestTheAdminPageOfTheGuide(t *testing.T) {
	mux := http.NewServeMux()
	limiter, err := adminPage(mux, nil, []ratelimit.Policy{{Name: "api", Key: ratelimit.RemoteIP(), Limit: ratelimit.PerHour(5)}}, byProxy)
	if err != nil {
		t.Fatal(err)
	}
	defer limiter.Close()
	web := httptest.NewServer(mux)
	defer web.Close()
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	for _, tt := range []struct {
		user, path string
		form       url.Values
		status     int
		text       string
	}{
		{"", "/admin/", nil, 403, "You may not see this page"},
		{"bob@example.com", "/admin/", nil, 200, "Shop API"},
		{"bob@example.com", "/admin/key.json", url.Values{"key": {"ip:192.0.2.1"}}, 200, `"state": "full"`},
		{"bob@example.com", "/admin/key/block", url.Values{"policy": {"api"}, "key": {"ip:192.0.2.1"}, "for": {"15m"}}, 403, "change nothing"},
		{"ann@example.com", "/admin/key/block", url.Values{"policy": {"api"}, "key": {"ip:192.0.2.1"}, "for": {"15m"}, "force": {"1"}}, 303, "Policy api: The key is blocked.\n"},
		{"bob@example.com", "/admin/key.json?key=ip:192.0.2.1", nil, 200, `"state": "blocked"`},
	} {
		r, err := http.NewRequest("GET", web.URL+tt.path, nil)
		if tt.form != nil {
			r, err = http.NewRequest("POST", web.URL+tt.path, strings.NewReader(tt.form.Encode()))
		}
		if err != nil {
			t.Fatal(err)
		}
		if tt.form != nil {
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		}
		r.Header.Set("X-Auth-Request-Email", tt.user)
		resp, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != tt.status || !strings.Contains(string(body), tt.text) {
			t.Errorf("%q of %s: status %d, want %d and %q: %.300s", tt.user, tt.path, resp.StatusCode, tt.status, tt.text, body)
		}
	}
}

func TestAPageWithAPassword(t *testing.T) {
	t.Setenv("OPS_PASSWORD", "correct horse")
	t.Setenv("METRICS_PASSWORD", "battery staple")
	limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{}))
	defer limiter.Close()
	mux := http.NewServeMux()
	withPasswords(mux, limiter, admin.Config{}, ratetest.OK)
	for password, want := range map[string]int{"": 401, "wrong": 401, "battery staple": 401, "correct horse": 200} {
		for _, path := range []string{"/admin/", "/metrics"} {
			ratetest.WantStatuses(t, mux, []int{want}, func(r *http.Request) { r.URL.Path = path; r.SetBasicAuth("ops", password) })
		}
	}
}

type callerKey struct{}

type sessionStore struct{}

func (sessionStore) Member(r *http.Request) (string, bool) {
	c, err := r.Cookie("session")
	return "5", err == nil && c.Value == "abc"
}

func prepared(sessions sessionStore) (cfg admin.Config) {
	cfg.Prepare = func(r *http.Request) *http.Request {
		if id, ok := sessions.Member(r); ok {
			r = r.WithContext(context.WithValue(r.Context(), callerKey{}, id))
		}
		return r
	}
	return cfg
}

func TestTheAdminGuideExplains(t *testing.T) {
	key := ratelimit.ContextKey("caller", func(ctx context.Context) (string, bool) {
		id, ok := ctx.Value(callerKey{}).(string)
		return id, ok
	})
	limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{Policies: []ratelimit.Policy{{Name: "api", Key: key, Limit: ratelimit.PerHour(5)}}}))
	defer limiter.Close()
	limiter.Handler(http.NotFoundHandler())
	page := admin.Handler(limiter, func(*http.Request) (string, admin.Access) { return "ann", admin.View }, prepared(sessionStore{}))
	form := url.Values{"curl": {"curl https://shop.example/login -H 'Cookie: session=abc'"}}
	r := httptest.NewRequest("POST", "/admin/explain.json", strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	w := httptest.NewRecorder()
	if page.ServeHTTP(w, r); w.Code != 200 || !strings.Contains(w.Body.String(), `"key": "caller:5"`) {
		t.Errorf("status %d: %s", w.Code, w.Body)
	}
}
