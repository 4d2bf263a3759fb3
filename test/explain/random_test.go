package explain_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/golang-jwt/jwt/v5"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/headers"
	"github.com/go-tokenbucket/ratelimit/jwtkey"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
)

// A randomLimiter has random policies, and is mounted at random points of random routers.
type randomLimiter struct {
	*testing.T
	*rand.Rand
	what    []string // for the report of a fault
	limiter *ratelimit.Limiter
	store   *observedStore
	handler http.Handler
	mounts  int
	learned map[string]string // by route: that of the innermost mount, after a request has met them all

	events  []*ratelimit.Event
	probing bool // only the route of a request is looked for
	reached bool
	route   string
	at      time.Time // when it was reached
}

func (rl *randomLimiter) String() string { return strings.Join(rl.what, "\n\t") }

func (rl *randomLimiter) note(format string, args ...any) {
	rl.what = append(rl.what, fmt.Sprintf(format, args...))
}

// one returns one of some.
func one[T any](r *rand.Rand, some ...T) T { return some[r.IntN(len(some))] }

func (rl *randomLimiter) chance(n int) bool { return rl.IntN(n) == 0 }

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

func newRandomLimiter(t *testing.T, seed uint64) *randomLimiter {
	rl := &randomLimiter{T: t, Rand: rand.New(rand.NewPCG(seed, 18))}
	memory := ratelimit.Must(memstore.New(memstore.Config{}))
	memory.Close() // under two limits, it makes a difference whether a full bucket was forgotten meanwhile
	rl.store = &observedStore{Store: memory, t: t}
	cfg := ratelimit.Config{
		Store:    rl.store,
		Policies: rl.policies(),
		Headers:  one(rl.Rand, nil, nil, headers.IETF, headers.Join(headers.Spring, headers.Shadows, headers.DeltaSeconds)),
		Logger:   slog.New(slog.DiscardHandler),
		Observe: func(_ context.Context, e *ratelimit.Event) {
			if e.Op == "request" {
				rl.events = append(rl.events, e)
			}
		},
		MaxWaiting: one(rl.Rand, 0, 1),
	}
	skips := rl.chance(3)
	cfg.Skip = func(r *http.Request) bool {
		return rl.probing || skips && (r.URL.Path == "/health" || r.Header.Get("X-Skip") != "")
	}
	if rl.chance(4) {
		cfg.Deny = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			d, _ := ratelimit.FromContext(r.Context())
			rw.Header().Set("Content-Type", "text/x-denied") // which a server would find out, and a recorder does not
			rw.Header().Set("X-Denied-By", strings.Join(d.Denied(), ","))
			rw.WriteHeader(420)
			fmt.Fprintf(rw, "%s %q is denied for %v under %s, and waited %v", r.Method, r.URL.Path, d.RetryAfter(), r.Pattern, d.Waited)
		})
	}
	if rl.chance(4) {
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
	rl.limiter = ratelimit.Must(ratelimit.New(cfg))
	rl.handler, rl.learned = rl.stack(), make(map[string]string)
	if rl.chance(4) {
		var changed []ratelimit.Policy
		for _, p := range cfg.Policies {
			p.Limit = ratelimit.PerSecond(1).WithBurst(3)
			changed = append(changed, p)
		}
		if err := rl.limiter.Reload(changed...); err != nil {
			t.Fatal(err)
		}
		rl.note("reload of Handler's policies")
	}
	if rl.chance(3) {
		o := ratelimit.Override{
			Policy: one(rl.Rand, cfg.Policies...).Name,
			Key:    one(rl.Rand, "", "static:all", "ip:10.0.0.1", "ip:203.0.113.9"),
			Limit:  one(rl.Rand, ratelimit.PerMinute(3).WithBurst(2), ratelimit.Unlimited),
		}
		if err := rl.limiter.Override([]ratelimit.Override{o}); err != nil {
			t.Fatal(err)
		}
		rl.note("override %+v", o)
	}
	return rl
}

// end is the handler of all routes.
func (rl *randomLimiter) end(rw http.ResponseWriter, r *http.Request) {
	rl.reached, rl.at = true, time.Now()
	key, _ := ratelimit.Route()(r)
	rl.route = strings.TrimPrefix(key, "route:")
	if rl.probing {
		return
	}
	status, err := strconv.Atoi(r.Header.Get("X-Status"))
	if err != nil {
		status = http.StatusNoContent
	}
	rw.WriteHeader(status)
}

// stack returns routers with the limiter mounted at random points.
func (rl *randomLimiter) stack() http.Handler {
	l, end := rl.limiter, http.Handler(http.HandlerFunc(rl.end))
	limited := func(h http.Handler) http.Handler {
		for range rl.IntN(3) {
			h = l.Limit(rl.policies()...)(h)
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
		if rl.chance(2) {
			m.Handle("/", limited(end))
		}
		return m
	}
	router := func(handler bool) http.Handler {
		r := chi.NewRouter()
		if handler {
			r.Use(l.Handler)
		}
		for range rl.IntN(2) {
			r.Use(l.Limit(rl.policies()...))
		}
		r.With(l.Limit(rl.policies()...)).Get("/items/{id}", rl.end)
		r.Method("POST", "/items/{id:[a-z0-9]+}", limited(end))
		r.Route("/dir", func(r chi.Router) {
			r.Use(l.Limit(rl.policies()...))
			r.Get("/", rl.end)
			r.Get("/{name}", rl.end)
		})
		r.Group(func(r chi.Router) {
			r.Use(l.Limit(rl.policies()...))
			r.Handle("/files/*", end)
			r.With(l.Limit(rl.policies()...)).Put("/", rl.end)
		})
		sub := chi.NewRouter()
		sub.Use(l.Limit(rl.policies()...))
		sub.Get("/{name}/x", rl.end)
		r.Mount("/tenants/{tenant}", sub)
		if rl.chance(2) {
			r.NotFound(rl.end)
		}
		return r
	}
	switch kind := rl.IntN(6); kind {
	case 0:
		rl.note("Handler around a ServeMux")
		return l.Handler(mux())
	case 1:
		rl.note("a ServeMux with Limit")
		return mux()
	case 2:
		rl.note("chi with Use of Handler")
		return router(true)
	case 3:
		rl.note("Handler around chi")
		return l.Handler(router(false))
	case 4:
		rl.note("a ServeMux around Handler around chi")
		m := http.NewServeMux()
		m.Handle("/items/", l.Handler(router(false)))
		m.Handle("/{rest...}", limited(mux())) // not the pattern of a route inside
		return m
	default:
		rl.note("Limit around Handler")
		return l.Limit(rl.policies()...)(l.Handler(limited(end)))
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
func (rl *randomLimiter) key(depth int) (ratelimit.KeyFunc, string) {
	kinds := 9
	if depth > 0 {
		kinds = 14
	}
	switch rl.IntN(kinds) {
	case 0, 1:
		i := rl.IntN(len(agreeModels))
		return ratelimit.ClientIP(agreeModels[i]), fmt.Sprintf("ClientIP(%+v)", agreeModels[i])
	case 2:
		return ratelimit.Static("all"), "Static"
	case 3:
		return ratelimit.Route(), "Route"
	case 4:
		return ratelimit.Header("X-Api-Key"), "Header"
	case 5:
		return ratelimit.ContextKey("user", func(ctx context.Context) (string, bool) { u, ok := ctx.Value(agreeUser{}).(string); return u, ok }), "ContextKey user"
	case 6:
		keys, err := jwtkey.New(jwtkey.Config{Methods: []string{"HS256"}, Key: agreeSecret, CacheSize: one(rl.Rand, 0, -1)})
		if err != nil {
			rl.Fatal(err)
		}
		return keys.Claim(one(rl.Rand, "sub", "team")), "Claim"
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
		a, aText := rl.key(depth - 1)
		b, bText := rl.key(depth - 1)
		return ratelimit.FirstOf(a, b, ratelimit.RemoteIP()), "FirstOf(" + aText + ", " + bText + ", RemoteIP)"
	default:
		a, aText := rl.key(depth - 1)
		b, bText := rl.key(depth - 1)
		return ratelimit.Join(a, b), "Join(" + aText + ", " + bText + ")"
	}
}

// policies returns one to three random policies.
func (rl *randomLimiter) policies() (policies []ratelimit.Policy) {
	rl.mounts++
	for _, i := range rl.Perm(5)[:1+min(rl.IntN(4), rl.IntN(4))] {
		p := ratelimit.Policy{
			Name:       fmt.Sprint("p", rl.mounts, "-", i), // a bucket that two mounts charge is explained as each of them finds it now
			Limit:      one(rl.Rand, ratelimit.PerSecond(1).WithBurst(2), ratelimit.PerMinute(7).WithBurst(3), ratelimit.PerHour(100), ratelimit.PerSecond(3), ratelimit.PerDay(5), ratelimit.Quota(6, ratelimit.Hour).In("Asia/Kolkata")),
			Shadow:     rl.chance(6),
			Hidden:     rl.chance(6),
			Optional:   rl.chance(3),
			FailClosed: rl.chance(4),
		}
		var text string
		if p.Key, text = rl.key(2); !rl.chance(4) {
			p.Key, text = ratelimit.FirstOf(p.Key, ratelimit.RemoteIP(), ratelimit.Static("peer")), "FirstOf("+text+", RemoteIP, Static)"
		}
		switch rl.IntN(6) {
		case 0, 1:
			p.MaxWait = one(rl.Rand, time.Second, 10*time.Second)
		case 2:
			p.LockFor = one(rl.Rand, time.Second, time.Minute)
		}
		if rl.chance(4) {
			p.Cost = func(r *http.Request) int64 {
				n, err := strconv.ParseInt(r.Header.Get("X-Cost"), 10, 64)
				if err != nil {
					return 1
				}
				return n
			}
		}
		if rl.chance(4) {
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
		switch rl.IntN(8) {
		case 0:
			p.Settle = ratelimit.FailedLogins
		case 1:
			p.Settle = func(_ *http.Request, res ratelimit.Response) int64 { return int64(res.Status) % 5 }
		}
		if p.LockFor > 0 && rl.chance(2) {
			p.Settle = ratelimit.FailedLogins
		}
		rl.note("%s: %s, %v, Shadow %t, Hidden %t, Optional %t, FailClosed %t, MaxWait %v, LockFor %v, Cost %t, LimitFunc %t, Settle %t",
			p.Name, text, p.Limit, p.Shadow, p.Hidden, p.Optional, p.FailClosed, p.MaxWait, p.LockFor, p.Cost != nil, p.LimitFunc != nil, p.Settle != nil)
		policies = append(policies, p)
	}
	return policies
}

// token returns the Authorization of a random member.
func (rl *randomLimiter) token() string {
	sign := func(secret []byte, claims jwt.MapClaims) string {
		text, err := jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString(secret)
		if err != nil {
			rl.Fatal(err)
		}
		return "Bearer " + text
	}
	hour := time.Now().Add(time.Hour).Unix() / 86400 * 86400 // so that tokens come again
	claims := jwt.MapClaims{"sub": one(rl.Rand, "5", "6"), "team": 7, "exp": hour + 2*86400}
	switch rl.IntN(8) {
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
		return one(rl.Rand, "Basic dTpw", "Bearer", "Bearer a.b.c", "Bearer  ")
	default:
		return sign(agreeSecret, claims)
	}
}

// request returns a random request.
func (rl *randomLimiter) request() *http.Request {
	method := one(rl.Rand, "GET", "GET", "GET", "GET", "POST", "POST", "HEAD", "PUT")
	if rl.chance(40) {
		method = "PRI"
	}
	path := one(rl.Rand, "/items/1", "/items/1", "/items/1", "/items/1", "/items/2", "/dir/", "/dir/a", "/items/", "/dir", "/dir/", "/dir/a", "/files/a/b%2Fc", "/", "/none", "/health", "//items//1", "/items/../dir/", "/tenants/t/n/x", "/tenants/t/n")
	r := httptest.NewRequest(method, path+one(rl.Rand, "", "?q=1"), nil)
	r.Host = one(rl.Rand, "example.com", "api.example")
	r.RemoteAddr = one(rl.Rand, "10.0.0.1:1234", "10.0.0.1:99", "203.0.113.9:80")
	if rl.chance(3) {
		r.RemoteAddr = one(rl.Rand, "10.0.0.2:1", "[2001:db8::1]:99", "[2001:db8:0:1::1]:99", "192.0.2.1:7", "@", "", "garbage", "[fe80::1%eth0]:1")
	}
	entry := func() string {
		return one(rl.Rand, "198.51.100.1", "198.51.100.2", "10.0.0.9", "203.0.113.9", "2001:db8::77", "198.51.100.1:443", "[2001:db8:5::1]:443", "unknown", "_hidden", "", "garbage", "::ffff:198.51.100.1", "0.0.0.0", " 198.51.100.1 ", "\"198.51.100.1\"", "999.1.1.1")
	}
	entries := func() string {
		var all []string
		for range 1 + rl.IntN(4) {
			if rl.chance(8) {
				all = append(all, entry())
			} else {
				all = append(all, one(rl.Rand, "198.51.100.1", "198.51.100.2", "10.0.0.9"))
			}
		}
		return strings.Join(all, one(rl.Rand, ", ", ",", " , "))
	}
	for range rl.IntN(3) {
		r.Header.Add("X-Forwarded-For", entries())
	}
	for range rl.IntN(2) {
		r.Header.Add("Forwarded", one(rl.Rand, "for=198.51.100.1", `for="[2001:db8::2]:44";proto=https`, "for=198.51.100.1, for=10.0.0.9;by=203.0.113.43", "for=unknown", "for=", `for="198.51.100.1`, "proto=http", "FOR=198.51.100.2;for=198.51.100.3", "for=198.51.100.1,,for=10.0.0.1"))
	}
	for _, name := range []string{"CF-Connecting-IP", "X-Real-IP"} {
		for range min(rl.IntN(3), rl.IntN(3)) {
			r.Header.Add(name, entry())
		}
	}
	if rl.chance(2) {
		r.Header.Add("X-Api-Key", one(rl.Rand, "a", "b", "\x1b[31m"))
	}
	if rl.chance(12) {
		r.Header.Add("X-Api-Key", one(rl.Rand, "a", ""))
	}
	if rl.chance(2) {
		r.Header.Add("Authorization", rl.token())
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
		if rl.chance(h.often) {
			r.Header.Set(h.name, one(rl.Rand, h.values...))
		}
	}
	ctx := r.Context()
	if rl.chance(2) {
		ctx = context.WithValue(ctx, agreeAddr{}, one(rl.Rand, netip.MustParseAddr("198.51.100.1"), netip.Addr{}, netip.IPv6Unspecified()))
	}
	if rl.chance(2) {
		ctx = context.WithValue(ctx, agreeUser{}, one(rl.Rand, "u1", "u2", ""))
	}
	if rl.chance(8) {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(rl.IntN(3000))*time.Millisecond)
		rl.Cleanup(cancel)
	}
	return r.WithContext(ctx)
}
