package redisstore_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/explain"
	"github.com/go-tokenbucket/ratelimit/headers"
	"github.com/go-tokenbucket/ratelimit/internal/test/redistest"
	"github.com/go-tokenbucket/ratelimit/internal/test/testsize"
	"github.com/go-tokenbucket/ratelimit/internal/test/teststore"
	"github.com/go-tokenbucket/ratelimit/lua"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/fallback"
	"github.com/go-tokenbucket/ratelimit/store/lease"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

// opaque hides that a Store is an Inspector.
type opaque struct{ store.Store }

// An explanation is what Handler then does, over Redis and over all decorators, and it writes nothing: contents returns
// what the server holds.
func TestExplainAgreesWithHandlerOverRedis(t *testing.T) {
	server := redistest.Start(t)
	mini := miniredis.RunT(t)
	alone := func(_ *testing.T, s store.Store, _ func() time.Time) store.Store { return s }
	onServer := func() any { return changes(t, server) }
	for name, tt := range map[string]struct {
		addr     string
		contents func() any
		wrap     func(t *testing.T, s store.Store, clock func() time.Time) store.Store
	}{
		"alone":        {server.Addr(), onServer, alone},
		"on miniredis": {mini.Addr(), func() any { return mini.Dump() }, alone},
		"under a fallback": {server.Addr(), onServer, func(t *testing.T, s store.Store, _ func() time.Time) store.Store {
			f := fallback.New(s, nil, fallback.Config{Slow: time.Minute})
			t.Cleanup(func() { f.Close() })
			return f
		}},
		"under leases": {server.Addr(), onServer, func(t *testing.T, s store.Store, clock func() time.Time) store.Store {
			l := lease.New(s, lease.Config{Clock: clock, Hold: time.Hour, Fraction: 0.5})
			t.Cleanup(func() { l.Close() })
			return l
		}},
		"as no Inspector": {server.Addr(), onServer, func(_ *testing.T, s store.Store, _ func() time.Time) store.Store { return opaque{s} }},
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Date(2026, 5, 23, 0, 0, 0, 0, time.UTC)
			clock := teststore.Monotonic(func() time.Time { return now })
			s := redisstore.New(dial(t, tt.addr), redisstore.Config{Prefix: prefix(), Clock: clock})
			x := newExplained(t, tt.wrap(t, s, clock), time.Minute)
			for i := range testsize.Of(75, 200) {
				x.compare(i, tt.contents)
				now = now.Add(time.Duration(x.IntN(800)) * time.Millisecond)
			}
			x.wantVaried()
		})
	}
}

// changes returns how many changes the dataset of a server has seen.
func changes(t *testing.T, server *redistest.Server) int {
	t.Helper()
	info, _ := server.Do("INFO", "persistence").(string)
	_, rest, _ := strings.Cut(info, "rdb_changes_since_last_save:")
	n, err := strconv.Atoi(strings.TrimSpace(strings.SplitN(rest, "\n", 2)[0]))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// explained compares explanations with what Handler does.
type explained struct {
	*testing.T
	*rand.Rand
	limiter *ratelimit.Limiter
	handler http.Handler
	event   *ratelimit.Event
	allowed int
	denied  int
}

func newExplained(t *testing.T, s store.Store, timeout time.Duration) *explained {
	x := &explained{T: t, Rand: rand.New(rand.NewPCG(18, 2))}
	client := func(r *http.Request) (string, error) { return r.Header.Get("X-Client"), nil }
	cost := func(r *http.Request) int64 { n, _ := strconv.ParseInt(r.Header.Get("X-Cost"), 10, 64); return n }
	x.limiter = ratelimit.Must(ratelimit.New(ratelimit.Config{
		Store: s,
		Policies: []ratelimit.Policy{ // by limits of which a State says all
			{Name: "client", Key: client, Limit: ratelimit.PerSecond(1).WithBurst(30), Cost: cost},
			{Name: "all", Key: ratelimit.Static("all"), Limit: ratelimit.PerSecond(2).WithBurst(60), Shadow: true},
			{Name: "closed", Key: client, Limit: ratelimit.PerMinute(20).WithBurst(20), FailClosed: true},
		},
		Headers: headers.IETF,
		Timeout: timeout,
		Observe: func(_ context.Context, e *ratelimit.Event) { x.event = e },
		Logger:  quiet,
	}))
	x.handler = x.limiter.Handler(x.limiter.Limit(ratelimit.Policy{
		Name: "inner", Key: client, Limit: ratelimit.PerSecond(1).WithBurst(40),
	})(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusNoContent) })))
	first := httptest.NewRequest("GET", "/", nil) // from which the limiter knows the inner place
	first.Header.Set("X-Client", "first")
	first.Header.Set("X-Cost", "1")
	x.handler.ServeHTTP(httptest.NewRecorder(), first)
	return x
}

func (x *explained) compare(i int, contents func() any) {
	x.Helper()
	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set("X-Client", fmt.Sprint("c", x.IntN(2)))
	r.Header.Set("X-Cost", fmt.Sprint(1+x.IntN(3)*x.IntN(2)))
	before := contents()
	e := x.limiter.Explain(r)
	if after := contents(); !reflect.DeepEqual(before, after) {
		x.Fatalf("step %d: Explain wrote: %v, not %v", i, after, before)
	}
	rec := httptest.NewRecorder()
	x.handler.ServeHTTP(rec, r)
	for _, name := range []string{"Content-Type", "Content-Length", "X-Content-Type-Options"} { // of Deny
		rec.Header().Del(name)
	}
	status := rec.Code
	if status == http.StatusNoContent {
		status = 0
		x.allowed++
	} else {
		x.denied++
	}
	if e.Status != status || !reflect.DeepEqual(e.Header, rec.Header()) || len(e.Unknown) > 0 {
		x.Fatalf("step %d: %d %v, want %d %v\n%+v", i, e.Status, e.Header, status, rec.Header(), e)
	}
	var last explain.Limiter
	for _, l := range e.Limiters {
		if l.Met {
			last = l
		}
	}
	for j, result := range x.event.Results {
		if p := last.Policies[j]; p.Name != result.Policy || p.Key != result.Key || p.After == nil || *p.After != result.State {
			x.Fatalf("step %d: %+v after %+v, want %+v", i, p, p.After, result)
		}
	}
}

func (x *explained) wantVaried() {
	x.Helper()
	if x.allowed < 10 || x.denied < 10 {
		x.Errorf("%d allowed and %d denied, want more of both", x.allowed, x.denied)
	}
}

// While Redis is unavailable, a stand-in decides, and the explanation says so. A policy with FailClosed is explained as
// failed. No lock is shown, which not every stand-in makes.
func TestExplainWithoutRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	f := fallback.New(redisstore.New(server.Client(), redisstore.Config{}), nil, fallback.Config{Replicas: 2, Slow: 10 * time.Second, Logger: quiet})
	defer f.Close()
	start := func(p ratelimit.Policy) (*ratelimit.Limiter, func() int) {
		p.Key, p.Limit = ratelimit.RemoteIP(), ratelimit.PerDay(20)
		l := ratelimit.Must(ratelimit.New(ratelimit.Config{Store: f, Policies: []ratelimit.Policy{p}, Timeout: time.Minute, Logger: quiet}))
		h := l.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		return l, func() int {
			rec := httptest.NewRecorder()
			h.ServeHTTP(rec, httptest.NewRequest("GET", "/", nil))
			return rec.Code
		}
	}
	locking, serve := start(ratelimit.Policy{Name: "locking", LockFor: time.Hour})
	closed, _ := start(ratelimit.Policy{Name: "closed", FailClosed: true})
	serve()
	server.Kill()
	until(t, "Redis is given up", func() bool {
		closed.Explain(httptest.NewRequest("GET", "/", nil)) // an explanation counts as a call that failed, too
		return f.Away() != nil
	})
	e := closed.Explain(httptest.NewRequest("GET", "/", nil))
	if e.Status != http.StatusServiceUnavailable || e.Limiters[0].Policies[0].Outcome != explain.Failed {
		t.Errorf("closed: %+v", e)
	}
	denied := 0
	serve() // from here on, the stand-in knows the bucket
	for i := range 15 {
		e := locking.Explain(httptest.NewRequest("GET", "/", nil))
		p, code := e.Limiters[0].Policies[0], serve()
		if code == http.StatusTooManyRequests {
			denied++
		} else if p.After.Blocked {
			t.Errorf("step %d: a lock: %+v", i, p.After)
		}
		if !e.Degraded || (e.Status == 0) != (code == http.StatusOK) {
			t.Errorf("step %d: explained %d, answered %d: %+v", i, e.Status, code, p)
		}
	}
	if denied == 0 || denied == 15 {
		t.Errorf("%d of 15 denied", denied)
	}
}

var monitored = regexp.MustCompile(`^\+[0-9.]+ \[[^\]]*\] "([^"]*)"(?: "([^"]*)")?`)

// A server is asked for nothing but looks while a request is explained.
func TestExplainSendsOnlyReads(t *testing.T) {
	server := redistest.Start(t)
	client := server.Client()
	for name, wrap := range map[string]func(s store.Store) store.Store{
		"alone": func(s store.Store) store.Store { return s },
		"under a fallback and leases": func(s store.Store) store.Store {
			f := fallback.New(s, nil, fallback.Config{Slow: time.Minute})
			t.Cleanup(func() { f.Close() })
			l := lease.New(f, lease.Config{Hold: time.Hour, Fraction: 0.5})
			t.Cleanup(func() { l.Close() })
			return l
		},
	} {
		t.Run(name, func(t *testing.T) {
			x := newExplained(t, wrap(redisstore.New(client, redisstore.Config{Prefix: prefix()})), time.Minute)
			r := httptest.NewRequest("GET", "/", nil)
			r.Header.Set("X-Client", "c")
			r.Header.Set("X-Cost", "1")
			for range 10 {
				x.handler.ServeHTTP(httptest.NewRecorder(), r)
			}
			x.limiter.Explain(r) // which loads the script

			conn, err := net.Dial("tcp", server.Addr())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			conn.SetDeadline(time.Now().Add(20 * time.Second))
			io.WriteString(conn, "MONITOR\r\n")
			lines := bufio.NewScanner(conn)
			lines.Scan() // OK
			for range 5 {
				x.limiter.Explain(r)
			}
			client.Echo(t.Context(), "the end")
			looks := 0
			for lines.Scan() {
				command := monitored.FindStringSubmatch(lines.Text())
				if command == nil {
					t.Fatalf("line %q", lines.Text())
				}
				switch what := strings.ToLower(command[1]); what {
				case "evalsha":
					if command[2] != lua.PeekSHA1 {
						t.Errorf("a script is called that is not peek: %s", lines.Text())
					}
					looks++
				case "hmget", "time", "hello", "client":
				case "echo":
					if looks < 5*4 {
						t.Errorf("%d looks, want %d", looks, 5*4)
					}
					return
				default:
					t.Errorf("%s", lines.Text())
				}
			}
			t.Fatal(lines.Err())
		})
	}
}
