package decorators_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/ratetest"
	"github.com/go-tokenbucket/ratelimit/internal/test/redistest"
	"github.com/go-tokenbucket/ratelimit/internal/test/teststore"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/fallback"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

// watched returns a limiter over s, its events and its log.
func watched(t *testing.T, s store.Store, timeout time.Duration) (l *ratelimit.Limiter, events *ratetest.Events, log *bytes.Buffer) {
	events, log = new(ratetest.Events), new(bytes.Buffer)
	l, err := ratelimit.New(ratelimit.Config{Store: s, Timeout: timeout, Observe: events.Observe, Logger: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	return l, events, log
}

// The client has go-redis's defaults: it would wait 5 s for a reply, and send again three times.
func TestABlackHoleCostsTheTimeoutAndNoMore(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	client := server.ClientOptions(func(o *redis.Options) { o.Addr = proxy.Addr() })
	l, events, log := watched(t, ratelimit.Must(redisstore.New(client, redisstore.Config{})), 0)
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
		for tries := 0; errors.Is(events.Last().Err, store.ErrOverloaded) && tries < 20; tries++ { // this process was too busy to measure
			begin = time.Now()
			w = ratetest.Get(l.Limit(c.policy)(ratetest.OK))
		}
		if took := time.Since(begin); w.Code != c.status || took < 100*time.Millisecond || took > 2*time.Second {
			t.Errorf("%s: %d after %v, want %d after the default Timeout of 100 ms", c.policy.Name, w.Code, took, c.status)
		}
		if !errors.Is(events.Last().Err, context.DeadlineExceeded) || events.Last().Took < 100*time.Millisecond {
			t.Errorf("%s: event %+v", c.policy.Name, events.Last())
		}
		if w.Header()["X-Ratelimit-Limit"] != nil {
			t.Errorf("%s: invented numbers %v", c.policy.Name, w.Header())
		}
	}
	if !strings.Contains(log.String(), "no reply in time") {
		t.Errorf("the log is silent about it: %q", log.String())
	}

	proxy.Pass()
	for begin := time.Now(); ; { // at once, but for a busy machine, where 100 ms may not be enough
		ratetest.WantStatuses(t, l.Limit(open)(ratetest.OK), []int{200})
		if events.Last().Err == nil {
			break
		}
		if time.Since(begin) > 5*time.Second {
			t.Fatalf("after the outage: %v", events.Last().Err)
		}
	}
}

func TestRedisErrorsAreObservedAndLogged(t *testing.T) {
	server := redistest.Start(t)
	l, events, log := watched(t, ratelimit.Must(redisstore.New(server.Client(), redisstore.Config{})), 5*time.Second)
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
			if w.Code != 200 || !redis.HasErrorPrefix(events.Last().Err, f.name) || !events.Last().Allowed {
				t.Errorf("%d, event %+v", w.Code, events.Last())
			}
			if !strings.Contains(log.String(), f.name) {
				t.Errorf("not in the log: %q", log.String())
			}
		})
	}
}

// A policy that fails closed is not charged for requests that it refuses, nor are those beside it.
func TestFailClosedIsNotChargedWhereAStandInWouldAnswer(t *testing.T) {
	broken := ratetest.Failing(func() error { return teststore.ErrBroken })
	f := ratelimit.Must(fallback.New(broken, nil, fallback.Config{Failures: 1, Logger: slog.New(slog.DiscardHandler)}))
	defer f.Close()
	l, events, _ := watched(t, f, 5*time.Second)
	closed, beside := ratetest.PerIP("login", ratelimit.PerHour(3)), ratetest.PerIP("beside", ratelimit.PerHour(3))
	closed.FailClosed = true
	for range 10 {
		w := ratetest.Get(l.Limit(beside, closed)(ratetest.OK))
		if w.Code != 503 || w.Header().Get("Retry-After") == "" || w.Header()["X-Ratelimit-Limit"] != nil {
			t.Fatalf("%d %v", w.Code, w.Header())
		}
	}
	if !errors.Is(events.Last().Err, store.ErrAway) || events.Last().Allowed {
		t.Errorf("event %+v", events.Last())
	}
	ratetest.WantStatuses(t, l.Limit(beside)(ratetest.OK), []int{200, 200, 200, 429})
	if events.Last().Err != nil || !events.Last().Results[0].Degraded {
		t.Errorf("event %+v", events.Last())
	}
}
