package overrides_test

import (
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/ratetest"
	"github.com/go-tokenbucket/ratelimit/internal/test/testsize"
	"github.com/go-tokenbucket/ratelimit/store"
)

// Each decision, and each list of Policies, is by the old limits of all policies or by the new ones of all. No request is
// let through meanwhile.
func TestChangesAreSeenAsAWhole(t *testing.T) {
	named := func(n int64, names ...string) (policies []ratelimit.Policy) {
		for _, name := range names {
			policies = append(policies, ratetest.Hourly(name, n))
		}
		return policies
	}
	all, rounds := []string{"a", "b", "c", "d"}, testsize.Of(100, 500)
	for name, change := range map[string]func(l *ratelimit.Limiter, i int64) error{
		"Reload": func(l *ratelimit.Limiter, i int64) error { return l.Reload(named(1000+i%2, all...)...) },
		"Reload of other names": func(l *ratelimit.Limiter, i int64) error {
			return l.Reload(named(1000+i%2, fmt.Sprint("a", i%2), fmt.Sprint("b", i%2))...)
		},
		"Override": func(l *ratelimit.Limiter, i int64) error {
			var over []ratelimit.Override
			if i%3 > 0 {
				key := []string{"", ratetest.Address}[i%2] // that of all requests
				for _, name := range all {
					over = append(over, ratelimit.Override{Policy: name, Key: key, Limit: ratelimit.PerHour(1000 + i%3)})
				}
			}
			return errors.Join(l.Override(over), l.Reload(named(1000, all...)...))
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := ratetest.NewLimiter(t, ratelimit.Config{Store: ratetest.StoreFunc(func(charges []store.Charge, states []store.State) bool {
				if len(charges) != 2 || charges[0].Limit != charges[1].Limit {
					t.Errorf("charges %+v", charges)
				}
				return ratetest.Allow(states)
			}), Policies: named(1000, "a", "b")})
			mount := func() func(http.Handler) http.Handler { return l.Limit(named(1000, "c", "d")...) }
			handlers := []http.Handler{l.Handler(ratetest.OK), mount()(ratetest.OK)}
			var running sync.WaitGroup
			for i := range 4 {
				running.Go(func() {
					for range rounds {
						if w := ratetest.Get(handlers[i%2]); w.Code != http.StatusOK || w.Header().Get("X-RateLimit-Limit") == "" {
							t.Errorf("%d %v", w.Code, w.Header())
						}
						if p := l.Policies(); p[0].Limit != p[1].Limit || p[2].Limit != p[3].Limit || name == "Reload" && p[0].Limit != p[2].Limit {
							t.Errorf("parts of two: %+v", p)
						}
					}
				})
			}
			running.Go(func() {
				for i := range int64(rounds) {
					if err := change(l, i); err != nil {
						t.Error(err)
					}
					mount()
				}
			})
			running.Wait()
		})
	}
}
