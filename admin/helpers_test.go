package admin_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"strings"
	"testing"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/admin"
	"github.com/go-tokenbucket/ratelimit/internal/test/ratetest"
	"github.com/go-tokenbucket/ratelimit/observe"
)

// A site is a Limiter with its page.
type site struct {
	*testing.T
	limiter *ratelimit.Limiter
	counts  *observe.Counts
	top     *observe.Top
	page    http.Handler
	log     bytes.Buffer
	user    string
	access  admin.Access
	kept    *keeper // of Config.Overrides
}

var api = ratelimit.Policy{Name: "api", Key: ratelimit.RemoteIP(), Limit: ratelimit.PerHour(5)}

// newSite returns a site whose users may change everything, with policies that limit a request, by default api.
func newSite(t *testing.T, cfg admin.Config, limits ratelimit.Config) *site {
	t.Helper()
	s := &site{T: t, counts: observe.NewCounts(observe.CountsConfig{History: true}), top: ratelimit.Must(observe.NewTop(observe.TopConfig{})), user: "ann", access: admin.Change}
	if limits.Policies == nil {
		limits.Policies = []ratelimit.Policy{api}
	}
	limits.Observe = observe.Join(s.counts.Observe, s.top.Observe)
	limits.Logger = slog.New(slog.DiscardHandler)
	s.limiter = ratetest.NewLimiter(t, limits)
	if cfg.Overrides == withOverrides {
		s.kept, cfg.Overrides = watchOverrides(t, s.limiter)
	}
	cfg.Counts, cfg.Top = s.counts, s.top
	cfg.Logger = slog.New(slog.NewTextHandler(&s.log, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
	s.page = http.StripPrefix("/admin", admin.Handler(s.limiter, func(*http.Request) (string, admin.Access) { return s.user, s.access }, cfg))
	t.Cleanup(func() { runtime.KeepAlive(s) }) // a page publishes until it is garbage-collected
	return s
}

// use sends n requests of a client through the Limiter.
func (s *site) use(addr string, n int) {
	for range n {
		ratetest.Get(s.limiter.Handler(ratetest.OK), ratetest.From(addr))
	}
}

// take takes tokens from a bucket of api.
func (s *site) take(key string, n int64) {
	s.Helper()
	if r, err := s.limiter.Take(context.Background(), api, key, n); err != nil || !r.Allowed {
		s.Fatalf("Take %d: %+v, %v", n, r, err)
	}
}

// get answers a GET of a path under /admin/.
func (s *site) get(path string, change ...func(*http.Request)) *httptest.ResponseRecorder {
	return serve(s.page, "GET", path, "", change...)
}

// post answers a POST of a form.
func (s *site) post(path string, form url.Values, change ...func(*http.Request)) *httptest.ResponseRecorder {
	return serve(s.page, "POST", path, form.Encode(), change...)
}

func serve(h http.Handler, method, path, body string, change ...func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "http://ops.example/admin/"+path, strings.NewReader(body))
	if body != "" {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for _, c := range change {
		c(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

var (
	asBrowser = ratetest.With("Accept", "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8")
	asJSON    = ratetest.With("Accept", "application/json")
)

// form returns a form for a bucket of api.
func form(key string, more ...string) url.Values {
	f := url.Values{"policy": {"api"}, "key": {key}}
	for i := 0; i < len(more); i += 2 {
		f.Set(more[i], more[i+1])
	}
	return f
}

// want checks the status of an answer, and that its body has the texts.
func (s *site) want(w *httptest.ResponseRecorder, status int, texts ...string) {
	s.Helper()
	if w.Code != status {
		s.Errorf("status %d, want %d: %.300s", w.Code, status, w.Body)
	}
	for _, text := range texts {
		if !strings.Contains(w.Body.String(), text) {
			s.Errorf("no %q in the answer: %.600s", text, w.Body)
		}
	}
}

// object returns a JSON object of the page.
func (s *site) object(path string) map[string]any {
	s.Helper()
	w := s.get(path)
	var v map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &v); err != nil || w.Code != 200 {
		s.Fatalf("%s: status %d, %v: %.300s", path, w.Code, err, w.Body)
	}
	return v
}

// at returns a part of a JSON value by its names and indices.
func at(v any, path ...any) any {
	for _, p := range path {
		switch p := p.(type) {
		case string:
			object, _ := v.(map[string]any)
			v = object[p]
		case int:
			list, _ := v.([]any)
			if p >= len(list) {
				return nil
			}
			v = list[p]
		}
	}
	return v
}

// remaining returns how many tokens a key has under api.
func (s *site) remaining(key string) int64 {
	s.Helper()
	r, err := s.limiter.Peek(context.Background(), ratelimit.Policy{Name: "api", Limit: api.Limit}, key)
	if err != nil {
		s.Fatal(err)
	}
	return r.Remaining
}
