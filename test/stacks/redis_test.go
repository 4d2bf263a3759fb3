package stacks_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/ratetest"
	"github.com/go-tokenbucket/ratelimit/internal/test/redistest"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/fallback"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

// An observer keeps the last event and the log of a limiter.
type observer struct {
	mu   sync.Mutex
	last ratelimit.Event
	log  bytes.Buffer
}

func (o *observer) watch(cfg ratelimit.Config) ratelimit.Config {
	cfg.Logger = slog.New(slog.NewTextHandler(&o.log, nil))
	cfg.Observe = func(_ context.Context, e *ratelimit.Event) {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.last = *e
	}
	return cfg
}

// The client has go-redis's defaults: it would wait 5 s for a reply, and send again three times.
func TestABlackHoleCostsTheTimeoutAndNoMore(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	client := server.ClientOptions(func(o *redis.Options) { o.Addr = proxy.Addr() })
	var o observer
	l, err := ratelimit.New(o.watch(ratelimit.Config{Store: redisstore.New(client, redisstore.Config{})}))
	if err != nil {
		t.Fatal(err)
	}
	open, closed := ratetest.PerIP("open", ratelimit.PerHour(100)), ratetest.PerIP("closed", ratelimit.PerHour(100))
	closed.FailClosed = true
	ratetest.WantStatuses(t, l.Limit(open)(ratetest.OK), []int{200})

	proxy.BlackHole()
	for _, c := range []struct {
		policy ratelimit.Policy
		status int
	}{{open, 200}, {closed, 503}} {
		begin := time.Now()
		w := ratetest.Get(l.Limit(c.policy)(ratetest.OK))
		for tries := 0; errors.Is(o.last.Err, store.ErrOverloaded) && tries < 20; tries++ { // this process was too busy to measure
			begin = time.Now()
			w = ratetest.Get(l.Limit(c.policy)(ratetest.OK))
		}
		if took := time.Since(begin); w.Code != c.status || took < 100*time.Millisecond || took > 2*time.Second {
			t.Errorf("%s: %d after %v, want %d after the default Timeout of 100 ms", c.policy.Name, w.Code, took, c.status)
		}
		if !errors.Is(o.last.Err, context.DeadlineExceeded) || o.last.Took < 100*time.Millisecond {
			t.Errorf("%s: event %+v", c.policy.Name, o.last)
		}
		if w.Header()["X-Ratelimit-Limit"] != nil {
			t.Errorf("%s: invented numbers %v", c.policy.Name, w.Header())
		}
	}
	if !strings.Contains(o.log.String(), "no reply in time") {
		t.Errorf("the log is silent about it: %q", o.log.String())
	}

	proxy.Pass()
	for begin := time.Now(); ; { // at once, but for a busy machine, where 100 ms may not be enough
		ratetest.WantStatuses(t, l.Limit(open)(ratetest.OK), []int{200})
		if o.last.Err == nil {
			break
		}
		if time.Since(begin) > 5*time.Second {
			t.Fatalf("after the outage: %v", o.last.Err)
		}
	}
}

func TestRedisErrorsAreObservedAndLogged(t *testing.T) {
	server := redistest.Start(t)
	var o observer
	l := ratetest.NewLimiter(t, o.watch(ratelimit.Config{Store: redisstore.New(server.Client(), redisstore.Config{})}))
	p := ratetest.PerIP("api", ratelimit.PerHour(100))
	faults := []struct {
		name       string
		cause, end []any
	}{
		{"WRONGTYPE", []any{"SET", "ratelimit:{ip:192.0.2.1}:api", "x"}, []any{"DEL", "ratelimit:{ip:192.0.2.1}:api"}},
		{"OOM", []any{"CONFIG", "SET", "maxmemory", "1"}, []any{"CONFIG", "SET", "maxmemory", "0"}},
		{"NOPERM", []any{"ACL", "SETUSER", "default", "-evalsha"}, []any{"ACL", "SETUSER", "default", "+evalsha"}},
	}
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			if f.name == "NOPERM" && !server.HasACL() {
				return
			}
			server.Do(f.cause...)
			w := ratetest.Get(l.Limit(p)(ratetest.OK))
			server.Do(f.end...)
			if w.Code != 200 || !redis.HasErrorPrefix(o.last.Err, f.name) || !o.last.Allowed {
				t.Errorf("%d, event %+v", w.Code, o.last)
			}
			if !strings.Contains(o.log.String(), f.name) {
				t.Errorf("not in the log: %q", o.log.String())
			}
		})
	}
}

// A policy that fails closed is not charged for requests that it refuses, nor are those beside it.
func TestFailClosedIsNotChargedWhereAStandInWouldAnswer(t *testing.T) {
	primary := new(brokenStore)
	f := fallback.New(primary, nil, fallback.Config{Failures: 1, Logger: slog.New(slog.DiscardHandler)})
	defer f.Close()
	var o observer
	l := ratetest.NewLimiter(t, o.watch(ratelimit.Config{Store: f}))
	closed, beside := ratetest.PerIP("login", ratelimit.PerHour(3)), ratetest.PerIP("beside", ratelimit.PerHour(3))
	closed.FailClosed = true
	for range 10 {
		w := ratetest.Get(l.Limit(beside, closed)(ratetest.OK))
		if w.Code != 503 || w.Header().Get("Retry-After") == "" || w.Header()["X-Ratelimit-Limit"] != nil {
			t.Fatalf("%d %v", w.Code, w.Header())
		}
	}
	if !errors.Is(o.last.Err, store.ErrAway) || o.last.Allowed {
		t.Errorf("event %+v", o.last)
	}
	ratetest.WantStatuses(t, l.Limit(beside)(ratetest.OK), []int{200, 200, 200, 429})
	if o.last.Err != nil || !o.last.Results[0].Degraded {
		t.Errorf("event %+v", o.last)
	}
}

type brokenStore struct{}

func (*brokenStore) Take(context.Context, []store.Charge, []store.State) (bool, error) {
	return false, errors.New("broken")
}
