package ratelimit_test

import (
	"cmp"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/store"
)

func override(t *testing.T, l *ratelimit.Limiter, limits map[string]ratelimit.Limit) {
	t.Helper()
	if err := l.Override(limits, nil); err != nil {
		t.Fatal(err)
	}
}

// Overrides stay above what New, Limit and Reload have set, in whatever order they are called.
func TestOverridesAreInForceWhateverTheOrder(t *testing.T) {
	type steps = []string
	for _, tt := range []struct {
		steps                steps
		global, login, later string // limits of api, login and login of a place that is mounted at the end
		program              map[string]string
	}{
		{steps{}, "100/1h", "10/1h", "10/1h", nil},
		{steps{"override"}, "50/1h", "5/1h", "5/1h", map[string]string{"api": "100/1h", "login": "10/1h"}},
		{steps{"override", "reload"}, "50/1h", "5/1h", "5/1h", map[string]string{"api": "200/1h", "login": "20/1h"}},
		{steps{"reload", "override"}, "50/1h", "5/1h", "5/1h", map[string]string{"api": "200/1h", "login": "20/1h"}},
		{steps{"override", "override other"}, "100/1h", "7/1h", "7/1h", map[string]string{"login": "10/1h"}},
		{steps{"override", "end"}, "100/1h", "10/1h", "10/1h", nil},
		{steps{"override", "reload", "end"}, "200/1h", "20/1h", "10/1h", nil},
		{steps{"override", "reload", "override other", "override", "end"}, "200/1h", "20/1h", "10/1h", nil},
	} {
		t.Run(strings.Join(tt.steps, ", "), func(t *testing.T) {
			l := newLimiter(t, ratelimit.Config{Policies: []ratelimit.Policy{hourly("api", 100)}})
			global, login := l.Handler(showsNames), l.Limit(hourly("login", 10))(showsNames)
			for _, step := range tt.steps {
				switch step {
				case "override":
					override(t, l, map[string]ratelimit.Limit{"api": ratelimit.PerHour(50), "login": ratelimit.PerHour(5)})
				case "override other":
					override(t, l, map[string]ratelimit.Limit{"login": ratelimit.PerHour(7), "nobody": ratelimit.PerHour(7)})
				case "reload":
					reload(t, l, hourly("api", 200), hourly("login", 20))
				case "end":
					override(t, l, nil)
				}
			}
			later := l.Limit(hourly("login", 10))(showsNames)
			for name, of := range map[string]struct {
				h    http.Handler
				want string
			}{"Handler": {global, "api " + tt.global}, "Limit": {login, "login " + tt.login}, "Limit later": {later, "login " + tt.later}} {
				if got := namesOf(of.h); !slices.Equal(got, []string{of.want}) {
					t.Errorf("%s has %q, want %q", name, got, of.want)
				}
			}
			for name, limits := range l.ProgramLimits() {
				want := cmp.Or(tt.program[name], map[string]string{"api": tt.global, "login": tt.login}[name])
				if limits[0].String() != want {
					t.Errorf("ProgramLimits has %s %v, want %s first", name, limits, want)
				}
			}
			d, err := l.Decide(requestWith())
			if err != nil || d.Results[0].Limit.String() != tt.global {
				t.Errorf("Decide: %+v, %v", d.Results, err)
			}
			for _, p := range l.Policies() {
				if want := map[string]string{"api": tt.global, "login": tt.login}[p.Name]; p.Limit.String() != want {
					t.Errorf("Policies has %s %v, want %s", p.Name, p.Limit, want)
				}
			}
		})
	}
}

// A policy of a call is its caller's.
func TestOverrideLeavesPoliciesOfCalls(t *testing.T) {
	l := newLimiter(t, ratelimit.Config{Policies: []ratelimit.Policy{hourly("api", 100)}})
	override(t, l, map[string]ratelimit.Limit{"api": ratelimit.PerHour(1)})
	d, err := l.Decide(requestWith(), hourly("api", 30))
	if err != nil || d.Results[0].Limit != ratelimit.PerHour(30) {
		t.Errorf("%+v, %v", d.Results, err)
	}
	if r, err := l.Take(t.Context(), hourly("api", 20), "a", 1); err != nil || r.Remaining != 19 {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestOverrideChangesTheDefaultOfALimitFunc(t *testing.T) {
	tiered := func(p ratelimit.Policy) ratelimit.Policy {
		p.LimitFunc = func(r *http.Request) ratelimit.Limit {
			if r.Header.Get("Tier") != "" {
				return ratelimit.PerHour(77)
			}
			return ratelimit.Limit{}
		}
		return p
	}
	l := newLimiter(t, ratelimit.Config{Policies: []ratelimit.Policy{tiered(hourly("api", 100))}})
	h := l.Handler(showsNames)
	override(t, l, map[string]ratelimit.Limit{"api": ratelimit.PerHour(50)})
	for tier, want := range map[string]string{"": "api 50/1h", "gold": "api 77/1h"} {
		if got := get(h, func(r *http.Request) { r.Header.Set("Tier", tier) }).Header().Get("Policies"); got != want {
			t.Errorf("tier %q: %s, want %s", tier, got, want)
		}
	}

	// One that only has tiers cannot be overridden, and stays when an override was there first.
	only := tiered(perIP("only", ratelimit.Limit{}))
	override(t, l, map[string]ratelimit.Limit{"only": ratelimit.PerHour(1)})
	g := l.Limit(only)(showsNames)
	if got := get(g, func(r *http.Request) { r.Header.Set("Tier", "gold") }).Header().Get("Policies"); got != "only 77/1h" {
		t.Errorf("%s", got)
	}
	if err := l.Override(map[string]ratelimit.Limit{"only": ratelimit.PerHour(1)}, nil); err == nil || !strings.Contains(err.Error(), `limits["only"]: the policy has no Policy.Limit`) {
		t.Error(err)
	}
}

func TestAnOverrideThatIsInvalidLeavesTheOldInForce(t *testing.T) {
	l := newLimiter(t, ratelimit.Config{Policies: []ratelimit.Policy{hourly("api", 100)}})
	h := l.Handler(showsNames)
	override(t, l, map[string]ratelimit.Limit{"api": ratelimit.PerHour(50)})
	err := l.Override(map[string]ratelimit.Limit{
		"api": ratelimit.PerHour(1), "a": {}, "b": ratelimit.Unlimited, "c": ratelimit.PerHour(0), "d": ratelimit.PerHour(-1), "no name": ratelimit.PerHour(1),
	}, nil)
	if err == nil {
		t.Fatal("it was taken")
	}
	checkText(t, err.Error(), "ratelimit: Override: ", `limits["a"]: Rate`, `limits["b"]: must not be Unlimited`, `limits["c"]: Rate`, `limits["d"]: Rate`, `limits["no name"]: must be the name`)
	if got := namesOf(h); !slices.Equal(got, []string{"api 50/1h"}) {
		t.Errorf("%q", got)
	}
}

// Each decision is by the old limit of all policies or by the new one of all.
func TestRequestsSeeTheOldOverridesOrTheNew(t *testing.T) {
	l := newLimiter(t, ratelimit.Config{Store: storeFunc(func(charges []store.Charge, states []store.State) bool {
		if charges[0].Limit != charges[1].Limit {
			t.Errorf("charges %+v", charges)
		}
		for i := range charges {
			states[i] = store.State{Allowed: true}
		}
		return true
	}), Policies: []ratelimit.Policy{hourly("a", 1000), hourly("b", 1000)}})
	handlers := []http.Handler{l.Handler(showsNames), l.Limit(hourly("c", 1000), hourly("d", 1000))(showsNames)}
	var running sync.WaitGroup
	for i := range 4 {
		running.Go(func() {
			for range 300 {
				for _, got := range namesOf(handlers[i%2]) {
					if _, limit, _ := strings.Cut(got, " "); limit != "1000/1h" && limit != "2000/1h" && limit != "3000/1h" {
						t.Errorf("decided by %s", got)
					}
				}
			}
		})
	}
	running.Go(func() {
		for i := range 300 {
			over := make(map[string]ratelimit.Limit)
			if i%3 > 0 {
				for _, name := range []string{"a", "b", "c", "d"} {
					over[name] = ratelimit.PerHour(int64(1+i%3) * 1000)
				}
			}
			if err := l.Override(over, nil); err != nil {
				t.Error(err)
			}
			l.Limit(hourly("c", 1000), hourly("d", 1000))
			l.Policies()
		}
	})
	running.Go(func() {
		for range 100 {
			if err := l.Reload(hourly("a", 1000), hourly("b", 1000), hourly("c", 1000), hourly("d", 1000)); err != nil {
				t.Error(err)
			}
		}
	})
	running.Wait()
}

// A refund under the old limit would grant what the old rate has brought since the charge.
func TestAfterAnOverrideRequestsThatLeaveTheQueueAreRefundedUnderTheNewLimit(t *testing.T) {
	const burst = 3000
	fast, slow := ratelimit.PerSecond(100).WithBurst(burst), ratelimit.PerMinute(1).WithBurst(burst)
	limited := func(l ratelimit.Limit) ratelimit.Policy {
		p := waiting(perIP("api", l), 100*time.Hour)
		p.Cost = func(*http.Request) int64 { return burst }
		return p
	}
	for _, tt := range []struct {
		name    string
		program ratelimit.Limit
		over    []map[string]ratelimit.Limit // the first one before the charge
		want    ratelimit.Limit
	}{
		{"tightened", fast, []map[string]ratelimit.Limit{nil, {"api": slow}}, slow},
		{"loosened", slow, []map[string]ratelimit.Limit{nil, {"api": fast}}, fast},
		{"ended", fast, []map[string]ratelimit.Limit{{"api": slow}, nil}, fast},
		{"ended and made again", fast, []map[string]ratelimit.Limit{{"api": slow}, nil, {"api": slow}}, slow},
		{"made and ended", fast, []map[string]ratelimit.Limit{nil, {"api": slow}, nil}, fast},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, ratelimit.Config{Policies: []ratelimit.Policy{limited(tt.program)}}, func(t *testing.T, q *queue) {
				h := q.Handler(okHandler)
				override(t, q.Limiter, tt.over[0])
				arrive(h, t.Context()).want(t, 200, 0)
				a := arrive(h, t.Context())
				for _, over := range tt.over[1:] {
					override(t, q.Limiter, over)
				}
				time.Sleep(20 * time.Second)
				a.leave()
				a.want(t, 499, 20*time.Second)
				want := int64(0)
				if tt.want == fast {
					want = 2000
				}
				if got := remaining(t, q.Limiter, limited(tt.want)); got != want {
					t.Errorf("%d left, want %d", got, want)
				}
			})
		})
	}
}

// The bucket keeps its tokens, and a settlement is charged under the limit that is then in force.
func TestAfterAnOverrideRequestsAreSettledUnderTheNewLimit(t *testing.T) {
	var charged []store.Limit
	l := newLimiter(t, ratelimit.Config{Store: storeFunc(func(charges []store.Charge, states []store.State) bool {
		charged = append(charged, charges[0].Limit)
		states[0] = store.State{Allowed: true}
		return true
	})})
	p := perIP("api", ratelimit.PerHour(10))
	p.Settle = func(*http.Request, ratelimit.Response) int64 { return 3 }
	h := l.Limit(p)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		override(t, l, map[string]ratelimit.Limit{"api": ratelimit.PerHour(99)})
	}))
	get(h)
	want, err := store.NewLimit(99, time.Hour, 99)
	if err != nil || len(charged) != 2 || charged[1] != want {
		t.Errorf("charged %+v, %v", charged, err)
	}
}
