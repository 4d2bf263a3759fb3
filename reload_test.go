package ratelimit_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/store"
)

func reload(t *testing.T, l *ratelimit.Limiter, policies ...ratelimit.Policy) {
	t.Helper()
	if err := l.Reload(policies...); err != nil {
		t.Fatal(err)
	}
}

func TestReloadReplacesMountedPoliciesByTheirNames(t *testing.T) {
	l := newLimiter(t, ratelimit.Config{Policies: []ratelimit.Policy{hourly("api", 100), hourly("shared", 100)}})
	global, mountedLogin := l.Handler(showsNames), l.Limit(hourly("login", 10))
	login, again := mountedLogin(showsNames), mountedLogin(showsNames)
	elsewhere := l.Limit(hourly("other", 10), hourly("login", 20))(showsNames)
	shared := l.Limit(hourly("shared", 10))(showsNames)
	r := chi.NewRouter()
	r.Use(l.Handler)
	r.With(l.Limit(hourly("login", 10))).Get("/", showsNames)
	for _, step := range []struct {
		name                                    string
		policies                                []ratelimit.Policy
		global, login, elsewhere, shared, route []string
	}{
		{"at first", nil,
			[]string{"api 100/1h", "shared 100/1h"}, []string{"login 10/1h"}, []string{"other 10/1h", "login 20/1h"}, []string{"shared 10/1h"},
			[]string{"api 100/1h", "shared 100/1h", "login 10/1h"}},
		{"one that is only mounted", []ratelimit.Policy{hourly("login", 5)},
			[]string{"api 100/1h", "shared 100/1h"}, []string{"login 5/1h"}, []string{"other 10/1h", "login 5/1h"}, []string{"shared 10/1h"},
			[]string{"api 100/1h", "shared 100/1h", "login 5/1h"}},
		{"one of each kind, and a new one", []ratelimit.Policy{hourly("other", 1), hourly("new", 2), hourly("api", 3)},
			[]string{"new 2/1h", "api 3/1h"}, []string{"login 5/1h"}, []string{"other 1/1h", "login 5/1h"}, []string{"shared 10/1h"},
			[]string{"new 2/1h", "api 3/1h", "login 5/1h"}},
		{"one of Config.Policies that is mounted, too", []ratelimit.Policy{hourly("shared", 7)},
			[]string{"shared 7/1h"}, []string{"login 5/1h"}, []string{"other 1/1h", "login 5/1h"}, []string{"shared 7/1h"},
			[]string{"shared 7/1h", "login 5/1h"}},
	} {
		if step.policies != nil {
			reload(t, l, step.policies...)
		}
		for _, of := range []struct {
			name string
			h    http.Handler
			want []string
		}{
			{"Handler", global, step.global}, {"login", login, step.login}, {"login again", again, step.login},
			{"elsewhere", elsewhere, step.elsewhere}, {"shared", shared, step.shared}, {"chi", r, step.route},
		} {
			if got := namesOf(of.h); !slices.Equal(got, of.want) {
				t.Errorf("%s: %s has %q, want %q", step.name, of.name, got, of.want)
			}
		}
	}

	// What is mounted later has what it was given.
	if got, want := namesOf(l.Limit(hourly("login", 9))(showsNames)), []string{"login 9/1h"}; !slices.Equal(got, want) {
		t.Errorf("mounted later: %q, want %q", got, want)
	}
}

func TestAReloadIsAllOrNothing(t *testing.T) {
	for _, tt := range []struct {
		name     string
		config   []ratelimit.Policy
		policies []ratelimit.Policy
		wants    []string
	}{
		{"a malformed one", []ratelimit.Policy{hourly("api", 9)}, []ratelimit.Policy{hourly("login", 1), hourly("api", -1)}, []string{"policies[1]", "Rate"}},
		{"two of them", []ratelimit.Policy{hourly("api", 9)}, []ratelimit.Policy{hourly("", 1), perIP("api", ratelimit.Limit{})}, []string{"policies[0]", "Name", "policies[1]", "Limit"}},
		{"an unknown one", nil, []ratelimit.Policy{hourly("login", 1), hourly("logn", 1)}, []string{`policies[1] ("logn")`, `"login", "search"`}},
		{"both", nil, []ratelimit.Policy{hourly("logn", 1), hourly("login", -1)}, []string{`policies[0] ("logn")`, "policies[1]", "Rate"}},
		{"none", nil, nil, []string{"must not be empty"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := newLimiter(t, ratelimit.Config{Policies: tt.config})
			search, login := l.Limit(hourly("search", 10))(showsNames), l.Limit(hourly("login", 10))(showsNames)
			err := l.Reload(tt.policies...)
			if err == nil {
				t.Fatal("no error")
			}
			checkText(t, err.Error(), append(tt.wants, "ratelimit: Reload: ")...)
			if got := slices.Concat(namesOf(search), namesOf(login)); !slices.Equal(got, []string{"search 10/1h", "login 10/1h"}) {
				t.Errorf("%q", got)
			}
			if d, err := l.Decide(requestWith()); tt.config == nil && err == nil || tt.config != nil && d.Results[0].Limit != ratelimit.PerHour(9) {
				t.Errorf("for all requests: %+v, %v", d.Results, err)
			}
		})
	}
	err := newLimiter(t, ratelimit.Config{}).Reload(hourly("login", 1))
	if err == nil {
		t.Fatal("a policy that nothing enforces was taken")
	}
	checkText(t, err.Error(), `"login"`, "none yet")
}

// A mounted policy is reached, and listed, as long as it can get requests, also when nothing but its handler is left. A policy
// of a route does not become one of all routes when its route is gone.
func TestMountedPoliciesAfterAGarbageCollection(t *testing.T) {
	l := newLimiter(t, ratelimit.Config{Policies: []ratelimit.Policy{hourly("api", 2)}})
	h := l.Limit(hourly("login", 10))(showsNames)
	func() { l.Limit(hourly("dropped", 5)) }()
	for range 5 {
		runtime.GC()
	}
	wantInForce(t, l, "api 2/1h", "login 10/1h")
	reload(t, l, hourly("login", 5), hourly("dropped", 3))
	if got := namesOf(h); !slices.Equal(got, []string{"login 5/1h"}) {
		t.Errorf("%q", got)
	}
	wantInForce(t, l, "api 2/1h", "login 5/1h")
	if d, err := l.Decide(requestWith()); err != nil || len(d.Results) != 1 || d.Results[0].Policy != "api" {
		t.Errorf("decided by %+v, %v; want api alone", d.Results, err)
	}
	runtime.KeepAlive(h)
}

// Only 10,000 names are remembered. A further policy of a route does not become one of all routes.
func TestAPolicyOfARouteBesideManyOthers(t *testing.T) {
	l := newLimiter(t, ratelimit.Config{Policies: []ratelimit.Policy{hourly("api", 2)}})
	for i := range 10_000 {
		l.Limit(hourly(fmt.Sprint("tenant-", i), 5))
	}
	h := l.Limit(hourly("login", 10))(showsNames)
	reload(t, l, hourly("api", 3), hourly("login", 5))
	if got := namesOf(h); !slices.Equal(got, []string{"login 5/1h"}) {
		t.Errorf("%q", got)
	}
	if d, err := l.Decide(requestWith()); err != nil || len(d.Results) != 1 || d.Results[0].Policy != "api" {
		t.Errorf("decided by %+v, %v; want api alone", d.Results, err)
	}
	runtime.KeepAlive(h)
}

func TestReloadReplacesThePoliciesOfHandlerAndDecide(t *testing.T) {
	onEachStore(t, func(t *testing.T, s store.Store, _ *clock) {
		l := newLimiter(t, ratelimit.Config{Store: s, Policies: []ratelimit.Policy{perIP("api", ratelimit.PerHour(10))}})
		h := l.Handler(okHandler)
		login := l.Limit(perIP("login", ratelimit.PerHour(2)))(okHandler)
		wantStatuses(t, h, []int{200, 200, 200, 200})

		// What the bucket holds stays, up to the new burst.
		if err := l.Reload(perIP("api", ratelimit.PerHour(2)), perIP("other", ratelimit.PerHour(5))); err != nil {
			t.Fatal(err)
		}
		d, err := l.Decide(httptest.NewRequest("GET", "/", nil))
		if err != nil || len(d.Results) != 2 || d.Results[0].Remaining != 1 || d.Results[1].Remaining != 4 {
			t.Errorf("Decide: %+v, %v", d.Results, err)
		}
		wantStatuses(t, h, []int{200, 429})
		wantStatuses(t, login, []int{200, 200, 429}) // as it was
	})
}

// Under the old limit, a refund would grant what the old rate has brought since the charge.
func TestAfterAChangeRequestsThatLeaveTheQueueAreRefundedUnderTheNewLimit(t *testing.T) {
	const burst = 3000
	fast, slow := ratelimit.PerSecond(100).WithBurst(burst), ratelimit.PerMinute(1).WithBurst(burst)
	limited := func(l ratelimit.Limit) ratelimit.Policy {
		p := waiting(perIP("api", l), 100*time.Hour)
		p.Cost = func(*http.Request) int64 { return burst }
		return p
	}
	chosen := func(l, tier ratelimit.Limit) ratelimit.Policy {
		p := limited(l)
		p.LimitFunc = func(*http.Request) ratelimit.Limit { return tier }
		return p
	}
	type change = func(*queue) error
	reloaded := func(p ratelimit.Policy) change { return func(q *queue) error { return q.Reload(p) } }
	over := func(l ratelimit.Limit) change {
		return func(q *queue) error { return q.Override([]ratelimit.Override{{Policy: "api", Limit: l}}) }
	}
	end := func(q *queue) error { return q.Override(nil) }
	nothing := func(*queue) error { return nil }
	other, tierless := reloaded(perIP("other", ratelimit.PerHour(1))), ratelimit.Limit{}
	for _, tt := range []struct {
		name   string
		first  ratelimit.Policy
		before change // the charge
		after  []change
		want   ratelimit.Limit
	}{
		{"tightened", limited(fast), nothing, []change{reloaded(limited(slow))}, slow},
		{"loosened", limited(slow), nothing, []change{reloaded(limited(fast))}, fast},
		{"twice", limited(fast), nothing, []change{reloaded(limited(fast)), reloaded(limited(slow))}, slow},
		{"after another", limited(fast), reloaded(limited(fast)), []change{reloaded(limited(slow))}, slow},
		{"taken out", limited(fast), nothing, []change{other}, fast},
		{"taken out and put back", limited(fast), nothing, []change{other, reloaded(limited(slow))}, slow},
		{"exempt", limited(fast), nothing, []change{reloaded(limited(ratelimit.Unlimited))}, fast},
		{"without a tier", chosen(fast, tierless), nothing, []change{reloaded(chosen(slow, tierless))}, slow},
		{"of a tier", chosen(slow, fast), nothing, []change{reloaded(chosen(slow, fast))}, fast},
		{"of a tier until there are none", chosen(slow, fast), nothing, []change{reloaded(limited(slow))}, slow},
		{"until there are tiers", limited(fast), nothing, []change{reloaded(chosen(slow, tierless))}, slow},
		{"until there are only tiers", limited(fast), nothing, []change{reloaded(chosen(tierless, slow))}, fast},
		{"overridden by less", limited(fast), nothing, []change{over(slow)}, slow},
		{"overridden by more", limited(slow), nothing, []change{over(fast)}, fast},
		{"an override ends", limited(fast), over(slow), []change{end}, fast},
		{"an override ends and is made again", limited(fast), over(slow), []change{end, over(slow)}, slow},
		{"an override is made and ends", limited(fast), nothing, []change{over(slow), end}, fast},
	} {
		for _, mounted := range []bool{false, true} {
			if mounted && strings.HasPrefix(tt.name, "taken out") { // there is no Config.Policies to take it out of
				continue
			}
			t.Run(tt.name+map[bool]string{true: ", in Limit"}[mounted], func(t *testing.T) {
				cfg := ratelimit.Config{Policies: []ratelimit.Policy{tt.first}}
				if mounted {
					cfg = ratelimit.Config{}
				}
				inBubble(t, cfg, func(t *testing.T, q *queue) {
					var h http.Handler
					if h = q.Limit(tt.first)(okHandler); !mounted {
						h = q.Handler(okHandler)
					}
					change := func(changes ...change) {
						for _, c := range changes {
							if err := c(q); err != nil {
								t.Fatal(err)
							}
						}
					}
					change(tt.before)
					arrive(h, t.Context()).Want(t, 200, 0)
					a := arrive(h, t.Context())
					change(tt.after...)
					time.Sleep(20 * time.Second)
					a.Leave()
					a.Want(t, 499, 20*time.Second)
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
}

// A policy of a call is its caller's.
func TestAfterAReloadAPolicyOfAdmitIsRefundedUnderItsOwnLimit(t *testing.T) {
	p := waiting(perIP("api", ratelimit.PerSecond(1)), time.Minute)
	inBubble(t, ratelimit.Config{Policies: []ratelimit.Policy{p}}, func(t *testing.T, q *queue) {
		h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			q.Admit(w, r, ratelimit.Charge{Policy: p, Key: "ip:192.0.2.1"})
		})
		arrive(h, t.Context()).Want(t, 200, 0)
		a := arrive(h, t.Context())
		if err := q.Reload(perIP("api", ratelimit.PerHour(1))); err != nil {
			t.Fatal(err)
		}
		time.Sleep(500 * time.Millisecond)
		a.Leave()
		a.Want(t, 499, 500*time.Millisecond)
		if got := q.ResetAfter(t, p); got != 500*time.Millisecond {
			t.Errorf("full after %v, want 500ms", got)
		}
	})
}

// inForce lists what Policies returns, as names and limits.
func inForce(l *ratelimit.Limiter) (all []string) {
	for _, p := range l.Policies() {
		all = append(all, p.Name+" "+p.Limit.String())
	}
	return all
}

func wantInForce(t *testing.T, l *ratelimit.Limiter, want ...string) {
	t.Helper()
	if got := inForce(l); !slices.Equal(got, want) {
		t.Errorf("in force are %q, want %q", got, want)
	}
}

func TestPoliciesListsTheHandlersAndThenTheMountedByName(t *testing.T) {
	l := newLimiter(t, ratelimit.Config{Policies: []ratelimit.Policy{hourly("z", 1), hourly("b", 2)}})
	wantInForce(t, l, "z 1/1h", "b 2/1h")
	mounts := []func(http.Handler) http.Handler{
		l.Limit(hourly("y", 3), hourly("a", 4)), l.Limit(hourly("c", 5)),
		l.Limit(hourly("a", 4)), // again
		l.Limit(hourly("b", 6)), // Handler has another one
		l.Limit(hourly("c", 7)), // another of the same name
	}
	_, _ = l.Take(t.Context(), hourly("taken", 8), "k", 1)
	for range 20 { // not in the order of a map
		wantInForce(t, l, "z 1/1h", "b 2/1h", "a 4/1h", "c 5/1h", "y 3/1h")
	}
	runtime.KeepAlive(mounts)
}

func TestPoliciesWithoutAny(t *testing.T) {
	if got := newLimiter(t, ratelimit.Config{}).Policies(); len(got) > 0 {
		t.Errorf("%+v", got)
	}
}

func TestPoliciesAreWhole(t *testing.T) {
	p := hourly("p", 5)
	p.LockFor, p.FailClosed, p.Hidden, p.Settle, p.Cost = time.Hour, true, true, ratelimit.FailedLogins, func(*http.Request) int64 { return 7 }
	l := newLimiter(t, ratelimit.Config{Policies: []ratelimit.Policy{p}})
	got := l.Policies()[0]
	if got.LockFor != time.Hour || !got.FailClosed || !got.Hidden || got.Settle == nil || got.Key == nil || got.Cost(nil) != 7 {
		t.Errorf("%+v", got)
	}
	got.Limit, got.Name = ratelimit.Unlimited, "changed" // has no effect
	all := l.Policies()
	all[0] = hourly("other", 1)
	wantInForce(t, l, "p 5/1h")
}

func TestPoliciesFollowAReload(t *testing.T) {
	l := newLimiter(t, ratelimit.Config{Policies: []ratelimit.Policy{hourly("a", 1), hourly("b", 1)}})
	mounts := []func(http.Handler) http.Handler{l.Limit(hourly("m", 1)), l.Limit(hourly("n", 1))}
	reload(t, l, hourly("c", 2), hourly("a", 2), hourly("n", 2))
	wantInForce(t, l, "c 2/1h", "a 2/1h", "m 1/1h", "n 2/1h")
	if l.Reload(ratelimit.Policy{}) == nil {
		t.Error("a malformed policy was accepted")
	}
	wantInForce(t, l, "c 2/1h", "a 2/1h", "m 1/1h", "n 2/1h")
	runtime.KeepAlive(mounts)
}

func TestALimiterThatObservesItsHandlersIsCollected(t *testing.T) {
	type program struct{ handlers []http.Handler }
	collected := make(chan struct{})
	func() {
		p := new(program)
		runtime.AddCleanup(p, func(done chan struct{}) { close(done) }, collected)
		l := ratelimit.Must(ratelimit.New(ratelimit.Config{Policies: []ratelimit.Policy{hourly("all", 1)}, Observe: func(context.Context, *ratelimit.Event) { _ = p.handlers }}))
		end := http.NotFoundHandler()
		p.handlers = []http.Handler{l.Handler(end), l.Limit(hourly("route", 1))(end)}
	}()
	for range 100 {
		runtime.GC()
		select {
		case <-collected:
			return
		case <-time.After(10 * time.Millisecond): // for the cleanups, which have a goroutine
		}
	}
	t.Error("it is kept after nothing uses it")
}
