package admin_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/admin"
	"github.com/go-tokenbucket/ratelimit/explain"
	"github.com/go-tokenbucket/ratelimit/internal/test/ratetest"
	"github.com/go-tokenbucket/ratelimit/limits"
)

// withLimits makes newSite set Config.Limits.
var withLimits = new(limits.Limits)

// A keeper keeps changed limits in memory.
type keeper struct {
	mu   sync.Mutex
	held map[string]string
	err  error
}

func (k *keeper) LoadLimits(context.Context) (map[string]string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return maps.Clone(k.held), k.err
}

func (k *keeper) SwapLimit(_ context.Context, policy, was, now, entry string) (string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.err != nil || k.held[policy] != was {
		return k.held[policy], k.err
	}
	at := strconv.FormatInt(time.Now().UnixMicro(), 10)
	n, _ := strconv.Atoi(k.held["#n"])
	k.held["#n"], k.held["#"+strconv.Itoa(n)] = strconv.Itoa(n+1), at+" "+entry
	if delete(k.held, policy); now != "" {
		k.held[policy] = at + " " + now
	}
	return k.held[policy], nil
}

func (k *keeper) values() map[string]string {
	held, _ := k.LoadLimits(context.Background())
	return held
}

func watchLimits(t *testing.T, l *ratelimit.Limiter) (*keeper, *limits.Limits) {
	t.Helper()
	k := &keeper{held: make(map[string]string)}
	s, err := limits.Watch(t.Context(), l, k, limits.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return k, s
}

// limit returns the limit of api that is in force.
func (s *site) limit() string { return s.limiter.Policies()[0].Limit.String() }

// setLimit posts the form that changes the limit of api.
func (s *site) setLimit(limit string, more ...string) *httptest.ResponseRecorder {
	f := url.Values{"policy": {"api"}, "limit": {limit}, "was": {s.limit()}}
	for i := 0; i < len(more); i += 2 {
		f.Set(more[i], more[i+1])
	}
	return s.post("limits", f, asBrowser)
}

func TestLimitsAreChangedOnThePage(t *testing.T) {
	s := newSite(t, admin.Config{Limits: withLimits}, ratelimit.Config{})
	s.want(s.get("", asBrowser), 200, `href="limits"`, `href="explain"`)
	s.want(s.get("limits", asBrowser), 200, "5/1h")

	w := s.setLimit("20/1h burst 10", "why", `sale <b>"x"</b>`)
	s.want(w, 303)
	if s.limit() != "20/1h burst 10" {
		t.Errorf("in force is %s", s.limit())
	}
	page := s.get(w.Header().Get("Location"), asBrowser)
	s.want(page, 200, "the limit is changed", "20/1h burst 10", "5/1h", "ann", "sale &lt;b&gt;")
	checkPage(t, page)
	if got, want := s.log.String(), `level=INFO msg="ratelimit: admin change" user=ann action=limit policy=api limit="20/1h burst 10" was=5/1h why="sale <b>\"x\"</b>" force=false`; strings.TrimSpace(got) != want {
		t.Errorf("logged %s, want %s", got, want)
	}
	v := s.object("limits.json")
	for want, path := range map[string][]any{"api": {"limits", 0, "policy"}, "5/1h": {"limits", 0, "program"}, "20/1h burst 10": {"limits", 0, "in_force"}, "ann": {"history", 0, "by"}} {
		if got := at(v, path...); got != want {
			t.Errorf("%v is %v, want %s", path, got, want)
		}
	}
	s.want(s.post("limits", url.Values{"policy": {"api"}, "end": {"1"}}, asBrowser), 303)
	if s.limit() != "5/1h" || !strings.Contains(s.log.String(), "action=end") {
		t.Errorf("in force is %s: %s", s.limit(), s.log.String())
	}
	s.want(s.post("limits", url.Values{"policy": {"api"}, "end": {"1"}}, asBrowser), 400, "nothing to end")
}

// The button of a stale page does not end a change that somebody has made since.
func TestAStalePageEndsNoOtherChange(t *testing.T) {
	s := newSite(t, admin.Config{Limits: withLimits}, ratelimit.Config{})
	s.want(s.setLimit("20/1h burst 10"), 303)
	stale := regexp.MustCompile(`name="end" value="1"/><input type="hidden" name="was" value="([^"]*)"`).FindStringSubmatch(s.get("limits", asBrowser).Body.String())
	if stale == nil {
		t.Fatal("the form that ends a change does not say which")
	}
	s.want(s.setLimit("2/1h burst 2"), 303) // during an attack
	s.want(s.post("limits", url.Values{"policy": {"api"}, "end": {"1"}, "was": {stale[1]}}, asBrowser), 409, "somebody else was faster", "2/1h")
	if s.limit() != "2/1h burst 2" {
		t.Errorf("in force is %s", s.limit())
	}
	s.want(s.post("limits", url.Values{"policy": {"api"}, "end": {"1"}, "was": {"x"}}, asBrowser), 400, "limit before")
	s.want(s.post("limits", url.Values{"policy": {"api"}, "end": {"1"}, "was": {"2/1h"}}, asBrowser), 303)
	if s.limit() != "5/1h" {
		t.Errorf("in force is %s", s.limit())
	}
}

// A link cannot make the page say that a limit or a bucket was changed, or anything else. What was done is said once, to
// the user who did it.
func TestALinkPutsNoWordsOnThePage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, admin.Config{Limits: withLimits}, ratelimit.Config{})
		shows := func(path string, want bool) {
			t.Helper()
			w := s.get(path, asBrowser)
			if s.want(w, 200); strings.Contains(w.Body.String(), "notice good") != want || strings.Contains(w.Body.String(), "call a number") {
				t.Errorf("%s by %s: want a notice: %t: %s", path, s.user, want, w.Body)
			}
		}
		const ofKey = "key?key=ip%3A1&policy=api&done="
		for _, link := range []string{"limits?policy=api&done=limit", "limits?policy=api&done=end", "limits?policy=call+a+number&done=limit", "limits?done=limit", ofKey + "block", ofKey + "reset", "key?key=ip%3A1&done=block"} {
			shows(link, false)
		}
		for _, change := range []func() *httptest.ResponseRecorder{
			func() *httptest.ResponseRecorder { return s.setLimit("20/1h") },
			func() *httptest.ResponseRecorder {
				return s.post("limits", url.Values{"policy": {"api"}, "end": {"1"}}, asBrowser)
			},
			func() *httptest.ResponseRecorder { return s.post("key/block", form("ip:1", "for", "1m"), asBrowser) },
		} {
			address := strings.TrimPrefix(change().Header().Get("Location"), "../")
			s.user = "bob"
			shows(address, false)
			s.user = "ann"
			shows(strings.Replace(address, "ip%3A1", "ip%3A2", 1), !strings.Contains(address, "ip%3A1"))
			shows(address, strings.Contains(address, "ip%3A1"))
			shows(address, false)
		}
		s.want(s.setLimit("20/1h"), 303)
		time.Sleep(time.Minute)
		shows("limits?policy=api&done=limit", false)
		s.want(s.post("key/block", form("ip:1", "for", "1m"), asBrowser), 303)
		for range 70 { // the oldest, which is the block, is forgotten
			s.want(s.post("key/reset", form("ip:1")), 303)
		}
		shows(ofKey+"block", false)
		shows(ofKey+"reset", true)
		shows(ofKey+"reset", false)
	})
}

// A change that is not made is shown with the reason, and what was typed stays.
func TestLimitsThatAreRefused(t *testing.T) {
	s := newSite(t, admin.Config{Limits: withLimits}, ratelimit.Config{})
	for name, tt := range map[string]struct {
		limit  string
		more   []string
		status int
		texts  []string
	}{
		"malformed":          {"many", nil, 400, []string{"The change was not made", `must be like &#34;60/1m&#34;`, `value="many"`}},
		"hostile":            {`"><script>alert(1)</script>`, nil, 400, []string{"&lt;script&gt;"}},
		"control characters": {"\x1b[2J\xff", nil, 400, []string{"must be like"}},
		"unlimited":          {"unlimited", nil, 400, []string{"unlimited"}},
		"too high":           {"500/1h", []string{"why", "a test"}, 422, []string{"is 100 times that of the program&#39;s 5/1h", `value="500/1h"`, `value="a test"`, "Do it all the same", `name="force"`}},
		"of another state":   {"6/1h", []string{"was", "7/1h"}, 409, []string{"somebody else was faster", "it is 5/1h, not 7/1h", `value="6/1h"`, `name="was" value="5/1h"`}},
		"unknown policy":     {"6/1h", []string{"policy", "apy"}, 400, []string{"no policy of this name"}},
		"a word for force":   {"6/1h", []string{"force", "yes"}, 400, []string{"force must be 1"}},
	} {
		t.Run(name, func(t *testing.T) {
			s.log.Reset()
			w := s.setLimit(tt.limit, tt.more...)
			s.want(w, tt.status, tt.texts...)
			checkPage(t, w)
			if s.limit() != "5/1h" {
				t.Errorf("in force is %s", s.limit())
			}
			if log := s.log.String(); tt.status != 400 && (!strings.Contains(log, "admin change failed") || !strings.Contains(log, "error=")) || strings.Contains(log, "\x1b") {
				t.Errorf("logged %s", log)
			}
		})
	}
	s.want(s.setLimit("500/1h", "force", "1"), 303)
	s.want(s.get("limits", asBrowser), 200, ">forced<", "500/1h")
	s.want(s.post("limits", url.Values{"policy": {"api"}, "limit": {"9/1h", "8/1h"}}), 400, "more than once")

	s.kept.mu.Lock()
	s.kept.err = errors.New("the connection is lost")
	s.kept.mu.Unlock()
	s.want(s.setLimit("6/1h"), 503, "not known whether", "connection is lost")
}

func TestLimitsAsJSON(t *testing.T) {
	s := newSite(t, admin.Config{Limits: withLimits}, ratelimit.Config{})
	post := func(body string) *httptest.ResponseRecorder {
		return serve(s.page, "POST", "limits", body, asJSON, func(r *http.Request) { r.Header.Set("Content-Type", "application/json") })
	}
	s.want(post(`{"policy":"api","limit":"6/1h","was":"5/1h","why":"a test"}`), 200, `"in_force": "6/1h"`)
	s.want(post(`{"policy":"api","limit":"7/1h","was":"5/1h"}`), 409, `"error": "The change was not made`, "it is 6/1h")
	s.want(post(`{"policy":"api","limit":"600/1h"}`), 422, `"error"`)
	s.want(post(`{"policy":"api","end":"1"}`), 200, `"in_force": "5/1h"`)
}

func TestWithoutLimits(t *testing.T) {
	s := newSite(t, admin.Config{}, ratelimit.Config{})
	s.want(s.get("limits", asBrowser), 200, "admin.Config.Limits")
	s.want(s.get("limits.json"), 200, `"limits": []`)
	s.want(s.setLimit("6/1h"), 404, "Config.Limits")
	if w := s.get("", asBrowser); strings.Contains(w.Body.String(), `href="limits"`) {
		t.Error("the first page leads to limits")
	}
}

// An explanation takes no token, and its form keeps what was typed.
func TestExplainForm(t *testing.T) {
	s := newSite(t, admin.Config{}, ratelimit.Config{})
	s.limiter.Handler(ratetest.OK)
	s.want(s.get("explain", asBrowser, func(r *http.Request) { r.RemoteAddr = "198.51.100.7:99" }), 200, `value="198.51.100.7"`)
	w := s.post("explain", url.Values{"method": {"PUT"}, "url": {"/members?page=2"}, "headers": {"X-A: <b>\r\nX-B: c"}, "peer": {"192.0.2.1"}}, asBrowser)
	s.want(w, 200, `value="PUT"`, `value="/members?page=2"`, "X-A: &lt;b&gt;", `value="192.0.2.1"`, `id="explanation"`, "<code>/members</code>")
	checkPage(t, w)
	if s.remaining("ip:192.0.2.1") != 5 {
		t.Error("a token was taken")
	}

	w = s.post("explain", url.Values{"curl": {"curl 'https://api.example/login' \\\n -H 'cookie: a=b' --data-raw 'x=y' --frobnicate"}, "url": {"/old"}}, asBrowser)
	s.want(w, 200, `value="POST"`, `value="https://api.example/login"`, "Cookie: a=b", "--frobnicate", "<code>api.example</code>")
	checkPage(t, w)
	v := s.post("explain.json", url.Values{"curl": {"curl https://api.example/login --frobnicate"}})
	s.want(v, 200, `"path": "/login"`, `"host": "api.example"`, "--frobnicate")

	for name, tt := range map[string]struct {
		form url.Values
		text string
	}{
		"no address":   {url.Values{"method": {"GET"}}, "must be like"},
		"method":       {url.Values{"url": {"/"}, "method": {"G T"}}, "The method must be"},
		"header":       {url.Values{"url": {"/"}, "headers": {"A: b\nX"}}, "Headers: line 2"},
		"peer":         {url.Values{"url": {"/"}, "peer": {"x"}}, "The peer must be"},
		"curl":         {url.Values{"curl": {"fetch('x') <b>"}}, "must begin with curl"},
		"cmd":          {url.Values{"curl": {`curl ^"https://a.example^"`}}, "Copy as cURL (bash)"},
		"odd":          {url.Values{"curl": {"curl \x1b\xff\x00 'x"}}, "is not closed: paste the whole command"},
		"twice":        {url.Values{"url": {"/", "/a"}}, "more than once"},
		"no parameter": {url.Values{"uri": {"/"}}, "no parameter"},
	} {
		t.Run(name, func(t *testing.T) {
			w := s.post("explain", tt.form, asBrowser)
			s.want(w, 400, tt.text)
			checkPage(t, w)
			s.want(s.post("explain.json", tt.form), 400, tt.text)
		})
	}
	for _, wrong := range []url.Values{ // errors quote no credential
		{"curl": {"curl 'https://ann:canary x@api.example/'"}},
		{"curl": {"curl https://ann:canary@api.example:port/"}},
		{"curl": {"curl -H Authorization: Bearer canary https://api.example/"}},
		{"curl": {"curl https://api.example/ --frob canary"}},
		{"url": {"https://ann:canary@api.example:port/"}},
		{"url": {"/"}, "headers": {"Authorization Bearer canary"}},
	} {
		if w := s.post("explain.json", wrong); w.Code != 400 || strings.Contains(w.Body.String(), "canary") {
			t.Errorf("%v: %d %s", wrong, w.Code, w.Body)
		}
	}
	s.want(s.post("explain", url.Values{"url": {"/"}, "headers": {"Cookie: " + strings.Repeat("c", 60<<10)}}), 200)
	s.want(s.post("explain", url.Values{"url": {"/"}, "headers": {"Cookie: " + strings.Repeat("c", 70<<10)}}), 413)
	s.want(s.post("key", form(strings.Repeat("c", 20<<10))), 413)
}

type tenant struct{}

// Prepare adds what an authentication would, and the operator's own context is not that of the request.
func TestExplainPrepares(t *testing.T) {
	byTenant := ratelimit.Policy{Name: "tenant", Limit: ratelimit.PerHour(5), Key: ratelimit.ContextKey(func(ctx context.Context) (string, bool) {
		id, ok := ctx.Value(tenant{}).(string)
		return id, ok
	})}
	for name, tt := range map[string]struct {
		prepare func(*http.Request) *http.Request
		status  int
		key     string
		fault   string // of the program
	}{
		"none": {nil, 200, "", ""},
		"sets": {func(r *http.Request) *http.Request {
			return r.WithContext(context.WithValue(r.Context(), tenant{}, "7"))
		}, 200, "context:7", ""},
		"nil":    {func(*http.Request) *http.Request { return nil }, 500, "", "panicked"},
		"panics": {func(*http.Request) *http.Request { panic("internal matter") }, 500, "", "panicked"},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			p := byTenant
			p.Key = func(r *http.Request) (string, error) {
				key, err := byTenant.Key(r)
				got = append(got, key)
				return key, err
			}
			s := newSite(t, admin.Config{Prepare: tt.prepare}, ratelimit.Config{Policies: []ratelimit.Policy{p}})
			s.limiter.Handler(ratetest.OK)
			s.want(s.post("explain", url.Values{"url": {"/"}}, func(r *http.Request) {
				*r = *r.WithContext(context.WithValue(r.Context(), tenant{}, "operator"))
			}), tt.status)
			for _, key := range got {
				if key != tt.key {
					t.Errorf("the key is %q, want %q", key, tt.key)
				}
			}
			if tt.fault == "" {
				return
			}
			if logged := s.log.String(); strings.Count(logged, "\n") != 1 || !strings.Contains(logged, "level=ERROR") || !strings.Contains(logged, tt.fault) {
				t.Errorf("logged %q", logged)
			}
			page := s.post("explain", url.Values{"url": {"/typed"}}, asBrowser)
			s.want(page, 500, tt.fault, "/typed")
			checkPage(t, page)
			answer := s.post("explain.json", url.Values{"url": {"/"}})
			s.want(answer, 500, `"error": "The request cannot be explained, `, tt.fault)
			if strings.Contains(page.Body.String()+answer.Body.String(), "internal matter") {
				t.Errorf("the answer has the text of the panic: %s", page.Body)
			}
		})
	}
}

// Under a KeySecret, an explanation has no key, except in what the operator has typed.
func TestExplainHidesKeys(t *testing.T) {
	member := func(*http.Request) (string, error) { return "member:canary", nil }
	s := newSite(t, admin.Config{KeySecret: []byte("a secret of 16 bytes")}, ratelimit.Config{Policies: []ratelimit.Policy{
		{Name: "api", Limit: ratelimit.PerHour(5), Key: ratelimit.FirstOf(ratelimit.Header("X-Key"), member)},
		{Name: "join", Limit: ratelimit.PerHour(5), Key: ratelimit.Join(member, ratelimit.RemoteIP()), Shadow: true},
		{Name: "other", Limit: ratelimit.PerHour(5), Key: ratelimit.ContextKey(func(context.Context) (string, bool) { return "canary", true })},
	}})
	s.limiter.Handler(ratetest.OK)
	for range 2 {
		for _, path := range []string{"explain", "explain.json"} {
			w := s.post(path, url.Values{"url": {"/"}, "peer": {"198.51.100.5"}}, asBrowser)
			s.want(w, 200, "hmac:")
			if body := w.Body.String(); strings.Contains(body, "canary") || strings.Contains(body, "ip:198.51.100.5") || strings.Contains(body, `key?`) {
				t.Errorf("%s shows a key: %s", path, body)
			}
		}
		for _, key := range []string{"member:canary", "context:canary"} { // the second time, it is denied
			s.limiter.Take(t.Context(), api, key, 5)
		}
	}
}

// What Config.Prepare and functions of the program find is not typed by the operator, wherever the explanation has it.
func TestExplainHidesKeysInTexts(t *testing.T) {
	type session struct{}
	found := netip.MustParseAddr("192.0.2.77")
	client := ratelimit.Policy{Name: "client", Limit: ratelimit.PerHour(5), Key: ratelimit.ClientIP(ratelimit.IPConfig{Context: func(ctx context.Context) netip.Addr {
		addr, _ := ctx.Value(session{}).(netip.Addr)
		return addr
	}})}
	long := func(*http.Request) (string, error) { return "member:\x01" + strings.Repeat("k", 300), nil }
	s := newSite(t, admin.Config{
		KeySecret: []byte("a secret of 16 bytes"),
		Prepare: func(r *http.Request) *http.Request {
			return r.WithContext(context.WithValue(r.Context(), session{}, found))
		},
	}, ratelimit.Config{
		Policies: []ratelimit.Policy{client, {Name: "long", Limit: ratelimit.PerHour(5), Key: long}},
		Headers:  func(h http.Header, d *ratelimit.Decision) { h.Set("X-Client", "you are "+d.Results[0].Key) },
	})
	s.limiter.Handler(ratetest.OK)
	s.limiter.Take(t.Context(), client, "ip:192.0.2.77", 5)
	for _, path := range []string{"explain", "explain.json"} {
		w := s.post(path, url.Values{"url": {"/"}, "headers": {"X-Forwarded-For: 198.51.100.9"}, "peer": {"203.0.113.5"}})
		s.want(w, 200, "you are hmac:", "IPConfig.Context has returned hmac:")
		if strings.Contains(w.Body.String(), "192.0.2.77") {
			t.Errorf("%s shows a key: %s", path, w.Body)
		}
	}
	var e explain.Explanation
	if err := json.Unmarshal(s.post("explain.json", url.Values{"url": {"/"}}).Body.Bytes(), &e); err != nil {
		t.Fatal(err)
	}
	if p := e.Limiters[0].Policies[1]; p.Key != p.Found.Key {
		t.Errorf("one key is shown as %s and %s", p.Key, p.Found.Key)
	}
	w := s.post("explain.json", url.Values{"url": {"/"}, "peer": {"192.0.2.77"}}) // typed
	s.want(w, 200, "IPConfig.Context has returned 192.0.2.77")
}
