package ratelimit_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/ratetest"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/fallback"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
)

type usageEntry struct {
	Name                                  string
	Limit, Used, Remaining, Reset, Window int64
	LimitText                             string `json:"limit_text"`
	BlockedUntil                          int64  `json:"blocked_until"`
}

// usageOf returns what h answers, in which every policy has its place.
func usageOf(t *testing.T, h http.Handler, change ...func(*http.Request)) (entries []usageEntry) {
	t.Helper()
	w := get(h, change...)
	var body struct{ Policies []usageEntry }
	decoder := json.NewDecoder(w.Body)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&body); err != nil || w.Code != 200 || body.Policies == nil {
		t.Fatalf("%d %v: %v", w.Code, w.Header(), err)
	}
	for _, e := range body.Policies {
		if e.Used+e.Remaining != e.Limit || e.Used < 0 || e.Remaining < 0 {
			t.Errorf("%+v: the parts are not the limit", e)
		}
	}
	return body.Policies
}

// wantUsed checks the names of the policies that h answers with, and what is used of each.
func wantUsed(t *testing.T, h http.Handler, want string, change ...func(*http.Request)) {
	t.Helper()
	var got []string
	for _, e := range usageOf(t, h, change...) {
		got = append(got, fmt.Sprintf("%s %d", e.Name, e.Used))
	}
	if strings.Join(got, ", ") != want {
		t.Errorf("used are %q, want %q", got, want)
	}
}

func TestUsageAnswersWithWhatIsLeft(t *testing.T) {
	inBubble(t, ratelimit.Config{Policies: []ratelimit.Policy{
		perIP("quota", ratelimit.Quota(1000, ratelimit.Month).In("Europe/Berlin")),
		perIP("rate", ratelimit.PerHour(60).WithBurst(10)),
	}}, func(t *testing.T, q *queue) { // which begins at 2000-01-01T00:00:00Z, one o'clock in Berlin
		h := q.Handler(okHandler)
		for range 3 {
			get(h)
		}
		w := get(q.Usage())
		const want = `{"policies":[` +
			`{"name":"quota","limit":1000,"limit_text":"1000 per month Europe/Berlin","used":3,"remaining":997,"reset":949359600,"window":2678400},` +
			`{"name":"rate","limit":10,"limit_text":"60/1h burst 10","used":3,"remaining":7,"reset":946684980,"window":600}]}`
		if got := w.Body.String(); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		want2 := http.Header{"Content-Type": {"application/json"}, "Cache-Control": {"no-store"}, "X-Content-Type-Options": {"nosniff"}, "Content-Length": {fmt.Sprint(len(want))}}
		if fmt.Sprint(w.Header()) != fmt.Sprint(want2) {
			t.Errorf("headers %v, want %v", w.Header(), want2)
		}
		if e := q.Events.Last(); e.Op != "peek" || !e.Allowed || len(e.Results) != 2 || e.Results[0].Cost != 0 || e.Results[0].Remaining != 997 || e.Err != nil {
			t.Errorf("event %+v", e)
		}

		time.Sleep(30 * time.Second) // half of a token
		rate := usageOf(t, q.Usage())[1]
		if rate.Remaining != 7 || rate.Reset != 946684980 {
			t.Errorf("%+v", rate)
		}
	})
}

func TestUsageOnEachStore(t *testing.T) {
	onEachStore(t, func(t *testing.T, s store.Store, _ *clock) {
		rate, quota := perIP("rate", ratelimit.PerHour(10)), perIP("quota", ratelimit.Quota(100, ratelimit.Day))
		replica := func() *ratelimit.Limiter { // with no looks of before
			return newLimiter(t, ratelimit.Config{Store: s, Policies: []ratelimit.Policy{rate, quota}})
		}
		wantUsed(t, replica().Usage(), "rate 0, quota 0")
		l := replica()
		h, u := l.Handler(okHandler), l.Usage()
		for range 12 {
			get(h)
		}
		get(h, from("192.0.2.2"))
		for range 20 {
			wantUsed(t, u, "rate 10, quota 10")
			wantUsed(t, u, "rate 1, quota 1", from("192.0.2.2"))
			wantUsed(t, u, "rate 0, quota 0", from("192.0.2.3"))
		}
		if b, err := l.Peek(t.Context(), quota, "ip:192.0.2.3"); err != nil || b.Used {
			t.Errorf("%+v, %v", b, err)
		}
		if _, err := l.Block(t.Context(), rate, address, time.Hour, "alice: scrapes prices"); err != nil {
			t.Fatal(err)
		}
		u = replica().Usage()
		got := usageOf(t, u)
		until := got[0].BlockedUntil - time.Now().Unix()
		if got[0].Remaining != 0 || until < 3590 || until > 3601 || got[0].Reset < got[0].BlockedUntil || got[1].BlockedUntil != 0 || got[1].Used != 10 {
			t.Errorf("blocked: %+v", got)
		}
		if text := get(u).Body.String(); strings.Contains(text, "alice") {
			t.Errorf("%s", text)
		}
	})
}

// A policy is shown if it applies to the caller, and is meant to be seen.
func TestThePoliciesOfUsage(t *testing.T) {
	shadow, hidden, optional := perIP("shadow", ratelimit.PerHour(1)), perIP("hidden", ratelimit.PerHour(1)), perIP("optional", ratelimit.PerHour(1))
	shadow.Shadow, hidden.Hidden, optional.Optional = true, true, true
	optional.Key = noKey
	failing := perIP("failing", ratelimit.PerHour(1))
	failing.Key = func(*http.Request) (string, error) { return "", ratelimit.ErrOutage }
	costly := perIP("costly", ratelimit.PerHour(20))
	costly.Cost = func(*http.Request) int64 { panic("Usage asked for a cost") }
	waits := waiting(perIP("waits", ratelimit.PerHour(1)), time.Hour)
	waits.Settle = costs(7)
	l := newLimiter(t, ratelimit.Config{
		Policies: []ratelimit.Policy{shadow, tiered("tier", ratelimit.PerHour(3)), hidden, optional, failing, costly, waits},
		Skip:     func(r *http.Request) bool { return r.Header.Get("Skip") != "" },
		Logger:   slog.New(slog.DiscardHandler),
	})
	u := l.Usage()
	wantUsed(t, u, "tier 0, costly 0, waits 0")
	wantUsed(t, u, "costly 0, waits 0", with("Tier", "unlimited"))
	wantUsed(t, u, "", with("Skip", "1"))
	if got := usageOf(t, u, with("Tier", "77/1h")); got[0].Limit != 77 || got[0].LimitText != "77/1h" {
		t.Errorf("%+v", got)
	}

	override(t, l, ofKey("tier", address, ratelimit.PerHour(5)), ofPolicy("costly", ratelimit.Unlimited), ofKey("waits", address, ratelimit.Quota(9, ratelimit.Day)))
	if got := usageOf(t, u, with("Tier", "77/1h")); len(got) != 2 || got[0].Limit != 5 || got[1].LimitText != "9 per day" || got[1].Window != 86400 {
		t.Errorf("%+v", got)
	}
	wantUsed(t, u, "tier 0, waits 0", from("192.0.2.2"))

	override(t, l)
	denies := func(name string) ratelimit.Policy {
		p := perIP(name, ratelimit.PerHour(1))
		p.LimitFunc = func(*http.Request) ratelimit.Limit { return ratelimit.PerDay(0) }
		return p
	}
	zero := usageOf(t, l.Usage(denies("first"), perIP("second", ratelimit.PerHour(2)), denies("third")))
	if len(zero) != 3 || zero[0].Name != "first" || zero[1].Name != "second" || zero[2].Name != "third" || zero[0].Limit != 0 || zero[0].Window != 0 || zero[0].LimitText != "0/24h" {
		t.Errorf("rates of 0: %+v", zero)
	}
}

// Policies of routes are shown as they are in force where they are mounted, also from another place of the stack.
func TestUsageOfRoutes(t *testing.T) {
	api, login, unmounted := perIP("api", ratelimit.PerHour(100)), perIP("login", ratelimit.PerHour(10)), perIP("unmounted", ratelimit.PerHour(5))
	inBubble(t, ratelimit.Config{Policies: []ratelimit.Policy{api}}, func(t *testing.T, q *queue) {
		mux := http.NewServeMux()
		mux.Handle("POST /login", q.Limit(login)(okHandler))
		mux.Handle("GET /usage", q.Usage(login, unmounted, api))
		h := q.Handler(mux)
		post := func(r *http.Request) { r.Method, r.URL.Path = "POST", "/login" }
		get(h, post)
		get(h, post)
		if _, err := q.Take(t.Context(), unmounted, address, 4); err != nil {
			t.Fatal(err)
		}
		inside := func(r *http.Request) { r.URL.Path = "/usage" }
		wantUsed(t, h, "login 2, unmounted 4, api 3", inside)
		if got := get(h, inside).Header().Get("X-RateLimit-Remaining"); got != "96" {
			t.Errorf("%s of the limiter around it", got)
		}
		reload(t, q.Limiter, perIP("login", ratelimit.PerHour(3)), perIP("api", ratelimit.PerHour(50)))
		got := usageOf(t, h, inside)
		if got[0].LimitText != "3/1h" || got[2].LimitText != "50/1h" || got[1].LimitText != "5/1h" {
			t.Errorf("after a Reload: %+v", got)
		}
	})
}

func TestMethodsOfUsage(t *testing.T) {
	l := newLimiter(t, ratelimit.Config{Policies: []ratelimit.Policy{perIP("api", ratelimit.PerHour(10))}})
	u := l.Usage()
	server := httptest.NewServer(u)
	defer server.Close()
	for _, m := range []string{"POST", "PUT", "DELETE", "OPTIONS", "get", "PRI", "HEAD"} {
		r, err := http.NewRequest(m, server.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			if m != "PRI" { // which net/http answers
				t.Error(err)
			}
			continue
		}
		body, _ := io.ReadAll(response.Body)
		response.Body.Close()
		switch {
		case response.Header.Get("Cache-Control") != "no-store" && m != "PRI":
			t.Errorf("%s: %v", m, response.Header)
		case m == "HEAD":
			if response.StatusCode != 200 || len(body) > 0 || response.Header.Get("Content-Type") != "application/json" || response.ContentLength < 100 {
				t.Errorf("HEAD: %d %v %q", response.StatusCode, response.Header, body)
			}
		case m != "PRI" && (response.StatusCode != 405 || response.Header.Get("Allow") != "GET, HEAD"):
			t.Errorf("%s: %d %v", m, response.StatusCode, response.Header)
		}
	}
}

// A caller without a key gets the answer that Handler would give.
func TestErrorsOfUsageAreThoseOfHandler(t *testing.T) {
	byKey := func(key string, err error) ratelimit.Policy {
		p := perIP("api", ratelimit.PerHour(10))
		p.Key = func(*http.Request) (string, error) { return key, err }
		return p
	}
	closed := byKey("", fmt.Errorf("%w: directory at 10.0.0.7", ratelimit.ErrOutage))
	closed.FailClosed = true
	for name, tt := range map[string]struct {
		p      ratelimit.Policy
		status int
	}{
		"no key":               {byKey("", ratelimit.ErrNoKey), 403},
		"an empty key":         {byKey("", nil), 403},
		"a malformed key":      {byKey("", fmt.Errorf("%w: two Authorization headers", ratelimit.ErrBadRequest)), 400},
		"an unknown error":     {byKey("", errors.New("10.0.0.7 refused")), 503},
		"an outage, closed":    {closed, 503},
		"an outage, left open": {byKey("", ratelimit.ErrOutage), 200},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLimiter(t, ratelimit.Config{Policies: []ratelimit.Policy{tt.p}, Logger: slog.New(slog.DiscardHandler)})
			want, got := get(l.Handler(okHandler)), get(l.Usage())
			if got.Code != tt.status || want.Code != tt.status {
				t.Fatalf("status %d, and %d of Handler, want %d", got.Code, want.Code, tt.status)
			}
			if tt.status != 200 && (got.Body.String() != want.Body.String() || fmt.Sprint(got.Header()) != fmt.Sprint(want.Header())) {
				t.Errorf("%v %s, want %v %s", got.Header(), got.Body, want.Header(), want.Body)
			}
			if strings.Contains(got.Body.String(), "10.0.0.7") {
				t.Errorf("%s", got.Body)
			}
		})
	}
}

// A stand-in knows a share of the limit, and would show the rest as used.
func TestUsageDuringAnOutage(t *testing.T) {
	asked := 0
	for name, s := range map[string]store.Store{
		"the Store fails":      failing(func() error { asked++; return errors.New("dial 10.0.0.7: refused") }),
		"a fallback":           ratelimit.Must(fallback.New(failing(func() error { return errors.New("refused") }), nil, fallback.Config{Replicas: 2})),
		"a stand-in answers":   ratetest.StandIn(ratetest.Generous{}),
		"stand-ins are denied": ratetest.StandIn(ratetest.Denying(time.Minute)),
	} {
		synctest.Test(t, func(t *testing.T) {
			l := newLimiter(t, ratelimit.Config{Store: s, Policies: []ratelimit.Policy{perIP("api", ratelimit.PerHour(10))}, Logger: slog.New(slog.DiscardHandler)})
			u := l.Usage()
			for range 5 {
				w := get(u)
				if w.Code != 503 || w.Header().Get("Retry-After") == "" || w.Header().Get("Cache-Control") != "no-store" || strings.Contains(w.Body.String(), "10.0.0.7") {
					t.Errorf("%s: %d %v %s", name, w.Code, w.Header(), w.Body)
				}
			}
		})
	}
	if asked != 1 {
		t.Errorf("asked %d times within 100 ms", asked)
	}
}

// Whatever many callers ask, a bucket is read ten times a second, and all policies of a request in one call.
func TestUsageReadsABucketTenTimesASecond(t *testing.T) {
	rates := []ratelimit.Policy{perIP("a", ratelimit.PerHour(10)), perIP("b", ratelimit.PerHour(20)), {Name: "all", Key: ratelimit.Static("all"), Limit: ratelimit.PerHour(30)}}
	inBubble(t, ratelimit.Config{Policies: rates}, func(t *testing.T, q *queue) {
		u, again := q.Usage(), q.Usage(rates[2])
		for range 500 {
			wantUsed(t, u, "a 0, b 0, all 0")
			wantUsed(t, again, "all 0")
			wantUsed(t, u, "a 0, b 0, all 0", from("192.0.2.2"))
			time.Sleep(2 * time.Millisecond)
		}
		read := make(map[string]int)
		for _, charges := range q.Store.Calls {
			for _, c := range charges {
				if read[c.Policy+" "+c.Key]++; c.Cost != 0 || c.MaxWait != 0 || c.Lock != 0 {
					t.Errorf("charged %+v", c)
				}
			}
		}
		for _, bucket := range []string{"a ip:192.0.2.1", "b ip:192.0.2.1", "a ip:192.0.2.2", "b ip:192.0.2.2", "all static:all"} {
			if read[bucket] != 10 {
				t.Errorf("%s was read %d times, want 10", bucket, read[bucket])
			}
		}
		if len(read) != 5 || len(q.Store.Calls[0]) != 3 || len(q.Store.Calls[1]) != 2 {
			t.Errorf("read %v, first %+v, then %+v", read, q.Store.Calls[0], q.Store.Calls[1])
		}
	})
}

// Requests that come while a bucket is being read share the answer. A client that leaves does not end the read.
func TestConcurrentRequestsForUsageShareARead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release, calls := make(chan struct{}), 0
		l := newLimiter(t, ratelimit.Config{
			Store: storeFunc(func(_ []store.Charge, states []store.State) bool {
				calls++
				<-release
				states[0] = store.State{Allowed: true, Remaining: 4, ResetAfter: time.Hour}
				return true
			}),
			Policies: []ratelimit.Policy{perIP("api", ratelimit.PerHour(10))},
		})
		u := l.Usage()
		var asking sync.WaitGroup
		for range 50 {
			asking.Go(func() { wantUsed(t, u, "api 6") })
		}
		synctest.Wait()
		time.Sleep(time.Second) // it takes longer than a look lasts
		asking.Go(func() { wantUsed(t, u, "api 6") })
		synctest.Wait()
		close(release)
		asking.Wait()
		if calls != 1 {
			t.Errorf("%d calls", calls)
		}
		wantUsed(t, u, "api 6")
		if calls != 2 {
			t.Errorf("%d calls, want 2: the first answer was old", calls)
		}
	})
}

// Callers that ask at the same time, for one bucket of each and one of all, each get what they have used.
func TestCallersSeeTheirOwnUsage(t *testing.T) {
	const callers = 40
	own, all := perIP("own", ratelimit.Every(24*time.Hour).WithBurst(1000)), ratelimit.Policy{Name: "all", Key: ratelimit.Static("all"), Limit: ratelimit.Every(24 * time.Hour).WithBurst(1000)}
	l := newLimiter(t, ratelimit.Config{Policies: []ratelimit.Policy{own, all}})
	h, u := l.Handler(okHandler), l.Usage()
	total := 0
	for i := range callers {
		for range i {
			get(h, from(fmt.Sprint("192.0.2.", i)))
			total++
		}
	}
	var asking sync.WaitGroup
	for i := range callers {
		for range 4 {
			asking.Go(func() {
				for range 50 {
					wantUsed(t, u, fmt.Sprintf("own %d, all %d", i, total), from(fmt.Sprint("192.0.2.", i)))
				}
			})
		}
	}
	asking.Wait()
}

// A panic of a Store ends the request, as in Handler, and not those that wait for the same bucket.
func TestAPanicOfTheStoreLeavesNoRequestForUsageWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		l := newLimiter(t, ratelimit.Config{
			Store:    storeFunc(func([]store.Charge, []store.State) bool { <-release; panic("broken") }),
			Policies: []ratelimit.Policy{perIP("api", ratelimit.PerHour(10))},
			Logger:   slog.New(slog.DiscardHandler),
		})
		u := l.Usage()
		var codes []int
		var mu sync.Mutex
		var asking sync.WaitGroup
		for range 3 {
			asking.Go(func() {
				code := 0
				defer func() {
					recover()
					mu.Lock()
					codes = append(codes, code)
					mu.Unlock()
				}()
				code = get(u).Code
			})
		}
		synctest.Wait()
		close(release)
		asking.Wait()
		if slices.Sort(codes); !slices.Equal(codes, []int{0, 503, 503}) {
			t.Errorf("%v", codes)
		}
	})
}

func TestUsageIsMountedWithPoliciesThatAreRight(t *testing.T) {
	l := newLimiter(t, ratelimit.Config{})
	checkPanic(t, func() { l.Usage() }, "ratelimit: Usage: policies: must not be empty, because Config.Policies is")
	checkPanic(t, func() { l.Usage(ratelimit.Policy{Name: "api"}) }, "ratelimit: Usage: ", "policies[0]", "Key: must be set", "Limit: must be set")
}

// A caller who makes up keys and asks for them makes no bucket, and so no room for another one.
func TestUsageForgetsNoBucket(t *testing.T) {
	s := ratelimit.Must(memstore.New(memstore.Config{MaxKeys: 10}))
	defer s.Close()
	made := 0
	p := ratelimit.Policy{Name: "api", Limit: ratelimit.PerHour(10), Key: func(r *http.Request) (string, error) { made++; return fmt.Sprint("made up:", made), nil }}
	l := newLimiter(t, ratelimit.Config{Store: s, Policies: []ratelimit.Policy{p}})
	if _, err := l.Take(t.Context(), p, "member:7", 9); err != nil {
		t.Fatal(err)
	}
	u := l.Usage()
	for range 3000 {
		wantUsed(t, u, "api 0")
	}
	if b, err := l.Peek(t.Context(), p, "member:7"); err != nil || b.Remaining != 1 {
		t.Errorf("%+v, %v", b, err)
	}
	if n := l.Stats().Memory.Buckets; n != 1 {
		t.Errorf("%d buckets", n)
	}
}
