package fiberratelimit_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gofiber/fiber/v3"
	"github.com/valyala/fasthttp"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/contrib/fiberratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/ratetest"
	"github.com/go-tokenbucket/ratelimit/skip"
	"github.com/go-tokenbucket/ratelimit/store"
)

// A lineConn is a connection whose client has sent everything already, from a trusted proxy.
type lineConn struct {
	idle
	io.Reader
	mu     sync.Mutex
	wrote  chan struct{} // closed when the server has written, or has closed the connection
	signal sync.Once

	built   *http.Request // what net/http has built
	handled chan struct{}
}

func newLineConn(raw []byte) *lineConn {
	return &lineConn{Reader: bytes.NewReader(raw), wrote: make(chan struct{})}
}

func (c *lineConn) Write(p []byte) (int, error) {
	c.Close()
	return len(p), nil
}

func (c *lineConn) Close() error {
	c.signal.Do(func() { close(c.wrote) })
	return nil
}

// An idle is what the connections of these tests do not need.
type idle struct{}

func (idle) LocalAddr() net.Addr              { return proxyAddr }
func (idle) RemoteAddr() net.Addr             { return proxyAddr }
func (idle) SetDeadline(time.Time) error      { return nil }
func (idle) SetReadDeadline(time.Time) error  { return nil }
func (idle) SetWriteDeadline(time.Time) error { return nil }

var proxyAddr = &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 4321}

// A seen is a request as the key function of a limiter saw it.
type seen struct {
	request  *http.Request
	then     *http.Request // a copy of everything, made at that time
	cookies  map[string]string
	path     string // of Fiber
	accepted bool   // the request was well-formed for fasthttp
}

// byFiber returns the first request that an application of Fiber gets over a connection with raw. Before it returns,
// the server has read and handled another one, which overwrites the buffers of the first.
func byFiber(raw []byte, cfg fiber.Config) (first seen) {
	app := fiber.New(cfg)
	policy := ratelimit.Policy{Name: "api", Limit: ratelimit.PerHour(1000), Key: func(r *http.Request) (string, error) {
		if c, _ := fiberratelimit.Ctx(r); first.request == nil && c.RequestCtx().ConnRequestNum() == 1 {
			first.request, first.then, first.path = r, deepCopy(r), strings.Clone(c.Path())
			first.cookies = map[string]string{}
			for name := range c.RequestCtx().Request.Header.Cookies() {
				first.cookies[string(name)] = strings.Clone(c.Cookies(string(name)))
			}
		}
		return "everybody", nil
	}}
	app.Use("*", fiberratelimit.New(limiterOf(policy), fiberratelimit.Config{}).Handler())
	app.All("*", func(c fiber.Ctx) error { // is not called for a malformed request
		first.accepted = first.accepted || c.RequestCtx().ConnRequestNum() == 1
		return nil
	})
	conn := newLineConn(slices.Concat(raw, overwriting))
	app.Handler()
	_ = app.Server().ServeConn(conn)
	return first
}

// overwriting is a request that overwrites what a server has kept of an earlier one.
var overwriting = []byte("\r\nGET /" + strings.Repeat("~", 400) + "?" + strings.Repeat("~", 400) + " HTTP/1.1\r\nHost: " + strings.Repeat("h", 100) +
	strings.Repeat("\r\nX-Overwriting: "+strings.Repeat("~", 40), 40) + "\r\nCookie: a=" + strings.Repeat("~", 400) + "\r\nConnection: close\r\n\r\n")

func deepCopy(r *http.Request) *http.Request {
	c := r.Clone(context.Background())
	c.Header = http.Header{}
	for name, values := range r.Header {
		for _, value := range values {
			c.Header[strings.Clone(name)] = append(c.Header[name], strings.Clone(value))
		}
	}
	for _, s := range []*string{&c.Method, &c.Proto, &c.Host, &c.RemoteAddr, &c.RequestURI, &c.Pattern} {
		*s = strings.Clone(*s)
	}
	c.URL = &url.URL{Path: strings.Clone(r.URL.Path), RawQuery: strings.Clone(r.URL.RawQuery)}
	return c
}

// everything is a store that allows everything.
var everything = ratetest.StoreFunc(func(_ []store.Charge, states []store.State) bool {
	for i := range states {
		states[i] = store.State{Allowed: true, Remaining: 9}
	}
	return true
})

func limiterOf(policies ...ratelimit.Policy) *ratelimit.Limiter {
	return ratelimit.Must(ratelimit.New(ratelimit.Config{
		Store:    everything,
		Policies: policies,
		Timeout:  5 * time.Second,
		Logger:   slog.New(slog.DiscardHandler),
	}))
}

// byNetHTTP returns the request that a server of net/http builds, nil if it refuses it.
func byNetHTTP(raw []byte) *http.Request {
	conn := newLineConn(raw)
	conn.handled = make(chan struct{})
	reference().conns <- conn
	select {
	case <-conn.handled:
		return conn.built
	case <-conn.wrote:
		return nil
	}
}

type connKey struct{}

// reference is a server of net/http for all tests, which is never closed: after a malformed request it keeps a
// connection for half a second.
var reference = sync.OnceValue(func() *chanListener {
	l := &chanListener{make(chan net.Conn)}
	server := &http.Server{
		ErrorLog:    log.New(io.Discard, "", 0),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) },
		Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			conn := r.Context().Value(connKey{}).(*lineConn)
			conn.mu.Lock()
			defer conn.mu.Unlock()
			if conn.built == nil {
				conn.built = r
				close(conn.handled)
			}
		}),
	}
	go server.Serve(l)
	return l
})

type chanListener struct{ conns chan net.Conn }

func (l *chanListener) Accept() (net.Conn, error) { return <-l.conns, nil }
func (l *chanListener) Close() error              { return nil }
func (l *chanListener) Addr() net.Addr            { return proxyAddr }

// keyFuncs are those that read what a client or a proxy has sent.
var keyFuncs = map[string]ratelimit.KeyFunc{
	"RemoteIP":                 ratelimit.RemoteIP(),
	"X-Forwarded-For, trusted": ratelimit.ClientIP(ratelimit.IPConfig{TrustedProxies: ratetest.Ours}),
	"X-Forwarded-For, counted": ratelimit.ClientIP(ratelimit.IPConfig{ProxyCount: 2}),
	"Forwarded, trusted":       ratelimit.ClientIP(ratelimit.IPConfig{TrustedProxies: ratetest.Ours, Header: "Forwarded"}),
	"Forwarded, counted":       ratelimit.ClientIP(ratelimit.IPConfig{ProxyCount: 1, Header: "Forwarded"}),
	"X-Real-Ip":                ratelimit.ClientIP(ratelimit.IPConfig{EdgeHeader: "X-Real-Ip"}),
	"CF-Connecting-IP":         ratelimit.ClientIP(ratelimit.IPConfig{TrustedProxies: ratetest.Ours, EdgeHeader: "CF-Connecting-IP"}),
	"X-Api-Key":                ratelimit.Header("X-Api-Key"),
	"Authorization":            ratelimit.Header("Authorization"),
}

// compare checks what a limiter sees under Fiber against what net/http builds from the same bytes.
func compare(t *testing.T, raw []byte, cfg fiber.Config) {
	t.Helper()
	got := byFiber(raw, cfg)
	if got.request == nil {
		return // a method that Fiber does not serve
	}
	if now := deepCopy(got.request); !reflect.DeepEqual(fields(now), fields(got.then)) {
		t.Fatalf("the request has changed since, from %q\n%v\nto\n%v", raw, fields(got.then), fields(now))
	}
	r := got.request
	if r.URL.Path != got.path {
		t.Errorf("%q: Path %q, but Fiber matches %q", raw, r.URL.Path, got.path)
	}
	for _, cookie := range r.Cookies() {
		if first, err := r.Cookie(cookie.Name); err != nil || first.Value != got.cookies[cookie.Name] {
			t.Errorf("%q: cookie %v, but the application reads %q", raw, cookie, got.cookies[cookie.Name])
		}
	}
	want := byNetHTTP(raw)
	if want == nil || !got.accepted {
		return
	}
	for name, key := range keyFuncs {
		gotKey, gotErr := key(r)
		wantKey, wantErr := key(want)
		if gotKey != wantKey || kind(gotErr) != kind(wantErr) {
			t.Errorf("%q: key by %s %q, %v; under net/http %q, %v", raw, name, gotKey, gotErr, wantKey, wantErr)
		}
	}
	if r.Method != want.Method || r.RequestURI != want.RequestURI || r.Proto != want.Proto || r.RemoteAddr != want.RemoteAddr {
		t.Errorf("%q: got %s %s %s of %s", raw, r.Method, r.RequestURI, r.Proto, r.RemoteAddr)
	}
	chunked := want.ContentLength == -1 || r.Proto == "HTTP/1.0" // where net/http knows no chunks
	if r.ContentLength != want.ContentLength && !chunked {
		t.Errorf("%q: ContentLength %d, want %d", raw, r.ContentLength, want.ContentLength)
	}
	plain := strings.HasPrefix(want.RequestURI, "/") && !strings.HasPrefix(want.RequestURI, "//") && !strings.ContainsAny(want.RequestURI, "%#") && !strings.Contains(want.RequestURI, "://")
	if plain && (!cfg.UnescapePath && r.URL.Path != want.URL.Path || r.URL.RawQuery != want.URL.RawQuery) {
		t.Errorf("%q: URL %q ? %q, want %q ? %q", raw, r.URL.Path, r.URL.RawQuery, want.URL.Path, want.URL.RawQuery)
	}
	compareHeaders(t, raw, r.Header, want.Header)
}

func kind(err error) string {
	for _, e := range []error{ratelimit.ErrBadRequest, ratelimit.ErrNoKey} {
		if errors.Is(err, e) {
			return e.Error()
		}
	}
	return fmt.Sprint(err)
}

func fields(r *http.Request) string {
	return fmt.Sprintf("%q %q %q %q %q %q %q %q", r.Method, r.Proto, r.Host, r.RemoteAddr, r.RequestURI, r.URL.Path, r.URL.RawQuery, r.Header)
}

// compareHeaders compares headers in all that fasthttp keeps.
func compareHeaders(t *testing.T, raw []byte, got, want http.Header) {
	t.Helper()
	got, want = got.Clone(), want.Clone()
	for _, name := range []string{
		"Connection",     // fasthttp forgets others beside a "close"
		"Content-Length", // fasthttp sets it for a POST without a body
		"Cookie",         // fasthttp joins them: compared one by one
	} {
		delete(got, name)
		delete(want, name)
	}
	delete(want, "Trailer")                                       // net/http keeps that of a request without trailers, the adapter none
	for _, name := range []string{"User-Agent", "Content-Type"} { // of which fasthttp keeps the last, if it is not empty
		if values := want[name]; len(values) > 0 {
			want[name] = values[len(values)-1:]
			if want[name][0] == "" {
				delete(want, name)
			}
		}
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%q: header\n%q\nwant\n%q", raw, got, want)
	}
}

// RemoteAddr is as net/http has it.
func TestRemoteAddr(t *testing.T) {
	for _, addr := range []net.Addr{
		&net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 80},
		&net.TCPAddr{IP: net.IPv4(192, 0, 2, 1).To4(), Port: 65535},
		&net.TCPAddr{IP: net.ParseIP("2001:db8::1"), Port: 80},
		&net.TCPAddr{IP: net.ParseIP("fe80::1"), Zone: "a-zone", Port: 80},
		&net.TCPAddr{IP: net.ParseIP("fe80::1"), Zone: strings.Repeat("z", 100), Port: 80},
		&net.TCPAddr{Port: 80},
		&net.TCPAddr{IP: net.IP{1, 2}, Port: 80},
		&net.UnixAddr{Net: "unix", Name: "@"},
		&net.UnixAddr{Net: "unix"},
	} {
		var got string
		policy := everybody("api", 10)
		policy.Key = func(r *http.Request) (string, error) {
			got = r.RemoteAddr
			return "everybody", nil
		}
		app := fiber.New()
		app.Get("/", fiberratelimit.New(limiterOf(), fiberratelimit.Config{}).Limit(policy))
		var rctx fasthttp.RequestCtx
		rctx.Init(new(fasthttp.Request), addr, nil)
		app.Handler()(&rctx)
		if got != addr.String() {
			t.Errorf("got %q, want %q", got, addr)
		}
	}
}

// TLS is that of the connection, so that a key function finds the certificate of a client.
func TestTLS(t *testing.T) {
	like := httptest.NewUnstartedServer(nil)
	like.StartTLS()
	defer like.Close()
	policy := everybody("api", 10)
	policy.Key = func(r *http.Request) (string, error) {
		if r.TLS == nil || !r.TLS.HandshakeComplete {
			return "", ratelimit.ErrNoKey
		}
		return "tls", nil
	}
	app := fiber.New()
	app.Get("/", fiberratelimit.New(limiterOf(), fiberratelimit.Config{}).Limit(policy), ok200)
	app.Handler()
	listener, err := tls.Listen("tcp", "127.0.0.1:0", like.TLS)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		if conn, err := listener.Accept(); err == nil {
			_ = app.Server().ServeConn(conn)
		}
	}()
	client := like.Client()
	defer client.CloseIdleConnections()
	response, err := client.Get("https://" + listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != 200 {
		t.Errorf("status %d", response.StatusCode)
	}
}

// What skip.Paths exempts is what Fiber serves by the exempt route, however a client spells the path.
func TestSkippedPaths(t *testing.T) {
	for _, cfg := range []fiber.Config{{}, {UnescapePath: true}, {CaseSensitive: true, StrictRouting: true}} {
		for _, path := range []string{
			"/healthz", "/healthz?a", "/healthz#/../items", "/%68ealthz", "/%2568ealthz", "/healthz%2f..%2fitems", "/healthz/../items",
			"/items/../healthz", "/HEALTHZ", "/healthz/", "//healthz", "/./healthz", "/healthz;a", "http://a/healthz", "http://b//healthz",
		} {
			limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{Policies: []ratelimit.Policy{everybody("api", 1)}, Skip: skip.Paths("GET /healthz")}))
			var served string
			app := fiber.New(cfg)
			app.Use("*", fiberratelimit.New(limiter, fiberratelimit.Config{}).Handler())
			app.Get("/healthz", func(fiber.Ctx) error { served = "healthz"; return nil })
			app.Get("*", func(fiber.Ctx) error { served = "other"; return nil })
			r := send(t, app, get(path))[0]
			if exempt := r.Header.Get("X-RateLimit-Limit") == ""; exempt && served != "healthz" {
				t.Errorf("%q is exempt and served by the %s route", path, served)
			} else if path == "/healthz" && !exempt {
				t.Error("/healthz is not exempt")
			}
			limiter.Close()
		}
	}
}

var configs = map[string]fiber.Config{
	"default":                  {},
	"DisableHeaderNormalizing": {DisableHeaderNormalizing: true},
	"StreamRequestBody":        {StreamRequestBody: true},
	"UnescapePath":             {UnescapePath: true, CaseSensitive: true, StrictRouting: true},
}

// FuzzRequest compares what a limiter sees under Fiber with what net/http's server builds from the same bytes. No header
// may be lost, doubled or moved, or a client could choose the address that a limiter takes for its own.
func FuzzRequest(f *testing.F) {
	f.Fuzz(func(t *testing.T, raw []byte) {
		for _, name := range slices.Sorted(maps.Keys(configs)) {
			compare(t, raw, configs[name])
		}
	})
}
