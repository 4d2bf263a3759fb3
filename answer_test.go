package ratelimit_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/denial"
	"github.com/go-tokenbucket/ratelimit/jwtkey"
	"github.com/go-tokenbucket/ratelimit/store"
)

// draining starts a server whose BaseContext drain cancels.
func draining(t *testing.T, h http.Handler, http2 bool) (server *httptest.Server, drain func()) {
	ctx, drain := context.WithCancel(t.Context())
	server = httptest.NewUnstartedServer(h)
	server.Config.BaseContext = func(net.Listener) context.Context { return ctx }
	server.EnableHTTP2 = http2
	if http2 {
		server.StartTLS()
	} else {
		server.Start()
	}
	t.Cleanup(server.Close)
	t.Cleanup(drain)
	return server, drain
}

// While a server drains, its clients are still there, although the context of each request is cancelled.
func TestADrainingServerAnswersTheClientsThatAreStillThere(t *testing.T) {
	for name, http2 := range map[string]bool{"HTTP/1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			events := make(chan *ratelimit.Event, 10)
			arrived := make(chan struct{}, 10)
			l := newLimiter(t, ratelimit.Config{Observe: func(_ context.Context, e *ratelimit.Event) { events <- e }})
			h := l.Limit(waiting(perIP("api", ratelimit.Every(time.Hour).WithBurst(2)), 2*time.Hour))(okHandler)
			server, drain := draining(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				arrived <- struct{}{}
				h.ServeHTTP(w, r)
			}), http2)
			get := func() *http.Response {
				response, err := server.Client().Get(server.URL)
				if err != nil {
					t.Error(err)
					return &http.Response{Header: http.Header{}}
				}
				response.Body.Close()
				return response
			}
			if first := get(); first.StatusCode != 200 {
				t.Fatalf("before: %d", first.StatusCode)
			}
			drain()
			if second := get(); second.StatusCode != 200 || second.Header.Get("X-RateLimit-Remaining") != "0" {
				t.Errorf("one that need not wait: %d %v", second.StatusCode, second.Header)
			}
			if third := get(); third.StatusCode != 503 || third.Header.Get("Retry-After") == "" {
				t.Errorf("one that would have to wait: %d %v, want 503", third.StatusCode, third.Header)
			}
			for range 3 {
				<-arrived
				<-events
			}
		})
	}
}

// A 499 is for the log alone: it says that nobody is there.
func TestAClientThatIsGoneIs499InTheLog(t *testing.T) {
	for name, http2 := range map[string]bool{"HTTP/1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			statuses, arrived := make(chan int, 1), make(chan struct{})
			l := newLimiter(t, ratelimit.Config{})
			spent := waiting(perIP("api", ratelimit.Every(time.Hour)), 2*time.Hour)
			if _, err := l.Take(t.Context(), spent, "ip:127.0.0.1", 1); err != nil {
				t.Fatal(err)
			}
			h := l.Limit(spent)(okHandler)
			server, _ := draining(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				close(arrived)
				s := &statusWriter{ResponseWriter: w}
				h.ServeHTTP(s, r)
				statuses <- s.status
			}), http2)
			ctx, leave := context.WithCancel(t.Context())
			r, err := http.NewRequestWithContext(ctx, "GET", server.URL, nil)
			if err != nil {
				t.Fatal(err)
			}
			go func() {
				<-arrived
				leave()
			}()
			if _, err := server.Client().Do(r); !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
			if status := <-statuses; status != 499 {
				t.Errorf("status %d, want 499", status)
			}
		})
	}
}

// A statusWriter is a middleware's that knows Unwrap alone.
type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// onNesting runs a test on limiters around a handler: one, one that settles, two of each.
func onNesting(t *testing.T, test func(t *testing.T, limited func(http.Handler) http.Handler)) {
	l := newLimiter(t, ratelimit.Config{})
	plain, settled := perIP("plain", ratelimit.PerHour(100)), perIP("settled", ratelimit.PerHour(100))
	settled.Settle = ratelimit.FailedLogins
	for name, limited := range map[string]func(http.Handler) http.Handler{
		"plain":   l.Limit(plain),
		"settled": l.Limit(settled),
		"stacked": func(h http.Handler) http.Handler { return l.Limit(plain)(l.Limit(settled)(l.Limit(plain, settled)(h))) },
		"foreign": func(h http.Handler) http.Handler {
			h = l.Limit(settled)(l.Limit(plain)(h))
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("X-RateLimit-Remaining", "7")
				h.ServeHTTP(w, r)
			})
		},
	} {
		t.Run(name, func(t *testing.T) { test(t, limited) })
	}
}

func TestTheRouteComesBackToThoseOutside(t *testing.T) {
	onNesting(t, func(t *testing.T, limited func(http.Handler) http.Handler) {
		mux := http.NewServeMux()
		mux.Handle("GET /items/{id}", okHandler)
		mux.HandleFunc("GET /panic/{id}", func(http.ResponseWriter, *http.Request) { panic("handler") })
		for path, want := range map[string]string{"/items/5": "GET /items/{id}", "/panic/5": "GET /panic/{id}"} {
			r := httptest.NewRequest("GET", path, nil)
			recovering(limited(mux)).ServeHTTP(httptest.NewRecorder(), r)
			if r.Pattern != want || r.PathValue("id") != "5" {
				t.Errorf("%s: pattern %q, id %q", path, r.Pattern, r.PathValue("id"))
			}
		}
	})
}

func recovering(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() { _ = recover() }()
		h.ServeHTTP(w, r)
	})
}

// upload posts a form with a file.
func upload(t *testing.T, h http.Handler) (status int) {
	server := httptest.NewServer(h)
	defer server.Close()
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	part, _ := form.CreateFormFile("file", "upload")
	io.WriteString(part, strings.Repeat("x", 1<<16))
	form.Close()
	response, err := server.Client().Post(server.URL, form.FormDataContentType(), &body)
	if err != nil {
		t.Error(err)
		return 0
	}
	response.Body.Close()
	return response.StatusCode
}

// net/http removes the files of a form when the request that it made has been served. A client that is over its limit
// must not fill the disk either.
func TestFilesOfUploadsAreRemoved(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	stored := 0
	parse := func(r *http.Request) {
		if err := r.ParseMultipartForm(1); err != nil {
			t.Error(err)
		}
		stored = files(t)
	}
	onNesting(t, func(t *testing.T, limited func(http.Handler) http.Handler) {
		for _, panics := range []bool{false, true} {
			stored = 0
			upload(t, recovering(limited(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				if parse(r); panics {
					panic("handler")
				}
			}))))
			if stored == 0 || files(t) != 0 {
				t.Errorf("panics %t: %d files while it was served, %d after", panics, stored, files(t))
			}
		}
	})
	l := newLimiter(t, ratelimit.Config{Deny: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		parse(r)
		w.WriteHeader(429)
	})})
	spent := perIP("api", ratelimit.PerHour(1))
	if _, err := l.Take(t.Context(), spent, "ip:127.0.0.1", 1); err != nil {
		t.Fatal(err)
	}
	if stored = 0; upload(t, l.Limit(spent)(okHandler)) != 429 || stored == 0 || files(t) != 0 {
		t.Errorf("denied: %d files meanwhile, %d after", stored, files(t))
	}
}

func files(t *testing.T) int {
	entries, err := os.ReadDir(os.TempDir())
	if err != nil {
		t.Error(err)
	}
	return len(entries)
}

// A request holds credentials, and others change its headers while a context is printed.
func TestAContextPrintsItsChainAlone(t *testing.T) {
	onNesting(t, func(t *testing.T, limited func(http.Handler) http.Handler) {
		h := limited(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			written := make(chan struct{})
			go func() {
				defer close(written)
				for range 100 {
					r.Header.Set("X-Changing", "x")
				}
			}()
			ctx, cancel := context.WithCancel(r.Context())
			defer cancel()
			for _, verb := range []string{"%v", "%+v", "%s", "%#v", "%d", "%x"} {
				for _, ctx := range []context.Context{r.Context(), ctx} {
					text := fmt.Sprintf(verb, ctx)
					chain := strings.HasPrefix(text, "context.Background") || verb == "%#v" || verb == "%d" || verb == "%x" // of package context's
					if strings.Contains(text, "s3cret") || strings.Contains(text, "192.0.2.1") || !chain || len(text) > 600 {
						t.Errorf("%s: %s", verb, text)
					}
				}
			}
			<-written
		}))
		get(h, with("Authorization", "Bearer s3cret"), func(r *http.Request) { *r = *r.WithContext(context.Background()) })
	})
	// Nor does the context of a Store or an observer.
	var texts []string
	l := newLimiter(t, ratelimit.Config{Observe: func(ctx context.Context, _ *ratelimit.Event) { texts = append(texts, fmt.Sprint(ctx)) }})
	get(l.Limit(perIP("api", ratelimit.PerHour(1)))(okHandler), with("Authorization", "Bearer s3cret"))
	if len(texts) != 1 || strings.Contains(texts[0], "s3cret") {
		t.Errorf("%q", texts)
	}
}

// Whatever a client repeats or breaks, the limiter sees the identity that the application sees, or refuses.
func TestAmbiguousCredentialsPassNoPolicy(t *testing.T) {
	five, six := hs256(valid(`"sub": "5"`)), hs256(valid(`"sub": "6"`))
	members := must(jwtkey.New(jwtkey.Config{Methods: []string{"HS256"}, Key: hmacSecret})).Claim("sub")
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
		p := ratelimit.Policy{Name: "api", Key: must(jwtkey.New(cfg)).Claim("sub"), Limit: ratelimit.PerHour(9), FailClosed: true}
		status := map[error]int{ratelimit.ErrNoKey: 403, ratelimit.ErrOutage: 503}[want]
		if w := get(quiet(t).Limit(p)(okHandler), with("Authorization", "Bearer "+hs256(valid(`"sub": "5"`)))); w.Code != status {
			t.Errorf("%v: got status %d; want %d", failure, w.Code, status)
		}
	}
}

func TestRefusalsAreLoggedOnceAMinuteWithWhatWouldHelp(t *testing.T) {
	members := must(jwtkey.New(hs256Config(jwtkey.BearerToken(), jwtkey.CookieToken("__Host-token"), jwtkey.HeaderToken("x-token")))).Claim("sub")
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
		{"No name in the context", ratelimit.ContextKey(func(context.Context) (string, bool) { return "", false }), unix, "the context holds no name: is the authentication mounted before the limiter?"},
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
	members := must(jwtkey.New(hs256Config(jwtkey.BearerToken(), jwtkey.HeaderToken("X-Token"), jwtkey.CookieToken("token")))).Claim("sub")
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

// A responder is the writer of an adapter for a framework in which a handler returns an error.
type responder struct {
	*httptest.ResponseRecorder
	refuses  bool
	answered ratelimit.Response
	asked    int
	fails    any // the panic of Response

	refusals []string
}

func (f *responder) Refuse(r *http.Request, status int, err error) bool {
	_, decided := ratelimit.FromContext(r.Context())
	f.refusals = append(f.refusals, fmt.Sprint(status, " ", err != nil, " ", decided))
	return f.refuses
}

func (f *responder) Response() ratelimit.Response {
	f.asked++
	if f.fails != nil {
		panic(f.fails)
	}
	return f.answered
}

func TestAResponderRefuses(t *testing.T) {
	gone := make(chan bool)
	close(gone)
	for name, tt := range map[string]struct {
		policy     ratelimit.Policy
		store      store.Store
		leaves     bool
		want       string
		retryAfter string
		status     int // if the limiter answers
	}{
		"denied":        {policy: perIP("p", ratelimit.PerHour(1)), want: "429 false true", retryAfter: "3600", status: 429},
		"no key":        {policy: ratelimit.Policy{Name: "p", Key: noKey, Limit: ratelimit.PerHour(1)}, want: "403 true false", status: 403},
		"bad request":   {policy: ratelimit.Policy{Name: "p", Key: finds("", ratelimit.ErrBadRequest), Limit: ratelimit.PerHour(1)}, want: "400 true false", status: 400},
		"closed":        {policy: ratelimit.Policy{Name: "p", Key: finds("k", nil), Limit: ratelimit.PerHour(1), FailClosed: true}, store: failing(func() error { return errors.New("down") }), want: "503 true false", retryAfter: "5", status: 503},
		"client leaves": {policy: waiting(perIP("p", ratelimit.PerHour(1)), 1<<60), leaves: true, want: "499 true false", status: 499},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLimiter(t, ratelimit.Config{Policies: []ratelimit.Policy{tt.policy}, Store: tt.store})
			h := l.Handler(okHandler)
			get(h) // takes the only token
			for _, refuses := range []bool{true, false} {
				w := &responder{ResponseRecorder: httptest.NewRecorder(), refuses: refuses}
				var rw http.ResponseWriter = w
				r := httptest.NewRequest("GET", "/", nil)
				if tt.leaves {
					ctx, cancel := context.WithCancel(r.Context())
					cancel()
					r = r.WithContext(ctx)
					rw = notifier{w, gone}
				}
				h.ServeHTTP(rw, r)
				if len(w.refusals) != 1 || w.refusals[0] != tt.want {
					t.Errorf("refused %q, want %q", w.refusals, tt.want)
				}
				h := w.Header()
				if got := h.Get("Retry-After"); got != tt.retryAfter {
					t.Errorf("Retry-After %q, want %q", got, tt.retryAfter)
				}
				if got := h.Get("Cache-Control"); !strings.Contains(got, "no-store") {
					t.Errorf("Cache-Control %q", got)
				}
				if limits := h.Get("X-RateLimit-Limit") != ""; limits != (tt.status == 429) {
					t.Errorf("X-RateLimit-Limit %q", h.Get("X-RateLimit-Limit"))
				}
				switch {
				case refuses && w.Body.Len() > 0:
					t.Errorf("the limiter answered %q, too", w.Body)
				case !refuses && w.Code != tt.status:
					t.Errorf("the limiter answered %d, want %d", w.Code, tt.status)
				}
			}
		})
	}
}

// A notifier is a responder that knows when its client leaves.
type notifier struct {
	*responder
	gone chan bool
}

func (n notifier) CloseNotify() <-chan bool { return n.gone }

func TestAResponderSaysHowARequestWasAnswered(t *testing.T) {
	errFramework := errors.New("a framework's error handler")
	for name, tt := range map[string]struct {
		method   string
		answered ratelimit.Response
		panics   bool // the handler
		fails    any  // Response
		want     ratelimit.Response
	}{
		"a status":            {answered: ratelimit.Response{Status: 401, Written: true, Bytes: 5}, want: ratelimit.Response{Status: 401, Written: true, Bytes: 5, Cost: 2}},
		"nothing":             {want: ratelimit.Response{Status: 200, Cost: 2}},
		"a HEAD has no bytes": {method: "HEAD", answered: ratelimit.Response{Status: 200, Bytes: 5}, want: ratelimit.Response{Status: 200, Cost: 2}},
		"hijacked":            {answered: ratelimit.Response{Hijacked: true}, want: ratelimit.Response{Hijacked: true, Cost: 2}},
		"what it cannot know": {answered: ratelimit.Response{Status: 200, Panicked: true, Cost: 77}, want: ratelimit.Response{Status: 200, Cost: 2}},
		"a panic":             {panics: true, answered: ratelimit.Response{Status: 500}, want: ratelimit.Response{Status: 500, Panicked: true, Cost: 2}},
		"a panic of its own":  {fails: errFramework, want: ratelimit.Response{Panicked: true, Cost: 2}},
		"both":                {panics: true, fails: errFramework, want: ratelimit.Response{Panicked: true, Cost: 2}},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLimiter(t, ratelimit.Config{})
			var got []ratelimit.Response
			p := settled("p", ratelimit.PerHour(10), func(_ *http.Request, r ratelimit.Response) int64 {
				got = append(got, r)
				return r.Cost
			})
			p.Cost = func(*http.Request) int64 { return 2 }
			w := &responder{ResponseRecorder: httptest.NewRecorder(), answered: tt.answered, fails: tt.fails}
			h := l.Limit(p)(http.HandlerFunc(func(given http.ResponseWriter, r *http.Request) {
				if given != http.ResponseWriter(w) {
					t.Errorf("the next handler got a %T, want the Responder itself", given)
				}
				if tt.panics {
					panic("handler")
				}
			}))
			func() {
				defer func() {
					if p := recover(); (p != nil) != (tt.panics || tt.fails != nil) {
						t.Errorf("panic %v", p)
					}
				}()
				h.ServeHTTP(w, httptest.NewRequest(tt.method, "/", nil))
			}()
			if len(got) != 1 || got[0] != tt.want {
				t.Errorf("settled by %+v, want %+v once", got, tt.want)
			}
			if w.asked != 1 || w.refusals != nil {
				t.Errorf("asked %d times, refused %q", w.asked, w.refusals)
			}
		})
	}
}

// Only a request that is settled has its Responder asked: a framework may handle errors then, earlier than otherwise.
func TestAResponderIsNotAskedWithoutNeed(t *testing.T) {
	l := newLimiter(t, ratelimit.Config{Skip: func(r *http.Request) bool { return r.Method == "OPTIONS" }})
	free := settled("free", ratelimit.Unlimited, ratelimit.FailedLogins)
	for name, limited := range map[string]func(http.Handler) http.Handler{
		"no Settle": l.Limit(perIP("p", ratelimit.PerHour(10))),
		"unlimited": l.Limit(free),
		"skipped":   l.Limit(settled("skipped", ratelimit.PerHour(10), ratelimit.FailedLogins)),
	} {
		w := &responder{ResponseRecorder: httptest.NewRecorder()}
		r := httptest.NewRequest("GET", "/", nil)
		if name == "skipped" {
			r.Method = "OPTIONS"
		}
		limited(okHandler).ServeHTTP(w, r)
		if w.asked != 0 || w.refusals != nil {
			t.Errorf("%s: asked %d times, refused %q", name, w.asked, w.refusals)
		}
	}
}

func TestAResponderIsToldOfAWaitThatIsTooLong(t *testing.T) {
	inBubble(t, ratelimit.Config{}, func(t *testing.T, q *queue) {
		h := q.Limit(waiting(perIP("p", ratelimit.PerHour(1)), 1))(okHandler)
		get(h)
		w := &responder{ResponseRecorder: httptest.NewRecorder(), refuses: true}
		h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		synctest.Wait()
		if len(w.refusals) != 1 || w.refusals[0] != "429 false true" || w.Header().Get("Retry-After") != "3600" {
			t.Errorf("refused %q, headers %v", w.refusals, w.Header())
		}
	})
}
