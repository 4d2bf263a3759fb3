package ratelimit_test

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
	"github.com/go-tokenbucket/ratelimit/internal/test/redistest"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/denialcache"
	"github.com/go-tokenbucket/ratelimit/store/fallback"
	"github.com/go-tokenbucket/ratelimit/store/lease"
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
	open, closed := perIP("open", ratelimit.PerHour(100)), perIP("closed", ratelimit.PerHour(100))
	closed.FailClosed = true
	wantStatuses(t, l.Limit(open)(okHandler), []int{200})

	proxy.BlackHole()
	for _, c := range []struct {
		policy ratelimit.Policy
		status int
	}{{open, 200}, {closed, 503}} {
		begin := time.Now()
		w := get(l.Limit(c.policy)(okHandler))
		for tries := 0; errors.Is(o.last.Err, store.ErrOverloaded) && tries < 20; tries++ { // this process was too busy to measure
			begin = time.Now()
			w = get(l.Limit(c.policy)(okHandler))
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
		wantStatuses(t, l.Limit(open)(okHandler), []int{200})
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
	l := newLimiter(t, o.watch(ratelimit.Config{Store: redisstore.New(server.Client(), redisstore.Config{})}))
	p := perIP("api", ratelimit.PerHour(100))
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
			w := get(l.Limit(p)(okHandler))
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
	l := newLimiter(t, o.watch(ratelimit.Config{Store: f}))
	closed, beside := perIP("login", ratelimit.PerHour(3)), perIP("beside", ratelimit.PerHour(3))
	closed.FailClosed = true
	for range 10 {
		w := get(l.Limit(beside, closed)(okHandler))
		if w.Code != 503 || w.Header().Get("Retry-After") == "" || w.Header()["X-Ratelimit-Limit"] != nil {
			t.Fatalf("%d %v", w.Code, w.Header())
		}
	}
	if !errors.Is(o.last.Err, store.ErrAway) || o.last.Allowed {
		t.Errorf("event %+v", o.last)
	}
	wantStatuses(t, l.Limit(beside)(okHandler), []int{200, 200, 200, 429})
	if o.last.Err != nil || !o.last.Results[0].Degraded {
		t.Errorf("event %+v", o.last)
	}
}

type brokenStore struct{}

func (*brokenStore) Take(context.Context, []store.Charge, []store.State) (bool, error) {
	return false, errors.New("broken")
}

func TestNewRefusesATimeoutInWhichAHungPrimaryIsNotNoticed(t *testing.T) {
	f := fallback.New(new(brokenStore), nil, fallback.Config{})
	defer f.Close()
	leased := lease.New(f, lease.Config{})
	defer leased.Close()
	for name, s := range map[string]store.Store{
		"a fallback":       f,
		"inside of others": denialcache.New(leased, denialcache.Config{}),
	} {
		_, err := ratelimit.New(ratelimit.Config{Store: s, Timeout: 49 * time.Millisecond})
		if err == nil || !strings.Contains(err.Error(), "Timeout 49ms: must not be shorter than the fallback.Config.Slow of Store, 50ms") {
			t.Errorf("%s: error %v", name, err)
		}
		if _, err := ratelimit.New(ratelimit.Config{Store: s, Timeout: 50 * time.Millisecond}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
