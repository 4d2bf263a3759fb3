package override_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/admin"
	"github.com/go-tokenbucket/ratelimit/internal/test/redistest"
	"github.com/go-tokenbucket/ratelimit/internal/test/testsize"
	"github.com/go-tokenbucket/ratelimit/override"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/fallback"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

// A decision is one of a replica under load.
type decision struct {
	replica    int
	began, end time.Time
	policy     string
	limit      string
}

// A fleet is some replicas of a program on one Redis, and what they decide.
type fleet struct {
	*testing.T
	server   *redistest.Server
	replicas []*service

	mu        sync.Mutex
	decisions []decision
	history   map[string][]phase // by policy
}

// A phase is a limit that was set.
type phase struct {
	limit           string
	begun, answered time.Time
}

// A service is a replica: a limiter with its own client, its page, and clients that call it all the time.
type service struct {
	limiter   *ratelimit.Limiter
	overrides *override.Overrides
	page      *httptest.Server
	stop      func()
}

func (f *fleet) start(i int) *service {
	f.Helper()
	o, err := redisstore.Options("redis://" + f.server.Addr())
	if err != nil {
		f.Fatal(err)
	}
	client := redis.NewClient(o)
	quiet := slog.New(slog.DiscardHandler)
	buckets := ratelimit.Must(redisstore.New(client, redisstore.Config{Logger: quiet}))
	stack := ratelimit.Must(fallback.New(buckets, nil, fallback.Config{Logger: quiet}))
	l := ratelimit.Must(ratelimit.New(ratelimit.Config{Store: stack, Logger: quiet, Policies: []ratelimit.Policy{policy("api", ratelimit.PerMinute(60).WithBurst(10))}}))
	mux := http.NewServeMux()
	mux.Handle("/login", l.Limit(policy("login", ratelimit.PerHour(5)))(http.NotFoundHandler()))
	h := l.Handler(mux)
	ctx, cancel := context.WithCancel(context.Background())
	changed, err := override.Watch(ctx, l, stack, override.Config{Logger: quiet})
	if err != nil {
		f.Fatal(err)
	}
	s := &service{limiter: l, overrides: changed}
	s.page = httptest.NewServer(admin.Handler(l, func(*http.Request) (string, admin.Access) { return "alice", admin.Change }, admin.Config{Overrides: changed, Logger: quiet}))
	var load sync.WaitGroup
	for n := range 2 {
		load.Go(func() {
			for ctx.Err() == nil {
				f.decide(i, l, h, n)
				time.Sleep(2 * time.Millisecond)
			}
		})
	}
	s.stop = func() {
		cancel()
		load.Wait()
		s.page.Close()
		l.Close()
		stack.Close()
		buckets.Close()
		client.Close()
	}
	return s
}

// decide has a replica decide once, and notes by which limits: by those of Decide and, through the whole stack of handlers,
// by the header.
func (f *fleet) decide(i int, l *ratelimit.Limiter, h http.Handler, n int) {
	r := httptest.NewRequest("GET", "/login", nil)
	r.RemoteAddr = fmt.Sprintf("192.0.2.%d:1", i)
	began := time.Now()
	var got []decision
	if n == 0 {
		d, err := l.Decide(r)
		if errors.Is(err, store.ErrOverloaded) { // the machine is busy with other tests: no limit has decided
			return
		}
		if err != nil || len(d.Results) != 1 {
			f.Errorf("%+v, %v", d, err)
			return
		}
		got = append(got, decision{policy: "api", limit: d.Results[0].Limit.String()})
	} else {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code == http.StatusServiceUnavailable { // as above
			return
		}
		got = append(got, decision{policy: "burst", limit: w.Header().Get("X-RateLimit-Limit")})
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, d := range got {
		d.replica, d.began, d.end = i, began, time.Now()
		f.decisions = append(f.decisions, d)
	}
}

// set changes the limit of api on the page of a replica.
func (f *fleet) set(i int, limit string) {
	f.Helper()
	f.change(f.replicas[i].page.URL, limit)
}

// change changes the limit of api on a page.
func (f *fleet) change(page, limit string) {
	f.Helper()
	begun := time.Now()
	form := url.Values{"policy": {"api"}, "limit": {limit}, "why": {"test"}}
	for deadline := begun.Add(10 * time.Second); ; { // the breaker of a replica may still be open after an outage
		client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
		response, err := client.PostForm(page+"/overrides", form)
		if err != nil {
			f.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode == http.StatusSeeOther {
			break
		}
		if response.StatusCode != http.StatusServiceUnavailable || time.Now().After(deadline) {
			f.Fatalf("%s: status %d", limit, response.StatusCode)
		}
		time.Sleep(50 * time.Millisecond)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.history["api"] = append(f.history["api"], phase{limit, begun, time.Now()})
}

// check checks all decisions so far: those that began two seconds after an answer are by the new limit, others by it or by
// the one before, and none by another one.
func (f *fleet) check() {
	f.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	wrong := 0
	for _, d := range f.decisions {
		var may []string
		for _, p := range f.history["api"] {
			if !d.began.Before(p.answered.Add(2 * time.Second)) {
				may = nil
			}
			if !d.end.Before(p.begun) {
				may = append(may, p.limit)
			}
		}
		ok := slices.Contains(may, d.limit)
		if d.policy == "burst" { // the header has the burst of the policy with the fewest tokens: of api or login
			ok = d.limit == "5" || slices.ContainsFunc(may, func(l string) bool { return strings.HasSuffix(l, " "+d.limit) })
		}
		if !ok {
			if wrong++; wrong < 10 {
				f.Errorf("replica %d decided by %s %s at %s: may be %q", d.replica, d.policy, d.limit, d.began.Format("05.000"), may)
			}
		}
	}
	f.Logf("%d decisions, %d wrong", len(f.decisions), wrong)
}

// A limit that is changed on the page of one of three replicas under load is in force on all of them two seconds later,
// whatever happens to Redis afterwards and whoever writes to it.
func TestThreeReplicasFollowAChange(t *testing.T) {
	t.Parallel()
	f := &fleet{T: t, history: make(map[string][]phase), server: redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")}
	f.history["api"] = []phase{{limit: "60/1m burst 10"}}
	for i := range 3 {
		f.replicas = append(f.replicas, f.start(i))
	}
	defer func() {
		for _, s := range f.replicas {
			s.stop()
		}
	}()
	time.Sleep(200 * time.Millisecond)
	f.set(0, "120/1m burst 20")
	time.Sleep(2300 * time.Millisecond)
	f.check()

	// A restart begins with it.
	f.replicas[2].stop()
	f.replicas[2] = f.start(2)
	if got := f.replicas[2].limiter.Policies()[0].Limit.String(); got != "120/1m burst 20" {
		t.Errorf("restarted with %s", got)
	}

	// While Redis is dead it stays.
	f.server.Kill()
	time.Sleep(time.Duration(testsize.Of(1, 5)) * time.Second)
	f.server.Restart()
	f.set(1, "300/1m burst 50")
	time.Sleep(2300 * time.Millisecond)
	f.check()

	// So it does after FLUSHALL, and is written back.
	f.server.Do("FLUSHALL")
	time.Sleep(1300 * time.Millisecond)
	f.replicas[0].stop()
	f.replicas[0] = f.start(0)
	if got := f.replicas[0].limiter.Policies()[0].Limit.String(); got != "300/1m burst 50" {
		t.Errorf("restarted after FLUSHALL with %s", got)
	}
	f.set(2, "240/1m burst 40")
	time.Sleep(2300 * time.Millisecond)
	f.check()

	// What was written by hand is refused: the limit is then the program's.
	buckets := ratelimit.Must(redisstore.New(f.server.Client(), redisstore.Config{Logger: slog.New(slog.DiscardHandler)}))
	for _, raw := range []string{`{"limit":"60000/1m burst 10000","by":"eve"}`, "\x00\xff"} {
		begun := time.Now()
		if _, written, err := buckets.WriteValue(t.Context(), "overrides", store.Value{Name: "api", Text: raw, Version: store.AnyVersion}); err != nil || !written {
			t.Fatal(err)
		}
		f.mu.Lock()
		f.history["api"] = append(f.history["api"], phase{"60/1m burst 10", begun, time.Now()})
		f.mu.Unlock()
		time.Sleep(2200 * time.Millisecond)
		for i, s := range f.replicas {
			if e := s.overrides.List(nil)[0]; e.Refused == "" || e.InForce != "60/1m burst 10" {
				t.Errorf("replica %d: %+v", i, e)
			}
		}
	}
	f.check()

	// A key has its own limit.
	if err := f.replicas[0].overrides.Set(t.Context(), ofKey("ip:192.0.2.1", "90/1m burst 15", time.Now().Add(time.Hour))); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * time.Second)
	for i, s := range f.replicas {
		if got := limitOf(t, replica{Limiter: s.limiter}, "192.0.2.1"); got != "90/1m burst 15" {
			t.Errorf("replica %d: the key has %s", i, got)
		}
	}
}
