package ratelimit_test

import (
	"cmp"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/ratetest"
	"github.com/go-tokenbucket/ratelimit/store"
)

func override(t *testing.T, l *ratelimit.Limiter, overrides ...ratelimit.Override) {
	t.Helper()
	if err := l.Override(overrides); err != nil {
		t.Fatal(err)
	}
}

func ofPolicy(name string, limit ratelimit.Limit) ratelimit.Override {
	return ratelimit.Override{Policy: name, Limit: limit}
}

func ofKey(name, key string, limit ratelimit.Limit) ratelimit.Override {
	return ratelimit.Override{Policy: name, Key: key, Limit: limit}
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
					override(t, l, ofPolicy("api", ratelimit.PerHour(50)), ofPolicy("login", ratelimit.PerHour(5)))
				case "override other":
					override(t, l, ofPolicy("login", ratelimit.PerHour(7)), ofPolicy("nobody", ratelimit.PerHour(7)))
				case "reload":
					reload(t, l, hourly("api", 200), hourly("login", 20))
				case "end":
					override(t, l)
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
	override(t, l, ofPolicy("api", ratelimit.PerHour(1)), ofKey("api", "a", ratelimit.PerHour(1)), ofKey("api", address, ratelimit.PerHour(1)))
	d, err := l.Decide(requestWith(), hourly("api", 30))
	if err != nil || d.Results[0].Limit != ratelimit.PerHour(30) {
		t.Errorf("%+v, %v", d.Results, err)
	}
	if r, err := l.Take(t.Context(), hourly("api", 20), "a", 1); err != nil || r.Remaining != 19 {
		t.Errorf("%+v, %v", r, err)
	}
}

// tiered is a policy whose LimitFunc returns the limit that the header Tier has, and the zero Limit without it.
func tiered(name string, limit ratelimit.Limit) ratelimit.Policy {
	p := perIP(name, limit)
	p.LimitFunc = func(r *http.Request) (tier ratelimit.Limit) {
		_ = tier.UnmarshalText([]byte(r.Header.Get("Tier")))
		return tier
	}
	return p
}

// The first of these is the limit of a request: the override of its key, of its policy, LimitFunc, Policy.Limit.
func TestTheOrderOfOverridesAndLimits(t *testing.T) {
	const (
		key    = "override of the key"
		policy = "override of the policy"
		tier   = "a tier"
		exempt = "an exempt tier"
		none   = "no Policy.Limit"
	)
	for _, tt := range []struct {
		set  []string
		want string
	}{
		{nil, "api 100/1h"},
		{[]string{tier}, "api 77/1h"},
		{[]string{exempt}, ""},
		{[]string{policy}, "api 50/1h"},
		{[]string{policy, tier}, "api 50/1h"},
		{[]string{policy, exempt}, "api 50/1h"},
		{[]string{key}, "api 5/1h"},
		{[]string{key, tier}, "api 5/1h"},
		{[]string{key, exempt}, "api 5/1h"},
		{[]string{key, policy}, "api 5/1h"},
		{[]string{key, policy, tier}, "api 5/1h"},
		{[]string{none, tier}, "api 77/1h"},
		{[]string{none, tier, policy}, "api 50/1h"},
		{[]string{none, tier, key}, "api 5/1h"},
		{[]string{none, policy}, "api 50/1h"}, // although the LimitFunc would return none
		{[]string{none, key}, "api 5/1h"},
	} {
		t.Run(strings.Join(tt.set, ", "), func(t *testing.T) {
			is := func(what string) bool { return slices.Contains(tt.set, what) }
			p := tiered("api", ratelimit.PerHour(100))
			if is(none) {
				p.Limit = ratelimit.Limit{}
			}
			overrides := []ratelimit.Override{
				ofKey("api", "ip:192.0.2.77", ratelimit.PerHour(1)),
				ofPolicy("other", ratelimit.PerHour(1)),
				ofKey("other", address, ratelimit.PerHour(1)),
			}
			if is(key) {
				overrides = append(overrides, ofKey("api", address, ratelimit.PerHour(5)))
			}
			if is(policy) {
				overrides = append(overrides, ofPolicy("api", ratelimit.PerHour(50)))
			}
			request := with("Tier", map[bool]string{is(tier): "77/1h", is(exempt): "unlimited"}[true])
			l := newLimiter(t, ratelimit.Config{Policies: []ratelimit.Policy{p}})
			override(t, l, overrides...)
			want := []string{tt.want}
			if tt.want == "" {
				want = nil
			}
			for name, h := range map[string]http.Handler{"Handler": l.Handler(showsNames), "Limit": l.Limit(p)(showsNames)} {
				if got := get(h, request).Header()["Policies"]; !slices.Equal(got, want) {
					t.Errorf("%s: %q, want %q", name, got, want)
				}
			}
			r := requestWith()
			request(r)
			if d, err := l.Decide(r); err != nil || len(d.Results) != len(want) || len(want) > 0 && "api "+d.Results[0].Limit.String() != tt.want {
				t.Errorf("Decide: %+v, %v", d.Results, err)
			}
		})
	}
}

// Nothing but the limit is the override's.
func TestAnOverrideMayBeUnlimitedOrAQuota(t *testing.T) {
	onEachStore(t, func(t *testing.T, s store.Store, c *clock) {
		p := perIP("api", ratelimit.PerHour(1))
		l := newLimiter(t, ratelimit.Config{Store: s, Policies: []ratelimit.Policy{p}})
		h := l.Handler(okHandler)
		wantStatuses(t, h, []int{200, 429})
		for _, unlimited := range []ratelimit.Override{ofKey("api", address, ratelimit.Unlimited), ofPolicy("api", ratelimit.Unlimited)} {
			override(t, l, unlimited)
			if w := get(h); w.Code != 200 || w.Header().Get("X-RateLimit-Limit") != "" {
				t.Errorf("%+v: %d %v", unlimited, w.Code, w.Header())
			}
			if b, err := l.Peek(t.Context(), p, address); err != nil || b.Limit != ratelimit.Unlimited {
				t.Errorf("%+v: Peek: %+v, %v", unlimited, b, err)
			}
		}
		override(t, l, ofPolicy("api", ratelimit.Unlimited), ofKey("api", address, ratelimit.Quota(3, ratelimit.Day)))
		wantStatuses(t, h, []int{200, 200, 200, 429})
		wantStatuses(t, h, []int{200, 200, 200, 200, 200}, from("192.0.2.2"))
		override(t, l, ofKey("api", "ip:192.0.2.2", ratelimit.Quota(1, ratelimit.Day)))
		c.Advance(48 * time.Hour)
		wantStatuses(t, h, []int{200, 429})
		wantStatuses(t, h, []int{200, 429}, from("192.0.2.2"))
	})
}

// An exempt tier needs no key, also if keys of the policy have overrides.
func TestAnOverrideOfAKeyAsksNoKeyOfExemptRequests(t *testing.T) {
	p := tiered("api", ratelimit.PerHour(100))
	p.Key = noKey
	l := newLimiter(t, ratelimit.Config{Policies: []ratelimit.Policy{p}})
	h := l.Handler(okHandler)
	override(t, l, ofKey("api", address, ratelimit.PerHour(5)))
	wantStatuses(t, h, []int{200}, with("Tier", "unlimited"))
	wantStatuses(t, h, []int{403})
}

// Where the policy is mounted, Peek shows what a request would meet.
func TestPeekIsUnderTheOverride(t *testing.T) {
	p := perIP("api", ratelimit.PerHour(100))
	nameOnly := ratelimit.Policy{Name: "api"}
	l := newLimiter(t, ratelimit.Config{})
	override(t, l, ofKey("api", address, ratelimit.PerHour(1000)), ofPolicy("api", ratelimit.PerHour(200)))
	peek := func(p ratelimit.Policy, key string, want ratelimit.Limit) {
		t.Helper()
		if b, err := l.Peek(t.Context(), p, key); err != nil || b.Limit != want || b.Remaining != want.Rate {
			t.Errorf("%s: %+v, %v; want %v", key, b, err, want)
		}
	}
	peek(p, address, ratelimit.PerHour(100))
	peek(nameOnly, address, ratelimit.Limit{})
	mounted := l.Limit(p)
	for _, p := range []ratelimit.Policy{p, nameOnly} {
		peek(p, address, ratelimit.PerHour(1000))
		peek(p, "ip:192.0.2.2", ratelimit.PerHour(200))
	}
	override(t, l)
	peek(p, address, ratelimit.PerHour(100))
	peek(nameOnly, address, ratelimit.Limit{})
	runtime.KeepAlive(mounted)
}

// An operator may set and end an override at any time. A LimitFunc that swings is still found.
func TestOverridesAreNoSwingsOfALimitFunc(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, text := logged(t)
		h := l.Limit(tiered("api", ratelimit.PerHour(100)))(okHandler)
		for range 5 {
			for _, o := range [][]ratelimit.Override{{ofKey("api", address, ratelimit.PerHour(7))}, {ofPolicy("api", ratelimit.PerHour(9))}, nil} {
				override(t, l, o...)
				get(h, with("Tier", "77/1h"))
			}
		}
		if text.Len() > 0 {
			t.Errorf("logged: %s", text)
		}
		get(h)
		override(t, l, ofKey("api", "ip:192.0.2.9", ratelimit.PerHour(7))) // what was noticed before stays
		get(h, with("Tier", "77/1h"))
		checkText(t, text.String(), "LimitFunc must depend on the key alone")
	})
}

func TestAMalformedOverrideLeavesTheOldInForce(t *testing.T) {
	l := newLimiter(t, ratelimit.Config{Policies: []ratelimit.Policy{hourly("api", 100)}})
	h := l.Handler(showsNames)
	override(t, l, ofPolicy("api", ratelimit.PerHour(50)))
	hour := ratelimit.PerHour(1)
	for want, wrong := range map[string]ratelimit.Override{
		`.Policy: must be the name of a policy`:         ofPolicy("no name", hour),
		`.Policy: must be`:                              ofKey("", address, hour),
		`.Limit: must have a Rate above 0: use Block`:   ofPolicy("a", ratelimit.PerHour(0)),
		`.Limit: must have a Rate`:                      ofKey("a", address, ratelimit.Limit{}),
		`.Limit: Rate -1: must be from 1`:               ofPolicy("a", ratelimit.PerHour(-1)),
		`.Limit: Zone "Mars": must be a time zone`:      ofKey("a", address, ratelimit.Quota(1, ratelimit.Day).In("Mars")),
		`.Key: "ip:": must be a kind, a colon`:          ofKey("a", "ip:", hour),
		`.Key: ":5": must be`:                           ofKey("a", ":5", hour),
		`.Key: " ": must be`:                            ofKey("a", " ", hour),
		`.Key: "join:": must be`:                        ofKey("a", "join:", hour),
		`.Key: "join:ip:192.0.2.1|": must be`:           ofKey("a", "join:ip:192.0.2.1|", hour),
		`.Key: "join:member:|ip:192.0.2.1": must be`:    ofKey("a", "join:member:|ip:192.0.2.1", hour),
		`.Key: "": policy "api" has an override for it`: ofPolicy("api", hour),
		`.Key: "ip:192.0.2.2": policy "api" has`:        ofKey("api", "ip:192.0.2.2", hour),
		`.Key: "\x1b:": must be a kind, a colon`:        ofKey("a", "\x1b:", hour),
	} {
		err := l.Override([]ratelimit.Override{ofPolicy("api", ratelimit.PerHour(2)), ofKey("api", "ip:192.0.2.2", hour), ofPolicy("d", ratelimit.PerHour(0)), wrong})
		if err == nil {
			t.Errorf("%+v was taken", wrong)
			continue
		}
		checkText(t, err.Error(), "ratelimit: Override: overrides[2].Limit: ", "overrides[3]"+want)
	}
	if got := namesOf(h); !slices.Equal(got, []string{"api 50/1h"}) {
		t.Errorf("%q", got)
	}
	for _, key := range []string{"192.0.2.1", "ip:2001:db8::/64", "join:ip:192.0.2.1|route:GET /", "member:a b ", "\xff\x00", "|"} { // keys may hold any bytes
		override(t, l, ofKey("api", key, hour))
	}
}

// A request that was charged under the override of its key is settled under what is in force then.
func TestRequestsAreSettledUnderTheOverrideOfTheirKey(t *testing.T) {
	high, low := ofKey("api", address, ratelimit.PerHour(1000)), ofKey("api", address, ratelimit.PerHour(10))
	for name, tt := range map[string]struct {
		tier          string
		before, after []ratelimit.Override
		limit         int64
		want          int64
	}{
		"the same":            {"", []ratelimit.Override{high}, []ratelimit.Override{high}, 1000, 995},
		"of a tier":           {"77/1h", []ratelimit.Override{high}, []ratelimit.Override{high}, 1000, 995},
		"made meanwhile":      {"", nil, []ratelimit.Override{high}, 1000, 995},
		"made over a tier":    {"77/1h", nil, []ratelimit.Override{high}, 1000, 995},
		"lowered":             {"", []ratelimit.Override{high}, []ratelimit.Override{low}, 10, 5},
		"ended":               {"", []ratelimit.Override{low}, nil, 100, 95},
		"ended, another has":  {"", []ratelimit.Override{low}, []ratelimit.Override{ofKey("api", "ip:192.0.2.2", ratelimit.PerHour(3))}, 100, 95},
		"became the policy's": {"77/1h", []ratelimit.Override{low}, []ratelimit.Override{ofPolicy("api", ratelimit.PerHour(50))}, 50, 45},
		"became unlimited":    {"", []ratelimit.Override{low}, []ratelimit.Override{ofKey("api", address, ratelimit.Unlimited)}, 10, 5},
	} {
		t.Run(name, func(t *testing.T) {
			p := settled("api", ratelimit.PerHour(100), costs(5))
			if tt.tier != "" {
				p.LimitFunc = tiered("", ratelimit.Limit{}).LimitFunc
			}
			rec := &recorder{Store: ratetest.Generous{}}
			l := newLimiter(t, ratelimit.Config{Store: rec, Policies: []ratelimit.Policy{p}})
			override(t, l, tt.before...)
			get(l.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { override(t, l, tt.after...) })), with("Tier", tt.tier))
			if len(rec.Calls) != 2 {
				t.Fatalf("calls %+v", rec.Calls)
			}
			want, err := store.NewLimit(tt.limit, time.Hour, tt.limit)
			if c := rec.Calls[1][0]; err != nil || c.Cost != 4 || c.Limit != want {
				t.Errorf("settled by %+v, want %+v", c, want)
			}
		})
	}
}

func TestTenThousandOverridesTakeTwoMegabytes(t *testing.T) {
	var l *ratelimit.Limiter
	grown := ratetest.HeapOf(func() any {
		l = newLimiter(t, ratelimit.Config{Store: ratetest.Generous{}, Policies: []ratelimit.Policy{hourly("api", 100)}})
		override(t, l, manyOverrides(10_000)...)
		return l
	})
	if t.Logf("%d bytes", grown); grown > 2_000_000 {
		t.Errorf("%d bytes", grown)
	}
	if got := namesOf(l.Handler(showsNames)); !slices.Equal(got, []string{"api 1/1h"}) {
		t.Errorf("%q", got)
	}
}

// manyOverrides are overrides of n keys, of which one is the address.
func manyOverrides(n int) []ratelimit.Override {
	overrides := []ratelimit.Override{ofKey("api", address, ratelimit.PerHour(1))}
	for i := range n - 1 {
		overrides = append(overrides, ratelimit.Override{
			Policy: "api",
			Key:    fmt.Sprintf("member:%08d", i),
			Limit:  ratelimit.PerHour(int64(1000 + i)),
			Why:    "set by alice at 2026-11-26T17:00:00Z",
		})
	}
	return overrides
}
