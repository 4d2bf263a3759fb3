package grpcratelimit_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/contrib/grpcratelimit"
	"github.com/go-tokenbucket/ratelimit/skip"
)

// A recorder is a key function that keeps what it has seen, and an observer.
type recorder struct {
	mu     sync.Mutex
	keys   []string
	routes []string
}

func (rec *recorder) key(f ratelimit.KeyFunc) ratelimit.KeyFunc {
	return func(r *http.Request) (string, error) {
		key, err := f(r)
		rec.mu.Lock()
		defer rec.mu.Unlock()
		rec.keys = append(rec.keys, fmt.Sprint(key, err))
		return key, err
	}
}

func (rec *recorder) observe(_ context.Context, e *ratelimit.Event) {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	rec.routes = append(rec.routes, e.Route)
}

func (rec *recorder) take() (keys, routes []string) {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	keys, routes, rec.keys, rec.routes = rec.keys, rec.routes, nil, nil
	return keys, routes
}

type nameKey struct{}

// authenticate puts a name into the context of unary calls and streams.
func authenticate() []any {
	named := func(ctx context.Context) context.Context { return context.WithValue(ctx, nameKey{}, "ada") }
	return []any{
		grpc.UnaryServerInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			return next(named(ctx), req)
		}),
		grpc.StreamServerInterceptor(func(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			return next(srv, inContext{ss, named(ss.Context())})
		}),
	}
}

type inContext struct {
	grpc.ServerStream
	ctx context.Context
}

func (s inContext) Context() context.Context { return s.ctx }

func TestKeys(t *testing.T) {
	byRequest := func(f func(*http.Request) string) ratelimit.KeyFunc {
		return func(r *http.Request) (string, error) { return f(r), nil }
	}
	authority := ""
	for _, c := range []struct {
		name string
		key  ratelimit.KeyFunc
		want func(k kind) string
		is   string
	}{
		{name: "peer", key: ratelimit.RemoteIP(), is: "ip:127.0.0.1"},
		{name: "metadata", key: ratelimit.Header("X-Api-Key"), is: "header:x-api-key:" + hashed("k1")},
		{name: "identity", key: ratelimit.ContextKey("user", func(ctx context.Context) (string, bool) { name, ok := ctx.Value(nameKey{}).(string); return name, ok }), is: "user:ada"},
		{name: "method", key: ratelimit.Route(), want: func(k kind) string { return "route:" + methods[k] }},
		{name: "both", key: ratelimit.Join(ratelimit.RemoteIP(), ratelimit.Route()), want: func(k kind) string { return "join:ip:127.0.0.1|route:" + methods[k] }},
		{name: "proxy", key: ratelimit.ClientIP(ratelimit.IPConfig{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}), is: "ip:192.0.2.7"},
		{name: "request", key: byRequest(func(r *http.Request) string {
			return fmt.Sprint(r.Method, r.URL.Path, r.URL, r.RequestURI, r.Proto, r.ProtoMajor, r.ContentLength, r.Host == authority, r.TLS == nil)
		}), want: func(k kind) string { m := methods[k]; return fmt.Sprint("POST", m, m, m, "HTTP/2.0", 2, 0, true, true) }},
		{name: "body", key: byRequest(func(r *http.Request) string { b, err := io.ReadAll(r.Body); return fmt.Sprint("b", b, err) }), is: "b[] <nil>"},
		{name: "several", key: byRequest(func(r *http.Request) string { return strings.Join(r.Header["Several"], ",") }), is: "a,b"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var seen recorder
			l := newLimiter(t, ratelimit.Config{Observe: seen.observe})
			policy := ratelimit.Policy{Name: "api", Key: seen.key(c.key), Limit: ratelimit.PerHour(5)}
			conn, _ := serve(t, nil, chained(append(authenticate(), l.Unary(policy), l.Stream(policy))...))
			authority = conn.Target()
			for _, k := range kinds {
				call(t, conn, k, "x-api-key", "k1", "x-forwarded-for", "192.0.2.7", "several", "a", "several", "b", "secret-bin", "\x00")
				want := c.is
				if c.want != nil {
					want = c.want(k)
				}
				if keys, routes := seen.take(); !slices.Equal(keys, []string{want + "<nil>"}) || !slices.Equal(routes, []string{methods[k]}) {
					t.Errorf("%s: keys %q, want %q; routes %q", k, keys, want, routes)
				}
			}
		})
	}
}

// hashed returns the key of a header's value.
func hashed(value string) string {
	key, _ := ratelimit.Header("X")(&http.Request{Header: http.Header{"X": {value}}})
	return strings.TrimPrefix(key, "header:x:")
}

// Repeated metadata is refused as a repeated header is.
func TestRepeatedMetadata(t *testing.T) {
	policy := ratelimit.Policy{Name: "api", Key: ratelimit.Header("X-Api-Key"), Limit: ratelimit.PerHour(5)}
	conn, _ := serve(t, nil, limited(newLimiter(t, ratelimit.Config{}), policy))
	for _, k := range kinds {
		if r := call(t, conn, k, "x-api-key", "a", "x-api-key", "b"); r.code() != codes.InvalidArgument {
			t.Errorf("%s: %v", k, r.err)
		}
		if r := call(t, conn, k); r.code() != codes.PermissionDenied {
			t.Errorf("%s without: %v", k, r.err)
		}
	}
}

// All metadata are headers, but for the authority and binary values.
func TestMetadata(t *testing.T) {
	var seen recorder
	l := grpcratelimit.New(newLimiter(t, ratelimit.Config{}).Limiter, grpcratelimit.Config{})
	conn, _ := serve(t, nil, limited(l, ratelimit.Policy{Name: "api", Limit: ratelimit.PerHour(5), Key: seen.key(func(r *http.Request) (string, error) {
		var names []string
		for name, values := range r.Header {
			names = append(names, name)
			if len(values) != 1 || strings.HasPrefix(name, "X-") && values[0] != "of "+strings.ToLower(name) {
				t.Errorf("%s: %q", name, values)
			}
		}
		slices.Sort(names)
		return fmt.Sprint(names, r.Host != ""), nil
	})}))
	for _, k := range kinds {
		call(t, conn, k, "x-a", "of x-a", "x-b", "of x-b", "x-c-bin", "of x-c")
		if keys, _ := seen.take(); !slices.Equal(keys, []string{"[Content-Type User-Agent X-A X-B] true<nil>"}) {
			t.Errorf("%s: %q", k, keys)
		}
	}
}

// A client of an UnknownServiceHandler makes up methods. They share one key.
func TestUnknownMethodsShareOneKey(t *testing.T) {
	for _, by := range []func(*grpcratelimit.Limiter, ...ratelimit.Policy) grpc.StreamServerInterceptor{
		(*grpcratelimit.Limiter).Stream, (*grpcratelimit.Limiter).Messages,
	} {
		var seen recorder
		l := newLimiter(t, ratelimit.Config{Observe: seen.observe})
		policy := ratelimit.Policy{Name: "api", Key: seen.key(ratelimit.Route()), Limit: ratelimit.PerHour(2)}
		unknown := grpc.UnknownServiceHandler(func(_ any, ss grpc.ServerStream) error { return ss.RecvMsg(new(testgrpc.Empty)) })
		conn, _ := serve(t, nil, append(chained(by(l, policy)), unknown))
		var got []codes.Code
		for i := range 3 {
			err := conn.Invoke(t.Context(), fmt.Sprintf("/made.Up/%d", i), new(testgrpc.Empty), new(testgrpc.Empty))
			got = append(got, status.Code(err))
		}
		// The handler sends no message, which a unary client takes for an internal error.
		if want := []codes.Code{codes.Internal, codes.Internal, codes.ResourceExhausted}; !slices.Equal(got, want) {
			t.Errorf("codes %v", got)
		}
		keys, routes := seen.take()
		if !slices.Equal(keys, slices.Repeat([]string{"route:unmatched<nil>"}, 3)) || !slices.Equal(routes, slices.Repeat([]string{"unmatched"}, 3)) {
			t.Errorf("keys %q, routes %q", keys, routes)
		}
	}
}

// Mutual TLS: the key is the name in the certificate of the client.
func TestTLSPeers(t *testing.T) {
	certified := httptest.NewTLSServer(nil)
	certified.Close()
	certificates := certified.TLS.Certificates // of Acme Co
	var seen recorder
	policy := ratelimit.Policy{Name: "api", Limit: ratelimit.PerHour(5), Key: seen.key(func(r *http.Request) (string, error) {
		if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
			return "", ratelimit.ErrNoKey
		}
		return "peer:" + r.TLS.PeerCertificates[0].Subject.Organization[0], nil
	})}
	l := newLimiter(t, ratelimit.Config{})
	server := credentials.NewTLS(&tls.Config{Certificates: certificates, ClientAuth: tls.RequireAnyClientCert, NextProtos: []string{"h2"}})
	client := credentials.NewTLS(&tls.Config{Certificates: certificates, InsecureSkipVerify: true})
	conn, _ := serve(t, nil, append(limited(l, policy), grpc.Creds(server)), grpc.WithTransportCredentials(client))
	for _, k := range kinds {
		r := call(t, conn, k)
		if keys, _ := seen.take(); r.err != nil || !slices.Equal(keys, []string{"peer:Acme Co<nil>"}) {
			t.Errorf("%s: %v, keys %q", k, r.err, keys)
		}
	}
}

func TestIPv6Peers(t *testing.T) {
	// The clients of a dual-stack listener have mapped addresses.
	for _, network := range []struct{ listen, dial, want string }{
		{"[::1]:0", "[::1]:%d", "[::1]:"},
		{"[::]:0", "127.0.0.1:%d", "127.0.0.1:"},
	} {
		listener, err := net.Listen("tcp", network.listen)
		if err != nil {
			t.Fatal(err)
		}
		peers := make(chan string, 1)
		l := newLimiter(t, ratelimit.Config{})
		s := grpc.NewServer(limited(l, ratelimit.Policy{Name: "api", Limit: ratelimit.PerHour(5), Key: func(r *http.Request) (string, error) {
			peers <- r.RemoteAddr
			return "k", nil
		}})...)
		testgrpc.RegisterTestServiceServer(s, &service{handle: func(context.Context) error { return nil }})
		go s.Serve(listener)
		t.Cleanup(s.Stop)
		conn := dial(t, fmt.Sprintf(network.dial, listener.Addr().(*net.TCPAddr).Port))
		if r := call(t, conn, unary); r.err != nil {
			t.Fatal(r.err)
		}
		if got := <-peers; !strings.HasPrefix(got, network.want) {
			t.Errorf("%s: peer %s", network.listen, got)
		}
	}
}

// The context of the request has the metadata of the call, which may hold credentials.
func TestTheContextDoesNotPrintTheRequest(t *testing.T) {
	var out strings.Builder
	l := newLimiter(t, ratelimit.Config{Logger: slog.New(slog.NewTextHandler(&out, nil))})
	policy := ratelimit.Policy{Name: "api", Limit: ratelimit.PerHour(100), Key: func(r *http.Request) (string, error) {
		ctx := r.Context()
		fmt.Fprintf(&out, "%v %+v %#v %s\n", ctx, ctx, ctx, context.WithValue(ctx, nameKey{}, 1))
		return "k", nil
	}}
	handle := func(ctx context.Context) error {
		fmt.Fprintf(&out, "%v %+v %#v %s\n", ctx, ctx, ctx, context.WithValue(ctx, nameKey{}, 1))
		return nil
	}
	conn, _ := serve(t, handle, chained(l.Unary(policy), l.Stream(policy), l.Messages(policy)))
	for _, k := range kinds {
		if r := call(t, conn, k, "authorization", "Bearer secret"); r.err != nil {
			t.Error(r.err)
		}
	}
	if out.Len() == 0 || strings.Contains(out.String(), "ecret") {
		t.Errorf("printed %s", out.String())
	}
}

func TestNewAndMountPanic(t *testing.T) {
	l := newLimiter(t, ratelimit.Config{})
	settling := perIP("logins", ratelimit.PerHour(5))
	settling.Settle = ratelimit.FailedLogins
	for want, f := range map[string]func(){
		"limiter must not be nil":  func() { grpcratelimit.New(nil, grpcratelimit.Config{}) },
		"Config.Policies is empty": func() { l.Unary() },
		"Policies is empty":        func() { l.Stream() },
		"is empty":                 func() { l.Messages() },
		"Limit":                    func() { l.Unary(perIP("api", ratelimit.Limit{Rate: -1})) },
		`"logins": Settle`:         func() { l.Messages(perIP("api", ratelimit.PerHour(1)), settling) },
		`"slots": Limit 1 at once`: func() { l.Messages(perIP("slots", ratelimit.Concurrency(1))) },
	} {
		func() {
			defer func() {
				if got := fmt.Sprint(recover()); !strings.Contains(got, want) {
					t.Errorf("panic %q, want %q", got, want)
				}
			}()
			f()
		}()
	}
}

// A proxy in an exempt network is not the client.
func TestProxiesAreKnown(t *testing.T) {
	loopback := netip.MustParsePrefix("127.0.0.0/8")
	for name, exempt := range map[string]func(*http.Request) bool{
		"IPs":       skip.IPs(loopback),
		"ClientIPs": skip.ClientIPs(ratelimit.IPConfig{}, loopback),
		"Paths":     skip.Paths(methods[unary]),
		"all":       skip.All(skip.IPs(loopback), skip.Paths(methods[unary])),
	} {
		headers := []string{"X-Forwarded-For", "Via"}
		switch name {
		case "Paths":
			headers = []string{"X-Original-URL", "X-HTTP-Method-Override"}
		case "all":
			headers = skip.Headers()
		}
		l := newLimiter(t, ratelimit.Config{Skip: exempt})
		limits := grpcratelimit.New(l.Limiter, grpcratelimit.Config{})
		conn, _ := serve(t, nil, limited(limits, ratelimit.Policy{Name: "api", Key: ratelimit.RemoteIP(), Limit: ratelimit.PerHour(3)}))
		allowed := 0
		for i := range 20 {
			if call(t, conn, unary, headers[i%len(headers)], "203.0.113.7").err == nil {
				allowed++
			}
		}
		if allowed != 3 {
			t.Errorf("%s: 20 calls through a proxy, %d allowed, want 3", name, allowed)
		}
		if err := call(t, conn, unary).err; err != nil {
			t.Errorf("%s: a call without a proxy is not exempt: %v", name, err)
		}
	}
	for header, value := range map[string]string{"X-Forwarded-For": "203.0.113.7", "Forwarded": "for=203.0.113.7"} {
		var seen recorder
		key := ratelimit.ClientIP(ratelimit.IPConfig{TrustedProxies: []netip.Prefix{loopback}, Header: header})
		l := grpcratelimit.New(newLimiter(t, ratelimit.Config{}).Limiter, grpcratelimit.Config{})
		conn, _ := serve(t, nil, limited(l, ratelimit.Policy{Name: "api", Key: seen.key(key), Limit: ratelimit.PerHour(3)}))
		call(t, conn, unary, header, value)
		if keys, _ := seen.take(); !slices.Equal(keys, []string{"ip:203.0.113.7<nil>"}) {
			t.Errorf("%s: key %q", header, keys)
		}
	}
}
