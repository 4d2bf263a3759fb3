package admin_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/admin"
	"github.com/go-tokenbucket/ratelimit/explain"
	"github.com/go-tokenbucket/ratelimit/internal/test/ratetest"
	"github.com/go-tokenbucket/ratelimit/override"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
)

// withOverrides makes newSite set Config.Overrides.
var withOverrides = new(override.Overrides)

// A keeper keeps overrides in memory, until it fails.
type keeper struct {
	store.Values
	mu  sync.Mutex
	err error
}

func (k *keeper) WriteValue(ctx context.Context, set string, v store.Value) (store.Value, bool, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.err != nil {
		return store.Value{}, false, k.err
	}
	return k.Values.WriteValue(ctx, set, v)
}

func (k *keeper) ReadValues(ctx context.Context, set string, after store.Value) (store.ValueChanges, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.Values.ReadValues(ctx, set, after)
}

// lose forgets all values, and takes no others.
func (k *keeper) lose(t *testing.T) {
	values := ratelimit.Must(memstore.New(memstore.Config{}))
	t.Cleanup(func() { values.Close() })
	k.mu.Lock()
	defer k.mu.Unlock()
	k.Values, k.err = values, errors.New("read only")
}

// values returns what is kept.
func (k *keeper) values() []store.Value {
	changes, _ := k.ReadValues(context.Background(), "overrides", store.Value{})
	return changes.Values
}

func watchOverrides(t *testing.T, l *ratelimit.Limiter) (*keeper, *override.Overrides) {
	t.Helper()
	values := ratelimit.Must(memstore.New(memstore.Config{}))
	t.Cleanup(func() { values.Close() })
	k := &keeper{Values: values}
	s, err := override.Watch(t.Context(), l, k, override.Config{Logger: slog.New(slog.DiscardHandler)})
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
	return s.post("overrides", f, asBrowser)
}

func TestLimitsAreChangedOnThePage(t *testing.T) {
	s := newSite(t, admin.Config{Overrides: withOverrides}, ratelimit.Config{})
	s.want(s.get("", asBrowser), 200, `href="overrides"`, `href="explain"`)
	s.want(s.get("overrides", asBrowser), 200, "5/1h")

	w := s.setLimit("20/1h burst 10", "why", `sale <b>"x"</b>`)
	s.want(w, 303)
	if s.limit() != "20/1h burst 10" {
		t.Errorf("in force is %s", s.limit())
	}
	page := s.get(w.Header().Get("Location"), asBrowser)
	s.want(page, 200, "The limit is changed", "20/1h burst 10", "5/1h", "ann", "sale &lt;b&gt;")
	checkPage(t, page)
	if got, want := s.log.String(), `level=INFO msg="ratelimit: admin change" user=ann action=limit policy=api limit="20/1h burst 10" until="" was=5/1h why="sale <b>\"x\"</b>" force=false`; strings.TrimSpace(got) != want {
		t.Errorf("logged %s, want %s", got, want)
	}
	v := s.object("overrides.json")
	for want, path := range map[string][]any{"api": {"policies", 0, "policy"}, "5/1h": {"policies", 0, "program"}, "20/1h burst 10": {"policies", 0, "in_force"}, "ann": {"history", 0, "by"}} {
		if got := at(v, path...); got != want {
			t.Errorf("%v is %v, want %s", path, got, want)
		}
	}
	s.want(s.post("overrides", url.Values{"policy": {"api"}, "end": {"1"}}, asBrowser), 303)
	if s.limit() != "5/1h" || !strings.Contains(s.log.String(), "action=end") {
		t.Errorf("in force is %s: %s", s.limit(), s.log.String())
	}
	s.want(s.post("overrides", url.Values{"policy": {"api"}, "end": {"1"}}, asBrowser), 400, "nothing to end")
}

// The button of a stale page does not end a change that somebody has made since.
// The first page shows which limits are changed, and that the store has lost them while this replica enforces them.
func TestTheFirstPageShowsChangedAndLostLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, admin.Config{Overrides: withOverrides}, ratelimit.Config{})
		s.want(s.post("overrides", url.Values{"policy": {"api"}, "limit": {"6/1h"}}), 303)
		s.want(s.post("overrides", url.Values{"policy": {"api"}, "key": {"ip:192.0.2.1"}, "limit": {"7/1h"}}), 303)
		time.Sleep(time.Second)
		w := s.get("", asBrowser)
		checkPage(t, w)
		s.want(w, 200, "6 per hour", "changed from 5/1h", "1 key has its own limit", "All is well.")
		s.kept.lose(t)
		time.Sleep(3 * time.Second)
		w = s.get("", asBrowser)
		checkPage(t, w)
		s.want(w, 200, `class="headline amber"`, "2 overrides have disappeared and are not written back yet", "Do not restart replicas", "changed from 5/1h")
	})
}

func TestAStalePageEndsNoOtherChange(t *testing.T) {
	s := newSite(t, admin.Config{Overrides: withOverrides}, ratelimit.Config{})
	s.want(s.setLimit("20/1h burst 10"), 303)
	stale := regexp.MustCompile(`name="end" value="1"/><input type="hidden" name="was" value="([^"]*)"`).FindStringSubmatch(s.get("overrides", asBrowser).Body.String())
	if stale == nil {
		t.Fatal("the form that ends a change does not say which")
	}
	s.want(s.setLimit("2/1h burst 2"), 303) // during an attack
	s.want(s.post("overrides", url.Values{"policy": {"api"}, "end": {"1"}, "was": {stale[1]}}, asBrowser), 409, "somebody else was faster", "2/1h")
	if s.limit() != "2/1h burst 2" {
		t.Errorf("in force is %s", s.limit())
	}
	s.want(s.post("overrides", url.Values{"policy": {"api"}, "end": {"1"}, "was": {"x"}}, asBrowser), 400, "Was: ")
	s.want(s.post("overrides", url.Values{"policy": {"api"}, "end": {"1"}, "was": {"2/1h"}}, asBrowser), 303)
	if s.limit() != "5/1h" {
		t.Errorf("in force is %s", s.limit())
	}
}

// A link cannot make the page say that a limit or a bucket was changed, or anything else. What was done is said once, to
// the user who did it.
func TestALinkPutsNoWordsOnThePage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, admin.Config{Overrides: withOverrides}, ratelimit.Config{})
		shows := func(path string, want bool) {
			t.Helper()
			w := s.get(path, asBrowser)
			if s.want(w, 200); strings.Contains(w.Body.String(), "notice good") != want || strings.Contains(w.Body.String(), "call a number") {
				t.Errorf("%s by %s: want a notice: %t: %s", path, s.user, want, w.Body)
			}
		}
		const ofKey = "key?key=ip%3A1&policy=api&done="
		for _, link := range []string{"overrides?policy=api&done=limit", "overrides?policy=api&done=end", "overrides?policy=call+a+number&done=limit", "overrides?done=limit", ofKey + "block", ofKey + "reset", "key?key=ip%3A1&done=block"} {
			shows(link, false)
		}
		for _, change := range []func() *httptest.ResponseRecorder{
			func() *httptest.ResponseRecorder { return s.setLimit("20/1h") },
			func() *httptest.ResponseRecorder {
				return s.post("overrides", url.Values{"policy": {"api"}, "end": {"1"}}, asBrowser)
			},
			func() *httptest.ResponseRecorder {
				return s.post("key/block", form("ip:1", "for", "1m", "force", "1"), asBrowser)
			},
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
		shows("overrides?policy=api&done=limit", false)
		s.want(s.post("key/block", form("ip:1", "for", "1m", "force", "1"), asBrowser), 303)
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
	s := newSite(t, admin.Config{Overrides: withOverrides}, ratelimit.Config{})
	for name, tt := range map[string]struct {
		limit  string
		more   []string
		status int
		texts  []string
	}{
		"malformed":          {"many", nil, 400, []string{"The change was not made", `must be like &#34;60/1m&#34;`, `value="many"`}},
		"hostile":            {`"><script>alert(1)</script>`, nil, 400, []string{"&lt;script&gt;"}},
		"control characters": {"\x1b[2J\xff", nil, 400, []string{"must be like"}},
		"unlimited":          {"unlimited", nil, 422, []string{"unlimited cannot be compared", "Do it all the same"}},
		"nothing":            {"0/1h", nil, 400, []string{"block the key"}},
		"an end ago":         {"6/1h", []string{"until", "2020-01-01"}, 400, []string{"must be after now"}},
		"no end":             {"6/1h", []string{"until", "Friday"}, 400, []string{"Until: must be a time such as", `value="Friday"`}},
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
	s.want(s.get("overrides", asBrowser), 200, ">forced<", "500/1h")
	s.want(s.post("overrides", url.Values{"policy": {"api"}, "limit": {"9/1h", "8/1h"}}), 400, "more than once")

	s.kept.mu.Lock()
	s.kept.err = errors.New("the connection is lost")
	s.kept.mu.Unlock()
	s.want(s.setLimit("6/1h"), 503, "not known whether", "connection is lost")
}

// A shell gets a line of text, not a page.
func TestLimitsFromAShell(t *testing.T) {
	s := newSite(t, admin.Config{Overrides: withOverrides}, ratelimit.Config{})
	for limit, want := range map[string]string{
		"6/1h":      "Policy api: The limit is changed. All replicas follow within two seconds.\n",
		"unlimited": "The change was not made. Policy api: unlimited cannot be compared with the program's limit (5/1h): it must be forced. To force it, add force=1.\n",
		"0/1h":      "The change was not made. Policy api: the change is refused: Limit: limit \"0/1h\": must be above 0: to let no request of a key through, block the key.\n",
	} {
		w := s.post("overrides", url.Values{"policy": {"api"}, "limit": {limit}})
		if kind := w.Header().Get("Content-Type"); w.Body.String() != want || kind != "text/plain; charset=utf-8" {
			t.Errorf("%s: %s: %s", limit, kind, w.Body)
		}
	}
}

func TestLimitsAsJSON(t *testing.T) {
	s := newSite(t, admin.Config{Overrides: withOverrides}, ratelimit.Config{})
	post := func(body string) *httptest.ResponseRecorder {
		return serve(s.page, "POST", "overrides", body, asJSON, func(r *http.Request) { r.Header.Set("Content-Type", "application/json") })
	}
	s.want(post(`{"policy":"api","limit":"6/1h","was":"5/1h","why":"a test"}`), 200, `"in_force": "6/1h"`)
	s.want(post(`{"policy":"api","limit":"7/1h","was":"5/1h"}`), 409, `"error": "The change was not made`, "it is 6/1h")
	s.want(post(`{"policy":"api","limit":"600/1h"}`), 422, `"error"`)
	s.want(post(`{"policy":"api","end":"1"}`), 200, `"in_force": "5/1h"`)
}

// hostileKey is a key that a client chose.
const hostileKey = `x:"><script>alert(1)</script>` + "\u202e\r\n\x00 "

// A key gets an override on its page, and the page of limits lists it.
func TestTheLimitOfAKeyIsChangedOnThePage(t *testing.T) {
	for _, key := range []string{"ip:192.0.2.1", hostileKey} {
		s := newSite(t, admin.Config{Overrides: withOverrides}, ratelimit.Config{})
		b64 := base64.RawURLEncoding.EncodeToString([]byte(key))
		ofKey := "key?" + url.Values{"key": {key}}.Encode()
		w := s.get(ofKey, asBrowser)
		s.want(w, 200, `action="overrides"><input type="hidden" name="key_b64" value="`+b64+`"`, `name="until"`, "Set another limit")
		checkPage(t, w)

		until := time.Now().Add(48 * time.Hour).UTC().Format(time.DateOnly)
		form := url.Values{"policy": {"api"}, "key_b64": {b64}, "limit": {"20/1h"}, "until": {until}, "was": {"5/1h"}, "why": {"a <b>launch</b>"}}
		w = s.post("overrides", form, asBrowser)
		s.want(w, 303)
		w = s.get(w.Header().Get("Location"), asBrowser)
		s.want(w, 200, "The limit of the key is changed", "This key has an override: <code>20/1h</code> until <time", "set by ann", "a &lt;b&gt;launch", `value="`+until+`T00:00:00Z"`, "Change limit", "End it")
		checkPage(t, w)
		w = s.get("overrides", asBrowser)
		s.want(w, 200, "Limits of single keys", "20/1h", `name="key_b64" value="`+b64+`"`)
		checkPage(t, w)
		if log := s.log.String(); !strings.Contains(log, "action=limit-of-key") || !strings.Contains(log, "until="+until) || strings.ContainsAny(log, "\u202e\x00\r") || strings.Count(log, "\n") != 1 {
			t.Errorf("logged %q", log)
		}
		v := s.object("overrides.json")
		if at(v, "keys", 0, "key") != key || at(v, "keys", 0, "in_force") != "20/1h" || at(v, "keys", 0, "until") != until+"T00:00:00Z" || at(v, "history", 0, "key") != key || at(v, "policies", 0, "in_force") != "5/1h" {
			t.Errorf("%v", v)
		}

		// What goes too far, and what somebody else was faster with, is shown with what was typed.
		form.Set("limit", "500/1h")
		s.want(s.post("overrides", form, asBrowser), 409, "somebody else was faster", "it is 20/1h, not 5/1h")
		form.Set("was", "20/1h")
		w = s.post("overrides", form, asBrowser)
		s.want(w, 422, "is 100 times that", `value="500/1h"`, `name="force"`)
		checkPage(t, w)
		s.want(s.post("overrides", url.Values{"policy": {"api"}, "key_b64": {b64}, "end": {"1"}, "was": {"5/1h"}}, asBrowser), 409)
		s.want(s.post("overrides", url.Values{"policy": {"api"}, "key_b64": {b64}, "end": {"1"}, "was": {"20/1h"}}, asBrowser), 303)
		if keys := s.object("overrides.json")["keys"].([]any); len(keys) > 0 {
			t.Errorf("%v", keys)
		}
	}
}

// A change of a key that has no override yet, and that is not made, can be forced.
func TestAChangeOfAKeyThatIsNotMade(t *testing.T) {
	s := newSite(t, admin.Config{Overrides: withOverrides}, ratelimit.Config{})
	form := url.Values{"policy": {"api"}, "key": {"ip:192.0.2.1"}, "limit": {"unlimited"}}
	w := s.post("overrides", form, asBrowser)
	s.want(w, 422, "unlimited cannot be compared", `value="unlimited"`, `name="force"`, `name="key_b64"`)
	checkPage(t, w)
	form.Set("force", "1")
	s.want(s.post("overrides", form, asBrowser), 303)
	s.want(s.get("overrides", asBrowser), 200, ">forced<")
	for key, text := range map[string]string{"ip:": "Key: must be a kind", "\xff": "Key: must be at most", strings.Repeat("k", 1000): "Key: must be at most"} {
		form.Set("key", key)
		w := s.post("overrides", form, asBrowser)
		s.want(w, 400, text)
		checkPage(t, w)
	}
	s.access = admin.View
	if page := s.get("key?key=ip:192.0.2.1", asBrowser).Body.String(); !strings.Contains(page, "This key has an override") || strings.Contains(page, "name=\"limit\"") {
		t.Error("who may only look has a form, or does not see the limit")
	}
}

func TestManyKeysAreCutAndFound(t *testing.T) {
	s := newSite(t, admin.Config{Overrides: withOverrides}, ratelimit.Config{})
	for i := range 120 {
		text := `{"limit":"6/1h","by":"ann"}`
		if _, _, err := s.kept.WriteValue(t.Context(), "overrides", store.Value{Name: fmt.Sprintf("api member:%03d", i), Text: text}); err != nil {
			t.Fatal(err)
		}
	}
	s.want(s.setLimit("7/1h"), 303) // which looks
	page := s.get("overrides", asBrowser)
	s.want(page, 200, "20 more keys are not shown")
	if n := strings.Count(page.Body.String(), `name="key_b64"`); n != 200 { // two forms each
		t.Errorf("%d forms", n)
	}
	checkPage(t, page)
	page = s.get("overrides?search=MEMBER:11", asBrowser)
	s.want(page, 200, "member:110", `value="MEMBER:11"`)
	if n := strings.Count(page.Body.String(), `name="key_b64"`); n != 20 {
		t.Errorf("%d forms of keys that are like that", n)
	}
	s.want(s.get("overrides?search=nobody", asBrowser), 200, "contains this text")
	if keys := s.object("overrides.json?search=member:11")["keys"].([]any); len(keys) != 10 {
		t.Errorf("%d keys", len(keys))
	}
	if keys := s.object("overrides.json")["keys"].([]any); len(keys) != 120 {
		t.Errorf("%d keys", len(keys))
	}
}

// With a secret, no answer and no line has a key that an operator has not typed.
func TestKeysOfLimitsAreNotShown(t *testing.T) {
	s := newSite(t, admin.Config{Overrides: withOverrides, KeySecret: []byte("0123456789abcdef")}, ratelimit.Config{})
	const key = "ip:192.0.2.77"
	s.want(s.post("overrides", url.Values{"policy": {"api"}, "key": {key}, "limit": {"20/1h"}}, asBrowser), 200, "The limit of the key is changed")
	if _, _, err := s.kept.WriteValue(t.Context(), "overrides", store.Value{Name: "api ip:192.0.2.78", Text: `{"limit":"6000/1h"}`}); err != nil {
		t.Fatal(err)
	}
	s.want(s.setLimit("7/1h"), 303)
	id, _ := at(s.object("overrides.json"), "keys", 0, "id").(string)
	if !strings.HasPrefix(id, "hmac:") {
		t.Fatalf("the id is %q", id)
	}
	answers := map[string]*httptest.ResponseRecorder{"page": s.get("overrides", asBrowser), "JSON": s.get("overrides.json"), "search": s.get("overrides?search="+id, asBrowser),
		"key":     s.get("key?id="+id, asBrowser),
		"refused": s.post("overrides", url.Values{"policy": {"api"}, "id": {id}, "limit": {"6000/1h"}}, asBrowser),
		"end":     s.post("overrides", url.Values{"policy": {"api"}, "id": {id}, "end": {"1"}}, asBrowser)}
	for name, w := range answers {
		if body := w.Body.String(); strings.Contains(body, "192.0.2.7") || w.Code >= 400 && name != "refused" {
			t.Errorf("%s: status %d: %s", name, w.Code, body)
		}
	}
	if body := s.get("overrides?search=192.0.2", asBrowser).Body.String(); strings.Contains(body, "hmac:") && strings.Contains(body, `name="id"`) {
		t.Error("a search finds parts of keys that are not shown")
	}
	if strings.Contains(s.log.String(), "192.0.2.7") {
		t.Errorf("logged %s", s.log.String())
	}
}

// The texts of package override have keys that are cut and escaped.
func TestKeysInTextsOfLimitsAreNotShown(t *testing.T) {
	for _, key := range []string{"member:" + strings.Repeat("secret", 50), "member:" + strings.Repeat("secret", 90), `member:CORP\secret`, "member:\x1bsecret", "member:secret\xff", "member:secret:"} {
		s := newSite(t, admin.Config{Overrides: withOverrides, KeySecret: []byte("0123456789abcdef")}, ratelimit.Config{})
		post := func(more ...string) string {
			f := url.Values{"policy": {"api"}, "key_b64": {base64.RawURLEncoding.EncodeToString([]byte(key))}}
			for i := 0; i < len(more); i += 2 {
				f.Set(more[i], more[i+1])
			}
			w := s.post("overrides", f, asBrowser)
			if w.Code < 400 || !strings.Contains(w.Body.String(), "Policy api hmac:") {
				t.Errorf("%.20q: %q: status %d: %s", key, more, w.Code, w.Body)
			}
			return w.Body.String()
		}
		shown := post("limit", "6000/1h") + post("limit", "x") + post("limit", "20/1h", "was", "1/1h") + post("end", "1")
		if len(key) < 500 {
			if _, _, err := s.kept.WriteValue(t.Context(), "overrides", store.Value{Name: "api " + key, Text: `{"limit":"6000/1h"}`}); err != nil {
				t.Fatal(err)
			}
			s.want(s.setLimit("7/1h"), 303)
		}
		shown += s.get("overrides", asBrowser).Body.String() + s.get("overrides.json").Body.String() + s.log.String()
		if i := strings.Index(shown, "secret"); i >= 0 {
			t.Errorf("%.20q: %s", key, shown[max(0, i-200):i+50])
		}
	}
}

func TestWithoutLimits(t *testing.T) {
	s := newSite(t, admin.Config{}, ratelimit.Config{})
	s.want(s.get("overrides", asBrowser), 200, "admin.Config.Overrides")
	s.want(s.get("overrides.json"), 200, `"policies": []`)
	s.want(s.setLimit("6/1h"), 404, "Config.Overrides")
	if w := s.get("", asBrowser); strings.Contains(w.Body.String(), `href="overrides"`) {
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
	byTenant := ratelimit.Policy{Name: "tenant", Limit: ratelimit.PerHour(5), Key: ratelimit.ContextKey("tenant", func(ctx context.Context) (string, bool) {
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
		}, 200, "tenant:7", ""},
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
		{Name: "other", Limit: ratelimit.PerHour(5), Key: ratelimit.ContextKey("user", func(context.Context) (string, bool) { return "canary", true })},
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
		for _, key := range []string{"member:canary", "user:canary"} { // the second time, it is denied
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
