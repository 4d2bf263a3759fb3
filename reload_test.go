package ratelimit_test

import (
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/store"
)

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

func TestAReloadThatIsInvalidLeavesTheOldInForce(t *testing.T) {
	l := newLimiter(t, ratelimit.Config{Policies: []ratelimit.Policy{perIP("api", ratelimit.PerHour(2))}})
	h := l.Handler(okHandler)
	nameless, limitless := perIP("", ratelimit.PerHour(9)), perIP("a", ratelimit.Limit{})
	for _, tt := range []struct {
		policies []ratelimit.Policy
		wants    []string
	}{
		{nil, []string{"Reload", "must not be empty"}},
		{[]ratelimit.Policy{perIP("api", ratelimit.PerHour(9)), nameless}, []string{"policies[1]", "Name"}},
		{[]ratelimit.Policy{nameless, limitless}, []string{"policies[0]", "Name", "policies[1]", "Limit"}},
	} {
		err := l.Reload(tt.policies...)
		if err == nil {
			t.Fatalf("%v was taken", tt.policies)
		}
		checkText(t, err.Error(), tt.wants...)
	}
	wantStatuses(t, h, []int{200, 200, 429})
}

// No request sees a part of one set and a part of another, and none is let through meanwhile.
func TestRequestsSeeTheOldPoliciesOrTheNew(t *testing.T) {
	sets := [2][]ratelimit.Policy{}
	for i := range sets {
		for _, name := range []string{"a", "b", "c"} {
			sets[i] = append(sets[i], perIP(name+strconv.Itoa(i), ratelimit.PerHour(1_000_000)))
		}
	}
	l := newLimiter(t, ratelimit.Config{Store: storeFunc(func(charges []store.Charge, states []store.State) bool {
		if len(charges) != 3 {
			t.Errorf("%d charges", len(charges))
			return false
		}
		for i := range charges {
			if charges[i].Policy[1] != charges[0].Policy[1] {
				t.Errorf("%s and %s in one call", charges[0].Policy, charges[i].Policy)
			}
			states[i] = store.State{Allowed: true}
		}
		return true
	}), Policies: sets[0]})
	h := l.Handler(okHandler)
	var running sync.WaitGroup
	done := make(chan struct{})
	for range 4 {
		running.Go(func() {
			for range 500 {
				if w := get(h); w.Code != 200 || w.Header().Get("X-Ratelimit-Limit") == "" {
					t.Errorf("%d %v", w.Code, w.Header())
				}
			}
		})
	}
	go func() {
		defer close(done)
		for i := range 500 {
			if err := l.Reload(sets[i%2]...); err != nil {
				t.Error(err)
			}
		}
	}()
	running.Wait()
	<-done
}
