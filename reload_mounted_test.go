package ratelimit_test

import (
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/go-chi/chi/v5"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/store"
)

// showsNames answers with the policies that decided about the request, and their limits.
var showsNames = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	d, _ := ratelimit.FromContext(r.Context())
	for i := range d.Results {
		w.Header().Add("Policies", d.Results[i].Policy+" "+d.Results[i].Limit.String())
	}
})

func namesOf(h http.Handler) []string { return get(h).Header()["Policies"] }

// hourly returns a policy under which requests cost nothing.
func hourly(name string, n int64) ratelimit.Policy {
	p := perIP(name, ratelimit.PerHour(n))
	p.Cost = func(*http.Request) int64 { return 0 }
	return p
}

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

func TestReloadOfMountedPoliciesIsAllOrNothing(t *testing.T) {
	for _, tt := range []struct {
		name     string
		config   []ratelimit.Policy
		policies []ratelimit.Policy
		wants    []string
	}{
		{"a malformed one", []ratelimit.Policy{hourly("api", 9)}, []ratelimit.Policy{hourly("login", 1), hourly("api", -1)}, []string{"policies[1]", "Rate"}},
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
			if tt.config == nil {
				if _, err := l.Decide(requestWith()); err == nil {
					t.Error("there are policies for all requests now")
				}
			}
		})
	}
	err := newLimiter(t, ratelimit.Config{}).Reload(hourly("login", 1))
	if err == nil {
		t.Fatal("a policy that nothing enforces was taken")
	}
	checkText(t, err.Error(), `"login"`, "none yet")
}

func TestMountedPoliciesAreReplacedTogether(t *testing.T) {
	sets := [2][]ratelimit.Policy{{hourly("a", 1000), hourly("b", 1000)}, {hourly("a", 2000), hourly("b", 2000)}}
	l := newLimiter(t, ratelimit.Config{Store: storeFunc(func(charges []store.Charge, states []store.State) bool {
		if len(charges) != 2 || charges[0].Limit != charges[1].Limit {
			t.Errorf("charges %+v", charges)
		}
		for i := range charges {
			states[i] = store.State{Allowed: true}
		}
		return true
	})})
	h := l.Limit(sets[0]...)(okHandler)
	var running sync.WaitGroup
	for range 4 {
		running.Go(func() {
			for range 300 {
				get(h)
			}
		})
	}
	running.Go(func() {
		for i := range 300 {
			if err := l.Reload(sets[i%2]...); err != nil {
				t.Error(err)
			}
			l.Limit(sets[0]...)
		}
	})
	running.Wait()
}

// A mounted policy is reached as long as it can get requests, also when nothing but its handler is left.
func TestAMountedPolicyIsReachedAfterAGarbageCollection(t *testing.T) {
	l := newLimiter(t, ratelimit.Config{})
	h := l.Limit(hourly("login", 10))(showsNames)
	runtime.GC()
	runtime.GC()
	reload(t, l, hourly("login", 5))
	if got := namesOf(h); !slices.Equal(got, []string{"login 5/1h"}) {
		t.Errorf("%q", got)
	}
}

// A policy of a route does not become one of all routes when its route is gone.
func TestReloadRemembersWhatWasMounted(t *testing.T) {
	l := newLimiter(t, ratelimit.Config{Policies: []ratelimit.Policy{hourly("api", 2)}})
	func() { l.Limit(hourly("login", 5)) }()
	for range 3 {
		runtime.GC()
	}
	if err := l.Reload(hourly("login", 3)); err != nil {
		t.Fatal(err)
	}
	d, err := l.Decide(httptest.NewRequest("GET", "/", nil))
	if err != nil || len(d.Results) != 1 || d.Results[0].Policy != "api" {
		t.Errorf("decided by %+v, %v; want api alone", d.Results, err)
	}
}
