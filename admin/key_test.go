package admin_test

import (
	"context"
	"encoding/base64"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/admin"
	"github.com/go-tokenbucket/ratelimit/internal/keyname"
	"github.com/go-tokenbucket/ratelimit/observe"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
)

func TestBucketsOfAKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		second := ratelimit.Policy{Name: "second", Key: ratelimit.RemoteIP(), Limit: ratelimit.PerSecond(2).WithBurst(4)}
		tiers := ratelimit.Policy{Name: "tiers", Key: ratelimit.RemoteIP(), LimitFunc: func(*http.Request) ratelimit.Limit { return ratelimit.Every(10 * time.Second).WithBurst(30) }}
		calls := ratelimit.Policy{Name: "calls", Limit: ratelimit.PerDay(24).WithBurst(3)}
		s := newSite(t, admin.Config{Policies: []ratelimit.Policy{calls}}, ratelimit.Config{Policies: []ratelimit.Policy{api, second, tiers}})
		s.use("192.0.2.1", 1)
		ctx := context.Background()
		s.limiter.Take(ctx, calls, "ip:192.0.2.1", 3)
		s.limiter.Take(ctx, second, "ip:192.0.2.1", 3)
		s.limiter.Block(ctx, api, "ip:192.0.2.1", time.Hour, "")
		time.Sleep(250 * time.Millisecond)
		v := s.object("key.json?key=ip:192.0.2.1&policy=second")
		same(t, v, map[string]any{
			"version": 2, "key": "ip:192.0.2.1", "key_b64": nil, "id": nil, "policy": "second", "store.state": "answers",
			"buckets.0.policy": "second", "buckets.0.state": "empty", "buckets.0.tokens": 0.5, "buckets.0.burst": 4, "buckets.0.per_second": 2, "buckets.0.next_in_seconds": 0.25, "buckets.0.full_in_seconds": 1.75, "buckets.0.limit": "2/1s burst 4",
			"buckets.1.policy": "api", "buckets.1.state": "blocked", "buckets.1.blocked": true, "buckets.1.next_in_seconds": 3599.75,
			"buckets.2.policy": "tiers", "buckets.2.state": "ready", "buckets.2.limit_func": true, "buckets.2.burst": 30, "buckets.2.next_in_seconds": 0,
			"buckets.3.policy": "calls", "buckets.3.state": "empty", "buckets.3.burst": 3, "buckets.3.limit": "24/24h burst 3", "buckets.4": nil,
		})
		if tokens := at(v, "buckets", 2, "tokens").(float64); tokens < 29.0249 || tokens > 29.0251 {
			t.Errorf("%v tokens of a tier", tokens)
		}
		w := s.get("key?key=ip:192.0.2.1&policy=second", asBrowser)
		s.want(w, 200, "0.5 of 4 tokens", `read at <time datetime="2000-01-01T00:00:00Z">00:00:00</time>. If no request comes, it has a token in 0.3 s, and is full in 1.8 s.`, "Blocked", "No request is allowed for 60 min.", "29 of 30 tokens", "If no request comes, it is full in 9.8 s.", "Reset and unblock", `width="12.50"`, "6 per minute, 30 at once")
		time.Sleep(250 * time.Millisecond)
		same(t, s.object("key.json?key=ip:192.0.2.1&policy=second"), map[string]any{"buckets.0.state": "ready", "buckets.0.tokens": 1, "buckets.0.next_in_seconds": 0})
		time.Sleep(time.Hour)
		same(t, s.object("key.json?key=ip:192.0.2.1"), map[string]any{"buckets.0.state": "full", "buckets.0.blocked": false, "buckets.0.tokens": 5, "buckets.1.state": "full", "buckets.2.state": "full", "buckets.2.limit": "", "buckets.2.burst": 0})
		s.want(s.get("key?key=ip:192.0.2.1", asBrowser), 200, "5 of 5 tokens", "Never used, or refilled.", "LimitFunc chooses the limit")
	})
}

func TestABucketInDebt(t *testing.T) {
	s := newSite(t, admin.Config{}, ratelimit.Config{Policies: []ratelimit.Policy{{Name: "api", Key: ratelimit.RemoteIP(), Limit: ratelimit.Every(time.Hour).WithBurst(3), Settle: func(*http.Request, ratelimit.Response) int64 { return 10 }}}})
	s.use("192.0.2.1", 1)
	v := s.object("key.json?key=ip:192.0.2.1")
	same(t, v, map[string]any{"buckets.0.state": "debt"})
	if tokens := at(v, "buckets", 0, "tokens").(float64); tokens > -6.9 || tokens < -7 {
		t.Errorf("%v tokens", tokens)
	}
	s.want(s.get("key?key=ip:192.0.2.1", asBrowser), 200, "−7 of 3 tokens", "If no request comes, it has a token in 8 h, and is full in 10 h.", `width="0.00"`, `aria-valuenow="0"`)
}

// shared is a store of several replicas.
type shared struct{ *memstore.Store }

func (shared) Stats() store.Stats { return store.Stats{} } // not those of a memory store, which no other process has

// The page says what the requests of a key did on all replicas that list it, and never what the bucket will hold.
func TestWhatAKeyDidLately(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := ratelimit.Must(memstore.New(memstore.Config{}))
		defer m.Close()
		limits := ratelimit.Config{Store: shared{m}}
		a, b := newSite(t, admin.Config{}, limits), newSite(t, admin.Config{}, limits)
		a.use("192.0.2.1", 4)
		b.use("192.0.2.1", 4) // 1 is allowed
		b.use("192.0.2.2", 1)
		const page = "key?key=ip:192.0.2.1&policy=api"
		a.want(a.get(page, asBrowser), 200, "Its first requests came just now.") // no step is over
		time.Sleep(15 * time.Second)
		w := a.get(page, asBrowser)
		checkPage(t, w)
		a.want(w, 200, `In 60 s until <time datetime="2000-01-01T00:00:10Z">00:00:10</time>: <strong>8</strong> requests, <strong class="bad">3</strong> denied (38 %), on 2 of 2 replicas.`, `aria-label="8 requests in`)
		a.want(a.get("key?key=ip:192.0.2.2", asBrowser), 200, "<strong>1</strong> requests", "on 1 of 2 replicas.")
		a.want(a.get("key?key=ip:192.0.2.3", asBrowser), 200, "Not among the busiest keys of any replica.")
		same(t, a.object("key.json?key=ip:192.0.2.3"), map[string]any{"buckets.0.lately": nil})
		same(t, b.object("key.json?key=ip:192.0.2.1"), map[string]any{"buckets.0.lately.requests": 8, "buckets.0.lately.denied": 3, "buckets.0.lately.for_seconds": 60, "buckets.0.lately.replicas": 2})
		time.Sleep(time.Minute)
		same(t, a.object("key.json?key=ip:192.0.2.1"), map[string]any{"buckets.0.lately.requests": 0})
		// A kind, or a block, that another replica has met is known here.
		a.want(a.post("key/block", form("ip:192.0.2.2", "for", "1h")), 303)
		time.Sleep(4 * time.Second)
		same(t, b.object("blocks.json"), map[string]any{"blocks.0.key": "ip:192.0.2.2", "blocks.0.reason": "ann"})
	})
	alone := ratelimit.Must(ratelimit.New(ratelimit.Config{Policies: []ratelimit.Policy{api}}))
	w := serve(admin.Handler(alone, func(*http.Request) (string, admin.Access) { return "", admin.View }, admin.Config{}), "GET", "key?key=ip:192.0.2.1", "", asBrowser)
	if !strings.Contains(w.Body.String(), "Requests of single keys are not counted: set admin.Config.Top.") {
		t.Errorf("without a Top: %s", w.Body)
	}
}

// Each key can be named, whatever its bytes, and only one at a time.
func TestKeysOfARequest(t *testing.T) {
	s := newSite(t, admin.Config{}, ratelimit.Config{})
	raw := "\xff\x00é/+"
	b64 := base64.RawURLEncoding.EncodeToString([]byte(raw))
	long := strings.Repeat("x", 4096)
	for name, tt := range map[string]struct {
		query  string
		status int
		want   string
	}{
		"as it is":                      {"key=" + url.QueryEscape(raw), 200, `"key_b64": "` + b64 + `"`},
		"in base64":                     {"key_b64=" + b64, 200, `"key": "\ufffd\u0000\u00e9/+"`},
		"padded":                        {"key_b64=" + base64.URLEncoding.EncodeToString([]byte("ab")), 200, `"key": "ab"`},
		"the longest":                   {"key=" + long, 200, long},
		"too long":                      {"key=" + long + "x", 400, "The key has 4097 bytes. Keys here have at most 4096."},
		"much too long":                 {"key=" + strings.Repeat("x", 10<<10), 400, "The key has 10240 bytes"},
		"beyond all bounds":             {"key=" + strings.Repeat("x", 1<<20), 414, "16384 bytes"},
		"too long in base64":            {"key_b64=" + strings.Repeat("AAAA", 2000), 400, "The key has 6000 bytes"},
		"none":                          {"", 400, "Name one key"},
		"empty":                         {"key=", 400, "Name one key"},
		"two":                           {"key=a&key=b", 400, "key is given more than once"},
		"two ways":                      {"key=a&key_b64=YQ", 400, "Name one key"},
		"no base64":                     {"key_b64=%21", 400, "not base64url"},
		"malformed base64":              {"key_b64=YR", 400, "not base64url"}, // bits that are not used
		"malformed":                     {"key=%zz", 400, "malformed"},
		"a semicolon":                   {"key=a;key=b", 400, "malformed"},
		"unknown policy":                {"key=a&policy=apj", 400, `no policy \"apj\"`},
		"a parameter that is not there": {"key=a&polcy=api", 400, "no parameter"},
		"an unknown id":                 {"id=hmac:0123456789abcdef", 404, "not in the lists"},
	} {
		w := s.get("key.json?" + tt.query)
		if w.Code != tt.status || !strings.Contains(w.Body.String(), tt.want) {
			t.Errorf("%s: status %d, want %d and %q: %.300s", name, w.Code, tt.status, tt.want, w.Body)
		}
		for i, b := range w.Body.Bytes() {
			if b >= 0x7f || b < ' ' && b != '\n' {
				t.Errorf("%s: byte %d is %#x, which a terminal may obey", name, i, b)
				break
			}
		}
	}
	s.want(s.get("key?key=+a", asBrowser), 200, "begins or ends with a space")
}

// Where keys are not shown, no answer and no line of the log has one, and a key of a list can be changed all the same.
func TestKeysThatAreNotShown(t *testing.T) {
	for name, cfg := range map[string]observe.TopConfig{"a Top with the secret": {KeySecret: []byte("0123456789abcdef")}, "a Top without": {}} {
		t.Run(name, func(t *testing.T) {
			top, secret := ratelimit.Must(observe.NewTop(cfg)), []byte("0123456789abcdef")
			s := newSite(t, admin.Config{}, ratelimit.Config{})
			s.limiter = ratelimit.Must(ratelimit.New(ratelimit.Config{Policies: []ratelimit.Policy{api}, Observe: top.Observe}))
			defer s.limiter.Close()
			var log strings.Builder
			s.page = http.StripPrefix("/admin", admin.Handler(s.limiter, func(*http.Request) (string, admin.Access) { return "ann", admin.Change }, admin.Config{Top: top, KeySecret: secret, Logger: textLogger(&log)}))
			s.use("198.51.100.7", 7)
			id := keyname.Secret(secret, "ip:198.51.100.7")
			clear(secret) // the caller's
			s.want(s.get("", asBrowser), 200, `href="key?id=`+url.QueryEscape(id)+`&amp;policy=api"`, `method="post"`)
			w := s.get("key?policy=api&id="+id, asBrowser)
			checkPage(t, w)
			s.want(w, 200, "Key <code>"+id, "0 of 5 tokens", `name="id"`)
			moved := s.post("key/reset", url.Values{"policy": {"api"}, "id": {id}})
			s.want(moved, 303)
			if n := s.remaining("ip:198.51.100.7"); n != 5 {
				t.Errorf("%d tokens after Reset", n)
			}
			answers := []string{log.String(), moved.Header().Get("Location"), moved.Body.String()}
			for _, path := range []string{"", "facts.json", "top.json", "top?policy=api", "key?policy=api&id=" + id, "key.json?id=" + id} {
				w := s.get(path)
				s.want(w, 200, id)
				answers = append(answers, w.Body.String())
			}
			for _, a := range answers {
				if strings.Contains(a, "198.51.100.7") || strings.Contains(a, base64.RawURLEncoding.EncodeToString([]byte("ip:198.51.100.7"))) {
					t.Errorf("the key is shown in %s", a)
				}
			}
			s.limiter.Take(context.Background(), api, strings.Repeat("long", 100), 1)
			if page := s.get("top?policy=api").Body.String(); strings.Contains(page, "sha256:") || strings.Count(page, "hmac:") < 2 {
				t.Errorf("a long key is shown by a hash that anybody can compute, or not at all: %s", page)
			}
			// Who names the key in a form sees its page, without an address that has the key.
			s.want(s.post("key", url.Values{"key": {"ip:198.51.100.7"}}, asBrowser), 200, id, `name="key_b64"`)
			s.want(s.post("key/reset", form("ip:198.51.100.7"), asBrowser), 200, "Policy api: The bucket is full")
			if !strings.Contains(log.String(), "key="+id) {
				t.Errorf("log: %s", log.String())
			}
		})
	}
}
