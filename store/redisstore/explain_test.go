package redisstore_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/explain"
	"github.com/go-tokenbucket/ratelimit/internal/test/redistest"
	"github.com/go-tokenbucket/ratelimit/lua"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/fallback"
	"github.com/go-tokenbucket/ratelimit/store/lease"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

// While Redis is unavailable, a stand-in decides, and the explanation says so. A policy with FailClosed is explained as
// failed. No lock is shown, which not every stand-in makes.
func TestExplainWithoutRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	f := ratelimit.Must(fallback.New(ratelimit.Must(redisstore.New(server.Client(), redisstore.Config{})), nil, fallback.Config{Replicas: 2, Slow: 10 * time.Second, Logger: quiet}))
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
	rdb := server.Client()
	for name, wrap := range map[string]func(s store.Store) store.Store{
		"alone": func(s store.Store) store.Store { return s },
		"under a fallback and leases": func(s store.Store) store.Store {
			f := ratelimit.Must(fallback.New(s, nil, fallback.Config{Slow: time.Minute}))
			t.Cleanup(func() { f.Close() })
			l := ratelimit.Must(lease.New(f, lease.Config{Hold: time.Hour, Fraction: 0.5}))
			t.Cleanup(func() { l.Close() })
			return l
		},
	} {
		t.Run(name, func(t *testing.T) {
			client := func(r *http.Request) (string, error) { return r.Header.Get("X-Client"), nil }
			l := ratelimit.Must(ratelimit.New(ratelimit.Config{
				Store: wrap(ratelimit.Must(redisstore.New(rdb, redisstore.Config{Prefix: prefix()}))),
				Policies: []ratelimit.Policy{
					{Name: "client", Key: client, Limit: ratelimit.PerSecond(1).WithBurst(30)},
					{Name: "all", Key: ratelimit.Static("all"), Limit: ratelimit.PerSecond(2).WithBurst(60), Shadow: true},
					{Name: "closed", Key: client, Limit: ratelimit.PerMinute(20).WithBurst(20), FailClosed: true},
				},
				Timeout: time.Minute,
			}))
			h := l.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
			r := httptest.NewRequest("GET", "/", nil)
			r.Header.Set("X-Client", "c")
			for range 10 {
				h.ServeHTTP(httptest.NewRecorder(), r)
			}
			l.Explain(r) // which loads the script

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
				l.Explain(r)
			}
			rdb.Echo(t.Context(), "the end")
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
					if looks < 5*3 {
						t.Errorf("%d looks, want %d", looks, 5*3)
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
