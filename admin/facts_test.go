package admin_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/admin"
	"github.com/go-tokenbucket/ratelimit/observe"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/fallback"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
)

// A fakeStore is one with the given Stats, which fails or hangs if it should.
type fakeStore struct {
	store.Store
	mu       sync.Mutex // guards what follows
	stats    store.Stats
	err      error
	hangs    bool
	degraded bool
}

func newFake(t *testing.T) *fakeStore {
	m := ratelimit.Must(memstore.New(memstore.Config{}))
	t.Cleanup(func() { m.Close() })
	return &fakeStore{Store: m}
}

func (f *fakeStore) Stats() store.Stats {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.stats
	if s.Redis != nil {
		redis := *s.Redis
		redis.Errors = maps.Clone(redis.Errors)
		s.Redis = &redis
	}
	return s
}

// breaks makes all calls fail, or none.
func (f *fakeStore) breaks(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

func (f *fakeStore) fails(ctx context.Context) error {
	f.mu.Lock()
	hangs, err := f.hangs, f.err
	f.mu.Unlock()
	if hangs {
		<-ctx.Done()
		return ctx.Err()
	}
	return err
}

func (f *fakeStore) Take(ctx context.Context, charges []store.Charge, states []store.State) (bool, error) {
	if err := f.fails(ctx); err != nil {
		return false, err
	}
	ok, err := f.Store.Take(ctx, charges, states)
	for i := range states {
		states[i].Degraded = f.degraded
	}
	return ok, err
}

func (f *fakeStore) Block(ctx context.Context, policy, key string, b store.Block) (bool, error) {
	if err := f.fails(ctx); err != nil {
		return false, err
	}
	_, err := store.SetBlock(ctx, f.Store, policy, key, b)
	return f.degraded, err
}

func (f *fakeStore) Inspect(ctx context.Context, policy, key string) (store.Bucket, error) {
	if err := f.fails(ctx); err != nil {
		return store.Bucket{}, err
	}
	b, err := store.Inspect(ctx, f.Store, policy, key)
	b.Degraded = f.degraded
	return b, err
}

// same compares values of JSON, by their paths.
func same(t *testing.T, v any, want map[string]any) {
	t.Helper()
	for path, w := range want {
		var names []any
		for _, name := range strings.Split(path, ".") {
			if i, err := strconv.Atoi(name); err == nil {
				names = append(names, i)
			} else {
				names = append(names, name)
			}
		}
		if n, ok := w.(int); ok {
			w = float64(n)
		}
		if got := at(v, names...); got != w {
			t.Errorf("%s: got %v, want %v", path, got, w)
		}
	}
}

func TestFactsHavePoliciesWithRatesAndHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shadow := ratelimit.Policy{Name: "trial", Key: ratelimit.RemoteIP(), Limit: ratelimit.PerMinute(2).WithBurst(1), Shadow: true}
		s := newSite(t, admin.Config{Title: "Shop"}, ratelimit.Config{Policies: []ratelimit.Policy{api, shadow}})
		time.Sleep(4 * time.Second)
		s.use("192.0.2.1", 8) // api allows 5
		time.Sleep(2 * time.Second)
		s.use("192.0.2.2", 2)
		s.limiter.Refund(t.Context(), api, "ip:192.0.2.2", 1)
		time.Sleep(5500 * time.Millisecond)
		same(t, s.object("facts.json"), map[string]any{
			"version": 2, "title": "Shop", "headline.level": "green", "shown": "", "has_counts": true, "has_top": true,
			"alone":      "This page shows this replica only: its store shares no data with others.",
			"store.kind": "memory", "store.state": "answers", "engine.max_waiting": 1024,
			"traffic.allowed": 7, "traffic.denied": 3, "operations.refund": 1,
			"per_second.requests": 1, "per_second.denied": 0.3, "replicas.0.per_second.requests": 1, "replicas.0.state": "up", "replicas.0.here": true, "replicas.1": nil,
			"policies.0.name": "api", "policies.0.limit": "5/1h", "policies.0.unmounted": nil, "policies.0.program": nil,
			"policies.0.total.allowed": 7, "policies.0.total.denied": 3, "policies.0.per_second.allowed": 0.7, "policies.0.per_second.denied": 0.3,
			"policies.0.history.10m.step": 10, "policies.0.history.10m.allowed.59": 7, "policies.0.history.10m.denied.59": 3, "policies.0.history.10m.denied.58": 0,
			"policies.1.name": "trial", "policies.1.limit": "2/1m burst 1", "policies.1.shadow": true, "policies.1.total.would_deny": 8, "policies.1.history.10m.would_deny.59": 8,
		})
		page := s.get("", asBrowser)
		s.want(page, 200, "All is well.", "5 per hour, 5 at once", "2 per minute, 1 at once", "0.7<", "7 allowed, 3 denied", "would be denied", "192.0.2.1", "This page shows this replica only")
		s.want(s.get("top?policy=api", asBrowser), 200, `<polyline class="denied"`, `aria-label="Policy api in the last 10 min, per second: allowed at most 0.7, denied at most 0.3"`, `href="?policy=api&amp;range=1h"`)
		hour := s.get("top?policy=api&range=1h", asBrowser)
		checkPage(t, hour)
		s.want(hour, 200, "Policy api in the last 1 h", "<strong>1 h</strong>", `href="?policy=api&amp;range=10m"`)
	})
}

func TestFactsHaveTopKeys(t *testing.T) {
	s := newSite(t, admin.Config{}, ratelimit.Config{Policies: []ratelimit.Policy{api, {Name: "other", Key: ratelimit.Static("all"), Limit: ratelimit.PerHour(1000)}}})
	s.use("192.0.2.1", 9)
	s.use("192.0.2.2", 7)
	s.use("192.0.2.3", 1)
	same(t, s.object("facts.json"), map[string]any{
		"keys.0.key": "ip:192.0.2.1", "keys.0.policy": "api", "keys.0.requests": 9, "keys.0.denied": 4, "keys.0.error": 0, "keys.0.state": "ok",
		"keys.1.key": "ip:192.0.2.2", "keys.1.denied": 2,
		"keys.2.key": "static:all", "keys.2.policy": "other", "keys.2.requests": 17, "keys.2.denied": 0,
		"keys.4": nil,
	})
	same(t, s.object("top.json?policy=api"), map[string]any{"version": 2, "policy": "api", "keys.0.key": "ip:192.0.2.1", "keys.2.key": "ip:192.0.2.3", "keys.3": nil})
	s.want(s.get("top?policy=api", asBrowser), 200, "ip:192.0.2.3")
	s.want(s.get("", asBrowser), 200, `href="key?key=ip%3A192.0.2.1&amp;policy=api"`, "Kinds of keys seen")
	s.want(s.get("top.json?policy=none"), 400, "no policy")
	s.want(s.get("?replica=none", asBrowser), 404, "There is no replica")
}

// The first page has the keys that are denied most often, and then those with the most requests.
func TestFirstPageHasBothKindsOfKeys(t *testing.T) {
	s := newSite(t, admin.Config{}, ratelimit.Config{Policies: []ratelimit.Policy{api, {Name: "wide", Key: ratelimit.RemoteIP(), Limit: ratelimit.PerHour(10000)}}})
	for i := range 20 {
		s.use(fmt.Sprint("192.0.2.", 100+i), 6+i%3)
	}
	s.use("192.0.2.1", 200)
	s.use("192.0.2.2", 5)
	var rows []string
	for _, e := range checkPage(t, s.get("", asBrowser)) {
		if row, ok := e.attr["data-row"]; ok && e.name == "tr" && e.parent.parent.attr["class"] == "keys" {
			rows = append(rows, row)
		}
	}
	if len(rows) != 12 || rows[0] != "api ip:192.0.2.1" || rows[8] != "wide ip:192.0.2.1" {
		t.Errorf("%d rows: %q", len(rows), rows)
	}
}

// In a deployment, only new replicas have a new policy, and their reports may be ones that this replica cannot read.
func TestWhatOnlyOtherReplicasHave(t *testing.T) {
	m := ratelimit.Must(memstore.New(memstore.Config{}))
	defer m.Close()
	s := newSite(t, admin.Config{}, ratelimit.Config{Store: shared{m}})
	now := time.Now().UTC().Format(time.RFC3339)
	for name, text := range map[string]string{
		"new":   `{"format":1,"at":"` + now + `","store":{"kind":"redis","state":"answers"},"policies":[{"name":"exports","limit":"5/1h"}]}`,
		"other": `{"format":1,"at":[1]}`,
	} {
		if _, _, err := m.WriteValue(t.Context(), "replicas", store.Value{Name: name, Text: text, Version: store.AnyVersion, Until: time.Now().Add(time.Minute)}); err != nil {
			t.Fatal(err)
		}
	}
	s.want(s.get("top?policy=exports", asBrowser), 200, "Policy exports", "5/1h")
	s.want(s.get("top?policy=nobody's", asBrowser), 400, "There is no policy")
	same(t, s.object("facts.json"), map[string]any{"reports_unreadable": 1, "replicas.2": nil})
	s.want(s.get("", asBrowser), 200, "1 report in the store cannot be read")
}

// A flood under one policy does not hide who guesses passwords under another one.
func TestEachPolicyHasKeysInAFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logins := ratelimit.Policy{Name: "logins", Key: ratelimit.Header("X-User"), Limit: ratelimit.PerHour(3), Optional: true}
		s := newSite(t, admin.Config{}, ratelimit.Config{Policies: []ratelimit.Policy{api, logins}})
		for i := range 30 {
			s.use(fmt.Sprint("192.0.2.", i), 60)
		}
		for range 20 {
			if _, err := s.limiter.Take(t.Context(), logins, "member:5", 1); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(3 * time.Second)
		same(t, s.object("top.json?policy=logins"), map[string]any{"keys.0.key": "member:5", "keys.0.denied": 17.0, "keys.1": nil})
		same(t, s.object("top.json?policy=api"), map[string]any{"keys.18.denied": 55.0, "keys.20": nil})
	})
}

// Without Counts and Top, and with a store that reports nothing, the page is there and says what is missing.
func TestAPageWithoutAnything(t *testing.T) {
	l := ratelimit.Must(ratelimit.New(ratelimit.Config{Store: struct{ store.Store }{newFake(t).Store}}))
	h := admin.Handler(l, func(*http.Request) (string, admin.Access) { return "", admin.View }, admin.Config{})
	w := serve(h, "GET", "", "", asBrowser)
	checkPage(t, w)
	for _, text := range []string{"Rates are not available", "Lists of keys are not available", "There are no policies yet", "All is well."} {
		if !strings.Contains(w.Body.String(), text) {
			t.Errorf("no %q in %s", text, w.Body)
		}
	}
	for path, want := range map[string]int{"facts.json": 200, "top.json": 404, "top": 200, "key?key=x": 200, "key.json?key=x": 200} {
		if w := serve(h, "GET", path, ""); w.Code != want {
			t.Errorf("%s: status %d, want %d", path, w.Code, want)
		}
	}
	without := observe.NewCounts(observe.CountsConfig{}) // without History
	l = ratelimit.Must(ratelimit.New(ratelimit.Config{Policies: []ratelimit.Policy{api}, Observe: without.Observe}))
	l.Take(t.Context(), api, "ip:192.0.2.1", 1)
	h = admin.Handler(l, func(*http.Request) (string, admin.Access) { return "", admin.View }, admin.Config{Counts: without})
	if w := serve(h, "GET", "", "", asBrowser); !strings.Contains(w.Body.String(), "Rates need") {
		t.Errorf("no word about History: %s", w.Body)
	}
}

type cache struct{ store.CacheStats }

func (c cache) Stats() store.CacheStats { return c.CacheStats }

func TestFactsHaveAllPartsOfTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		since := time.Now()
		memory := &store.MemoryStats{Buckets: 11, Max: 12, Bytes: 13, Blocked: 14, Evicted: map[string]int64{"api": 15}}
		f.stats = store.Stats{
			Redis: &store.RedisStats{Calls: 1001, Batches: 102, Charges: 103, Merged: 104, Direct: 105, Queued: 106, InFlight: 107, OldestQueued: 1080 * time.Microsecond,
				Errors: map[string]int64{"timeout": 109, "network": 0}, Redirects: 110, ScriptLoads: 111, LastError: "bad\u202e<b>", LastErrorAt: since},
			Denials: &store.DenialStats{Answered: 201, Kept: 202, Max: 203},
			Leases:  &store.LeaseStats{Leases: 301, Max: 302, Held: 303, Drawn: 304, Returned: 305, Lost: 306},
			Fallback: &store.FallbackStats{Away: true, Since: since, Reason: "gone", Probes: 401, Answered: 402, Charged: 403, Pending: 404, Max: 406,
				Outages: []store.Outage{{Since: since, Reason: "gone", Probes: 407, Answered: 408, Charged: 409}, {Since: since.Add(-time.Hour), Until: since.Add(-time.Minute), Reason: "reset"}}, Secondary: store.Stats{Memory: memory}},
			Memory: memory,
		}
		f.degraded = true
		s := newSite(t, admin.Config{Caches: map[string]interface{ Stats() store.CacheStats }{"tokens": cache{store.CacheStats{Entries: 501, Max: 502, Hits: 3, Misses: 1, Evicted: 505}}}}, ratelimit.Config{Store: f})
		at := since.UTC().Format(time.RFC3339Nano)
		same(t, s.object("facts.json"), map[string]any{
			"headline.level": "red", "store.kind": "redis", "store.state": "stand_in", "store.since": at, "store.reason": "gone", "store.last_error": `bad\u202e<b>`, "store.last_error_at": at,
			"store.outages.0.since": at, "store.outages.0.until": nil, "store.outages.0.answered": 408, "store.outages.0.charged": 409, "store.outages.1.reason": "reset",
			"engine.calls": 1001, "engine.batches": 102, "engine.charges": 103, "engine.merged": 104, "engine.direct": 105, "engine.queued": 106, "engine.in_flight": 107,
			"engine.failed": 109, "engine.failed_timeout": 109, "engine.failed_network": nil, "engine.redirects": 110, "engine.script_loads": 111,
			"engine.denials_answered": 201, "engine.denials_kept": 202, "engine.leases": 301, "engine.leased_tokens": 303,
			"engine.probes": 401, "engine.answered": 402, "engine.charged": 403, "engine.pending": 404, "engine.buckets": 11, "engine.blocked": 14, "engine.evicted": 15,
			"caches.0.name": "tokens", "caches.0.entries": 501, "caches.0.max": 502, "caches.0.hits": 3, "caches.0.misses": 1, "caches.0.evicted": 505,
		})
		w := s.get("", asBrowser)
		checkPage(t, w)
		s.want(w, 200, "Redis has not answered this replica since", ". A stand-in limits all requests.", "Bring Redis back: gone.", "Failed: timeout", `bad\u202e&lt;b&gt;`, "ongoing", "59 min", "501 of 502, 75 % hits")
		s.want(s.get("key?key=ip:1", asBrowser), 200, "Redis has been unavailable since", "Reason: gone.", "on this replica only, until Redis is back")
	})
}

// While Redis hangs, with a Timeout that is long, each page comes within a second and says so.
func TestAStoreThatHangsOrFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.stats.Redis = &store.RedisStats{}
		var policies []ratelimit.Policy
		for i := range 80 { // more than are shown
			policies = append(policies, ratelimit.Policy{Name: fmt.Sprint("p", i), Key: ratelimit.RemoteIP(), Limit: ratelimit.PerHour(1)})
		}
		s := newSite(t, admin.Config{}, ratelimit.Config{Store: f, Policies: policies, Timeout: time.Minute})
		for name, why := range map[string]string{"hangs": "no answer in time", "fails": "on fire\\x00"} {
			f.hangs, f.err = name == "hangs", errors.New("on fire\x00")
			time.Sleep(2 * time.Second)
			for _, path := range []string{"", "key?key=ip:1"} {
				began := time.Now()
				w := s.get(path, asBrowser)
				if took := time.Since(began); took >= time.Second {
					t.Errorf("%s: %q took %v", name, path, took)
				}
				checkPage(t, w)
				s.want(w, 200, "Redis does not answer", why)
				time.Sleep(2 * time.Second)
			}
			v := s.object("key.json?key=ip:1")
			same(t, v, map[string]any{"store.state": "fails", "buckets.0.state": "unknown", "buckets.0.error": why, "buckets.63.state": "unknown", "buckets.64": nil, "policies_left_out": 16})
			time.Sleep(2 * time.Second)
			s.want(s.post("key/reset", map[string][]string{"policy": {"p1"}, "key": {"ip:1"}}, asBrowser), 503, "It is not known whether the change was made")
		}
		f.hangs, f.err = false, nil
		time.Sleep(2 * time.Second)
		s.want(s.get("", asBrowser), 200, "Redis answers", "16 more policies are not shown")
	})
}

// Facts are made once a second, however many look.
func TestFactsAreMadeOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, admin.Config{}, ratelimit.Config{})
		first := at(s.object("facts.json"), "at")
		for range 10 {
			s.get("")
			same(t, s.object("facts.json"), map[string]any{"at": first})
		}
		time.Sleep(time.Second)
		if second := at(s.object("facts.json"), "at"); second == first {
			t.Errorf("facts of %v after a second", second)
		}
	})
}

// The page knows what a real fallback knows.
func TestAnOutageWithAFallback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.stats.Redis = &store.RedisStats{}
		both := ratelimit.Must(fallback.New(f, nil, fallback.Config{}))
		defer both.Close()
		s := newSite(t, admin.Config{}, ratelimit.Config{Store: both, Policies: []ratelimit.Policy{api, {Name: "logins", Key: api.Key, Limit: ratelimit.PerHour(7), FailClosed: true}}})
		s.use("192.0.2.1", 2)
		s.want(s.get("", asBrowser), 200, "Redis answers", "All is well.")
		f.breaks(errors.New("connection refused"))
		time.Sleep(2 * time.Second) // without requests, the fallback does not notice it
		s.want(s.get("", asBrowser), 200, "Redis does not answer this replica. Policy logins refuses all requests, 0 so far.", "Bring Redis back. The replicas")
		s.use("192.0.2.1", 20)
		time.Sleep(30 * time.Second)
		w := s.get("", asBrowser)
		checkPage(t, w)
		s.want(w, 200, "Redis has not answered this replica since", "connection refused", "ongoing", "Calls of Redis in the last 10 min", `<rect class="away"`)
		s.want(s.get("key?key=ip:192.0.2.1", asBrowser), 200, "Redis has been unavailable since", "from this replica’s stand-in", "Refuses all requests", "this policy fails closed: it answers 503")
		same(t, s.object("key.json?key=ip:192.0.2.1"), map[string]any{"buckets.1.state": "refuses", "buckets.1.tokens": 0})
		// The stand-in's bucket refills as this process sees it, too.
		s.limiter.Reset(t.Context(), api, "ip:192.0.2.3")
		s.take("ip:192.0.2.3", 5)
		time.Sleep(6 * time.Minute)
		same(t, s.object("key.json?key=ip:192.0.2.3"), map[string]any{"buckets.0.state": "empty", "buckets.0.degraded": true, "buckets.0.next_in_seconds": 360, "buckets.0.tokens": 0.5})
		f.breaks(nil)
		time.Sleep(30 * time.Second)
		s.want(s.get("", asBrowser), 200, "Redis answers", "connection refused", "6 min 3")
	})
}
