package ratelimit_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit"
)

// Under the old limit, a refund would grant what the old rate has brought since the charge.
func TestAfterAReloadRequestsThatLeaveTheQueueAreRefundedUnderTheNewLimit(t *testing.T) {
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
	other, tierless := perIP("other", ratelimit.PerHour(1)), ratelimit.Limit{}
	for _, tt := range []struct {
		name    string
		first   ratelimit.Policy
		reloads []ratelimit.Policy
		want    ratelimit.Limit
	}{
		{"tightened", limited(fast), []ratelimit.Policy{limited(slow)}, slow},
		{"loosened", limited(slow), []ratelimit.Policy{limited(fast)}, fast},
		{"twice", limited(fast), []ratelimit.Policy{limited(fast), limited(slow)}, slow},
		{"taken out", limited(fast), []ratelimit.Policy{other}, fast},
		{"taken out and put back", limited(fast), []ratelimit.Policy{other, limited(slow)}, slow},
		{"exempt", limited(fast), []ratelimit.Policy{limited(ratelimit.Unlimited)}, fast},
		{"without a tier", chosen(fast, tierless), []ratelimit.Policy{chosen(slow, tierless)}, slow},
		{"of a tier", chosen(slow, fast), []ratelimit.Policy{chosen(slow, fast)}, fast},
		{"of a tier until there are none", chosen(slow, fast), []ratelimit.Policy{limited(slow)}, slow},
		{"until there are tiers", limited(fast), []ratelimit.Policy{chosen(slow, tierless)}, slow},
		{"until there are only tiers", limited(fast), []ratelimit.Policy{chosen(tierless, slow)}, fast},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, ratelimit.Config{Policies: []ratelimit.Policy{tt.first}}, func(t *testing.T, q *queue) {
				h := q.Handler(okHandler)
				arrive(h, t.Context()).want(t, 200, 0)
				a := arrive(h, t.Context())
				for _, p := range tt.reloads {
					if err := q.Reload(p); err != nil {
						t.Fatal(err)
					}
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

func TestAfterAReloadAPolicyOfLimitIsRefundedUnderItsNewLimit(t *testing.T) {
	const burst = 3000
	p := waiting(perIP("api", ratelimit.PerSecond(100).WithBurst(burst)), 100*time.Hour)
	p.Cost = func(*http.Request) int64 { return burst }
	inBubble(t, ratelimit.Config{}, func(t *testing.T, q *queue) {
		h := q.Limit(p)(okHandler)
		if err := q.Reload(p); err != nil { // so that the charge is by a policy of Reload
			t.Fatal(err)
		}
		arrive(h, t.Context()).want(t, 200, 0)
		a := arrive(h, t.Context())
		slow := p
		slow.Limit = ratelimit.PerMinute(1).WithBurst(burst)
		if err := q.Reload(slow); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Second)
		a.leave()
		a.want(t, 499, 20*time.Second)
		if got := remaining(t, q.Limiter, slow); got != 0 { // 2000 under the old limit
			t.Errorf("%d left, want 0", got)
		}
	})
}

// A policy of a call is its caller's.
func TestAfterAReloadAPolicyOfAdmitIsRefundedUnderItsOwnLimit(t *testing.T) {
	p := waiting(perIP("api", ratelimit.PerSecond(1)), time.Minute)
	inBubble(t, ratelimit.Config{Policies: []ratelimit.Policy{p}}, func(t *testing.T, q *queue) {
		h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			q.Admit(w, r, ratelimit.Charge{Policy: p, Key: "ip:192.0.2.1"})
		})
		arrive(h, t.Context()).want(t, 200, 0)
		a := arrive(h, t.Context())
		if err := q.Reload(perIP("api", ratelimit.PerHour(1))); err != nil {
			t.Fatal(err)
		}
		time.Sleep(500 * time.Millisecond)
		a.leave()
		a.want(t, 499, 500*time.Millisecond)
		if got := q.resetAfter(t, p); got != 500*time.Millisecond {
			t.Errorf("full after %v, want 500ms", got)
		}
	})
}
