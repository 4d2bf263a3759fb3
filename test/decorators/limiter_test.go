package decorators_test

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/ratetest"
	"github.com/go-tokenbucket/ratelimit/internal/test/teststore"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/denialcache"
	"github.com/go-tokenbucket/ratelimit/store/fallback"
	"github.com/go-tokenbucket/ratelimit/store/lease"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
)

// onStacks runs a test in a bubble on each way to put decorators on one another.
func onStacks(t *testing.T, test func(t *testing.T, s store.Store, primary *teststore.Faulty)) {
	for name, stack := range stacks {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				memory := ratelimit.Must(memstore.New(memstore.Config{}))
				t.Cleanup(func() { memory.Close() })
				primary := &teststore.Faulty{Store: memory}
				test(t, stack(t, primary, lease.Config{}, fallback.Config{}, denialcache.Config{}), primary)
			})
		})
	}
}

func TestAPolicyThatFailsClosedOnStacks(t *testing.T) {
	onStacks(t, func(t *testing.T, s store.Store, primary *teststore.Faulty) {
		l := ratetest.NewLimiter(t, ratelimit.Config{Store: s, Logger: slog.New(slog.DiscardHandler)})
		closed, open := ratetest.PerIP("closed", ratelimit.PerHour(100)), ratetest.PerIP("open", ratelimit.PerHour(100))
		closed.FailClosed = true
		h, both := l.Limit(closed)(ratetest.OK), l.Limit(open, closed)(ratetest.OK)
		served := 0
		for range 8 {
			ratetest.WantStatuses(t, h, []int{200})
			served++
		}
		primary.Have(teststore.Broken)
		for ratetest.Get(h).Code == 200 { // from what was leased before
			if served++; served > 20 {
				t.Fatal("never refused")
			}
		}
		for range 10 {
			ratetest.WantStatuses(t, h, []int{503})
			ratetest.WantStatuses(t, both, []int{503})
		}
		// The one beside was not charged for that.
		w := ratetest.Get(l.Limit(open)(ratetest.OK))
		if w.Code != 200 || w.Header().Get("X-RateLimit-Remaining") != "99" {
			t.Errorf("%d %v, want 99 left", w.Code, w.Header())
		}
		primary.Mend()
		time.Sleep(2 * time.Second)
		w = ratetest.Get(h)
		if w.Code != 200 {
			t.Errorf("%d after the outage", w.Code)
		}
		r, err := l.Peek(t.Context(), closed, "ip:192.0.2.1")
		// Lost is what a lease held, 10 at most, and for each call that failed.
		if left := int64(100 - served - 1); err != nil || r.Degraded || r.Remaining > left || r.Remaining < left-10 {
			t.Errorf("%+v, %v, want %d left, or up to 10 less", r, err, left)
		}
	})
}

func TestRequestsWaitOnStacksAlsoWhileThePrimaryIsAway(t *testing.T) {
	onStacks(t, func(t *testing.T, s store.Store, primary *teststore.Faulty) {
		l := ratetest.NewLimiter(t, ratelimit.Config{Store: s, Logger: slog.New(slog.DiscardHandler)})
		p := ratetest.Waiting(ratetest.PerIP("queued", ratelimit.PerSecond(1).WithBurst(50)), time.Minute)
		h := l.Limit(p)(ratetest.OK)
		spend := p
		spend.MaxWait = 0
		for range 50 { // which may be leased, before others wait
			ratetest.WantStatuses(t, l.Limit(spend)(ratetest.OK), []int{200})
		}
		var came []*ratetest.Arrival
		for range 4 { // whose turns are at 1, 2, 3 and 4 s
			came = append(came, ratetest.Arrive(h, t.Context()))
		}
		came[3].Leave()
		came[3].Want(t, 499, 0)
		primary.Have(teststore.Broken)
		other := l.Limit(ratetest.PerIP("other", ratelimit.PerHour(100)))(ratetest.OK)
		for range 5 {
			ratetest.Get(other) // so that it is given up
		}
		// The stand-in knows that there are no tokens, and does not know who waits for the next ones.
		fifth := ratetest.Arrive(h, t.Context())
		for i, a := range came[:3] {
			a.Want(t, 200, time.Duration(i+1)*time.Second)
		}
		<-fifth.Done
		if fifth.Code != 200 || fifth.Took != time.Second {
			t.Errorf("%d after %v, want 200 after 1 s", fifth.Code, fifth.Took)
		}
		primary.Mend()
		time.Sleep(time.Second)
		// 50 and the 3 who waited were charged, and perhaps the one who left. The fifth is charged with the next request.
		r, err := l.Peek(t.Context(), p, "ip:192.0.2.1")
		if err != nil || r.Degraded || r.ResetAfter > 50*time.Second || r.ResetAfter < 47*time.Second {
			t.Errorf("full after %v, %v", r.ResetAfter, err)
		}
	})
}
