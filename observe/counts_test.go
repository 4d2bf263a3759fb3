package observe_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/testsize"
	"github.com/go-tokenbucket/ratelimit/observe"
	"github.com/go-tokenbucket/ratelimit/store"
)

func result(policy string, allowed bool) ratelimit.Result {
	return ratelimit.Result{Policy: policy, Cost: 1, State: store.State{Allowed: allowed}}
}

func count(c *observe.Counts, events ...ratelimit.Event) {
	for i := range events {
		c.Observe(context.Background(), &events[i])
	}
}

func policyOf(t *testing.T, s observe.Snapshot, name string) observe.PolicyCounts {
	t.Helper()
	i := slices.IndexFunc(s.Policies, func(p observe.PolicyCounts) bool { return p.Policy == name })
	if i < 0 {
		t.Fatalf("no counts of %q in %+v", name, s.Policies)
	}
	return s.Policies[i]
}

// outcomes returns the outcomes that were counted.
func outcomes(s observe.Snapshot) map[string]int64 {
	counted := map[string]int64{}
	for _, d := range s.Decisions {
		if d.Count > 0 {
			counted[d.Outcome] = d.Count
		}
	}
	return counted
}

func TestCountsByPolicyRouteAndResult(t *testing.T) {
	c := observe.NewCounts(observe.CountsConfig{})
	shadow := result("try", false)
	shadow.Shadow = true
	degraded := result("api", true)
	degraded.Degraded = true
	count(c,
		ratelimit.Event{Op: "request", Allowed: true, Route: "GET /a", Results: []ratelimit.Result{result("api", true), shadow}},
		ratelimit.Event{Op: "request", Allowed: true, Route: "GET /b", Results: []ratelimit.Result{degraded}},
		ratelimit.Event{Op: "admit", Route: "GET /a", Results: []ratelimit.Result{result("api", true), result("org", false), shadow}},
		ratelimit.Event{Op: "take", Results: []ratelimit.Result{result("api", false)}},
		ratelimit.Event{Op: "take", Refused: []string{"api"}, Err: errors.New("away")},
	)
	s := c.Snapshot()
	want := []observe.RouteCounts{
		{Route: "", Denied: 1, Refused: 1},
		{Route: "GET /a", Allowed: 1, NotCharged: 1},
		{Route: "GET /b", Allowed: 1, Degraded: 1},
	}
	if got := policyOf(t, s, "api").Routes; !reflect.DeepEqual(got, want) {
		t.Errorf("api: %+v, want %+v", got, want)
	}
	if got, want := policyOf(t, s, "org").Routes, []observe.RouteCounts{{Route: "GET /a", Denied: 1}}; !reflect.DeepEqual(got, want) {
		t.Errorf("org: %+v, want %+v", got, want)
	}
	if got, want := policyOf(t, s, "try").Routes, []observe.RouteCounts{{Route: "GET /a", WouldDeny: 2}}; !reflect.DeepEqual(got, want) {
		t.Errorf("try: %+v, want %+v", got, want)
	}
	total := policyOf(t, s, "api")
	if got, want := total.Total(), (observe.RouteCounts{Allowed: 2, Denied: 1, NotCharged: 1, Refused: 1, Degraded: 1}); got != want {
		t.Errorf("api, total: %+v, want %+v", got, want)
	}
	if got, want := outcomes(s), map[string]int64{"allowed": 2, "denied": 2, "failed_closed": 1}; !reflect.DeepEqual(got, want) {
		t.Errorf("decisions %v, want %v", got, want)
	}
}

// In an outage of the store, or of what its key needs, a policy that fails closed refuses all requests. They count under it,
// and not under the policies that would have let them through. A request without time is its client's own fault.
func TestCountsRefusals(t *testing.T) {
	c := observe.NewCounts(observe.CountsConfig{History: true})
	limiter := newLimiter(t, ratelimit.Config{
		Store:   failing(func() error { return errors.New("on fire") }),
		Logger:  slog.New(slog.DiscardHandler),
		Observe: c.Observe,
	})
	policies := []ratelimit.Policy{perIP("login", ratelimit.PerHour(5)), perIP("org", ratelimit.PerHour(9)), perIP("api", ratelimit.PerHour(9)), perIP("try", ratelimit.PerHour(9))}
	policies[0].FailClosed, policies[1].FailClosed, policies[3].FailClosed, policies[3].Shadow = true, true, true, true
	c.Declare("login", "org", "api", "try")
	mux := http.NewServeMux()
	mux.Handle("POST /login", limiter.Limit(policies...)(okHandler))
	for range 3 {
		mux.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/login", nil))
	}
	late, end := context.WithDeadline(t.Context(), time.Now())
	defer end()
	mux.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(late, "POST", "/login", nil))
	limiter.Limit(policies[2:]...)(okHandler).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/", nil))
	keys := perIP("keys", ratelimit.PerHour(5))
	keys.Key, keys.FailClosed = func(*http.Request) (string, error) { return "", ratelimit.ErrOutage }, true
	broken := perIP("broken", ratelimit.PerHour(5))
	broken.Key, broken.FailClosed = func(*http.Request) (string, error) { return "", errors.New("a bug") }, true
	c.Declare("keys", "broken")
	mux.Handle("GET /keys", limiter.Limit(keys, broken)(okHandler))
	mux.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/keys", nil))
	gone, leave := context.WithCancel(t.Context())
	leave()
	mux.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(gone, "GET", "/keys", nil))
	s := c.Snapshot()
	for name, want := range map[string]int64{"login": 3, "org": 3, "api": 0, "try": 0, "keys": 1, "broken": 0} {
		p := policyOf(t, s, name)
		total := observe.RouteCounts{Refused: want}
		if p.Total() != total {
			t.Errorf("%s: %+v, want %d refused", name, p.Total(), want)
		}
		if last := p.Routes[len(p.Routes)-1]; want > 0 && last.Route == "" {
			t.Errorf("%s: refused on %q", name, last.Route)
		}
		if got := p.Hour[59].Refused + p.Hour[58].Refused; got != want {
			t.Errorf("%s: the last minutes have %d refused, want %d", name, got, want)
		}
	}
	if got, want := outcomes(s), map[string]int64{"failed_closed": 6, "failed_open": 1}; !reflect.DeepEqual(got, want) {
		t.Errorf("decisions %v, want %v", got, want)
	}
}

// A request through several limiters has several decisions. All but the first are Inner, if the same Counts have the first.
func TestCountsInnerDecisions(t *testing.T) {
	all, inner := observe.NewCounts(observe.CountsConfig{}), observe.NewCounts(observe.CountsConfig{})
	outside := newLimiter(t, ratelimit.Config{Policies: []ratelimit.Policy{perIP("all", ratelimit.PerHour(4))}, Observe: all.Observe})
	inside := newLimiter(t, ratelimit.Config{Observe: observe.Join(all.Observe, inner.Observe)})
	limit := inside.Limit(perIP("one", ratelimit.PerHour(2)))
	handler := outside.Handler(limit(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		inside.Take(r.Context(), perIP("call", ratelimit.PerHour(9)), "ip:1", 1)
	})))
	for range 5 { // two are allowed, two are denied by the inner limiter, and one by the outer one
		handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
	}
	for name, of := range map[string]struct {
		counts *observe.Counts
		want   map[string][2]int64 // count, and how many are Inner
	}{
		"all":   {all, map[string][2]int64{"allowed": {4 + 2 + 2, 2}, "denied": {3, 2}}},
		"inner": {inner, map[string][2]int64{"allowed": {4, 0}, "denied": {2, 0}}},
	} {
		got := map[string][2]int64{}
		for _, d := range of.counts.Snapshot().Decisions {
			if d.Count > 0 {
				got[d.Outcome] = [2]int64{d.Count, d.Inner}
			}
		}
		if !reflect.DeepEqual(got, of.want) {
			t.Errorf("%s: %v, want %v", name, got, of.want)
		}
	}
}

// Calls that are no decisions count as operations, and under no policy.
func TestCountsOperations(t *testing.T) {
	c := observe.NewCounts(observe.CountsConfig{})
	others := []string{"peek", "refund", "reset", "block", "unblock", "settle", "expired", "", "later"}
	for _, op := range others {
		count(c,
			ratelimit.Event{Op: op, Allowed: true, Results: []ratelimit.Result{result("api", true)}},
			ratelimit.Event{Op: op, Err: errors.New("away")})
	}
	s := c.Snapshot()
	if len(s.Policies) != 0 || len(outcomes(s)) != 0 {
		t.Errorf("policies %+v, decisions %v, want none", s.Policies, outcomes(s))
	}
	for _, o := range s.Operations {
		want := int64(0)
		switch {
		case o.Op == "_other":
			want = 2
		case slices.Contains(others, o.Op):
			want = 1
		}
		if o.Count != 2*want || o.Failed != want {
			t.Errorf("%s: %d, %d failed, want %d, %d", o.Op, o.Count, o.Failed, 2*want, want)
		}
	}
}

func TestCountsSettlements(t *testing.T) {
	c := observe.NewCounts(observe.CountsConfig{})
	settled := result("llm", true)
	settled.Cost = 70
	count(c,
		ratelimit.Event{Op: "settle", Allowed: true, Results: []ratelimit.Result{settled}, Estimates: []int64{100}},
		ratelimit.Event{Op: "settle", Allowed: true, Results: []ratelimit.Result{settled}, Estimates: []int64{50}},
		ratelimit.Event{Op: "settle", Allowed: true, Results: []ratelimit.Result{settled}, Estimates: []int64{50}, Err: errors.New("away")},
	)
	got := policyOf(t, c.Snapshot(), "llm")
	if got.Settlements != 2 || got.Estimated != 150 || got.Final != 140 || len(got.Routes) != 0 {
		t.Errorf("%+v, want 2 settlements of 150 tokens that came to 140", got)
	}
}

func TestCountsOutcomes(t *testing.T) {
	away := fmt.Errorf("redis: %w", context.DeadlineExceeded)
	allowed, denied := []ratelimit.Result{result("api", true)}, []ratelimit.Result{result("api", false)}
	for _, c := range []struct {
		want  string
		event ratelimit.Event
	}{
		{"allowed", ratelimit.Event{Allowed: true}},
		{"allowed", ratelimit.Event{Allowed: true, Results: allowed}},
		{"denied", ratelimit.Event{Results: denied}},
		{"failed_open", ratelimit.Event{Allowed: true, Err: away}},
		{"failed_open", ratelimit.Event{Allowed: true, Err: fmt.Errorf("directory: %w", ratelimit.ErrOutage), Results: allowed}},
		{"allowed", ratelimit.Event{Allowed: true, Err: errors.New("policy try: a bug in its LimitFunc"), Results: allowed}},
		{"denied", ratelimit.Event{Err: away, Results: denied}},
		{"failed_closed", ratelimit.Event{Err: away}},
		{"no_key", ratelimit.Event{Err: ratelimit.ErrNoKey}},
		{"failed_closed", ratelimit.Event{Err: errors.Join(ratelimit.ErrNoKey, ratelimit.ErrOutage)}},
		{"bad_request", ratelimit.Event{Err: errors.Join(ratelimit.ErrNoKey, ratelimit.ErrBadRequest)}},
		{"overloaded", ratelimit.Event{Err: fmt.Errorf("queue: %w", store.ErrOverloaded)}},
		{"canceled", ratelimit.Event{Err: context.Canceled}},
		{"canceled", ratelimit.Event{Err: away, Results: allowed}},
		{"canceled", ratelimit.Event{Err: away, Results: []ratelimit.Result{{Policy: "try", Shadow: true}, allowed[0]}}},
	} {
		counts := observe.NewCounts(observe.CountsConfig{})
		c.event.Op = "request"
		count(counts, c.event)
		if got := outcomes(counts.Snapshot()); !reflect.DeepEqual(got, map[string]int64{c.want: 1}) {
			t.Errorf("%+v: %v, want %s", c.event, got, c.want)
		}
		for op, want := range map[string]string{"request": c.want, "wait_all": c.want, "acquire": c.want, "settle": "", "expired": "", "peek": "", "of tomorrow": ""} {
			c.event.Op = op
			if got := observe.Outcome(&c.event); got != want {
				t.Errorf("%+v: %q, want %q", c.event, got, want)
			}
		}
	}
}

// A Shadow that fails lets nobody through: the other policies have decided.
func TestAShadowThatFailsIsNoFailure(t *testing.T) {
	counts := observe.NewCounts(observe.CountsConfig{})
	limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{Observe: counts.Observe, Logger: slog.New(slog.DiscardHandler)}))
	failing := func(*http.Request) (string, error) { return "", errors.New("a bug") }
	_, _ = limiter.Decide(httptest.NewRequest("GET", "/", nil),
		ratelimit.Policy{Name: "api", Key: ratelimit.Static("all"), Limit: ratelimit.PerMinute(5)},
		ratelimit.Policy{Name: "try", Key: failing, Limit: ratelimit.PerMinute(5), Shadow: true})
	if got := outcomes(counts.Snapshot()); !reflect.DeepEqual(got, map[string]int64{"allowed": 1}) {
		t.Errorf("%v, want it allowed", got)
	}
}

func TestCountsDurations(t *testing.T) {
	c := observe.NewCounts(observe.CountsConfig{})
	count(c,
		ratelimit.Event{Op: "request", Allowed: true, Took: 10 * time.Microsecond},
		ratelimit.Event{Op: "request", Allowed: true, Took: 11 * time.Microsecond, Waited: time.Second},
		ratelimit.Event{Op: "request", Allowed: true, Took: time.Hour, Waited: time.Minute},
		ratelimit.Event{Op: "request", Allowed: true, Took: -1}, // where the clock of the request was set back
	)
	d := c.Snapshot().Decisions[0]
	if d.Outcome != "allowed" || d.Count != 4 || d.Took.Count != 4 || d.Took.Sum != time.Hour+21*time.Microsecond {
		t.Errorf("%+v", d)
	}
	for _, h := range []struct {
		name string
		of   observe.Histogram
		want map[time.Duration]int64 // by bound; 0: above all
	}{
		{"took", d.Took, map[time.Duration]int64{10 * time.Microsecond: 2, 25 * time.Microsecond: 1, 0: 1}},
		{"waited", d.Waited, map[time.Duration]int64{time.Second: 1, 0: 1}},
	} {
		got := map[time.Duration]int64{}
		for i, n := range h.of.Buckets {
			bound := time.Duration(0)
			if i < len(h.of.Bounds) {
				bound = h.of.Bounds[i]
			}
			if n > 0 {
				got[bound] = n
			}
		}
		if !reflect.DeepEqual(got, h.want) {
			t.Errorf("%s: %v, want %v", h.name, got, h.want)
		}
	}
}

// Quantiles are interpolated between bounds: those of an outage are near the default timeouts.
func TestCountsDurationsOfTimeouts(t *testing.T) {
	c := observe.NewCounts(observe.CountsConfig{})
	timeouts := []time.Duration{50 * time.Millisecond, 100 * time.Millisecond} // fallback.Config.Slow, ratelimit.Config.Timeout
	for _, timeout := range timeouts {
		count(c, ratelimit.Event{Op: "request", Allowed: true, Took: timeout + time.Millisecond})
	}
	took := c.Snapshot().Decisions[0].Took
	for _, timeout := range timeouts {
		i := slices.Index(took.Bounds, timeout)
		if i < 0 || took.Buckets[i+1] != 1 || took.Bounds[i+1] > timeout*5/4 {
			t.Errorf("%v: %v in %v", timeout, took.Buckets, took.Bounds)
		}
	}
}

// Whatever clients send, the memory is bounded, nothing is lost, and each name is shown once and in valid UTF-8.
func TestCountsBounded(t *testing.T) {
	c := observe.NewCounts(observe.CountsConfig{MaxPolicies: 3, MaxRoutes: 12})
	long := strings.Repeat("x", 257)
	const each = 2000
	routes := []string{long, long[1:], "\xff", "\xfe", "_other", "a\xffb", "a\xfeb", "", ""}
	for i := range each {
		routes[7], routes[8] = fmt.Sprint("GET /", i), fmt.Sprint("\xff\xfe", i)
		for _, route := range routes {
			count(c, ratelimit.Event{Op: "request", Allowed: true, Route: route, Results: []ratelimit.Result{
				result("api", true), result(fmt.Sprint("p", i), true), result(fmt.Sprint("\xff", i), true),
			}})
		}
	}
	s := c.Snapshot()
	if len(s.Policies) != 4 {
		t.Errorf("%d policies, want 3 and _other", len(s.Policies))
	}
	var sum int64
	for _, p := range s.Policies {
		sum += p.Total().Allowed
		if len(p.Routes) > 13 {
			t.Errorf("%s: %d routes, want 12 and _other", p.Policy, len(p.Routes))
		}
		shown := map[string]bool{}
		for _, r := range p.Routes {
			if shown[r.Route] || strings.ToValidUTF8(r.Route, "") != r.Route || len(r.Route) > 256 {
				t.Errorf("%s: route %q: shown twice, too long, or no UTF-8", p.Policy, r.Route)
			}
			shown[r.Route] = true
		}
	}
	if want := int64(each * len(routes) * 3); sum != want {
		t.Errorf("%d counted, want %d", sum, want)
	}
	api := policyOf(t, s, "api")
	for route, want := range map[string]int64{"\uFFFD": 2 * each, "a\uFFFDb": 2 * each, long[1:]: each, "GET /0": 1} {
		i := slices.IndexFunc(api.Routes, func(r observe.RouteCounts) bool { return r.Route == route })
		if i < 0 || api.Routes[i].Allowed != want {
			t.Errorf("route %q: want %d of it in %+v", route, want, api.Routes)
		}
	}
	if policyOf(t, s, "_other").Total().Allowed == 0 {
		t.Error("nothing counted as _other")
	}
}

// Some frameworks use the memory of a route again for the next request.
func TestCountsKeepNoMemory(t *testing.T) {
	c := observe.NewCounts(observe.CountsConfig{})
	memory := []byte("GET /a")
	route := unsafe.String(&memory[0], len(memory))
	for range 3 {
		count(c, ratelimit.Event{Op: "request", Allowed: true, Route: route, Results: []ratelimit.Result{result("api", true)}})
		memory[5]++
	}
	want := []observe.RouteCounts{{Route: "GET /a", Allowed: 1}, {Route: "GET /b", Allowed: 1}, {Route: "GET /c", Allowed: 1}}
	if got := policyOf(t, c.Snapshot(), "api").Routes; !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestCountsNoRoutes(t *testing.T) {
	c := observe.NewCounts(observe.CountsConfig{NoRoutes: true})
	count(c,
		ratelimit.Event{Op: "request", Allowed: true, Route: "GET /a", Results: []ratelimit.Result{result("api", true)}},
		ratelimit.Event{Op: "request", Allowed: true, Route: "GET /b", Results: []ratelimit.Result{result("api", true)}})
	if got, want := policyOf(t, c.Snapshot(), "api").Routes, []observe.RouteCounts{{Allowed: 2}}; !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestCountsDeclare(t *testing.T) {
	c := observe.NewCounts(observe.CountsConfig{})
	c.Declare("b", "a", "b")
	var names []string
	for _, p := range c.Snapshot().Policies {
		names = append(names, p.Policy)
		if !reflect.DeepEqual(p.Routes, []observe.RouteCounts{{}}) {
			t.Errorf("%s: %+v, want zeros", p.Policy, p.Routes)
		}
	}
	if !slices.Equal(names, []string{"a", "b"}) {
		t.Errorf("policies %q", names)
	}
}

func TestCountsHistory(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 7, 0, time.UTC)
	now := start
	c := observe.NewCounts(observe.CountsConfig{History: true, Clock: func() time.Time { return now }})
	at := func(d time.Duration, allowed bool) {
		now = start.Add(d)
		count(c, ratelimit.Event{Op: "request", Allowed: allowed, Results: []ratelimit.Result{result("api", allowed)}})
	}
	// expect compares the steps that are not empty, by their distance from 3:04:05.
	expect := func(d time.Duration, want map[time.Duration][2]int64) {
		t.Helper()
		now = start.Add(d)
		steps := policyOf(t, c.Snapshot(), "api").History
		if len(steps) != 120 {
			t.Fatalf("%d steps, want 120", len(steps))
		}
		got := map[time.Duration][2]int64{}
		for i, s := range steps {
			if i > 0 && s.Start.Sub(steps[i-1].Start) != 5*time.Second {
				t.Errorf("a step from %v to %v", steps[i-1].Start, s.Start)
			}
			if s.Allowed+s.Denied+s.WouldDeny > 0 {
				got[s.Start.Sub(start.Add(-2*time.Second))] = [2]int64{s.Allowed, s.Denied}
			}
		}
		if last := steps[119].Start; now.Before(last) || now.Sub(last) >= 5*time.Second {
			t.Errorf("at %v: the last step starts at %v", now, last)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("after %v: %v, want %v", d, got, want)
		}
	}
	at(0, true)
	at(2*time.Second, true)
	expect(2*time.Second, map[time.Duration][2]int64{0: {2, 0}})
	at(3*time.Second, false)  // the next step starts at 3:04:10
	at(20*time.Second, false) // after steps without decisions
	at(20*time.Second, true)
	want := map[time.Duration][2]int64{0: {2, 0}, 5 * time.Second: {0, 1}, 20 * time.Second: {1, 1}}
	expect(20*time.Second, want)
	expect(597*time.Second, want)
	expect(598*time.Second, map[time.Duration][2]int64{5 * time.Second: {0, 1}, 20 * time.Second: {1, 1}})
	at(598*time.Second, true)
	now = start.Add(597 * time.Second) // the clock is set back
	count(c, ratelimit.Event{Op: "request", Allowed: true, Results: []ratelimit.Result{result("api", true)}})
	expect(599*time.Second, map[time.Duration][2]int64{5 * time.Second: {0, 1}, 20 * time.Second: {1, 1}, 600 * time.Second: {2, 0}})
	for _, silence := range []time.Duration{1198, 1199, 1200, 1203, 1300, 5000} {
		expect(silence*time.Second, map[time.Duration][2]int64{})
	}
	at(5001*time.Second, true)
	expect(5001*time.Second, map[time.Duration][2]int64{5000 * time.Second: {1, 0}})
}

// The history has what came in each step, whatever the time between decisions and looks.
func TestCountsHistoryAtRandom(t *testing.T) {
	for seed := range uint64(testsize.Of(10, 50)) {
		random := rand.New(rand.NewPCG(seed, 0))
		start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
		step, zero := int64(0), start.Unix()/5
		c := observe.NewCounts(observe.CountsConfig{History: true, Clock: func() time.Time { return start.Add(time.Duration(step) * 5 * time.Second) }})
		came := map[int64]int64{}
		for range 200 {
			step += []int64{0, 0, 1, 2, random.Int64N(130), 119, 120, 121, 12 * 60, 12*60 + 1, 72 * 60, random.Int64N(72 * 60)}[random.IntN(12)]
			if random.IntN(3) > 0 {
				count(c, ratelimit.Event{Op: "take", Results: []ratelimit.Result{result("api", false)}, Refused: []string{"api", "api"}})
				came[step]++
				continue
			}
			c.Declare("api")
			p := policyOf(t, c.Snapshot(), "api")
			for _, span := range []struct {
				got         []observe.Step
				steps, each int64
			}{{p.History, 120, 1}, {p.Hour, 60, 12}, {p.SixHours, 60, 72}} {
				if int64(len(span.got)) != span.steps {
					t.Fatalf("%d steps, want %d", len(span.got), span.steps)
				}
				first := (zero+step)/span.each - span.steps + 1
				want := make([]observe.Step, span.steps)
				for i := range want {
					want[i].Start = time.Unix((first+int64(i))*span.each*5, 0).UTC()
				}
				for of, n := range came {
					if i := (zero+of)/span.each - first; i >= 0 {
						want[i].Denied += n
						want[i].Refused += 2 * n
					}
				}
				if !slices.Equal(span.got, want) {
					t.Fatalf("seed %d, at step %d, of %d: %+v, want %+v", seed, step, span.each, span.got, want)
				}
			}
		}
	}
}

func TestCountsConcurrently(t *testing.T) {
	c := observe.NewCounts(observe.CountsConfig{History: true, MaxRoutes: 3})
	const goroutines, each = 8, 1000
	var done sync.WaitGroup
	for g := range goroutines {
		done.Go(func() {
			for i := range each {
				count(c, ratelimit.Event{Op: "request", Allowed: true, Route: fmt.Sprint(i % (g + 2)), Results: []ratelimit.Result{result("api", true), result(fmt.Sprint(g), true)}})
				if i%500 == 0 {
					c.Snapshot()
				}
			}
		})
	}
	done.Wait()
	s := c.Snapshot()
	api := policyOf(t, s, "api")
	if got := api.Total().Allowed; got != goroutines*each || outcomes(s)["allowed"] != goroutines*each {
		t.Errorf("%d of %d counted, decisions %v", got, goroutines*each, outcomes(s))
	}
	var history int64
	for _, step := range api.History {
		history += step.Allowed
	}
	if history != goroutines*each {
		t.Errorf("the history has %d of %d", history, goroutines*each)
	}
}

func TestCountsAllocatesNothing(t *testing.T) {
	c := observe.NewCounts(observe.CountsConfig{History: true})
	e := &ratelimit.Event{Op: "request", Allowed: true, Route: "GET /items/{id}", Took: 20 * time.Microsecond, Results: []ratelimit.Result{result("api", true), result("org", true)}}
	if n := testing.AllocsPerRun(100, func() { c.Observe(context.Background(), e) }); n != 0 {
		t.Errorf("%v allocations a request", n)
	}
}
