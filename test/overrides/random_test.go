// Package overrides contains only tests, of Override, Reload and Limit in random sequences and under load.
package overrides_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"testing"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/ratetest"
	"github.com/go-tokenbucket/ratelimit/internal/test/testsize"
)

// Whatever the order of Override, Reload and Limit, the limit in force is that of the last Override, of the key or else of
// the policy, and below it what the program has set last at that place.
func TestOverrideReloadAndLimitInAnyOrder(t *testing.T) {
	for seed := range uint64(testsize.Of(50, 500)) {
		rnd := rand.New(rand.NewPCG(seed, 18))
		limit := func() ratelimit.Limit { return ratelimit.PerHour(1 + rnd.Int64N(100)) }
		list := []map[string]ratelimit.Limit{{"a": limit(), "b": limit()}} // of places: that of Handler, and those of Limit
		l := ratetest.NewLimiter(t, ratelimit.Config{Policies: []ratelimit.Policy{ratetest.Hourly("a", list[0]["a"].Rate), ratetest.Hourly("b", list[0]["b"].Rate)}})
		handlers := []http.Handler{l.Handler(ratetest.ShowsNames)}
		over := make(map[string]ratelimit.Limit) // what the key of all requests has
		mounted := make(map[string]bool)
		for step := range 40 {
			switch rnd.IntN(3) {
			case 0:
				over = make(map[string]ratelimit.Limit)
				var overrides []ratelimit.Override
				for _, name := range []string{"a", "b", "c", "d"} {
					for _, key := range []string{"", "ip:192.0.2.99", ratetest.Address} {
						if rnd.IntN(3) > 0 {
							continue
						}
						o := ratelimit.Override{Policy: name, Key: key, Limit: limit()}
						if overrides = append(overrides, o); key != "ip:192.0.2.99" {
							over[name] = o.Limit
						}
					}
				}
				rnd.Shuffle(len(overrides), func(i, j int) { overrides[i], overrides[j] = overrides[j], overrides[i] })
				if err := l.Override(overrides); err != nil {
					t.Fatal(err)
				}
			case 1:
				next := map[string]ratelimit.Limit{"a": limit(), "b": limit()}
				policies := []ratelimit.Policy{ratetest.Hourly("a", next["a"].Rate), ratetest.Hourly("b", next["b"].Rate)}
				if rnd.IntN(2) == 0 {
					delete(next, "b")
					policies = policies[:1]
				}
				list[0] = maps.Clone(next)
				for name := range mounted {
					if (name == "c" || name == "d") && rnd.IntN(2) == 0 {
						next[name] = limit()
						policies = append(policies, ratetest.Hourly(name, next[name].Rate))
					}
				}
				if err := l.Reload(policies...); err != nil {
					t.Fatal(err)
				}
				for _, at := range list[1:] {
					for name := range at {
						if to, ok := next[name]; ok {
							at[name] = to
						}
					}
				}
			case 2:
				if len(handlers) > 6 {
					continue
				}
				name := []string{"a", "c", "d"}[rnd.IntN(3)]
				at := limit()
				mounted[name] = true
				list = append(list, map[string]ratelimit.Limit{name: at})
				handlers = append(handlers, l.Limit(ratetest.Hourly(name, at.Rate))(ratetest.ShowsNames))
			}
			program := make(map[string][]ratelimit.Limit)
			for i, at := range list {
				var want []string
				for _, name := range slices.Sorted(maps.Keys(at)) {
					in := at[name]
					if !slices.Contains(program[name], in) {
						program[name] = append(program[name], in)
					}
					if o, ok := over[name]; ok {
						in = o
					}
					want = append(want, name+" "+in.String())
				}
				if got := ratetest.NamesOf(handlers[i]); !slices.Equal(got, want) {
					t.Fatalf("seed %d, step %d, place %d: %q, want %q", seed, step, i, got, want)
				}
			}
			if got := l.ProgramLimits(); fmt.Sprint(got) != fmt.Sprint(program) {
				t.Fatalf("seed %d, step %d: ProgramLimits %v, want %v", seed, step, got, program)
			}
		}
	}
}
