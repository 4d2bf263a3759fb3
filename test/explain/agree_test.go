// Package explain contains only tests, which compare Explain with Handler.
package explain_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/golang-jwt/jwt/v5"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/explain"
	"github.com/go-tokenbucket/ratelimit/headers"
	"github.com/go-tokenbucket/ratelimit/internal/logtext"
	"github.com/go-tokenbucket/ratelimit/internal/test/testsize"
	"github.com/go-tokenbucket/ratelimit/jwtkey"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
)

// An explanation is what Handler then does, for random requests, trust models, keys, policies and stacks of places: the
// same status, header, keys, results and wait. And it leaves each bucket as it was.
func TestExplainAgreesWithHandler(t *testing.T) {
	fresh := rand.Uint64()
	t.Logf("the last worlds begin with the seed %d", fresh)
	worlds, requests, counts := testsize.Of(60, 1500), 60, new(agreements)
	for i := range uint64(worlds) {
		seed := i
		if i >= uint64(worlds)*9/10 {
			seed += fresh
		}
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, seed)
			for n := range requests {
				w.compare(n, counts)
				if t.Failed() {
					t.Fatalf("seed %d: %s", seed, w)
				}
				time.Sleep(time.Duration(one(w.Rand, 0, 0, w.IntN(300), w.IntN(3000))) * time.Millisecond)
			}
		})
		if t.Failed() {
			return
		}
	}
	t.Logf("%+v", *counts)
	total := counts.reached + counts.unlearned
	for _, n := range counts.refused {
		total += n
	}
	if total < 1000 || counts.reached < total/10 || counts.unlearned > total*2/3 || counts.refused[429] < total/20 || counts.refused[400] < 20 || counts.refused[403] < 20 || counts.refused[503] < 10 || counts.waited < 20 || counts.stacked < 100 {
		t.Errorf("the requests are too much alike: %+v", *counts)
	}
}

// agreements counts requests by what became of them.
type agreements struct {
	reached, unlearned, waited, stacked int
	refused                             map[int]int
}

// A world is a Limiter with random policies, mounted at random places.
type world struct {
	*testing.T
	*rand.Rand
	what    []string // for the report of a fault
	limiter *ratelimit.Limiter
	store   *observedStore
	handler http.Handler
	places  int
	learned map[string]string // by route: that of the innermost place, after a request has met them all

	events  []*ratelimit.Event
	probing bool // only the route of a request is looked for
	reached bool
	route   string
	at      time.Time // when it was reached
}

func (w *world) String() string { return strings.Join(w.what, "\n\t") }

func (w *world) note(format string, args ...any) {
	w.what = append(w.what, fmt.Sprintf(format, args...))
}

// one returns one of some.
func one[T any](r *rand.Rand, some ...T) T { return some[r.IntN(len(some))] }

func (w *world) chance(n int) bool { return w.IntN(n) == 0 }

// observedStore fails the test if an explanation calls Take, by which alone it could change a bucket.
type observedStore struct {
	store.Store
	t          *testing.T
	explaining bool
	fails      error // of the next calls
}

func (s *observedStore) Take(ctx context.Context, charges []store.Charge, states []store.State) (bool, error) {
	if s.explaining {
		s.t.Errorf("an explanation charges %+v", charges)
	}
	if s.fails != nil {
		return false, s.fails
	}
	return s.Store.Take(ctx, charges, states)
}

func (s *observedStore) Inspect(ctx context.Context, policy, key string) (store.Bucket, error) {
	if s.fails != nil {
		return store.Bucket{}, s.fails
	}
	return store.Inspect(ctx, s.Store, policy, key)
}

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{T: t, Rand: rand.New(rand.NewPCG(seed, 18))}
	memory := ratelimit.Must(memstore.New(memstore.Config{}))
	memory.Close() // under two limits, it makes a difference whether a full bucket was forgotten meanwhile
	w.store = &observedStore{Store: memory, t: t}
	cfg := ratelimit.Config{
		Store:    w.store,
		Policies: w.policies(),
		Headers:  one(w.Rand, nil, nil, headers.IETF, headers.Join(headers.Spring, headers.Shadows, headers.DeltaSeconds)),
		Logger:   slog.New(slog.DiscardHandler),
		Observe: func(_ context.Context, e *ratelimit.Event) {
			if e.Op == "request" {
				w.events = append(w.events, e)
			}
		},
		MaxWaiting: one(w.Rand, 0, 1),
	}
	skips := w.chance(3)
	cfg.Skip = func(r *http.Request) bool {
		return w.probing || skips && (r.URL.Path == "/health" || r.Header.Get("X-Skip") != "")
	}
	if w.chance(4) {
		cfg.Deny = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			d, _ := ratelimit.FromContext(r.Context())
			rw.Header().Set("Content-Type", "text/x-denied") // which a server would find out, and a recorder does not
			rw.Header().Set("X-Denied-By", strings.Join(d.Denied(), ","))
			rw.WriteHeader(420)
			fmt.Fprintf(rw, "%s %q is denied for %v under %s, and waited %v", r.Method, r.URL.Path, d.RetryAfter(), r.Pattern, d.Waited)
		})
	}
	if w.chance(4) {
		cfg.Error = func(rw http.ResponseWriter, r *http.Request, err error) {
			rw.Header().Set("X-Error", strconv.Quote(err.Error()))
			status := http.StatusServiceUnavailable
			switch {
			case errors.Is(err, ratelimit.ErrBadRequest):
				status = http.StatusBadRequest
			case errors.Is(err, ratelimit.ErrNoKey):
				status = http.StatusForbidden
			}
			rw.WriteHeader(status)
		}
	}
	w.limiter = ratelimit.Must(ratelimit.New(cfg))
	w.handler, w.learned = w.stack(), make(map[string]string)
	if w.chance(4) {
		var changed []ratelimit.Policy
		for _, p := range cfg.Policies {
			p.Limit = ratelimit.PerSecond(1).WithBurst(3)
			changed = append(changed, p)
		}
		if err := w.limiter.Reload(changed...); err != nil {
			t.Fatal(err)
		}
		w.note("reload of Handler's policies")
	}
	if w.chance(3) {
		p := one(w.Rand, cfg.Policies...)
		if err := w.limiter.Override(map[string]ratelimit.Limit{p.Name: ratelimit.PerMinute(3).WithBurst(2)}, nil); err != nil {
			t.Fatal(err)
		}
		w.note("override of %s", p.Name)
	}
	return w
}

// end is the handler of all routes.
func (w *world) end(rw http.ResponseWriter, r *http.Request) {
	w.reached, w.at = true, time.Now()
	key, _ := ratelimit.Route()(r)
	w.route = strings.TrimPrefix(key, "route:")
	if w.probing {
		return
	}
	status, err := strconv.Atoi(r.Header.Get("X-Status"))
	if err != nil {
		status = http.StatusNoContent
	}
	rw.WriteHeader(status)
}

// stack returns routers with the limiter at random places.
func (w *world) stack() http.Handler {
	l, end := w.limiter, http.Handler(http.HandlerFunc(w.end))
	limited := func(h http.Handler) http.Handler {
		for range w.IntN(3) {
			h = l.Limit(w.policies()...)(h)
		}
		return h
	}
	mux := func() http.Handler {
		m := http.NewServeMux()
		m.Handle("GET /items/{id}", limited(end))
		m.Handle("POST /items/{id}", limited(end))
		m.Handle("/dir/", limited(end))
		m.Handle("/files/{path...}", limited(end))
		m.Handle("api.example/{$}", limited(end))
		if w.chance(2) {
			m.Handle("/", limited(end))
		}
		return m
	}
	router := func(handler bool) http.Handler {
		r := chi.NewRouter()
		if handler {
			r.Use(l.Handler)
		}
		for range w.IntN(2) {
			r.Use(l.Limit(w.policies()...))
		}
		r.With(l.Limit(w.policies()...)).Get("/items/{id}", w.end)
		r.Method("POST", "/items/{id:[a-z0-9]+}", limited(end))
		r.Route("/dir", func(r chi.Router) {
			r.Use(l.Limit(w.policies()...))
			r.Get("/", w.end)
			r.Get("/{name}", w.end)
		})
		r.Group(func(r chi.Router) {
			r.Use(l.Limit(w.policies()...))
			r.Handle("/files/*", end)
			r.With(l.Limit(w.policies()...)).Put("/", w.end)
		})
		sub := chi.NewRouter()
		sub.Use(l.Limit(w.policies()...))
		sub.Get("/{name}/x", w.end)
		r.Mount("/tenants/{tenant}", sub)
		if w.chance(2) {
			r.NotFound(w.end)
		}
		return r
	}
	switch kind := w.IntN(6); kind {
	case 0:
		w.note("Handler around a ServeMux")
		return l.Handler(mux())
	case 1:
		w.note("a ServeMux with Limit")
		return mux()
	case 2:
		w.note("chi with Use of Handler")
		return router(true)
	case 3:
		w.note("Handler around chi")
		return l.Handler(router(false))
	case 4:
		w.note("a ServeMux around Handler around chi")
		m := http.NewServeMux()
		m.Handle("/items/", l.Handler(router(false)))
		m.Handle("/{rest...}", limited(mux())) // not the pattern of a route inside
		return m
	default:
		w.note("Limit around Handler")
		return l.Limit(w.policies()...)(l.Handler(limited(end)))
	}
}

var agreeModels = []ratelimit.IPConfig{
	{},
	{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}},
	{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("203.0.113.0/24")}, Header: "Forwarded"},
	{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8::/32")}, TrustUnix: true, IPv6Bits: 48},
	{ProxyCount: 1},
	{ProxyCount: 2, Header: "Forwarded"},
	{ProxyCount: 3},
	{EdgeHeader: "CF-Connecting-IP"},
	{EdgeHeader: "X-Real-IP", TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}},
	{TrustUnix: true},
	{TrustUnix: true, Header: "Forwarded", IPv6Bits: 128},
	{Context: func(ctx context.Context) netip.Addr { a, _ := ctx.Value(agreeAddr{}).(netip.Addr); return a }},
}

type (
	agreeAddr struct{}
	agreeUser struct{}
)

var agreeSecret = []byte("a secret of thirty-two bytes, here")

// key returns a random KeyFunc.
func (w *world) key(depth int) (ratelimit.KeyFunc, string) {
	kinds := 9
	if depth > 0 {
		kinds = 14
	}
	switch w.IntN(kinds) {
	case 0, 1:
		i := w.IntN(len(agreeModels))
		return ratelimit.ClientIP(agreeModels[i]), fmt.Sprintf("ClientIP(%+v)", agreeModels[i])
	case 2:
		return ratelimit.Static("all"), "Static"
	case 3:
		return ratelimit.Route(), "Route"
	case 4:
		return ratelimit.Header("X-Api-Key"), "Header"
	case 5:
		return ratelimit.ContextKey(func(ctx context.Context) (string, bool) { u, ok := ctx.Value(agreeUser{}).(string); return u, ok }), "ContextKey"
	case 6:
		keys, err := jwtkey.New(jwtkey.Config{Methods: []string{"HS256"}, Key: agreeSecret, CacheSize: one(w.Rand, 0, -1)})
		if err != nil {
			w.Fatal(err)
		}
		return keys.Claim(one(w.Rand, "sub", "team")), "Claim"
	case 7:
		return func(r *http.Request) (string, error) {
			switch r.Header.Get("X-Key") {
			case "bad":
				return "", fmt.Errorf("own: %w", ratelimit.ErrBadRequest)
			case "none":
				return "", fmt.Errorf("own: %w", ratelimit.ErrNoKey)
			case "empty":
				return "", nil
			case "fails":
				return "", errors.New("the directory is away")
			case "long":
				return strings.Repeat("long", 100), nil
			}
			return "own:" + r.Method + r.PathValue("id"), nil
		}, "own"
	case 8:
		return ratelimit.RemoteIP(), "RemoteIP"
	case 9, 10, 11:
		a, aText := w.key(depth - 1)
		b, bText := w.key(depth - 1)
		return ratelimit.FirstOf(a, b, ratelimit.RemoteIP()), "FirstOf(" + aText + ", " + bText + ", RemoteIP)"
	default:
		a, aText := w.key(depth - 1)
		b, bText := w.key(depth - 1)
		return ratelimit.Join(a, b), "Join(" + aText + ", " + bText + ")"
	}
}

// policies returns one to three random policies.
func (w *world) policies() (policies []ratelimit.Policy) {
	w.places++
	for _, i := range w.Perm(5)[:1+min(w.IntN(4), w.IntN(4))] {
		p := ratelimit.Policy{
			Name:       fmt.Sprint("p", w.places, "-", i), // a bucket that two places charge is explained as each of them finds it now
			Limit:      one(w.Rand, ratelimit.PerSecond(1).WithBurst(2), ratelimit.PerMinute(7).WithBurst(3), ratelimit.PerHour(100), ratelimit.PerSecond(3), ratelimit.PerDay(5)),
			Shadow:     w.chance(6),
			Hidden:     w.chance(6),
			Optional:   w.chance(3),
			FailClosed: w.chance(4),
		}
		var text string
		if p.Key, text = w.key(2); !w.chance(4) {
			p.Key, text = ratelimit.FirstOf(p.Key, ratelimit.RemoteIP(), ratelimit.Static("peer")), "FirstOf("+text+", RemoteIP, Static)"
		}
		switch w.IntN(6) {
		case 0, 1:
			p.MaxWait = one(w.Rand, time.Second, 10*time.Second)
		case 2:
			p.LockFor = one(w.Rand, time.Second, time.Minute)
		}
		if w.chance(4) {
			p.Cost = func(r *http.Request) int64 {
				n, err := strconv.ParseInt(r.Header.Get("X-Cost"), 10, 64)
				if err != nil {
					return 1
				}
				return n
			}
		}
		if w.chance(4) {
			p.LimitFunc = func(r *http.Request) ratelimit.Limit {
				switch r.Header.Get("X-Tier") {
				case "free":
					return ratelimit.PerMinute(2)
				case "gold":
					return ratelimit.PerSecond(10).WithBurst(20)
				case "unlimited":
					return ratelimit.Unlimited
				case "banned":
					return ratelimit.PerDay(0)
				case "malformed":
					return ratelimit.Limit{Rate: -1, Per: time.Second}
				}
				return ratelimit.Limit{}
			}
		}
		switch w.IntN(8) {
		case 0:
			p.Settle = ratelimit.FailedLogins
		case 1:
			p.Settle = func(_ *http.Request, res ratelimit.Response) int64 { return int64(res.Status) % 5 }
		}
		if p.LockFor > 0 && w.chance(2) {
			p.Settle = ratelimit.FailedLogins
		}
		w.note("%s: %s, %v, Shadow %t, Hidden %t, Optional %t, FailClosed %t, MaxWait %v, LockFor %v, Cost %t, LimitFunc %t, Settle %t",
			p.Name, text, p.Limit, p.Shadow, p.Hidden, p.Optional, p.FailClosed, p.MaxWait, p.LockFor, p.Cost != nil, p.LimitFunc != nil, p.Settle != nil)
		policies = append(policies, p)
	}
	return policies
}

// token returns the Authorization of a random member.
func (w *world) token() string {
	sign := func(secret []byte, claims jwt.MapClaims) string {
		text, err := jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString(secret)
		if err != nil {
			w.Fatal(err)
		}
		return "Bearer " + text
	}
	hour := time.Now().Add(time.Hour).Unix() / 86400 * 86400 // so that tokens come again
	claims := jwt.MapClaims{"sub": one(w.Rand, "5", "6"), "team": 7, "exp": hour + 2*86400}
	switch w.IntN(8) {
	case 0:
		claims["exp"] = hour - 2*86400
		return sign(agreeSecret, claims)
	case 1:
		return sign([]byte("a secret of thirty-two bytes, else"), claims)
	case 2:
		delete(claims, "sub")
		return sign(agreeSecret, claims)
	case 3:
		return "Bearer " + strings.Repeat("x", 9000)
	case 4:
		return one(w.Rand, "Basic dTpw", "Bearer", "Bearer a.b.c", "Bearer  ")
	default:
		return sign(agreeSecret, claims)
	}
}

// request returns a random request.
func (w *world) request() *http.Request {
	method := one(w.Rand, "GET", "GET", "GET", "GET", "POST", "POST", "HEAD", "PUT")
	if w.chance(40) {
		method = "PRI"
	}
	path := one(w.Rand, "/items/1", "/items/1", "/items/1", "/items/1", "/items/2", "/dir/", "/dir/a", "/items/", "/dir", "/dir/", "/dir/a", "/files/a/b%2Fc", "/", "/none", "/health", "//items//1", "/items/../dir/", "/tenants/t/n/x", "/tenants/t/n")
	r := httptest.NewRequest(method, path+one(w.Rand, "", "?q=1"), nil)
	r.Host = one(w.Rand, "example.com", "api.example")
	r.RemoteAddr = one(w.Rand, "10.0.0.1:1234", "10.0.0.1:99", "203.0.113.9:80")
	if w.chance(3) {
		r.RemoteAddr = one(w.Rand, "10.0.0.2:1", "[2001:db8::1]:99", "[2001:db8:0:1::1]:99", "192.0.2.1:7", "@", "", "garbage", "[fe80::1%eth0]:1")
	}
	entry := func() string {
		return one(w.Rand, "198.51.100.1", "198.51.100.2", "10.0.0.9", "203.0.113.9", "2001:db8::77", "198.51.100.1:443", "[2001:db8:5::1]:443", "unknown", "_hidden", "", "garbage", "::ffff:198.51.100.1", "0.0.0.0", " 198.51.100.1 ", "\"198.51.100.1\"", "999.1.1.1")
	}
	entries := func() string {
		var all []string
		for range 1 + w.IntN(4) {
			if w.chance(8) {
				all = append(all, entry())
			} else {
				all = append(all, one(w.Rand, "198.51.100.1", "198.51.100.2", "10.0.0.9"))
			}
		}
		return strings.Join(all, one(w.Rand, ", ", ",", " , "))
	}
	for range w.IntN(3) {
		r.Header.Add("X-Forwarded-For", entries())
	}
	for range w.IntN(2) {
		r.Header.Add("Forwarded", one(w.Rand, "for=198.51.100.1", `for="[2001:db8::2]:44";proto=https`, "for=198.51.100.1, for=10.0.0.9;by=203.0.113.43", "for=unknown", "for=", `for="198.51.100.1`, "proto=http", "FOR=198.51.100.2;for=198.51.100.3", "for=198.51.100.1,,for=10.0.0.1"))
	}
	for _, name := range []string{"CF-Connecting-IP", "X-Real-IP"} {
		for range min(w.IntN(3), w.IntN(3)) {
			r.Header.Add(name, entry())
		}
	}
	if w.chance(2) {
		r.Header.Add("X-Api-Key", one(w.Rand, "a", "b", "\x1b[31m"))
	}
	if w.chance(12) {
		r.Header.Add("X-Api-Key", one(w.Rand, "a", ""))
	}
	if w.chance(2) {
		r.Header.Add("Authorization", w.token())
	}
	for _, h := range []struct {
		name   string
		often  int
		values []string
	}{
		{"Accept", 2, []string{"text/html", "application/json", "text/plain", "*/*"}},
		{"X-Status", 2, []string{"200", "401", "304", "500"}},
		{"X-Cost", 3, []string{"0", "2", "5", "-1", "1000"}},
		{"X-Tier", 3, []string{"free", "gold", "unlimited", "banned", "malformed"}},
		{"X-Key", 6, []string{"bad", "none", "empty", "fails", "long"}},
		{"X-Skip", 12, []string{"1"}},
	} {
		if w.chance(h.often) {
			r.Header.Set(h.name, one(w.Rand, h.values...))
		}
	}
	ctx := r.Context()
	if w.chance(2) {
		ctx = context.WithValue(ctx, agreeAddr{}, one(w.Rand, netip.MustParseAddr("198.51.100.1"), netip.Addr{}, netip.IPv6Unspecified()))
	}
	if w.chance(2) {
		ctx = context.WithValue(ctx, agreeUser{}, one(w.Rand, "u1", "u2", ""))
	}
	if w.chance(8) {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(w.IntN(3000))*time.Millisecond)
		w.Cleanup(cancel)
	}
	return r.WithContext(ctx)
}

// compare explains a random request, has it served, and compares the two.
func (w *world) compare(n int, counts *agreements) {
	r := w.request()
	w.probing, w.reached, w.route = true, false, ""
	w.handler.ServeHTTP(httptest.NewRecorder(), r.Clone(r.Context()))
	w.probing = false
	route, routed := w.route, w.reached
	if w.chance(30) {
		w.store.fails = one(w.Rand, errors.New("the store is broken"), store.ErrOverloaded)
	}
	defer func() { w.store.fails = nil }()
	innermost, learned := w.learned[route]
	asked := r.Clone(r.Context())
	asked.Pattern = cmp.Or(innermost, route)

	asArrived, began := asked.Clone(r.Context()), time.Now()
	var e *explain.Explanation
	rec := httptest.NewRecorder()
	fault := func(format string, args ...any) {
		w.Helper()
		explained, _ := json.MarshalIndent(e, "", "  ")
		w.Errorf("request %d (%s %s at %q of %q, host %s, header %q): %s\nanswer %d %v %q\n%s",
			n, r.Method, r.URL, route, r.RemoteAddr, r.Host, r.Header, fmt.Sprintf(format, args...), rec.Code, rec.Header(), rec.Body, explained)
	}
	w.events, w.reached = nil, false
	w.store.explaining = true
	e = w.limiter.Explain(asked)
	w.store.explaining = false
	if w.reached || len(w.events) > 0 {
		fault("Explain ran a handler: %t, or observed %d events", w.reached, len(w.events))
	}
	if !time.Now().Equal(began) {
		fault("Explain waited for %v", time.Since(began))
	}
	if !reflect.DeepEqual(asked.Header, asArrived.Header) || *asked.URL != *asArrived.URL || asked.Pattern != asArrived.Pattern || asked.RemoteAddr != asArrived.RemoteAddr || asked.Method != asArrived.Method {
		fault("Explain changed the request to %v", asked)
	}

	var before []store.State // of the buckets of e, in its order
	for _, l := range e.Limiters {
		for _, p := range l.Policies {
			if p.Before != nil {
				b, err := store.Inspect(w.Context(), w.store.Store, p.Name, p.Key)
				if err != nil {
					w.Fatal(err)
				}
				before = append(before, b.State(compiled(w.T, p.Limit)))
			}
		}
	}

	w.handler.ServeHTTP(rec, r)
	if n := len(w.events); w.reached && n > 0 {
		w.learned[route] = w.events[n-1].Route
	}
	if !routed {
		return
	}
	if !learned || route == "unmatched" { // which several stacks of places may have
		counts.unlearned++
		return
	}
	for i, event := range w.events {
		if event.Waited > 0 && i < len(w.events)-1 {
			counts.waited++
			return // what follows is explained as of now
		}
	}
	status := rec.Code
	switch {
	case w.reached:
		status = 0
		counts.reached++
	case status == 420: // by Deny
		status = http.StatusTooManyRequests
		fallthrough
	default:
		counts.refuse(status)
	}
	if e.Status != status {
		fault("Status %d", e.Status)
	}
	answered := rec.Result().Header // by the limiter
	for _, name := range []string{"Content-Type", "Content-Length", "X-Content-Type-Options", "Vary", "X-Denied-By", "X-Error"} {
		answered.Del(name)
	}
	if !sameHeader(e.Header, answered) {
		fault("Header %v, want %v", e.Header, answered)
	}
	var waited time.Duration
	for _, event := range w.events {
		waited += event.Waited
	}
	if waits := longestWait(e); waits != waited || w.reached && w.at.Sub(began) != waited {
		fault("explained to wait %v, and the request waited %v", waits, waited)
	}
	if waited > 0 {
		counts.waited++
	}

	places := slices.DeleteFunc(slices.Clone(e.Limiters), func(l explain.Limiter) bool { return l.Skipped || !l.Met })
	if len(places) != len(w.events) {
		fault("%d places, and %d decisions", len(places), len(w.events))
		return
	}
	if len(places) > 1 {
		counts.stacked++
	}
	for i, event := range w.events {
		comparePlace(fault, &places[i], event)
	}
	for _, l := range e.Limiters {
		for _, p := range l.Policies {
			if p.Before != nil {
				if *p.Before != before[0] {
					fault("%s: Before %+v, want %+v", p.Name, *p.Before, before[0])
				}
				before = before[1:]
			}
		}
	}
}

// longestWait returns how long the request waits at the places that it meets.
func longestWait(e *explain.Explanation) (longest time.Duration) {
	for _, l := range e.Limiters {
		for _, p := range l.Policies {
			if l.Met && !p.Shadow && p.After != nil {
				longest = max(longest, p.After.Wait)
			}
		}
	}
	return longest
}

func (c *agreements) refuse(status int) {
	if c.refused == nil {
		c.refused = make(map[int]int)
	}
	c.refused[status]++
}

// compiled returns a limit, which an explanation has as text, as a Store has it.
func compiled(t *testing.T, text string) store.Limit {
	t.Helper()
	l, err := ratelimit.ParseLimit(text)
	if err != nil {
		t.Fatal(err)
	}
	limit, err := store.NewLimit(l.Rate, l.Per, cmp.Or(l.Burst, l.Rate))
	if err != nil {
		t.Fatal(err)
	}
	return limit
}

// sameHeader reports whether two headers are equal.
func sameHeader(a, b http.Header) bool {
	return len(a) == 0 && len(b) == 0 || reflect.DeepEqual(a, b)
}

// comparePlace compares what was explained of a place with the decision there.
func comparePlace(fault func(string, ...any), place *explain.Limiter, event *ratelimit.Event) {
	if place.Allowed != event.Allowed || event.Err == nil && place.Err != "" || event.Err != nil && !event.Allowed && len(event.Denied()) == 0 && place.Err == "" {
		fault("%s is allowed: %t, %q, want %t, %v", place.Mounted, place.Allowed, place.Err, event.Allowed, event.Err)
	}
	results := make(map[string]*ratelimit.Result)
	for i := range event.Results {
		results[event.Results[i].Policy] = &event.Results[i]
	}
	for i := range place.Policies {
		p := &place.Policies[i]
		r := results[p.Name]
		delete(results, p.Name)
		if r == nil {
			if p.Outcome == explain.Allowed && event.Err == nil {
				fault("%s is %s, and has no result", p.Name, p.Outcome)
			}
			continue
		}
		want := explain.Denied
		switch {
		case r.Allowed && event.Allowed:
			want = explain.Allowed
		case r.Allowed:
			want = explain.NotCharged
		case r.Shadow:
			want = explain.WouldDeny
		}
		if p.Outcome != want || p.Why == "" || p.Key != r.Key || p.Limit != r.Limit.String() || p.LimitWhy == "" || p.Cost != r.Cost || p.Shadow != r.Shadow || p.Hidden != r.Hidden || p.Found == nil {
			fault("%s: %+v, want %s by %+v", p.Name, p, want, r)
		}
		if p.Found != nil && p.Found.Key != logtext.Show(r.Key, 256) {
			fault("%s: found %q, want %q", p.Name, p.Found.Key, r.Key)
		}
		if p.After != nil && *p.After != r.State {
			fault("%s: After %+v, want %+v", p.Name, *p.After, r.State)
		}
		if asked := r.Limit.Rate != 0; asked != (p.After != nil && p.Before != nil) && event.Err == nil {
			fault("%s: Before %+v and After %+v, and a bucket was asked: %t", p.Name, p.Before, p.After, asked)
		}
	}
	for name := range results {
		fault("%s is not explained", name)
	}
}

// Explanations, requests and changes of limits do not disturb each other: all tokens are spent, once.
func TestExplainWhileRequestsAreServed(t *testing.T) {
	const burst, callers = 400, 8
	p := ratelimit.Policy{Name: "p", Key: ratelimit.FirstOf(ratelimit.Header("X-Api-Key"), ratelimit.RemoteIP()), Limit: ratelimit.PerDay(1).WithBurst(burst)}
	l := ratelimit.Must(ratelimit.New(ratelimit.Config{Policies: []ratelimit.Policy{p}, Logger: slog.New(slog.DiscardHandler)}))
	defer l.Close()
	var served atomic.Int64
	mux := http.NewServeMux()
	mux.Handle("GET /items/{id}", l.Limit(ratelimit.Policy{Name: "q", Key: ratelimit.Route(), Limit: ratelimit.PerDay(1).WithBurst(burst * callers), Shadow: true})(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served.Add(1) })))
	h := l.Handler(mux)
	var working sync.WaitGroup
	for range callers {
		working.Go(func() {
			for range burst / 4 {
				r := httptest.NewRequest("GET", "/items/1", nil)
				r.Pattern = "GET /items/{id}"
				if e := l.Explain(r); e.Status != http.StatusTooManyRequests && (e.Status != 0 || e.Route != "GET /items/{id}") {
					t.Errorf("%+v", e)
				}
				h.ServeHTTP(httptest.NewRecorder(), r)
			}
		})
	}
	for i := range int64(50) {
		q := map[string]ratelimit.Limit{"q": ratelimit.PerDay(1).WithBurst(burst*callers + i)}
		if err := errors.Join(l.Reload(p), l.Override(q, nil)); err != nil {
			t.Error(err)
		}
	}
	working.Wait()
	if n := served.Load(); n != burst {
		t.Errorf("%d requests were served, want %d", n, burst)
	}
}
