package admin

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/fleet"
	"github.com/go-tokenbucket/ratelimit/internal/test/redistest"
	"github.com/go-tokenbucket/ratelimit/observe"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/fallback"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

// A deployed is a replica whose clock of Redis can be moved.
type deployed struct {
	*testing.T
	*handler
	page  http.Handler
	limit http.Handler
}

// deploy starts a replica of a service with a Redis. Its timeouts are long, so that Redis decides all requests on a busy
// machine, too. One failure begins an outage.
func deploy(t *testing.T, addr, limit string, ahead *atomic.Int64, of redisstore.Config, cfg Config) *deployed {
	t.Helper()
	options := ratelimit.Must(redisstore.Options("redis://" + addr + "?dial_timeout=10s&read_timeout=10s&write_timeout=10s"))
	client := redis.NewClient(options)
	quiet := slog.New(slog.DiscardHandler)
	of.Logger = quiet
	of.Clock = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	primary := ratelimit.Must(redisstore.New(client, of))
	both := ratelimit.Must(fallback.New(primary, nil, fallback.Config{Replicas: 3, Slow: 2 * time.Second, Failures: 1, Logger: quiet}))
	t.Cleanup(func() {
		both.Close()
		primary.Close()
		client.Close()
	})
	cfg.Counts, cfg.Top = observe.NewCounts(observe.CountsConfig{History: true}), ratelimit.Must(observe.NewTop(observe.TopConfig{}))
	l := ratelimit.Must(ratelimit.New(ratelimit.Config{
		Store: both, Timeout: 10 * time.Second, Logger: quiet, Observe: observe.Join(cfg.Counts.Observe, cfg.Top.Observe),
		Policies: []ratelimit.Policy{{Name: "api", Key: ratelimit.RemoteIP(), Limit: ratelimit.Must(ratelimit.ParseLimit(limit))}},
	}))
	d := &deployed{T: t, page: Handler(l, func(*http.Request) (string, Access) { return "ann", View }, cfg)}
	d.handler = d.page.(*handler)
	d.limit = l.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	return d
}

// request sends requests of an address.
func (d *deployed) request(addr string, n int) {
	for range n {
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = addr + ":1234"
		d.limit.ServeHTTP(httptest.NewRecorder(), r)
	}
}

// wait waits until the replica sees a fleet as it should be. It reads anew each time, so that it goes by the clock of Redis.
func (d *deployed) wait(what string, is func(roster) bool) roster {
	d.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		d.member.reader = fleet.NewReader(d.limiter.Store().(store.Values), d.cfg.KeySecret)
		k := d.fleet(context.Background())
		if is(k) {
			return k
		}
		if time.Now().After(deadline) {
			var states []string
			for _, r := range k.Replicas {
				states = append(states, r.Replica+" "+r.Store.State+" "+strings.Join(r.Behind, " "))
			}
			d.Fatalf("not %s: %+v, %v, %s", what, k.Err, k.All.Keys, states)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// named returns a replica.
func (k roster) named(name string) (fleet.Replica, bool) {
	for _, r := range k.Replicas {
		if r.Replica == name {
			return r, true
		}
	}
	return fleet.Replica{Snapshot: new(fleet.Snapshot)}, false
}

// Three replicas, on a Redis whose clock is hours off: each shows all, one that is cut off, one with an older limit, and one
// that has ended.
func TestTheFleetOnRedis(t *testing.T) {
	t.Parallel()
	var ahead atomic.Int64
	ahead.Store(int64(5 * time.Hour))
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	first := deploy(t, server.Addr(), "5/1h", &ahead, redisstore.Config{}, Config{})
	cut := deploy(t, proxy.Addr(), "5/1h", &ahead, redisstore.Config{}, Config{})
	name := cut.member.name
	for _, d := range []*deployed{first, cut} {
		d.request("192.0.2.1", 4)
	}
	k := first.wait("the sum of two", func(k roster) bool {
		other, _ := k.named(name)
		return k.All.Traffic["allowed"] == 5 && k.All.Traffic["denied"] == 3 && len(k.All.Keys) == 1 && k.All.Keys[0].Count == 8 && !other.Away() && !other.Silent
	})
	if k.Err != nil || !k.Shared || k.Own.Replica != first.member.name || k.All.Policies[0].Total.Denied != 3 || !slices.Equal(k.All.Kinds, []string{"ip"}) {
		t.Errorf("%+v", k)
	}
	if r, _ := k.named(name); r.Behind != nil || time.Since(r.Started).Abs() > time.Minute {
		t.Errorf("%+v", r)
	}

	proxy.BlackHole()
	alone := cut.wait("an outage", func(k roster) bool {
		if k.Own.Store.State != "stand_in" { // a request that fails for lack of processor time is no outage
			cut.request("192.0.2.1", 1)
		}
		return k.Own.Store.State == "stand_in" && len(k.Own.Store.Outages) == 1 && k.Err != nil
	})
	if len(alone.Replicas) != 1 || !alone.Shared {
		t.Errorf("%+v", alone)
	}
	ahead.Add(int64(10 * time.Second))
	first.wait("silence", func(k roster) bool {
		r, _ := k.named(name)
		return r.Silent
	})
	proxy.Pass()
	first.wait("the end of an outage", func(k roster) bool {
		r, _ := k.named(name)
		return !r.Silent && !r.Away() && len(r.Store.Outages) == 1 && !r.Store.Outages[0].Until.IsZero()
	})

	// A replica whose page is gone publishes no more.
	w := weak.Make(cut.handler)
	runtime.KeepAlive(cut)
	cut = nil
	for range 100 {
		if runtime.GC(); w.Value() == nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if w.Value() != nil {
		t.Fatal("something keeps the page of a replica")
	}
	ahead.Add(int64(10 * time.Second))
	newer := deploy(t, server.Addr(), "6/1h", &ahead, redisstore.Config{}, Config{})
	newer.wait("an older limit, and one that is silent", func(k roster) bool {
		ended, known := k.named(name)
		old, _ := k.named(first.member.name)
		return known && ended.Silent && strings.Contains(strings.Join(old.Behind, " "), "limits api to 5/1h, and others to 6/1h")
	})
	ahead.Add(int64(time.Minute))
	newer.wait("gone", func(k roster) bool {
		_, known := k.named(name)
		return !known && len(k.Replicas) == 2
	})
	runtime.KeepAlive(newer)
	runtime.KeepAlive(first)
}

// In the first seconds of an outage, what others have reported before does not say that Redis answers, and this replica is
// still as others see it.
func TestAnOutageIsThatOfAllReplicas(t *testing.T) {
	t.Parallel()
	var ahead atomic.Int64
	server := redistest.Start(t)
	first := deploy(t, server.Addr(), "5/1h", &ahead, redisstore.Config{}, Config{})
	second := deploy(t, server.Addr(), "5/1h", &ahead, redisstore.Config{}, Config{})
	first.request("192.0.2.1", 3)
	for _, d := range []*deployed{second, first} {
		d.wait("two", func(k roster) bool { return len(k.Replicas) == 2 && k.All.Traffic["allowed"] == 3 })
	}
	server.Kill()
	for first.own().Store.State == "answers" {
		first.request("192.0.2.1", 1)
		time.Sleep(20 * time.Millisecond)
	}
	k := first.fleet(t.Context())
	first.member.mu.Lock()
	published := first.member.published
	first.member.mu.Unlock()
	if own, _ := k.named(first.member.name); len(k.Replicas) != 2 || own.Traffic["denied"] != published.Traffic["denied"] || !own.Away() || k.store().State == "answers" {
		t.Errorf("%d replicas, %v, published %v, %+v and %+v", len(k.Replicas), own.Traffic, published.Traffic, own.Store, k.store())
	}
	runtime.KeepAlive(second)
}

// What a page shows is read less than two seconds ago, also while others look. So a load balancer cannot send the next request
// of a page to a replica that knows less.
func TestPagesAreAsNewAsTheirReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := &panics{Store: ratelimit.Must(memstore.New(memstore.Config{}))} // its Stats do not say that it is in memory
		defer shared.Close()
		var pages []*handler
		var api http.Handler
		for range 2 {
			counts := observe.NewCounts(observe.CountsConfig{})
			l := ratelimit.Must(ratelimit.New(ratelimit.Config{Store: shared, Observe: counts.Observe, Policies: []ratelimit.Policy{{Name: "api", Key: ratelimit.Static("all"), Limit: ratelimit.PerSecond(5)}}}))
			pages = append(pages, Handler(l, Loopback, Config{Counts: counts}).(*handler))
			api = l.Handler(http.NotFoundHandler())
		}
		synctest.Wait()
		pages[0].facts(t.Context())
		time.Sleep(100 * time.Millisecond)
		api.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
		time.Sleep(fleet.Every - 200*time.Millisecond)
		pages[0].facts(t.Context()) // by the first read
		time.Sleep(300 * time.Millisecond)
		if f := pages[0].facts(t.Context()); f.Traffic["allowed"] != 1 || len(f.Replicas) != 2 {
			t.Errorf("%v of %d replicas", f.Traffic, len(f.Replicas))
		}
		runtime.KeepAlive(pages)
	})
}

// The snapshots of hundreds of replicas take a while to be read.
type slowValues struct{ *panics }

func (s slowValues) ReadValues(ctx context.Context, set string, after store.Value) (store.ValueChanges, error) {
	time.Sleep(400 * time.Millisecond)
	return s.panics.ReadValues(ctx, set, after)
}

// The first page of a replica has all others, also if they are many.
func TestAFirstPageWaitsForAllReplicas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := slowValues{&panics{Store: ratelimit.Must(memstore.New(memstore.Config{}))}}
		defer shared.Close()
		var pages []*handler
		for range 2 {
			pages = append(pages, Handler(ratelimit.Must(ratelimit.New(ratelimit.Config{Store: shared})), Loopback, Config{}).(*handler))
		}
		synctest.Wait()
		if f := pages[0].facts(t.Context()); len(f.Replicas) != 2 || f.Alone != "" {
			t.Errorf("%d replicas: %q", len(f.Replicas), f.Alone)
		}
		runtime.KeepAlive(pages)
	})
}

// A Redis that is full answers looks into buckets, but no request. Without a fallback, the headline says so.
func TestARedisThatIsFull(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	primary := ratelimit.Must(redisstore.New(server.Client(), redisstore.Config{Logger: slog.New(slog.DiscardHandler)}))
	t.Cleanup(func() { primary.Close() })
	counts := observe.NewCounts(observe.CountsConfig{})
	l := ratelimit.Must(ratelimit.New(ratelimit.Config{
		Store: primary, Observe: counts.Observe, Logger: slog.New(slog.DiscardHandler),
		Policies: []ratelimit.Policy{{Name: "api", Key: ratelimit.Static("all"), Limit: ratelimit.PerSecond(5)}},
	}))
	h, api := Handler(l, Loopback, Config{Counts: counts}).(*handler), l.Handler(http.NotFoundHandler())
	server.Do("CONFIG", "SET", "maxmemory", "100kb")
	var f *facts
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		api.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
		if f = h.facts(t.Context()); f.Headline.Level == "red" {
			break
		}
	}
	if f.Store.State != "answers" || !strings.Contains(f.Headline.Text, "100 % of the requests were not decided") || !strings.Contains(f.Headline.Do, "OOM") {
		t.Errorf("%+v, %+v", f.Headline, f.Store)
	}
}

// A user of Redis that may take tokens, and not write snapshots, is named.
func TestSnapshotsThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	var ahead atomic.Int64
	server := redistest.Start(t)
	server.Do("ACL", "SETUSER", "default", "-zadd")
	d := deploy(t, server.Addr(), "5/1h", &ahead, redisstore.Config{}, Config{})
	k := d.wait("the reason", func(k roster) bool { return strings.Contains(k.alone(), "needs the rights +hdel +zadd") })
	if k.Own.Store.State != "answers" {
		t.Errorf("%+v", k.Own.Store)
	}
}

// Where the store hides identities, keys are published only if they are sealed.
func TestIdentitiesStayOutOfRedis(t *testing.T) {
	t.Parallel()
	var ahead atomic.Int64
	server := redistest.Start(t)
	hides := redisstore.Config{Secret: []byte("0123456789abcdef0123456789abcdef")}
	for name, cfg := range map[string]Config{"no-secret": {}, "secret": {KeySecret: []byte("0123456789abcdef")}} {
		hides.Prefix = name
		a, b := deploy(t, server.Addr(), "5/1h", &ahead, hides, cfg), deploy(t, server.Addr(), "5/1h", &ahead, hides, cfg)
		a.request("192.0.2.77", 3)
		k := b.wait("the requests of the other", func(k roster) bool { return k.All.Traffic["allowed"] == 3 })
		if sealed := cfg.KeySecret != nil; (len(k.All.Keys) == 1 && k.All.Keys[0].Name == "ip:192.0.2.77") != sealed || k.All.NoKeys == sealed {
			t.Errorf("%s: %+v", name, k.All)
		}
		if len(a.fleet(t.Context()).Own.Keys) != 1 {
			t.Errorf("%s: a replica does not know its own keys", name)
		}
		values := server.Do("HGETALL", name+":{replicas}").(map[any]any)
		if len(values) < 3 { // two replicas, and the last version
			t.Errorf("%s: %v", name, values)
		}
		for _, value := range values {
			if strings.Contains(value.(string), "192.0.2") {
				t.Errorf("%s: an identity is in Redis: %s", name, value)
			}
		}
		runtime.KeepAlive(a)
		runtime.KeepAlive(b)
	}
}

// A clock that was set while the process runs does not make its snapshots unreadable. Counts and lists go on by their own time.
func TestSnapshotsAfterTheClockWasSet(t *testing.T) {
	for _, ahead := range []time.Duration{0, time.Hour, -time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			clock := func() time.Time { return time.Now().Add(ahead) }
			counts, top := observe.NewCounts(observe.CountsConfig{History: true, Clock: clock}), ratelimit.Must(observe.NewTop(observe.TopConfig{Clock: clock}))
			l := ratelimit.Must(ratelimit.New(ratelimit.Config{Observe: observe.Join(counts.Observe, top.Observe)}))
			defer l.Close()
			h := Handler(l, func(*http.Request) (string, Access) { return "ann", View }, Config{Counts: counts, Top: top}).(*handler)
			l.Take(t.Context(), ratelimit.Policy{Name: "api", Limit: ratelimit.PerHour(5)}, "ip:192.0.2.1", 1)
			time.Sleep(20 * time.Second)
			text, err := h.takeSnapshot(counts.Snapshot()).Encode()
			if err != nil {
				t.Fatal(err)
			}
			s, err := fleet.Decode(text)
			if err != nil {
				t.Fatalf("clock ahead by %v: %v", ahead, err)
			}
			for what, end := range map[string]time.Time{"keys": s.KeySteps.End, "history": s.Policies[0].History.TenMinutes.End} {
				if late := s.At.Sub(end); late < 0 || late > 30*time.Second {
					t.Errorf("clock ahead by %v: the steps of %s end %v before", ahead, what, late)
				}
			}
		})
	}
}

// A page that is dropped publishes no more, and keeps no goroutine.
func TestPublishingEndsWithThePage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := ratelimit.Must(ratelimit.New(ratelimit.Config{}))
		defer l.Close()
		page := Handler(l, Loopback, Config{Counts: observe.NewCounts(observe.CountsConfig{})})
		synctest.Wait()
		if k := page.(*handler).fleet(t.Context()); k.Shared || k.Err != nil || len(k.Replicas) != 1 || k.Own.Store.Kind != "memory" {
			t.Errorf("%+v", k)
		}
		w := weak.Make(page.(*handler))
		runtime.KeepAlive(page)
		page = nil
		runtime.GC()
		if w.Value() != nil {
			t.Error("the timer keeps the page")
		}
	})
}

type panics struct {
	*memstore.Store
	now atomic.Bool
}

func (p *panics) Stats() store.Stats {
	if p.now.Load() {
		panic("a nil map")
	}
	return store.Stats{}
}

// A panic of somebody's Store in the timer does not end the process.
func TestAStoreThatPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		kept := ratelimit.Must(memstore.New(memstore.Config{}))
		defer kept.Close()
		p := &panics{Store: kept}
		page := Handler(ratelimit.Must(ratelimit.New(ratelimit.Config{Store: p})), Loopback, Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		synctest.Wait()
		p.now.Store(true)
		time.Sleep(fleet.Every)
		synctest.Wait()
		if !strings.Contains(log.String(), `panic="a nil map"`) {
			t.Errorf("%q", &log)
		}
		runtime.KeepAlive(page)
	})
}

// The history has all requests in the step in which they came, to two seconds, also if this process did not run for a while.
func TestSamplesKeepSixHours(t *testing.T) {
	var s samples
	start := time.Date(2026, 11, 26, 21, 0, 0, 0, time.UTC)
	var n int64
	var snapshot fleet.Snapshot
	for i := range 6 * 1800 {
		at := start.Add(time.Duration(i) * fleet.Every)
		if i > 10000 && i < 10010 { // it did not run
			continue
		}
		s.take(observe.Snapshot{Decisions: []observe.DecisionCounts{{Outcome: "allowed", Count: 2 * n, Inner: n}, {Outcome: "failed_closed", Count: 2 * n}, {Outcome: "no_key", Count: n}}},
			store.Stats{Redis: &store.RedisStats{Calls: 2 * n, Errors: map[string]int64{"timeout": n}}, Fallback: &store.FallbackStats{Away: i >= 10700}}, at)
		n += 3
		s.fill(&snapshot)
		if i > 100 && i < 10000 && snapshot.Last != (fleet.Counts{Allowed: 15, Refused: 30}) {
			t.Fatalf("%v: in 10 s %+v", at, snapshot.Last)
		}
	}
	end := start.Add(6 * time.Hour)
	for i, h := range []*fleet.History{snapshot.History.TenMinutes, snapshot.History.Hour, snapshot.History.SixHours} {
		step := spanSteps[i]
		if !h.End.Equal(end.Add(-fleet.Every).Truncate(step)) || h.Seconds != int(step.Seconds()) {
			t.Errorf("%v: steps until %v", step, h.End)
		}
		for j, got := range h.Allowed[1:] {
			if want := 3 * int64(step/fleet.Every); got != want && i == 0 || got < want-30 || h.Refused[j+1] != 2*got {
				t.Errorf("%v: step %d: %d, want %d", step, j, got, want)
			}
		}
	}
	calls := s.ofCalls().TenMinutes
	for j := range calls.Allowed[1:] {
		if i := 10795 - 5*(58-j); calls.Allowed[j+1] != 30 || calls.Denied[j+1] != 15 || calls.Refused[j+1] > 0 != (i >= 10700) {
			t.Errorf("step %d of calls: %d, failed %d, unavailable %d", j, calls.Allowed[j+1], calls.Denied[j+1], calls.Refused[j+1])
		}
	}
	s.take(observe.Snapshot{}, store.Stats{}, start) // the clock is set back
	if s.fill(&snapshot); snapshot.History.Hour != nil || snapshot.Last != (fleet.Counts{Allowed: 15, Refused: 30}) {
		t.Errorf("%+v", snapshot)
	}
}
