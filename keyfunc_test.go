package ratelimit_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"testing"
	"weak"

	"github.com/go-chi/chi/v5"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/dryrun"
)

func TestStaticIsOneKeyForAll(t *testing.T) {
	f := ratelimit.Static("all")
	checkKey(t, f, requestWith(), "static:all")
	checkKey(t, f, requestWith("X-Forwarded-For", "192.0.2.1", "Authorization", "Bearer x"), "static:all")
}

func TestHeader(t *testing.T) {
	// The SHA-256 of "secret", in full because a key that changes would forget its bucket.
	const secret = "K7gNU3sdo-OL0wNhqoVWhr3g6s1xYv72ol_pe_Unols"
	for _, tt := range []struct {
		name, header string
		lines        []string
		want         string
	}{
		{"A value is a key by its hash", "X-Api-Key", []string{"X-Api-Key", "secret"}, "header:x-api-key:" + secret},
		{"The case of a name does not matter", "x-API-key", []string{"X-Api-Key", "secret"}, "header:x-api-key:" + secret},
		{"Another header is another key", "X-Tenant", []string{"X-Tenant", "secret"}, "header:x-tenant:" + secret},
		{"An absent header is no key", "X-Api-Key", nil, ""},
		{"An empty header is no key", "X-Api-Key", []string{"X-Api-Key", ""}, ""},
		{"A repeated header is refused", "X-Api-Key", []string{"X-Api-Key", "secret", "X-Api-Key", "other"}, badRequest},
		{"A header repeated with the same value is refused", "X-Api-Key", []string{"X-Api-Key", "secret", "X-Api-Key", "secret"}, badRequest},
		{"A repeated header of which one is empty is refused", "X-Api-Key", []string{"X-Api-Key", "", "X-Api-Key", "secret"}, badRequest},
		{"A repeated header that is empty is refused", "X-Api-Key", []string{"X-Api-Key", "", "X-Api-Key", ""}, badRequest},
		{"A header of more than 64 KiB is refused", "X-Api-Key", []string{"X-Api-Key", strings.Repeat("a", 64<<10+1)}, badRequest},
		{"Another name's value does not matter", "X-Api-Key", []string{"X-Api-Key2", "secret"}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			checkKey(t, ratelimit.Header(tt.header), requestWith(tt.lines...), tt.want)
		})
	}

	t.Run("Different values are different keys", func(t *testing.T) {
		a, _ := ratelimit.Header("X-Api-Key")(requestWith("X-Api-Key", "secret"))
		b, _ := ratelimit.Header("X-Api-Key")(requestWith("X-Api-Key", "Secret"))
		if a == b {
			t.Errorf("both are %q", a)
		}
	})
	t.Run("A key does not grow with its value", func(t *testing.T) {
		key, err := ratelimit.Header("X-Api-Key")(requestWith("X-Api-Key", strings.Repeat("a", 64<<10)))
		if err != nil || len(key) != len("header:x-api-key:")+len(secret) {
			t.Errorf("got a key of %d bytes, error %v", len(key), err)
		}
	})
}

// The name of an explanation costs other requests nothing.
func TestAnAbsentHeaderAllocatesNothing(t *testing.T) {
	key, r := ratelimit.Header("X-Api-Key-Of-Which-The-Name-Is-Long"), httptest.NewRequest("GET", "/", nil)
	if n := testing.AllocsPerRun(100, func() { key(r) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestContextKey(t *testing.T) {
	type user struct{}
	f := ratelimit.ContextKey("user", func(ctx context.Context) (string, bool) {
		name, ok := ctx.Value(user{}).(string)
		return name, ok
	})
	as := func(name string) *http.Request {
		r := requestWith()
		return r.WithContext(context.WithValue(r.Context(), user{}, name))
	}
	for _, tt := range []struct {
		name string
		r    *http.Request
		want string
	}{
		{"A name is a key", as("ann"), "user:ann"},
		{"A name that looks like a key of another kind stays a name", as("ip:192.0.2.1"), "user:ip:192.0.2.1"},
		{"Any bytes are a name", as("\x00{}|\xff"), "user:\x00{}|\xff"},
		{"An empty name is no key", as(""), ""},
		{"No name is no key", requestWith(), ""},
	} {
		t.Run(tt.name, func(t *testing.T) { checkKey(t, f, tt.r, tt.want) })
	}

	t.Run("A name without ok is no key", func(t *testing.T) {
		f := ratelimit.ContextKey("user", func(context.Context) (string, bool) { return "ann", false })
		checkKey(t, f, requestWith(), "")
	})
}

func TestFirstOf(t *testing.T) {
	broken := errors.New("the directory is away")
	for _, tt := range []struct {
		name    string
		fns     []ratelimit.KeyFunc
		want    string
		wantErr error
	}{
		{"The first key wins", []ratelimit.KeyFunc{finds("a", nil), finds("b", nil)}, "a", nil},
		{"No key moves on", []ratelimit.KeyFunc{finds("", ratelimit.ErrNoKey), finds("b", nil)}, "b", nil},
		{"A wrapped ErrNoKey moves on", []ratelimit.KeyFunc{finds("", fmt.Errorf("token: %w", ratelimit.ErrNoKey)), finds("b", nil)}, "b", nil},
		{"An empty key moves on", []ratelimit.KeyFunc{finds("", nil), finds("b", nil)}, "b", nil},
		{"A key with ErrNoKey is none", []ratelimit.KeyFunc{finds("a", ratelimit.ErrNoKey), finds("b", nil)}, "b", nil},
		{"None of them is no key", []ratelimit.KeyFunc{finds("", nil), finds("", ratelimit.ErrNoKey)}, "", ratelimit.ErrNoKey},
		{"An empty key alone is no key", []ratelimit.KeyFunc{finds("", nil)}, "", ratelimit.ErrNoKey},
		{"Another error ends it", []ratelimit.KeyFunc{finds("", broken), finds("b", nil)}, "", broken},
		{"Another error ends it even with a key", []ratelimit.KeyFunc{finds("a", broken), finds("b", nil)}, "", broken},
		{"Another error after no key ends it", []ratelimit.KeyFunc{finds("", ratelimit.ErrNoKey), finds("", broken), finds("c", nil)}, "", broken},
		{"A bad request ends it", []ratelimit.KeyFunc{finds("", ratelimit.ErrBadRequest), finds("b", nil)}, "", ratelimit.ErrBadRequest},
		{"A bad request ends it, whatever else it is", []ratelimit.KeyFunc{finds("", errors.Join(ratelimit.ErrNoKey, ratelimit.ErrBadRequest)), finds("b", nil)}, "", ratelimit.ErrBadRequest},
		{"An outage ends it, whatever else it is", []ratelimit.KeyFunc{finds("", errors.Join(ratelimit.ErrNoKey, ratelimit.ErrOutage)), finds("b", nil)}, "", ratelimit.ErrOutage},
		{"An outage ends it", []ratelimit.KeyFunc{finds("", fmt.Errorf("%w: %w", ratelimit.ErrOutage, broken)), finds("b", nil)}, "", ratelimit.ErrOutage},
		{"An error after the key is not seen", []ratelimit.KeyFunc{finds("a", nil), finds("", broken)}, "a", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ratelimit.FirstOf(tt.fns...)(requestWith())
			if got != tt.want || !errors.Is(err, tt.wantErr) {
				t.Errorf("got key %q, error %v; want key %q, error %v", got, err, tt.want, tt.wantErr)
			}
		})
	}
}

func TestFirstOfSaysWhyNoneFoundAKey(t *testing.T) {
	find := ratelimit.FirstOf(ratelimit.Header("X-Api-Key"), finds("", ratelimit.ErrNoKey), ratelimit.RemoteIP())
	_, err := find(requestFrom("@"))
	if want := "ratelimit: no key: no X-Api-Key header; ratelimit: no key; the TCP peer is a unix socket: set IPConfig.TrustUnix"; err == nil || err.Error() != want {
		t.Errorf("got %v; want %s", err, want)
	}
}

func TestJoin(t *testing.T) {
	broken := errors.New("the directory is away")
	a, b := finds("a", nil), finds("b", nil)
	for _, tt := range []struct {
		name    string
		fns     []ratelimit.KeyFunc
		want    string
		wantErr error
	}{
		{"The keys stand side by side", []ratelimit.KeyFunc{a, b}, "join:a|b", nil},
		{"Their order matters", []ratelimit.KeyFunc{b, a}, "join:b|a", nil},
		{"One key is joined, too", []ratelimit.KeyFunc{a}, "join:a", nil},
		{"A separator within a key is escaped", []ratelimit.KeyFunc{finds("a|b", nil), b}, "join:a%7Cb|b", nil},
		{"An escape within a key is escaped", []ratelimit.KeyFunc{finds("a%7Cb", nil)}, "join:a%257Cb", nil},
		{"A joined key is joined as any other", []ratelimit.KeyFunc{ratelimit.Join(a, b), b}, "join:join:a%7Cb|b", nil},
		{"The nesting matters", []ratelimit.KeyFunc{a, ratelimit.Join(b, b)}, "join:a|join:b%7Cb", nil},
		{"One without a key is no key", []ratelimit.KeyFunc{a, finds("", ratelimit.ErrNoKey)}, "", ratelimit.ErrNoKey},
		{"One with an empty key is no key", []ratelimit.KeyFunc{finds("", nil), b}, "", ratelimit.ErrNoKey},
		{"Another error is passed on", []ratelimit.KeyFunc{a, finds("", broken)}, "", broken},
		{"The first error is passed on", []ratelimit.KeyFunc{finds("", broken), finds("", ratelimit.ErrNoKey)}, "", broken},
		{"A bad request comes before no key", []ratelimit.KeyFunc{finds("", ratelimit.ErrNoKey), finds("", ratelimit.ErrBadRequest)}, "", ratelimit.ErrBadRequest},
		{"A bad request comes before another error", []ratelimit.KeyFunc{finds("", broken), a, finds("", ratelimit.ErrBadRequest)}, "", ratelimit.ErrBadRequest},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ratelimit.Join(tt.fns...)(requestWith())
			if got != tt.want || !errors.Is(err, tt.wantErr) {
				t.Errorf("got key %q, error %v; want key %q, error %v", got, err, tt.want, tt.wantErr)
			}
		})
	}
}

// FuzzJoin checks that different lists of keys make different keys, also where a key was itself joined.
func FuzzJoin(f *testing.F) {
	f.Fuzz(func(t *testing.T, a, b []byte, nested bool) {
		first, second := keysOf(a), keysOf(b)
		if len(first) == 0 || len(second) == 0 {
			t.Skip()
		}
		if nested { // as the last of a list, so that it may look like the rest of the other
			second = append(second[:len(second)-1:len(second)-1], join(t, second[len(second)-1]))
		}
		if same := slices.Equal(first, second); same != (join(t, first...) == join(t, second...)) {
			t.Errorf("%q and %q: the same keys: %t, but joined as %q and %q", first, second, same, join(t, first...), join(t, second...))
		}
	})
}

// keysOf reads a list of keys, none of which is empty, from what the fuzzer made up: a length before each.
func keysOf(data []byte) (keys []string) {
	for {
		length, n := binary.Uvarint(data)
		if n <= 0 || length == 0 || length > uint64(len(data)-n) {
			return keys
		}
		keys = append(keys, string(data[n:n+int(length)]))
		data = data[n+int(length):]
	}
}

func join(t *testing.T, keys ...string) string {
	t.Helper()
	fns := make([]ratelimit.KeyFunc, len(keys))
	for i, key := range keys {
		fns[i] = finds(key, nil)
	}
	joined, err := ratelimit.Join(fns...)(requestWith())
	if err != nil {
		t.Fatalf("Join of %q: %v", keys, err)
	}
	return joined
}

func TestMiswiredKeyFuncsPanic(t *testing.T) {
	for _, tt := range []struct {
		name string
		wire func()
		want string
	}{
		{"Static without a key", func() { ratelimit.Static("") }, "Static: key"},
		{"Header without a name", func() { ratelimit.Header("") }, "Header: name"},
		{"ContextKey without a function", func() { ratelimit.ContextKey("user", nil) }, "ContextKey: f"},
		{"ContextKey of no kind", func() { ratelimit.ContextKey("", nobody) }, `ContextKey: kind "": must be`},
		{"ContextKey of a kind that this package uses", func() { ratelimit.ContextKey("ip", nobody) }, `ContextKey: kind "ip": must be`},
		{"ContextKey of a kind with a colon", func() { ratelimit.ContextKey("a:b", nobody) }, `ContextKey: kind "a:b": must be`},
		{"FirstOf nothing", func() { ratelimit.FirstOf() }, "FirstOf: "},
		{"FirstOf a nil KeyFunc", func() { ratelimit.FirstOf(ratelimit.RemoteIP(), nil) }, "FirstOf: "},
		{"Join of nothing", func() { ratelimit.Join() }, "Join: "},
		{"Join of a nil KeyFunc", func() { ratelimit.Join(nil, ratelimit.RemoteIP()) }, "Join: "},
	} {
		t.Run(tt.name, func(t *testing.T) { checkPanic(t, tt.wire, tt.want) })
	}
}

func nobody(context.Context) (string, bool) { return "", false }

func mine(*http.Request) (string, error) { return "user:5", nil }

func empty(*http.Request) (string, error) { return "", nil }

func TestKeysAreExplained(t *testing.T) {
	r := requestWith("X-Tenant", "acme-corporation")
	r.RemoteAddr, r.Pattern = "192.0.2.7:1234", "GET /items/{id}"
	tenant, _ := ratelimit.Header("X-Tenant")(r)
	asker := ratelimit.RemoteIP()
	for name, tt := range map[string]struct {
		key  ratelimit.KeyFunc
		want string
	}{
		"Static":     {ratelimit.Static("all"), "Static = static:all"},
		"RemoteIP":   {ratelimit.RemoteIP(), "RemoteIP = ip:192.0.2.7"},
		"ClientIP":   {ratelimit.ClientIP(ratelimit.IPConfig{}), "ClientIP = ip:192.0.2.7"},
		"Route":      {ratelimit.Route(), "Route = route:GET /items/{id}"},
		"Header":     {ratelimit.Header("X-Tenant"), "Header X-Tenant = " + tenant},
		"No header":  {ratelimit.Header("X-None"), "Header X-None ! ratelimit: no key: no X-None header"},
		"ContextKey": {ratelimit.ContextKey("user", func(context.Context) (string, bool) { return "ann", true }), "ContextKey user = user:ann"},
		"FirstOf": {ratelimit.FirstOf(ratelimit.Header("X-None"), empty, ratelimit.RemoteIP(), mine),
			"FirstOf = ip:192.0.2.7 (Header X-None ! ratelimit: no key: no X-None header)" +
				" (github.com/go-tokenbucket/ratelimit_test.empty ! ratelimit: no key: the KeyFunc returned an empty one) (RemoteIP = ip:192.0.2.7)"},
		"Join": {ratelimit.Join(ratelimit.FirstOf(mine), ratelimit.Static("x")),
			"Join = join:user:5|static:x (FirstOf = user:5 (github.com/go-tokenbucket/ratelimit_test.mine = user:5)) (Static = static:x)"},
		"A function of the program": {mine, "github.com/go-tokenbucket/ratelimit_test.mine = user:5"},
		"A function of the program that asks": {func(r *http.Request) (string, error) { return asker(r) },
			"github.com/go-tokenbucket/ratelimit_test.TestKeysAreExplained.func2 = ip:192.0.2.7"},
		"A function of the program with an error": {func(r *http.Request) (string, error) {
			return "", fmt.Errorf("no tenant \x1b[31m%s", strings.Repeat("x", 300))
		},
			"github.com/go-tokenbucket/ratelimit_test.TestKeysAreExplained.func3 ! no tenant \\x1b[31m" + strings.Repeat("x", 256-len("no tenant \x1b[31m")) + "…"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := outline(found(t, tt.key, r)); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

// What a function does otherwise does not change how it is explained. For one that asks others at the same time, see
// TestFunctionsThatGoOnAreExplained.
func TestOddFunctionsAreExplained(t *testing.T) {
	r := requestWith()
	r.RemoteAddr = "192.0.2.7:1234"

	t.Run("It panics", func(t *testing.T) {
		ctx, run, end := dryrun.Begin(r.Context(), r)
		defer end()
		l := ratelimit.Must(ratelimit.New(ratelimit.Config{}))
		defer l.Close()
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic was swallowed")
				}
			}()
			panics := func(*http.Request) (string, error) { panic("odd") }
			l.Decide(r.WithContext(ctx), ratelimit.Policy{Name: "api", Key: ratelimit.FirstOf(panics), Limit: ratelimit.PerHour(100)})
		}()
		step := run.Took()
		if step == nil || step.Err != dryrun.ErrPanicked.Error() || len(step.Tried) != 1 || step.Tried[0].Err != step.Err {
			t.Errorf("got %+v", step)
		}
	})

	t.Run("It asks without an end", func(t *testing.T) {
		step := found(t, func(r *http.Request) (string, error) {
			for range 1200 {
				ratelimit.FirstOf(ratelimit.RemoteIP())(r)
				ratelimit.RemoteIP()(r)
			}
			return "long", nil
		}, r)
		if len(step.Tried) > 1000 || len(step.Notes) > 201 {
			t.Errorf("%d steps and %d notes", len(step.Tried), len(step.Notes))
		}
	})
}

// The key of Route keeps the sub-routers that it has found, and those of an explanation are made for it alone.
func TestRouteKeepsNothingOfAnExplanation(t *testing.T) {
	route := ratelimit.Route()
	explained := func() weak.Pointer[chi.Mux] {
		var got string
		root, sub := chi.NewRouter(), chi.NewRouter()
		sub.Get("/{id}", func(http.ResponseWriter, *http.Request) {})
		root.With(func(http.Handler) http.Handler {
			return http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = found(t, route, r).Key })
		}).Mount("/items", sub)
		root.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/items/7", nil))
		if got != "route:GET /items/{id}" {
			t.Fatalf("the key is %q", got)
		}
		return weak.Make(root)
	}()
	for range 5 {
		runtime.GC() // also what is in pools
	}
	if explained.Value() != nil {
		t.Error("the router is kept")
	}
	runtime.KeepAlive(route)
}
