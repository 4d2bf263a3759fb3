package ratelimit_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/denial"
	"github.com/go-tokenbucket/ratelimit/jwtkey"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/golang-jwt/jwt/v5"
)

func TestDecideAnswersNothing(t *testing.T) {
	onEachStore(t, func(t *testing.T, s store.Store, _ *clock) {
		own := perIP("own", ratelimit.PerHour(1))
		l := newLimiter(t, ratelimit.Config{Store: s, Policies: []ratelimit.Policy{own}})
		r := httptest.NewRequest("GET", "/", nil)
		for i, want := range []bool{true, false} {
			d, err := l.Decide(r)
			if err != nil || d.Allowed != want || len(d.Results) != 1 || d.Results[0].Key != "ip:192.0.2.1" {
				t.Errorf("decision %d by Config.Policies: %+v, %v", i, d, err)
			}
		}
		d, err := l.Decide(r, perIP("a", ratelimit.PerHour(2)), perIP("b", ratelimit.PerHour(3)))
		if err != nil || !d.Allowed || len(d.Results) != 2 || d.Results[1].Remaining != 2 || d.Results[1].Limit != ratelimit.PerHour(3) {
			t.Errorf("decision by others: %+v, %v", d, err)
		}
		if d, err := l.Decide(r, ratelimit.Policy{Name: "a", Key: noKey, Limit: ratelimit.PerHour(2)}); d.Allowed || !errors.Is(err, ratelimit.ErrNoKey) {
			t.Errorf("without a key: %+v, %v", d, err)
		}
		if d, err := l.Decide(r, ratelimit.Policy{Name: "a"}); d.Allowed || err == nil || !strings.Contains(err.Error(), "Key") || !strings.Contains(err.Error(), "Limit") {
			t.Errorf("of a malformed policy: %+v, %v", d, err)
		}
	})
}

// Whatever a client repeats or breaks, the limiter sees the identity that the application sees, or refuses.
func TestAmbiguousCredentialsPassNoPolicy(t *testing.T) {
	five, six := hs256(valid(`"sub": "5"`)), hs256(valid(`"sub": "6"`))
	members := ratelimit.Must(jwtkey.New(jwtkey.Config{Methods: []string{"HS256"}, Key: hmacSecret})).Claim("sub")
	proxied := ratelimit.ClientIP(ratelimit.IPConfig{TrustedProxies: ours, Header: "Forwarded"})
	for _, tt := range []struct {
		name string
		key  ratelimit.KeyFunc
		r    func() *http.Request
	}{
		{"Two Authorization lines", members, func() *http.Request {
			return requestWith("Authorization", "Bearer "+five, "Authorization", "Bearer "+six)
		}},
		{"Two API keys", ratelimit.Header("X-Api-Key"), func() *http.Request { return requestWith("X-Api-Key", "a", "X-Api-Key", "b") }},
		{"A malformed Forwarded header", proxied, func() *http.Request { return requestFrom(proxy, "Forwarded", `for="192.0.2.1`) }},
		{"A hidden client", proxied, func() *http.Request { return requestFrom(proxy, "Forwarded", `for=_hidden`) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for way, p := range map[string]ratelimit.Policy{
				"required": {Key: tt.key},
				"optional": {Key: tt.key, Optional: true},
				"first":    {Key: ratelimit.FirstOf(tt.key, ratelimit.RemoteIP())},
				"joined":   {Key: ratelimit.Join(noKey, tt.key), Optional: true},
			} {
				p.Name, p.Limit = "api", ratelimit.PerHour(1000)
				l := quiet(t)
				for range 3 {
					d, err := l.Decide(tt.r(), p, perIP("beside", ratelimit.PerHour(1)))
					if d.Allowed || !errors.Is(err, ratelimit.ErrBadRequest) || errors.Is(err, ratelimit.ErrNoKey) || len(d.Results) != 0 {
						t.Errorf("%s: got %+v, error %v; want ErrBadRequest", way, d, err)
					}
				}
				r := tt.r()
				if w := get(l.Limit(p)(okHandler), func(to *http.Request) { to.Header, to.RemoteAddr = r.Header, r.RemoteAddr }); w.Code != 400 {
					t.Errorf("%s: got status %d", way, w.Code)
				}
				wantStatuses(t, l.Limit(perIP("beside", ratelimit.PerHour(1)))(okHandler), []int{200, 429}) // nothing was spent

				p.Shadow = true
				if d, err := l.Decide(tt.r(), p); !d.Allowed || err != nil {
					t.Errorf("%s, in shadow: got %+v, error %v", way, d, err)
				}
			}
		})
	}
}

func TestWhichRefusalWins(t *testing.T) {
	policies := map[int]ratelimit.Policy{
		200: {Name: "ok", Key: ratelimit.RemoteIP()},
		400: {Name: "bad", Key: finds("", ratelimit.ErrBadRequest)},
		403: {Name: "none", Key: noKey},
		503: {Name: "broken", Key: finds("", errors.New("broken"))},
		204: {Name: "outage", Key: finds("", ratelimit.ErrOutage)}, // which is let through
		429: {Name: "zero", Key: ratelimit.RemoteIP(), LimitFunc: func(*http.Request) ratelimit.Limit { return ratelimit.PerDay(0) }},
	}
	for status, p := range policies {
		p.Limit = ratelimit.PerHour(1000)
		policies[status] = p
	}
	order := []int{400, 403, 503, 429, 200}
	l := quiet(t)
	for i, want := range order {
		for _, other := range append(order[i+1:], 204) {
			for _, both := range [][2]int{{want, other}, {other, want}} {
				if w := get(l.Limit(policies[both[0]], policies[both[1]])(okHandler)); w.Code != want {
					t.Errorf("%d and %d: got status %d", both[0], both[1], w.Code)
				}
			}
		}
	}
}

// ParseForm fails on "/login?%", which any client can send.
func TestAnErrorThatAClientCausesDoesNotLetItThrough(t *testing.T) {
	p := ratelimit.Policy{Name: "login", Limit: ratelimit.PerHour(3), Key: func(r *http.Request) (string, error) {
		if err := r.ParseForm(); err != nil {
			return "", err
		}
		return "user:" + r.Form.Get("user"), nil
	}}
	wantStatuses(t, quiet(t).Limit(p)(okHandler), []int{503, 503, 503, 503}, method("POST"), func(r *http.Request) { r.URL.RawQuery = "%" })
}

// A client that hangs up, or a deadline of the server's own, makes a KeyFunc's directory fail, too.
func TestAnOutageAfterTheRequestsContextEndedDoesNotLetItThrough(t *testing.T) {
	p := ratelimit.Policy{Name: "api", Limit: ratelimit.PerHour(3), Key: func(r *http.Request) (string, error) {
		if err := r.Context().Err(); err != nil {
			return "", fmt.Errorf("%w: %w", ratelimit.ErrOutage, err)
		}
		return "member:5", nil
	}}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	late, stop := context.WithDeadline(t.Context(), time.Unix(0, 0))
	defer stop()
	for ctx, status := range map[context.Context]int{t.Context(): 200, canceled: 503, late: 503} {
		w := httptest.NewRecorder()
		quiet(t).Limit(p)(okHandler).ServeHTTP(w, requestWith().WithContext(ctx))
		if w.Code != status {
			t.Errorf("got status %d; want %d", w.Code, status)
		}
	}
}

// A KeyFunc that could not find out says so, also where an error of its says that there is no key.
func TestNoKeyDoesNotHideAnOutage(t *testing.T) {
	both := finds("", errors.Join(ratelimit.ErrNoKey, ratelimit.ErrOutage))
	for _, optional := range []bool{false, true} {
		for closed, status := range map[bool]int{false: 200, true: 503} {
			p := ratelimit.Policy{Name: "api", Key: both, Limit: ratelimit.PerHour(9), Optional: optional, FailClosed: closed}
			for name, p := range map[string]ratelimit.Policy{"alone": p, "in a FirstOf": {Name: "api", Key: ratelimit.FirstOf(both, ratelimit.RemoteIP()), Limit: p.Limit, Optional: optional, FailClosed: closed}} {
				l, text := logged(t)
				if w := get(l.Limit(p)(okHandler)); w.Code != status {
					t.Errorf("%s, Optional %t, FailClosed %t: got status %d; want %d", name, optional, closed, w.Code, status)
				}
				checkText(t, text.String(), "level=ERROR", "decision failed", "outage")
			}
		}
	}
	w := httptest.NewRecorder()
	denial.Handler{}.ServeError(w, requestWith(), errors.Join(ratelimit.ErrNoKey, ratelimit.ErrOutage))
	if w.Code != 503 {
		t.Errorf("ServeError: got status %d", w.Code)
	}
}

// A Keyfunc may say that its key server is away. Otherwise a token that it finds no key for is not valid.
func TestAKeyfuncMayReportAnOutage(t *testing.T) {
	for failure, want := range map[error]error{
		errors.New("no such kid"): ratelimit.ErrNoKey,
		ratelimit.ErrOutage:       ratelimit.ErrOutage,
	} {
		cfg := hs256Config()
		cfg.Key, cfg.Keyfunc = nil, func(context.Context, *jwt.Token) (any, error) { return nil, failure }
		p := ratelimit.Policy{Name: "api", Key: ratelimit.Must(jwtkey.New(cfg)).Claim("sub"), Limit: ratelimit.PerHour(9), FailClosed: true}
		status := map[error]int{ratelimit.ErrNoKey: 403, ratelimit.ErrOutage: 503}[want]
		if w := get(quiet(t).Limit(p)(okHandler), with("Authorization", "Bearer "+hs256(valid(`"sub": "5"`)))); w.Code != status {
			t.Errorf("%v: got status %d; want %d", failure, w.Code, status)
		}
	}
}

func TestRefusalsAreLoggedOnceAMinuteWithWhatWouldHelp(t *testing.T) {
	members := ratelimit.Must(jwtkey.New(hs256Config(jwtkey.BearerToken(), jwtkey.CookieToken("__Host-token"), jwtkey.HeaderToken("x-token")))).Claim("sub")
	unix := func(r *http.Request) { r.RemoteAddr = "@" }
	for _, tt := range []struct {
		name   string
		key    ratelimit.KeyFunc
		change func(*http.Request)
		want   string
	}{
		{"No route", ratelimit.Route(), unix, "mount the limiter on the route's handler"},
		{"A unix socket", ratelimit.RemoteIP(), unix, "the TCP peer is a unix socket: set IPConfig.TrustUnix"},
		{"No peer", ratelimit.RemoteIP(), func(r *http.Request) { r.RemoteAddr = "localhost" }, "the TCP peer has no IP address"},
		{"No token", members, unix, "no key: no Authorization header; no token in cookie __Host-token; no X-Token header"},
		{"Another scheme", members, with("Authorization", "Basic eDp5"), "no Bearer token in Authorization"},
		{"No header", ratelimit.Header("x-api-key"), unix, "no X-Api-Key header"},
		{"No name in the context", ratelimit.ContextKey("user", func(context.Context) (string, bool) { return "", false }), unix, "the context holds no identity: is the authentication mounted before the limiter?"},
		{"Not one token", members, with("Authorization", "Bearer a b"), `Authorization is not \"Bearer\", spaces and one token`},
		{"A malformed token", members, with("Authorization", "Bearer a.b.c"), "token is malformed"},
		{"An expired token", members, with("Authorization", "Bearer "+hs256(`{"sub": "5", "exp": 1}`)), "token is expired"},
		{"No claim", members, with("Authorization", "Bearer "+hs256(valid(`"a": 1`))), `the token has no claim \"sub\"`},
		{"A claim that is of no use", members, with("Authorization", "Bearer "+hs256(valid(`"sub": true`))), `claim \"sub\" of the token is not a string`},
		{"No forwarded address", ratelimit.ClientIP(ratelimit.IPConfig{ProxyCount: 1}), unix, "no address of the client in X-Forwarded-For"},
		{"No address of an edge", ratelimit.ClientIP(ratelimit.IPConfig{EdgeHeader: "x-real-ip"}), unix, "no address of the client in X-Real-Ip"},
		{"A bad address of an edge", ratelimit.ClientIP(ratelimit.IPConfig{EdgeHeader: "x-real-ip"}), with("X-Real-IP", "?"), "X-Real-Ip does not hold an address"},
		{"Repeated", ratelimit.Header("x-api-key"), func(r *http.Request) { r.Header["X-Api-Key"] = []string{"a", "a"} }, "more than one X-Api-Key header"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, text := logged(t)
				p := ratelimit.Policy{Name: "api", Key: tt.key, Limit: ratelimit.PerHour(9)}
				h := l.Limit(p)(okHandler)
				for range 10 {
					if w := get(h, tt.change); w.Code != 400 && w.Code != 403 || strings.Contains(w.Body.String(), "header") {
						t.Fatalf("%d %s", w.Code, w.Body)
					}
				}
				time.Sleep(time.Minute - time.Nanosecond)
				get(h, tt.change)
				time.Sleep(time.Nanosecond)
				get(h, tt.change)
				lines := strings.Split(strings.TrimSpace(text.String()), "\n")
				if len(lines) != 2 {
					t.Fatalf("got %d lines:\n%s", len(lines), text)
				}
				checkText(t, lines[0], `level=WARN msg="ratelimit: request refused" error="policy api: ratelimit: `, tt.want, "let_through=false")
				checkText(t, lines[1], "not_logged_since=10")

				text.Reset()
				p.Name, p.Optional = "optional", true
				if w := get(l.Limit(p)(okHandler), tt.change); w.Code == 200 && text.Len() > 0 {
					t.Errorf("optional, and logged: %s", text)
				}
				p.Name, p.Optional, p.Shadow = "shadow", false, true
				wantStatuses(t, l.Limit(p)(okHandler), []int{200, 200}, tt.change)
				checkText(t, text.String(), `policy shadow: `, tt.want, "let_through=true")
			})
		})
	}
}

// A connection notices the deadline of a request a little before the request's context does.
func TestAFailureAtTheEndOfARequestsOwnTimeDoesNotLetItThrough(t *testing.T) {
	outage := perIP("api", ratelimit.PerHour(9))
	outage.Key = func(*http.Request) (string, error) { return "", fmt.Errorf("%w: i/o timeout", ratelimit.ErrOutage) }
	failed := newLimiter(t, ratelimit.Config{Store: failing(func() error { return errors.New("i/o timeout") }), Logger: slog.New(slog.DiscardHandler)})
	for name, h := range map[string]http.Handler{
		"KeyFunc": quiet(t).Limit(outage)(okHandler),
		"Store":   failed.Limit(perIP("api", ratelimit.PerHour(9)))(okHandler),
	} {
		for left, want := range map[time.Duration]int{5 * time.Millisecond: 503, time.Hour: 200} {
			ctx, cancel := context.WithTimeout(t.Context(), left)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, requestWith().WithContext(ctx))
			cancel()
			if w.Code != want {
				t.Errorf("%s, with %v left: %d, want %d", name, left, w.Code, want)
			}
		}
	}
}

// Who takes a connection over that begins HTTP/2 serves all further requests of it without a limiter.
func TestThePrefaceOfHTTP2IsRefused(t *testing.T) {
	var events []*ratelimit.Event
	l := newLimiter(t, ratelimit.Config{Observe: func(_ context.Context, e *ratelimit.Event) { events = append(events, e) }, Logger: slog.New(slog.DiscardHandler)})
	w := get(l.Limit(perIP("api", ratelimit.PerHour(9)))(okHandler), method("PRI"))
	if w.Code != 400 || len(events) != 1 || !errors.Is(events[0].Err, ratelimit.ErrBadRequest) {
		t.Errorf("%d, events %v", w.Code, events)
	}
}

// One client that finds ever new ways to have no key leaves lines for what is wrong elsewhere.
func TestAClientDoesNotUseUpTheKindsOfRefusals(t *testing.T) {
	members := ratelimit.Must(jwtkey.New(hs256Config(jwtkey.BearerToken(), jwtkey.HeaderToken("X-Token"), jwtkey.CookieToken("token")))).Claim("sub")
	own := func(r *http.Request) (string, error) {
		return "", fmt.Errorf("%w: no such user %s", ratelimit.ErrNoKey, r.Header.Get("Authorization"))
	}
	for name, key := range map[string]ratelimit.KeyFunc{
		"JWT":       members,
		"A FirstOf": ratelimit.FirstOf(ratelimit.Header("X-Api-Key"), own, members),
		"One's own": own,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, text := logged(t)
				var mounted []http.Handler
				for i := range 9 { // also names that differ in digits only are told apart
					mounted = append(mounted, l.Limit(ratelimit.Policy{Name: fmt.Sprint("v", i), Key: key, Limit: ratelimit.PerHour(9)})(okHandler))
				}
				for c := 0; c < 128; c += 5 {
					for _, header := range []string{string(rune(c)), `{"a":` + string(rune(c)), `{"alg":"` + string(rune(c)) + `"}`} {
						token := base64.RawURLEncoding.EncodeToString([]byte(header)) + ".e30.x"
						for _, h := range mounted {
							get(h, with("Authorization", "Bearer "+token))
							get(h, with("X-Token", token+"!"))
						}
					}
				}
				if n := strings.Count(text.String(), "\n"); n < len(mounted) || n > 6*len(mounted) {
					t.Errorf("%d lines:\n%.3000s", n, text)
				}
				text.Reset()
				get(l.Limit(ratelimit.Policy{Name: "search", Key: ratelimit.Route(), Limit: ratelimit.PerHour(9)})(okHandler))
				checkText(t, text.String(), "policy search", "mount the limiter on the route's handler", "not_logged_since=0")
			})
		})
	}
}

// Errors that a client causes leave lines for a Store that fails.
func TestAClientDoesNotUseUpTheKindsOfFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, text := logged(t)
		p := ratelimit.Policy{Name: "api", Limit: ratelimit.PerHour(9), Key: func(r *http.Request) (string, error) {
			return "", fmt.Errorf("cannot read %s: %w", r.Method, errors.New("it is "+r.Method))
		}}
		h := l.Limit(p)(okHandler)
		for i := range 100 {
			get(h, method(strings.Repeat("M", i+1)))
		}
		if n := strings.Count(text.String(), "\n"); n != 1 {
			t.Errorf("%d lines:\n%s", n, text)
		}
		checkText(t, text.String(), `error="policy api: cannot read M: it is M"`)

		text.Reset()
		p.Name, p.Key = "login", finds("", errors.Join(ratelimit.ErrOutage, errors.New("the directory is away")))
		get(l.Limit(p)(okHandler))
		checkText(t, text.String(), "policy login", "the directory is away", "let_through=true not_logged_since=0")
	})
}

func TestErrorsOfPoliciesWrapThoseOfTheirFunctions(t *testing.T) {
	broken := errors.New("broken")
	_, err := quiet(t).Decide(requestWith(), ratelimit.Policy{Name: "api", Key: finds("", broken), Limit: ratelimit.PerHour(9)})
	if !errors.Is(err, broken) || err.Error() != "policy api: broken" {
		t.Errorf("got %v", err)
	}
}
