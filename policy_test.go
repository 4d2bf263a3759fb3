package ratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/headers"
	"github.com/go-tokenbucket/ratelimit/internal/test/ratetest"
	"github.com/go-tokenbucket/ratelimit/store"
)

func TestFaultsOfPolicies(t *testing.T) {
	ip, minute := ratelimit.RemoteIP(), ratelimit.PerMinute(60)
	named := func(name string) ratelimit.Policy { return ratelimit.Policy{Name: name, Key: ip, Limit: minute} }
	limited := func(l ratelimit.Limit) ratelimit.Policy { return ratelimit.Policy{Name: "api", Key: ip, Limit: l} }
	tests := []struct {
		name     string
		policies []ratelimit.Policy
		wants    []string // none: there is no fault
	}{
		{"A policy that is right", []ratelimit.Policy{named("api")}, nil},
		{"Two policies that are right", []ratelimit.Policy{named("api"), named("API")}, nil},
		{"A name of all that is allowed", []ratelimit.Policy{named("azAZ09-._/:")}, nil},
		{"A name of 63 bytes", []ratelimit.Policy{named(strings.Repeat("a", 63))}, nil},
		{"A name of 64 bytes", []ratelimit.Policy{named(strings.Repeat("a", 64))}, []string{"[0]", "Name: must be 1 to 63"}},
		{"No name", []ratelimit.Policy{named("")}, []string{`[0] (""): Name: must`}},
		{"A space in a name", []ratelimit.Policy{named("my api")}, []string{`("my api"): Name: must`}},
		{"A brace in a name", []ratelimit.Policy{named("{api}")}, []string{"Name: must"}},
		{"A quote in a name", []ratelimit.Policy{named(`api"`)}, []string{"Name: must"}},
		{"A line feed in a name", []ratelimit.Policy{named("api\n")}, []string{`("api\n"): Name: must`}},
		{"A letter beyond ASCII in a name", []ratelimit.Policy{named("äpi")}, []string{"Name: must"}},
		{"A name twice", []ratelimit.Policy{named("api"), named("b"), named("api")}, []string{`[2] ("api"): Name: `, `olicies[0] has it already: must differ`}},
		{"No key", []ratelimit.Policy{{Name: "api", Limit: minute}}, []string{"Key: must be set"}},
		{"No key, though optional", []ratelimit.Policy{{Name: "api", Limit: minute, Optional: true}}, []string{"Key: must be set"}},
		{"No limit", []ratelimit.Policy{limited(ratelimit.Limit{})}, []string{"Limit: must be set"}},
		{"No limit but a LimitFunc", []ratelimit.Policy{{Name: "api", Key: ip, LimitFunc: func(*http.Request) ratelimit.Limit { return minute }}}, nil},
		{"A wrong limit beside a LimitFunc", []ratelimit.Policy{{Name: "api", Key: ip, Limit: ratelimit.PerMinute(-1), LimitFunc: func(*http.Request) ratelimit.Limit { return minute }}}, []string{"Limit: Rate -1"}},
		{"Unlimited", []ratelimit.Policy{limited(ratelimit.Unlimited)}, nil},
		{"A negative rate", []ratelimit.Policy{limited(ratelimit.Limit{Rate: -1})}, []string{"Limit: Rate -1: must", "Per 0s: must", "Burst -1: must"}},
		{"No rate", []ratelimit.Policy{limited(ratelimit.PerMinute(0).WithBurst(5))}, []string{"Limit: Rate 0: must"}},
		{"No time", []ratelimit.Policy{limited(ratelimit.Every(0))}, []string{"Limit: Per 0s: must"}},
		{"A negative time", []ratelimit.Policy{limited(ratelimit.Every(-time.Second))}, []string{"Limit: Per -1s: must"}},
		{"A negative burst", []ratelimit.Policy{limited(minute.WithBurst(-1))}, []string{"Limit: Burst -1: must"}},
		{"A burst that takes lifetimes to refill", []ratelimit.Policy{limited(ratelimit.Every(30 * 24 * time.Hour).WithBurst(10_000))}, []string{"Limit: Burst 10000: ", "must be at most"}},
		{"The largest rate", []ratelimit.Policy{limited(ratelimit.PerSecond(math.MaxInt64))}, []string{"Limit: Rate 9223372036854775807: must"}},
		{
			"Everything at once",
			[]ratelimit.Policy{{}, named("api"), {Name: "api", Key: ip, Limit: ratelimit.Limit{Rate: -1}}},
			[]string{`[0] (""): Name: must`, `[0] (""): Key: must`, `[0] (""): Limit: must`, `[2] ("api"): Name: `, `[2] ("api"): Limit: Rate -1`, "Per 0s"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cfg := ratelimit.Config{Store: noStore{}, Policies: tt.policies}
			limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{Store: noStore{}}))
			limit := func() { limiter.Limit(tt.policies...) }
			_, err := ratelimit.New(cfg)
			if tt.wants == nil {
				if err != nil {
					t.Error(err)
				}
				limit() // panics if it finds a fault
				return
			}
			if err == nil {
				t.Fatalf("got no error; want one about %q", tt.wants)
			}
			checkText(t, err.Error(), append(tt.wants, "ratelimit: New: Policies[")...)
			checkPanic(t, limit, append(tt.wants, "ratelimit: Limit: policies[")...)
			_, err = limiter.Decide(requestWith(), tt.policies...)
			if err == nil {
				t.Fatal("Decide: got no error")
			}
			checkText(t, err.Error(), append(tt.wants, "ratelimit: Decide: policies[")...)
		})
	}
}

func TestFaultsOfConfigAreReportedWithThoseOfPolicies(t *testing.T) {
	_, err := ratelimit.New(ratelimit.Config{Policies: make([]ratelimit.Policy, 1), Timeout: -time.Second})
	if err == nil {
		t.Fatal("got no error")
	}
	checkText(t, err.Error(), "Policies[0]", "Name: ", "Key: ", "Limit: ", "Timeout -1s: must")
	checkPanic(t, func() { ratelimit.Must(ratelimit.New(ratelimit.Config{Timeout: -1})) }, "Timeout -1ns")
}

func TestLimiterThatWouldNotLimitPanics(t *testing.T) {
	l := quiet(t)
	checkPanic(t, func() { l.Limit() }, "Limit: ", "must not be empty")
	checkPanic(t, func() { l.Handler(ok) }, "Handler: ", "Config.Policies")
	if d, err := l.Decide(requestWith()); err == nil || d.Allowed {
		t.Errorf("Decide without policies: got %+v, error %v", d, err)
	}
}

func TestLimitFunc(t *testing.T) {
	minute, hour := ratelimit.PerMinute(60).WithBurst(3), ratelimit.PerHour(7)
	for _, tt := range []struct {
		name          string
		limit, chosen ratelimit.Limit
		want          ratelimit.Limit // zero: exempt
		remaining     int64
	}{
		{"The zero Limit stands for the policy's", minute, ratelimit.Limit{}, minute, 2},
		{"The policy's own", minute, minute, minute, 2},
		{"A tier", minute, hour, hour, 6},
		{"A tier of a policy without a limit", ratelimit.Limit{}, hour, hour, 6},
		{"A tier of a policy that is unlimited", ratelimit.Unlimited, hour, hour, 6},
		{"Unlimited exempts", minute, ratelimit.Unlimited, ratelimit.Limit{}, 0},
		{"The zero Limit of a policy that is unlimited exempts", ratelimit.Unlimited, ratelimit.Limit{}, ratelimit.Limit{}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := ratelimit.Policy{Name: "api", Key: ratelimit.RemoteIP(), Limit: tt.limit}
			p.LimitFunc = func(*http.Request) ratelimit.Limit { return tt.chosen }
			d, err := quiet(t).Decide(requestWith(), p)
			if err != nil || !d.Allowed {
				t.Fatalf("got %+v, error %v", d, err)
			}
			if exempt := tt.want == (ratelimit.Limit{}); exempt != (len(d.Results) == 0) {
				t.Fatalf("got results %+v", d.Results)
			} else if !exempt && (d.Results[0].Limit != tt.want || d.Results[0].Remaining != tt.remaining) {
				t.Errorf("got limit %v with %d remaining; want %v with %d", d.Results[0].Limit, d.Results[0].Remaining, tt.want, tt.remaining)
			}
		})
	}

	t.Run("An exempt request needs no key, and has no headers", func(t *testing.T) {
		p := ratelimit.Policy{Name: "api", Key: finds("", ratelimit.ErrNoKey), Limit: minute}
		p.LimitFunc = func(*http.Request) ratelimit.Limit { return ratelimit.Unlimited }
		if w := get(quiet(t).Limit(p)(okHandler)); w.Code != 200 || w.Header()["X-Ratelimit-Limit"] != nil {
			t.Errorf("%d %v", w.Code, w.Header())
		}
	})
	t.Run("A key that changes its tier keeps its tokens", func(t *testing.T) {
		l, chosen := quiet(t), ratelimit.PerHour(10)
		p := ratelimit.Policy{Name: "api", Key: ratelimit.RemoteIP()}
		p.LimitFunc = func(*http.Request) ratelimit.Limit { return chosen }
		for _, step := range []struct {
			chosen    ratelimit.Limit
			remaining int64
		}{{ratelimit.PerHour(10), 9}, {ratelimit.PerHour(100), 8}, {ratelimit.PerHour(5), 4}} {
			chosen = step.chosen
			d, err := l.Decide(requestWith(), p)
			if err != nil || d.Results[0].Remaining != step.remaining {
				t.Fatalf("%v: got %+v, error %v; want %d remaining", chosen, d, err, step.remaining)
			}
		}
	})
}

// TestFailingPolicies checks that a request is refused if a policy's functions return what they must not, whatever the
// policy says of failures: a client might cause it.
func TestFailingPolicies(t *testing.T) {
	base := ratelimit.Policy{Name: "api", Key: ratelimit.RemoteIP(), Limit: ratelimit.PerMinute(60)}
	with := func(change func(*ratelimit.Policy)) ratelimit.Policy {
		p := base
		change(&p)
		return p
	}
	tier := func(without, l ratelimit.Limit) ratelimit.Policy {
		return with(func(p *ratelimit.Policy) {
			p.Limit, p.LimitFunc = without, func(*http.Request) ratelimit.Limit { return l }
		})
	}
	none := ratelimit.Limit{}
	for _, tt := range []struct {
		name   string
		policy ratelimit.Policy
		wants  []string
	}{
		{"A tier with a negative rate", tier(none, ratelimit.Limit{Rate: -1}), []string{"LimitFunc returned -1/0s", "Rate -1", "Per 0s"}},
		{"A tier that does not fit", tier(none, ratelimit.Every(30*24*time.Hour).WithBurst(10_000)), []string{"LimitFunc", "Burst 10000"}},
		{"A tier that is nearly unlimited", tier(none, ratelimit.Unlimited.WithBurst(1)), []string{"LimitFunc", "Rate"}},
		{"A malformed tier beside no limit at all", tier(ratelimit.Unlimited, ratelimit.Limit{Rate: -1}), []string{"LimitFunc returned -1/0s"}},
		{"No tier and no limit", tier(none, none), []string{"LimitFunc returned the zero Limit, and Policy.Limit is not set"}},
		{"A KeyFunc that fails", with(func(p *ratelimit.Policy) { p.Key = finds("ip:192.0.2.1", errors.New("the directory is away")) }), []string{"the directory is away"}},
		{"A KeyFunc that fails, optional", with(func(p *ratelimit.Policy) { p.Optional, p.Key = true, finds("", errors.New("broken")) }), []string{"broken"}},
		{"A KeyFunc that fails, first of two", with(func(p *ratelimit.Policy) {
			p.Key = ratelimit.FirstOf(finds("", errors.New("broken")), ratelimit.RemoteIP())
		}), []string{"broken"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l, beside := quiet(t), base
			beside.Name = "beside"
			for _, closed := range []bool{false, true, false} { // what failed once is not remembered as right
				tt.policy.FailClosed = closed
				d, err := l.Decide(requestWith(), beside, tt.policy)
				if err == nil || errors.Is(err, ratelimit.ErrNoKey) || errors.Is(err, ratelimit.ErrBadRequest) || d.Allowed || len(d.Results) != 0 {
					t.Fatalf("got %+v, error %v; want an error, and the request refused", d, err)
				}
				checkText(t, err.Error(), append(tt.wants, "policy api: ")...)
				if w := get(l.Limit(tt.policy)(okHandler)); w.Code != 503 {
					t.Errorf("got status %d", w.Code)
				}
			}
			for _, p := range []ratelimit.Policy{base, beside} {
				if d, err := l.Decide(requestWith(), p); err != nil || d.Results[0].Remaining != 59 {
					t.Errorf("got %+v, error %v; want a bucket that nothing has touched yet", d, err)
				}
			}
		})
	}

	t.Run("An outage lets through, unless the policy fails closed", func(t *testing.T) {
		l, p := quiet(t), base
		p.Key = finds("", fmt.Errorf("%w: no directory", ratelimit.ErrOutage))
		if d, err := l.Decide(requestWith(), p); !d.Allowed || !errors.Is(err, ratelimit.ErrOutage) {
			t.Errorf("got %+v, error %v", d, err)
		}
		p.FailClosed = true
		if d, err := l.Decide(requestWith(), p); d.Allowed || !errors.Is(err, ratelimit.ErrOutage) {
			t.Errorf("FailClosed: got %+v, error %v", d, err)
		}
	})

	t.Run("A shadow policy that fails has no effect on the others", func(t *testing.T) {
		l, shadow := quiet(t), with(func(p *ratelimit.Policy) { p.Cost = func(*http.Request) int64 { return -1 } })
		shadow.Name, shadow.Shadow = "shadow", true
		enforced := base
		enforced.Limit = ratelimit.PerHour(1)
		if d, _ := l.Decide(requestWith(), enforced, shadow); !d.Allowed {
			t.Errorf("the first request: got %+v", d)
		}
		if d, err := l.Decide(requestWith(), enforced, shadow); d.Allowed {
			t.Errorf("the second of one an hour: got %+v, error %v; want it denied", d, err)
		}
	})
}

func TestManyTiersWork(t *testing.T) {
	const tiers = 200 // more than are kept compiled
	l := quiet(t)
	p := ratelimit.Policy{Name: "api", Key: ratelimit.Header("Tier")}
	p.LimitFunc = func(r *http.Request) ratelimit.Limit {
		n, _ := strconv.ParseInt(r.Header.Get("Tier"), 10, 64)
		return ratelimit.PerDay(n)
	}
	var last *ratelimit.Decision
	handler := l.Limit(p)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { last, _ = ratelimit.FromContext(r.Context()) }))
	for n := int64(2); n < 2+tiers; n++ {
		for round := range int64(2) {
			last = nil
			handler.ServeHTTP(httptest.NewRecorder(), requestWith("Tier", fmt.Sprint(n)))
			if last == nil || last.Results[0].Limit != ratelimit.PerDay(n) || last.Results[0].Remaining != n-1-round {
				t.Fatalf("tier %d, round %d: got %+v", n, round, last)
			}
		}
	}
}

// Each one more would copy all others.
func TestNoMoreThanAFewTiersAreKept(t *testing.T) {
	l := quiet(t)
	n := int64(0)
	p := ratelimit.Policy{Name: "api", Key: ratelimit.Static("all")}
	p.LimitFunc = func(*http.Request) ratelimit.Limit { n++; return ratelimit.PerDay(n) }
	handler := l.Limit(p)(okHandler)
	serve := func(requests int) (bytes uint64) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range requests {
			handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
		}
		runtime.ReadMemStats(&after)
		return (after.TotalAlloc - before.TotalAlloc) / uint64(requests)
	}
	serve(600)
	if bytes := serve(100); bytes > 32<<10 {
		t.Errorf("a request with a new tier allocates %d bytes", bytes)
	}
}

func TestTiersOfManyRequestsAtOnce(t *testing.T) {
	l := quiet(t)
	p := ratelimit.Policy{Name: "api", Key: ratelimit.Header("Tier")}
	p.LimitFunc = func(r *http.Request) ratelimit.Limit {
		return ratelimit.Must(ratelimit.ParseLimit(r.Header.Get("Tier")))
	}
	handler := l.Limit(p)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if d, decided := ratelimit.FromContext(r.Context()); !decided || d.Results[0].Limit.String() != r.Header.Get("Tier") {
			t.Errorf("tier %s: got %+v", r.Header.Get("Tier"), d)
		}
	}))
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for n := range 100 {
				w := httptest.NewRecorder()
				handler.ServeHTTP(w, requestWith("Tier", fmt.Sprintf("%d/24h", 100+n)))
				if w.Code != http.StatusOK {
					t.Errorf("got status %d", w.Code)
				}
			}
		})
	}
	group.Wait()
}

func TestCostsOfRequests(t *testing.T) {
	// The bucket has 5 tokens, and gets no other soon.
	for _, tt := range []struct {
		name       string
		costs      []int64
		status     int // of the last
		remaining  string
		retryAfter string
	}{
		{"One by default", nil, 200, "4", ""},
		{"Several", []int64{2, 2}, 200, "1", ""},
		{"All there are", []int64{5}, 200, "0", ""},
		{"More than are left", []int64{3, 3}, 429, "2", "3600"},
		{"Nothing", []int64{0}, 200, "5", ""},
		{"Nothing of an empty bucket", []int64{5, 0}, 200, "0", ""},
		{"More than there can ever be", []int64{6}, 429, "5", ""},
		{"The most there can be", []int64{math.MaxInt64}, 429, "5", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := ratelimit.Policy{Name: "api", Key: ratelimit.RemoteIP(), Limit: ratelimit.PerHour(1).WithBurst(5)}
			costs := tt.costs
			if costs == nil {
				costs = []int64{1}
			} else {
				p.Cost = func(r *http.Request) int64 { return ratelimit.Must(strconv.ParseInt(r.Header.Get("Cost"), 10, 64)) }
			}
			handler := quiet(t).Limit(p)(ok)
			var w *httptest.ResponseRecorder
			for _, cost := range costs {
				w = httptest.NewRecorder()
				handler.ServeHTTP(w, requestWith("Cost", fmt.Sprint(cost)))
			}
			h := w.Header()
			if w.Code != tt.status || h.Get("X-RateLimit-Remaining") != tt.remaining || h.Get("Retry-After") != tt.retryAfter {
				t.Errorf("got status %d, %s remaining, Retry-After %q; want %d, %s, %q",
					w.Code, h.Get("X-RateLimit-Remaining"), h.Get("Retry-After"), tt.status, tt.remaining, tt.retryAfter)
			}
			if _, set := h["Retry-After"]; set != (tt.retryAfter != "") {
				t.Errorf("got Retry-After %q", h["Retry-After"])
			}
		})
	}
}

func hidden(p ratelimit.Policy) ratelimit.Policy {
	p.Hidden = true
	return p
}

func TestHowLongARequestWaitedForAHiddenPolicyIsNotTold(t *testing.T) {
	limit := ratelimit.PerSecond(1)
	mine, secret := waiting(perIP("mine", limit), time.Minute), hidden(waiting(perIP("secret", limit), time.Minute))
	slow := hidden(waiting(perIP("secret-slow", ratelimit.PerMinute(30).WithBurst(1)), time.Minute))
	shadow := slow
	shadow.Shadow = true
	for _, tt := range []struct {
		name   string
		mount  func(*ratelimit.Limiter, http.Handler) http.Handler
		waited time.Duration
		want   string
	}{
		{"alone", func(l *ratelimit.Limiter, h http.Handler) http.Handler { return l.Limit(secret)(h) }, time.Second, ""},
		{"beside another", func(l *ratelimit.Limiter, h http.Handler) http.Handler { return l.Limit(mine, slow)(h) }, 2 * time.Second, ""},
		{"inside of another", func(l *ratelimit.Limiter, h http.Handler) http.Handler { return l.Limit(mine)(l.Limit(slow)(h)) }, 2 * time.Second, "1.000"},
		{"where it did not", func(l *ratelimit.Limiter, h http.Handler) http.Handler {
			return l.Limit(mine, hidden(waiting(perIP("secret", ratelimit.PerHour(9)), time.Hour)))(h)
		}, time.Second, "1.000"},
		{"where nobody waits for it", func(l *ratelimit.Limiter, h http.Handler) http.Handler { return l.Limit(mine, shadow)(h) }, time.Second, "1.000"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, ratelimit.Config{Headers: headers.Join(ratelimit.XRateLimit, headers.IETF)}, func(t *testing.T, q *queue) {
				var waited time.Duration
				h := tt.mount(q.Limiter, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					d, _ := ratelimit.FromContext(r.Context())
					waited = d.Waited
				}))
				get(h)
				w := get(h)
				if got := w.Header().Get("X-RateLimit-Waited"); w.Code != 200 || got != tt.want || waited != tt.waited {
					t.Errorf("%d, X-RateLimit-Waited %q, Decision.Waited %v; want %q and %v", w.Code, got, waited, tt.want, tt.waited)
				}
			})
		})
	}
}

func TestResultsOfHiddenPoliciesAreMarked(t *testing.T) {
	var events []*ratelimit.Event
	s := storeFunc(func(_ []store.Charge, states []store.State) bool {
		for i := range states {
			states[i] = store.State{RetryAfter: time.Second}
		}
		return false
	})
	l := newLimiter(t, ratelimit.Config{Store: s, Observe: func(_ context.Context, e *ratelimit.Event) { events = append(events, e) }})
	mine, secret := perIP("mine", ratelimit.PerHour(1)), hidden(perIP("secret", ratelimit.PerHour(1)))
	none := hidden(chosen("secret", ratelimit.PerDay(0)))
	unlimited := secret
	unlimited.Limit = ratelimit.Unlimited
	wantMarks := func(what string, results ...ratelimit.Result) {
		t.Helper()
		for _, r := range results {
			if r.Hidden != (r.Policy == "secret") {
				t.Errorf("%s: %+v", what, r)
			}
		}
	}
	for _, policies := range [][]ratelimit.Policy{{mine, secret}, {mine, none}} {
		d, err := l.Decide(requestWith(), policies...)
		if err != nil || len(d.Results) == 0 || slices.Contains(d.Denied(), "secret") {
			t.Errorf("Decide: %+v, %v", d, err)
		}
		wantMarks("Decide", d.Results...)
	}
	d, err := l.TakeAll(t.Context(), ratelimit.Charge{Policy: mine, Key: "k"}, ratelimit.Charge{Policy: secret, Key: "k"})
	if err != nil || len(d.Results) != 2 {
		t.Errorf("TakeAll: %+v, %v", d, err)
	}
	wantMarks("TakeAll", d.Results...)
	for _, p := range []ratelimit.Policy{mine, secret, unlimited} {
		r, err := l.Take(t.Context(), p, "k", 1)
		if err != nil {
			t.Error(err)
		}
		wantMarks("Take", r)
	}
	for _, p := range []ratelimit.Policy{mine, secret} {
		ended, end := context.WithCancel(t.Context())
		end()
		r, err := l.Take(ended, p, "k", 1)
		if err == nil {
			t.Error("Take in a context that has ended: no error")
		}
		wantMarks("Take", r)
	}
	if len(events) < 5 {
		t.Errorf("%d events", len(events))
	}
	for _, e := range events {
		wantMarks("Event", e.Results...)
	}
}

func TestAConcurrencyLimitRefusesWhatTakesTokens(t *testing.T) {
	p := ratelimit.Policy{
		Name:    "exports",
		Key:     ratelimit.RemoteIP(),
		Limit:   ratelimit.Concurrency(0),
		Cost:    func(*http.Request) int64 { return 2 },
		Settle:  ratelimit.FailedLogins,
		LockFor: time.Minute,
	}
	_, err := ratelimit.New(ratelimit.Config{Policies: []ratelimit.Policy{p}})
	if err == nil {
		t.Fatal("no error")
	}
	checkText(t, err.Error(),
		`Policies[0] ("exports"): Limit: Rate 0: must be from 1 to 1000000 slots`,
		`Policies[0] ("exports"): Cost: must not be set beside a concurrency limit`,
		`Policies[0] ("exports"): Settle: must not be set beside`,
		`Policies[0] ("exports"): LockFor: must not be set beside`)

	p = ratelimit.Policy{Name: "exports", Key: ratelimit.RemoteIP(), Limit: ratelimit.Concurrency(2)}
	l := newLimiter(t, ratelimit.Config{Policies: []ratelimit.Policy{p}})
	r := httptest.NewRequest("GET", "/", nil)
	charge := ratelimit.Charge{Policy: p, Key: "a"}
	for name, call := range map[string]func() error{
		"Take":    func() error { return ratetest.Err(l.Take(t.Context(), p, "a", 1)) },
		"Wait":    func() error { return ratetest.Err(l.Wait(t.Context(), p, "a", 1)) },
		"Refund":  func() error { return ratetest.Err(l.Refund(t.Context(), p, "a", 1)) },
		"TakeAll": func() error { return ratetest.Err(l.TakeAll(t.Context(), charge)) },
		"WaitAll": func() error { return ratetest.Err(l.WaitAll(t.Context(), charge)) },
		"Decide":  func() error { return ratetest.Err(l.Decide(r)) },
	} {
		err := call()
		if err == nil {
			t.Errorf("%s: no error", name)
			continue
		}
		checkText(t, err.Error(), "ratelimit: "+name+": ", `"exports"`, "2 at once", "only Handler, Limit and Acquire")
	}
	if w := httptest.NewRecorder(); l.Admit(w, r, charge) || w.Code != 503 {
		t.Errorf("Admit: %d", w.Code)
	}
	for name, wrong := range map[string]ratelimit.Policy{
		"must be a Concurrency":    {Name: "exports", Limit: ratelimit.PerHour(1)},
		"Rate 0: must be from 1":   {Name: "exports", Limit: ratelimit.Concurrency(0)},
		"Settle: must not be set":  {Name: "exports", Limit: ratelimit.Concurrency(1), Settle: ratelimit.FailedLogins},
		"MaxWait -1s: must not be": {Name: "exports", Limit: ratelimit.Concurrency(1), MaxWait: -time.Second},
		"key: must not be empty":   {Name: "exports", Limit: ratelimit.Concurrency(1), MaxWait: time.Second},
		"Limit: must be set":       {Name: "exports"},
	} {
		key := "a"
		if name == "key: must not be empty" {
			key = ""
		}
		release, err := l.Acquire(t.Context(), wrong, key)
		if release(); err == nil || !strings.Contains(err.Error(), "ratelimit: Acquire: ") {
			t.Errorf("%s: %v", name, err)
		} else {
			checkText(t, err.Error(), name)
		}
	}
}
