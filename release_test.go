package ratelimit_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"testing"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/ratetest"
	"github.com/go-tokenbucket/ratelimit/store"
)

// atOnce is a policy of n slots for each address.
func atOnce(name string, n int64) ratelimit.Policy {
	return perIP(name, ratelimit.Concurrency(n))
}

// free returns how many slots of p and an address are free.
func free(t *testing.T, l *ratelimit.Limiter, p ratelimit.Policy, key string) int64 {
	t.Helper()
	b, err := l.Peek(context.WithoutCancel(t.Context()), ratelimit.Policy{Name: p.Name, Limit: p.Limit}, key)
	if err != nil {
		t.Error(err)
	}
	return b.Remaining
}

// Each way in which a request can end releases its slot, after the handler and not before.
func TestASlotIsReleasedWhenItsHandlerHasReturned(t *testing.T) {
	exports := atOnce("exports", 2)
	for name, tt := range map[string]struct {
		handle http.HandlerFunc
		http2  bool
		leaves bool // the client, while the handler runs
	}{
		"return":       {handle: func(http.ResponseWriter, *http.Request) {}},
		"HTTP/2":       {handle: func(http.ResponseWriter, *http.Request) {}, http2: true},
		"panic":        {handle: func(http.ResponseWriter, *http.Request) { panic("of a test") }},
		"abort":        {handle: func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }},
		"HTTP/2 abort": {handle: func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, http2: true},
		"Goexit":       {handle: func(http.ResponseWriter, *http.Request) { runtime.Goexit() }},
		"103": {handle: func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(http.StatusOK)
		}},
		"stream": {handle: func(w http.ResponseWriter, _ *http.Request) {
			for range 3 {
				io.WriteString(w, "data: x\n\n")
				http.NewResponseController(w).Flush()
			}
		}},
		"disconnect":        {handle: untilClientLeft(t, exports), leaves: true},
		"HTTP/2 disconnect": {handle: untilClientLeft(t, exports), leaves: true, http2: true},
	} {
		for mount, limited := range map[string]func(*ratelimit.Limiter, http.Handler) http.Handler{
			"Handler": func(l *ratelimit.Limiter, next http.Handler) http.Handler { return l.Handler(next) },
			"Limit":   func(l *ratelimit.Limiter, next http.Handler) http.Handler { return l.Limit(exports)(next) },
		} {
			t.Run(mount+" "+name, func(t *testing.T) {
				l := newLimiter(t, ratelimit.Config{Policies: []ratelimit.Policy{exports}})
				running, returned := make(chan int64, 1), make(chan struct{})
				next := limited(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					running <- free(t, l, exports, loopback)
					tt.handle(w, r.WithContext(context.WithValue(r.Context(), limiterKey{}, l)))
				}))
				url, client := served(t, tt.http2, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					defer close(returned)
					next.ServeHTTP(w, r)
				}))
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				go func() {
					r, _ := http.NewRequestWithContext(ctx, "GET", url, nil)
					if response, err := client.Do(r); err == nil {
						io.Copy(io.Discard, response.Body)
						response.Body.Close()
					}
				}()
				if n := <-running; n != 1 {
					t.Errorf("%d slots are free while the handler runs, want 1", n)
				}
				if tt.leaves {
					leave()
				}
				if <-returned; free(t, l, exports, loopback) != 2 {
					t.Error("the slot was not released")
				}
			})
		}
	}
}

const loopback = "ip:127.0.0.1"

type limiterKey struct{}

// untilClientLeft runs until its client has left, and a little longer.
func untilClientLeft(t *testing.T, p ratelimit.Policy) http.HandlerFunc {
	return func(_ http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
		if n := free(t, r.Context().Value(limiterKey{}).(*ratelimit.Limiter), p, loopback); n != 1 {
			t.Errorf("%d slots are free while the handler runs, want 1", n)
		}
	}
}

// served returns the address of a server with h, and a client for it.
func served(t *testing.T, http2 bool, h http.Handler) (url string, client *http.Client) {
	server := httptest.NewUnstartedServer(h)
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // of panics
	if server.EnableHTTP2 = http2; http2 {
		server.StartTLS()
	} else {
		server.Start()
	}
	t.Cleanup(server.Close)
	return server.URL, server.Client()
}

// A connection that was taken over holds the slot until it is closed and the handler has returned.
func TestAConnectionThatIsTakenOverHoldsItsSlot(t *testing.T) {
	exports := atOnce("exports", 1)
	controller := func(w http.ResponseWriter) (net.Conn, *bufio.ReadWriter, error) {
		return http.NewResponseController(w).Hijack()
	}
	for name, tt := range map[string]struct {
		hijack func(http.ResponseWriter) (net.Conn, *bufio.ReadWriter, error)
		around func(http.ResponseWriter) http.ResponseWriter // by middleware outside of the limiter
		end    func(conn net.Conn, closed func())
		held   bool // after the handler has returned
	}{
		"closed later":              {hijack: controller, held: true, end: func(net.Conn, func()) {}},
		"by http.Hijacker":          {hijack: func(w http.ResponseWriter) (net.Conn, *bufio.ReadWriter, error) { return w.(http.Hijacker).Hijack() }, held: true, end: func(net.Conn, func()) {}},
		"by Unwrap outside":         {hijack: controller, around: func(w http.ResponseWriter) http.ResponseWriter { return unwraps{w} }, held: true, end: func(net.Conn, func()) {}},
		"panic, and closed later":   {hijack: controller, held: true, end: func(net.Conn, func()) { panic("of a test") }},
		"closed twice, then return": {hijack: controller, end: func(conn net.Conn, closed func()) { conn.Close(); conn.Close(); closed() }},
		"with NetConn and CloseWrite": {hijack: controller, held: true, end: func(conn net.Conn, _ func()) {
			if inner := conn.(interface{ NetConn() net.Conn }).NetConn(); inner.(*net.TCPConn) == nil {
				t.Error("NetConn is nil")
			}
			if err := conn.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
				t.Error(err)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			l, conns, returned := quiet(t), make(chan net.Conn, 1), make(chan struct{})
			next := l.Limit(exports)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				conn, _, err := tt.hijack(w)
				if err != nil {
					t.Error(err)
					return
				}
				conns <- conn
				tt.end(conn, func() {
					if free(t, l, exports, loopback) != 0 {
						t.Error("the slot was released before the handler has returned")
					}
				})
			}))
			url, client := served(t, false, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				defer close(returned)
				if tt.around != nil {
					w = tt.around(w)
				}
				next.ServeHTTP(w, r)
			}))
			go client.Get(url)
			conn := <-conns
			<-returned
			if held := free(t, l, exports, loopback) == 0; held != tt.held {
				t.Errorf("after the handler has returned, held is %t", held)
			}
			conn.Close()
			if free(t, l, exports, loopback) != 1 {
				t.Error("the slot was not released")
			}
		})
	}
}

// unwraps is a writer whose connection only http.ResponseController finds.
type unwraps struct{ http.ResponseWriter }

func (u unwraps) Unwrap() http.ResponseWriter { return u.ResponseWriter }

// Stacked limiters hold the slots of each, and a request that the inner one denies releases that of the outer one.
func TestWhatHoldsSlots(t *testing.T) {
	outer, inner, minute := atOnce("outer", 2), atOnce("inner", 1), perIP("minute", ratelimit.PerMinute(2))
	shadow, hidden, member := atOnce("shadow", 1), atOnce("hidden", 1), atOnce("member", 1)
	shadow.Shadow, hidden.Hidden = true, true
	member.Key, member.Optional = noKey, true
	tier := func(l ratelimit.Limit) ratelimit.Policy {
		p := atOnce("tier", 2)
		p.LimitFunc = func(*http.Request) ratelimit.Limit { return l }
		return p
	}
	type policies = []ratelimit.Policy
	for name, tt := range map[string]struct {
		stack  []policies       // of calls of Limit, the outer one first
		second int              // the status of a second request while the first one runs
		free   map[string]int64 // slots and tokens, while the first one runs and after the second one
	}{
		"stacked":              {[]policies{{outer}, {inner}}, 429, map[string]int64{"outer": 1, "inner": 0}},
		"all or none":          {[]policies{{inner, minute}}, 429, map[string]int64{"inner": 0, "minute": 1}},
		"none without a token": {[]policies{{outer, perIP("minute", ratelimit.PerMinute(1))}}, 429, map[string]int64{"outer": 1, "minute": 0}},
		"Shadow":               {[]policies{{shadow, outer}}, 200, map[string]int64{"shadow": 0, "outer": 1}},
		"Hidden":               {[]policies{{hidden}}, 429, map[string]int64{"hidden": 0}},
		"Optional":             {[]policies{{member, minute}}, 200, map[string]int64{"minute": 0}},
		"smaller tier":         {[]policies{{tier(ratelimit.Concurrency(1))}}, 429, map[string]int64{"tier": 1}}, // of 2
		"Policy.Limit":         {[]policies{{tier(ratelimit.Limit{})}}, 200, map[string]int64{"tier": 1}},
		"Unlimited":            {[]policies{{tier(ratelimit.Unlimited)}}, 200, map[string]int64{"tier": 2}},
		"another kind":         {[]policies{{tier(ratelimit.PerHour(1))}}, 200, map[string]int64{"tier": 1}}, // Policy.Limit applies
	} {
		t.Run(name, func(t *testing.T) {
			l, all := quiet(t), make(map[string]ratelimit.Policy)
			check := func(when string, want func(policy string) int64) {
				t.Helper()
				for name, p := range all {
					if n := free(t, l, p, address); p.Limit.IsConcurrency() && n != want(name) {
						t.Errorf("%s, %d slots of %s are free, want %d", when, n, name, want(name))
					}
				}
			}
			var h http.Handler
			first := true
			h = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				if first {
					first = false
					if code := get(h).Code; code != tt.second {
						t.Errorf("the second got %d, want %d", code, tt.second)
					}
					check("while it runs", func(name string) int64 { return tt.free[name] })
				}
			})
			for _, policies := range slices.Backward(tt.stack) {
				h = l.Limit(policies...)(h)
				for _, p := range policies {
					if _, counts := tt.free[p.Name]; counts {
						all[p.Name] = p
					}
				}
			}
			get(h)
			check("afterwards", func(name string) int64 { return all[name].Limit.Rate })
			if p := all["minute"]; p.Name != "" && free(t, l, p, address) != tt.free["minute"] {
				t.Errorf("%d tokens are left, want %d", free(t, l, p, address), tt.free["minute"])
			}
		})
	}
}

// A tier of zero slots denies, as a rate of 0 does.
func TestATierOfZeroSlotsDenies(t *testing.T) {
	p := atOnce("tier", 2)
	p.LimitFunc = func(*http.Request) ratelimit.Limit { return ratelimit.Concurrency(0) }
	if code := get(quiet(t).Limit(p)(okHandler)).Code; code != 429 {
		t.Errorf("%d, want 429", code)
	}
}

// What a program's own function does after the Store has answered loses no slot.
func TestAPanicAfterTheDecisionReleasesTheSlot(t *testing.T) {
	p := atOnce("exports", 1)
	broken := func() { panic("of a test") }
	for name, cfg := range map[string]ratelimit.Config{
		"Observe": {Observe: func(_ context.Context, e *ratelimit.Event) {
			if e.Op != "peek" {
				broken()
			}
		}},
		"Headers": {Headers: func(http.Header, *ratelimit.Decision) { broken() }},
	} {
		l := newLimiter(t, cfg)
		checkPanic(t, func() { get(l.Limit(p)(okHandler)) }, "of a test")
		if name == "Observe" {
			checkPanic(t, func() { l.Acquire(t.Context(), p, address) }, "of a test")
		}
		if free(t, l, p, address) != 1 {
			t.Errorf("%s: the slot was lost", name)
		}
	}
}

// A slot is released for its policy and key, whatever was reloaded or overridden meanwhile.
func TestASlotIsReleasedAfterItsLimitHasChanged(t *testing.T) {
	p := atOnce("exports", 3)
	for name, change := range map[string]func(l *ratelimit.Limiter) error{
		"Reload":           func(l *ratelimit.Limiter) error { return l.Reload(atOnce("exports", 1)) },
		"Reload to a rate": func(l *ratelimit.Limiter) error { return l.Reload(perIP("exports", ratelimit.PerHour(9))) },
		"Override": func(l *ratelimit.Limiter) error {
			return l.Override([]ratelimit.Override{{Policy: "exports", Limit: ratelimit.Concurrency(5)}})
		},
		"Override of the key": func(l *ratelimit.Limiter) error {
			return l.Override([]ratelimit.Override{{Policy: "exports", Key: address, Limit: ratelimit.Concurrency(5)}})
		},
		"Override to Unlimited": func(l *ratelimit.Limiter) error {
			return l.Override([]ratelimit.Override{{Policy: "exports", Limit: ratelimit.Unlimited}})
		},
		"Override without an effect": func(l *ratelimit.Limiter) error {
			return l.Override([]ratelimit.Override{{Policy: "exports", Limit: ratelimit.PerHour(5)}, {Policy: "exports", Key: address, Limit: ratelimit.PerHour(5)}})
		},
	} {
		l := quiet(t)
		h := l.Limit(p)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			if err := change(l); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}))
		get(h)
		l.Override(nil)
		l.Reload(p)
		if n := free(t, l, p, address); n != 3 {
			t.Errorf("%s: %d slots are free, want 3", name, n)
		}
	}
}

// A slot that was lost meanwhile is reported.
func TestALostSlotIsReported(t *testing.T) {
	p := atOnce("exports", 1)
	losing := storeFunc(func(charges []store.Charge, states []store.State) bool {
		states[0] = store.State{Allowed: true, Remaining: 1, Lost: charges[0].Cost < 0}
		return true
	})
	inBubble(t, ratelimit.Config{Store: losing}, func(t *testing.T, q *queue) {
		mux := http.NewServeMux()
		mux.Handle("GET /{$}", q.Limit(p)(okHandler))
		get(mux)
		e := q.Last()
		if len(q.All()) != 2 || e.Op != "expired" || !e.Allowed || e.Route != "GET /{$}" || len(e.Results) != 1 ||
			e.Results[0].Policy != "exports" || e.Results[0].Key != address || e.Results[0].Limit != p.Limit || !e.Results[0].Lost {
			t.Errorf("%+v", e)
		}
		release, err := q.Acquire(t.Context(), p, "a")
		if release(); err != nil || len(q.All()) != 4 || q.All()[2].Op != "acquire" || q.Last().Op != "expired" {
			t.Errorf("%v, %+v", err, q.Last())
		}
	})
}

// A Store that fails lets work go on, and nothing is released then. With FailClosed it does not.
func TestSlotsOfAStoreThatFails(t *testing.T) {
	open, closed := atOnce("exports", 1), atOnce("exports", 1)
	closed.FailClosed = true
	shadow := closed
	shadow.Shadow = true
	for name, tt := range map[string]struct {
		store   store.Store
		p       ratelimit.Policy
		allowed bool
		refunds int // for a request and an Acquire
	}{
		"fails":                                {failing(func() error { return errors.New("down") }), open, true, 0},
		"fails, FailClosed":                    {failing(func() error { return errors.New("down") }), closed, false, 0},
		"fails, Shadow":                        {failing(func() error { return errors.New("down") }), shadow, true, 0},
		"stand-in":                             {ratetest.StandIn(ratetest.NewStore()), open, true, 2},
		"stand-in that answers for FailClosed": {ratetest.StandIn(ratetest.NewStore()), closed, false, 2},
	} {
		t.Run(name, func(t *testing.T) {
			calls := &recorder{Store: tt.store}
			l := newLimiter(t, ratelimit.Config{Store: calls, Logger: slog.New(slog.DiscardHandler)})
			if code := get(l.Limit(tt.p)(okHandler)).Code; (code == 200) != tt.allowed {
				t.Errorf("%d", code)
			}
			release, err := l.Acquire(t.Context(), tt.p, "a")
			if release(); (err == nil) != tt.allowed {
				t.Errorf("Acquire: %v", err)
			}
			if n := len(calls.Refunds()); n != tt.refunds {
				t.Errorf("%d refunds, want %d", n, tt.refunds)
			}
			for _, charges := range calls.Refunds() {
				if charges[0].Cost != -1 || !charges[0].Standby {
					t.Errorf("%+v", charges)
				}
			}
		})
	}
}
