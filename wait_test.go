package ratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/headers"
	"github.com/go-tokenbucket/ratelimit/internal/test/ratetest"
	"github.com/go-tokenbucket/ratelimit/internal/virtualtime"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
)

// The example of Policy.MaxWait.
func TestRequestsWaitForTheirTurnsInOrderOfArrival(t *testing.T) {
	p := waiting(perIP("api", ratelimit.PerSecond(2)), 3*time.Second)
	inBubble(t, ratelimit.Config{}, func(t *testing.T, q *queue) {
		h := q.Limit(p)(okHandler)
		var came []*ratetest.Arrival
		for range 9 {
			came = append(came, arrive(h, t.Context()))
		}
		ninth := came[8]
		ninth.Want(t, 429, 0)
		if got := ninth.Header().Get("Retry-After"); got != "1" {
			t.Errorf("Retry-After is %q, want 1", got)
		}
		retryAfter := q.Last().Results[0].RetryAfter
		if retryAfter != 500*time.Millisecond {
			t.Errorf("RetryAfter is %v, want 500ms", retryAfter)
		}
		time.Sleep(retryAfter)
		again := arrive(h, t.Context())
		for i, a := range came[:8] {
			a.Want(t, 200, max(0, time.Duration(i-1)*500*time.Millisecond))
		}
		again.Want(t, 200, 3*time.Second)
	})
}

func TestAResponseAndItsEventSayHowLongItWaited(t *testing.T) {
	p := waiting(perIP("api", ratelimit.Every(1500*time.Millisecond)), time.Minute)
	inBubble(t, ratelimit.Config{}, func(t *testing.T, q *queue) {
		begin := time.Now()
		var decision *ratelimit.Decision
		h := q.Limit(p)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			decision, _ = ratelimit.FromContext(r.Context())
		}))
		first, second := arrive(h, t.Context()), arrive(h, t.Context())
		if _, told := first.Header()["X-Ratelimit-Waited"]; told || q.Last().Waited != 0 {
			t.Errorf("without a wait: %v, event %+v", first.Header(), q.Last())
		}
		if n := len(q.All()); n != 1 {
			t.Errorf("%d events while the second waits, want that of the first", n)
		}
		second.Want(t, 200, 1500*time.Millisecond)
		if got := second.Header().Get("X-RateLimit-Waited"); got != "1.500" {
			t.Errorf("X-RateLimit-Waited is %q, want 1.500", got)
		}
		// Both tokens were taken at the beginning, so it is full 3 s after that: 1.5 s after the wait.
		full := begin.Add(3 * time.Second)
		if got := second.Header().Get("X-RateLimit-Reset"); got != fmt.Sprint(full.Unix()) {
			t.Errorf("X-RateLimit-Reset is %q, want %d", got, full.Unix())
		}
		if decision.Waited != 1500*time.Millisecond || !decision.At.Add(decision.Results[0].ResetAfter).Equal(full) {
			t.Errorf("decision %+v, want one that counts from the end of the wait", decision)
		}
		if e := q.Last(); len(q.All()) != 2 || !e.Allowed || e.Waited != 1500*time.Millisecond || e.Took != 0 || e.Results[0].Wait != 1500*time.Millisecond {
			t.Errorf("%d events, the last %+v", len(q.All()), e)
		}
	})
	inBubble(t, ratelimit.Config{Headers: headers.None}, func(t *testing.T, q *queue) {
		h := q.Limit(p)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		arrive(h, t.Context())
		a := arrive(h, t.Context())
		if a.Want(t, 200, 1500*time.Millisecond); len(a.Header()) != 0 {
			t.Errorf("headers.None: %v", a.Header())
		}
	})
}

func TestStackedLimitersWaitOneAfterAnother(t *testing.T) {
	outer := waiting(perIP("outer", ratelimit.Every(2*time.Second)), time.Minute)
	inner := waiting(perIP("inner", ratelimit.Every(5*time.Second)), time.Minute)
	inBubble(t, ratelimit.Config{}, func(t *testing.T, q *queue) {
		h := q.Limit(outer)(q.Limit(inner)(okHandler))
		first, second := arrive(h, t.Context()), arrive(h, t.Context())
		first.Want(t, 200, 0)
		second.Want(t, 200, 5*time.Second) // 2 s at the outer, and what is left of 5 s at the inner
		if got := second.Header().Get("X-RateLimit-Waited"); got != "5.000" {
			t.Errorf("X-RateLimit-Waited is %q, want the sum", got)
		}
		if e := q.Last(); e.Waited != 3*time.Second {
			t.Errorf("the inner one waited for %v, want 3s", e.Waited)
		}
	})
}

func TestTheLongestWaitCounts(t *testing.T) {
	long, short := perIP("long", ratelimit.Every(3*time.Second)), perIP("short", ratelimit.Every(time.Second))
	inBubble(t, ratelimit.Config{}, func(t *testing.T, q *queue) {
		h := q.Limit(waiting(short, time.Minute), waiting(long, time.Minute), perIP("wide", ratelimit.PerHour(100)))(okHandler)
		arrive(h, t.Context()).Want(t, 200, 0)
		arrive(h, t.Context()).Want(t, 200, 3*time.Second)
	})
}

// A request that is denied is told when it could come again to wait, not when it would not have to.
func TestRetryAfterCountsWhatARequestMayWait(t *testing.T) {
	queued, narrow := waiting(perIP("queued", ratelimit.Every(10*time.Second)), 30*time.Second), perIP("narrow", ratelimit.Every(time.Second).WithBurst(3))
	inBubble(t, ratelimit.Config{}, func(t *testing.T, q *queue) {
		together, stacked := q.Limit(queued, narrow)(okHandler), q.Limit(queued)(q.Limit(narrow)(okHandler))
		var came []*ratetest.Arrival
		for range 3 {
			came = append(came, arrive(together, t.Context()))
		}
		// The next would have to wait for 30 s, which it may: only the narrow one denies it.
		if a := arrive(together, t.Context()); a.Code != 429 || a.Header().Get("Retry-After") != "1" {
			t.Errorf("%d, Retry-After %q, want 429 and 1", a.Code, a.Header().Get("Retry-After"))
		}
		for _, a := range came {
			<-a.Done
		}

		time.Sleep(time.Minute)
		for range 3 {
			get(q.Limit(narrow)(okHandler))
		}
		// The outer one takes the token that it has, and would let the next wait for 10 s.
		if a := arrive(stacked, t.Context()); a.Code != 429 || a.Header().Get("Retry-After") != "1" {
			t.Errorf("stacked: %d, Retry-After %q, want 429 and 1", a.Code, a.Header().Get("Retry-After"))
		}
	})
}

func TestAClientThatLeavesGivesItsTokensBack(t *testing.T) {
	p := waiting(perIP("api", ratelimit.Every(time.Second)), time.Minute)
	inBubble(t, ratelimit.Config{}, func(t *testing.T, q *queue) {
		var served atomic.Int64
		h := q.Limit(p)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served.Add(1) }))
		var came []*ratetest.Arrival // whose turns are at 0, 1 s … 5 s
		for range 6 {
			came = append(came, arrive(h, t.Context()))
		}
		time.Sleep(500 * time.Millisecond)
		came[2].Leave()
		came[2].Want(t, 499, 500*time.Millisecond)
		if e := q.Last(); e.Allowed || !errors.Is(e.Err, context.Canceled) || e.Waited != 500*time.Millisecond || e.Took != 0 || len(e.Results) != 1 || e.Results[0].Wait != 2*time.Second {
			t.Errorf("event %+v", e)
		}
		if header := came[2].Header(); len(header) != 1 || header.Get("Cache-Control") != "no-store" {
			t.Errorf("header %v", header)
		}
		if got := q.ResetAfter(t, p); got != 4500*time.Millisecond {
			t.Errorf("full after %v, want 4.5s: what five have taken", got)
		}

		// Its turn goes to nobody: whoever comes next gets one beside that of the last.
		newcomer := arrive(h, t.Context())
		// But after more have left, one before those who came earlier, which the first of them gave back.
		for _, a := range came[3:5] {
			a.Leave()
			a.Want(t, 499, 500*time.Millisecond)
		}
		overtaking := arrive(h, t.Context()) // gets the turn at 4 s
		for i, turn := range map[int]time.Duration{0: 0, 1: 1, 5: 5} {
			came[i].Want(t, 200, turn*time.Second)
		}
		newcomer.Want(t, 200, 4500*time.Millisecond)
		overtaking.Want(t, 200, 3500*time.Millisecond)
		decisions := len(q.All()) - 1 // without that of resetAfter
		if served.Load() != 5 || decisions != 8 || q.Log.Len() != 0 {
			t.Errorf("%d were served of %d, log %q", served.Load(), decisions, q.Log.String())
		}
	})
}

func TestAClientThatLeavesGivesBackToAllPoliciesInOneCall(t *testing.T) {
	queued, wide := waiting(perIP("queued", ratelimit.Every(time.Second)), time.Minute), perIP("wide", ratelimit.PerHour(100))
	spent, measured := perIP("spent", ratelimit.Every(time.Hour)), waiting(perIP("measured", ratelimit.Every(time.Hour)), 24*time.Hour)
	spent.Shadow, measured.Shadow = true, true
	wide.Cost = func(*http.Request) int64 { return 7 }
	free := perIP("free", ratelimit.PerHour(1))
	free.Cost = func(*http.Request) int64 { return 0 }
	all := []ratelimit.Policy{queued, wide, spent, measured, free}
	inBubble(t, ratelimit.Config{Policies: all}, func(t *testing.T, q *queue) {
		h := q.Handler(okHandler)
		arrive(h, t.Context()).Want(t, 200, 0)
		before := make([]time.Duration, len(all))
		for i, p := range all {
			before[i] = q.ResetAfter(t, p)
		}
		a := arrive(h, t.Context())
		a.Leave()
		a.Want(t, 499, 0)
		for i, p := range all {
			if got := q.ResetAfter(t, p); got != before[i] {
				t.Errorf("%s is full after %v, want %v as before", p.Name, got, before[i])
			}
		}
		refunds := q.Store.Refunds()
		var names []string
		for _, charges := range refunds {
			for _, c := range charges {
				names = append(names, fmt.Sprint(c.Policy, c.Cost))
			}
		}
		if want := []string{"queued-1", "wide-7", "measured-1"}; len(refunds) != 1 || !slices.Equal(names, want) {
			t.Errorf("%d calls gave back %v, want %v in one", len(refunds), names, want)
		}
	})
}

func TestADisconnectIsNoticedByAServerWhileTheRequestWaits(t *testing.T) {
	p := waiting(perIP("api", ratelimit.Every(time.Hour)), 24*time.Hour)
	asked, events := make(chan struct{}, 3), make(chan *ratelimit.Event, 3)
	s := ratelimit.Must(memstore.New(memstore.Config{}))
	defer s.Close()
	l := newLimiter(t, ratelimit.Config{
		Store: &recorder{Store: s, Fault: func([]store.Charge) error {
			asked <- struct{}{}
			return nil
		}},
		Observe: func(_ context.Context, e *ratelimit.Event) { events <- e },
	})
	server := httptest.NewServer(l.Limit(p)(okHandler))
	defer server.Close()
	get(l.Limit(p)(okHandler), from("127.0.0.1"))
	<-asked
	<-events
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	<-asked
	conn.Close()
	if left := <-events; left.Allowed || !errors.Is(left.Err, context.Canceled) || len(left.Results) != 1 {
		t.Fatalf("event %+v", left)
	}
	if r, err := l.Peek(t.Context(), p, "ip:127.0.0.1"); err != nil || r.ResetAfter > time.Hour {
		t.Errorf("full after %v, error %v, want what only one has taken", r.ResetAfter, err)
	}
}

// Whether tokens were taken is known only when the Store has answered.
func TestAClientThatLeavesWhileTheStoreIsAskedGivesItsTokensBack(t *testing.T) {
	p := waiting(perIP("api", ratelimit.Every(10*time.Second)), time.Minute)
	spent := perIP("spent", ratelimit.Every(time.Hour))
	inBubble(t, ratelimit.Config{}, func(t *testing.T, q *queue) {
		get(q.Limit(spent)(okHandler))
		get(q.Limit(p)(okHandler))
		q.Store.Fault = func([]store.Charge) error {
			time.Sleep(time.Second)
			return nil
		}
		a := arrive(q.Limit(p)(okHandler), t.Context())
		a.Leave()
		a.Want(t, 499, 2*time.Second)
		// From one that was refused nothing was taken.
		refused := arrive(q.Limit(p, spent)(okHandler), t.Context())
		refused.Leave()
		refused.Want(t, 429, time.Second)
		q.Store.Fault = nil
		if refunds := q.Store.Refunds(); len(refunds) != 1 || q.ResetAfter(t, p) > 10*time.Second || q.Log.Len() != 0 {
			t.Errorf("refunds %v, full after %v, log %q", refunds, q.ResetAfter(t, p), q.Log.String())
		}

		// One that need not wait goes on, as it would without the policy, and has paid for it.
		time.Sleep(time.Minute)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		arrive(q.Limit(p)(okHandler), ctx).Want(t, 200, 0)
		arrive(q.Limit(p)(okHandler), t.Context()).Want(t, 200, 10*time.Second)
	})
}

func TestARefundThatFailsIsLogged(t *testing.T) {
	p := waiting(perIP("api", ratelimit.Every(time.Second)), time.Minute)
	inBubble(t, ratelimit.Config{Timeout: 2 * time.Second}, func(t *testing.T, q *queue) {
		h := q.Limit(p)(okHandler)
		arrive(h, t.Context())
		a := arrive(h, t.Context())
		q.Store.Fault = func([]store.Charge) error { return errors.New("away") }
		a.Leave()
		a.Want(t, 499, 0)
		if text := q.Log.String(); !strings.Contains(text, "were not given back: away") {
			t.Errorf("the log says %q", text)
		}
	})
	// And it is given up after the timeout.
	s := &hanging{}
	inBubble(t, ratelimit.Config{Timeout: 2 * time.Second, Store: s}, func(t *testing.T, q *queue) {
		a := arrive(q.Limit(p)(okHandler), t.Context())
		a.Leave()
		a.Want(t, 499, 2*time.Second)
		if text := q.Log.String(); !strings.Contains(text, "were not given back: "+context.DeadlineExceeded.Error()) {
			t.Errorf("the log says %q", text)
		}
	})
}

// A hanging Store makes everybody wait for a minute, and does not answer refunds.
type hanging struct{}

func (*hanging) Take(ctx context.Context, charges []store.Charge, states []store.State) (bool, error) {
	if charges[0].Cost < 0 {
		<-ctx.Done()
		return false, ctx.Err()
	}
	states[0] = store.State{Allowed: true, Wait: time.Minute}
	return true, nil
}

// A stalling Store answers when the context ends.
type stalling struct{}

func (stalling) Take(ctx context.Context, _ []store.Charge, _ []store.State) (bool, error) {
	<-ctx.Done()
	return false, ctx.Err()
}

func TestARequestThatWouldEndBeforeItsTurnIsRefusedAtOnce(t *testing.T) {
	p := waiting(perIP("api", ratelimit.Every(2*time.Second)), time.Minute)
	inBubble(t, ratelimit.Config{}, func(t *testing.T, q *queue) {
		h := q.Limit(p)(okHandler)
		get(h)
		soon, cancel := context.WithTimeout(t.Context(), 2*time.Second-time.Microsecond)
		defer cancel()
		a := arrive(h, soon)
		a.Want(t, 429, 0)
		if q.ResetAfter(t, p) != 2*time.Second || a.Header().Get("Retry-After") != "1" {
			t.Errorf("full after %v, Retry-After %q: want nothing reserved, and 1", q.ResetAfter(t, p), a.Header().Get("Retry-After"))
		}
		// All whose deadlines are in the same millisecond ask the Store the same.
		q.Store.Lock()
		if asked := q.Store.Calls[1][0].MaxWait; asked != 1999*time.Millisecond {
			t.Errorf("the Store was asked for a wait of %v, want whole milliseconds", asked)
		}
		q.Store.Unlock()
		later, cancel := context.WithTimeout(t.Context(), 2001*time.Millisecond)
		defer cancel()
		arrive(h, later).Want(t, 200, 2*time.Second)
	})
}

// unannounced hides that a context has a deadline.
type unannounced struct{ context.Context }

func (unannounced) Deadline() (time.Time, bool) { return time.Time{}, false }

func TestARequestWhoseDeadlineEndsBeforeItsTurnIsNeverLetThrough(t *testing.T) {
	p := waiting(perIP("api", ratelimit.Every(2*time.Second)), time.Minute)
	inBubble(t, ratelimit.Config{}, func(t *testing.T, q *queue) {
		h := q.Limit(p)(okHandler)
		get(h)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		a := arrive(h, unannounced{ctx})
		a.Want(t, 503, time.Second)
		if e := q.Last(); e.Allowed || !errors.Is(e.Err, context.DeadlineExceeded) || e.Waited != time.Second || q.ResetAfter(t, p) != time.Second {
			t.Errorf("event %+v, full after %v", e, q.ResetAfter(t, p))
		}
		if a.Header()["X-Ratelimit-Limit"] != nil || !strings.Contains(q.Log.String(), "before its turn") {
			t.Errorf("header %v, log %q", a.Header(), q.Log.String())
		}
		// Nor is one whose deadline has ended when it comes.
		arrive(h, unannounced{ctx}).Want(t, 503, 0)
		arrive(h, ctx).Want(t, 503, 0)
		// A shadow has no say in that either.
		shadow := p
		shadow.Shadow = true
		arrive(q.Limit(shadow)(okHandler), ctx).Want(t, 200, 0)
	})
}

func TestAShadowIsNotWaitedFor(t *testing.T) {
	shadow := waiting(perIP("shadow", ratelimit.Every(time.Second)), 2*time.Second)
	shadow.Shadow = true
	inBubble(t, ratelimit.Config{MaxWaiting: 1}, func(t *testing.T, q *queue) {
		alone := q.Limit(shadow)(okHandler)
		var waits []time.Duration
		var allowed []bool
		for range 4 {
			arrive(alone, t.Context()).Want(t, 200, 0)
			waits = append(waits, q.Last().Results[0].Wait)
			allowed = append(allowed, q.Last().Results[0].Allowed)
		}
		if !slices.Equal(waits, []time.Duration{0, time.Second, 2 * time.Second, 0}) || !slices.Equal(allowed, []bool{true, true, true, false}) {
			t.Errorf("the shadow would have let wait %v and allowed %v", waits, allowed)
		}

		// Beside one that is waited for, it measures the same, whether there is a slot or not.
		queued := waiting(perIP("queued", ratelimit.Every(500*time.Millisecond)), time.Hour)
		time.Sleep(time.Minute)
		get(q.Limit(queued)(okHandler))
		both := q.Limit(shadow, queued)(okHandler)
		arrive(alone, t.Context())
		a := arrive(both, t.Context())
		arrive(both, t.Context()).Want(t, 429, 0)
		if e := q.Last(); !e.Results[0].Allowed || e.Results[1].Allowed {
			t.Errorf("results without a slot %+v", e.Results)
		}
		a.Want(t, 200, 500*time.Millisecond)
		if e := q.Last(); e.Results[0].Wait != time.Second || e.Waited != 500*time.Millisecond {
			t.Errorf("event %+v", e)
		}
	})
}

func TestACostAboveTheBurstIsNotWaitedFor(t *testing.T) {
	p := waiting(perIP("api", ratelimit.PerSecond(3)), time.Hour)
	p.Cost = func(*http.Request) int64 { return 4 }
	inBubble(t, ratelimit.Config{}, func(t *testing.T, q *queue) {
		a := arrive(q.Limit(p)(okHandler), t.Context())
		if a.Want(t, 429, 0); a.Header()["Retry-After"] != nil {
			t.Errorf("Retry-After %q", a.Header()["Retry-After"])
		}
	})
}

func TestAFailureIsNotWaitedForAndKeepsNoSlot(t *testing.T) {
	p := waiting(perIP("api", ratelimit.Every(time.Second)), time.Minute)
	closed := p
	closed.Name, closed.FailClosed = "closed", true
	inBubble(t, ratelimit.Config{MaxWaiting: 1}, func(t *testing.T, q *queue) {
		q.Store.Fault = func([]store.Charge) error { return errors.New("away") }
		arrive(q.Limit(p)(okHandler), t.Context()).Want(t, 200, 0)
		arrive(q.Limit(closed)(okHandler), t.Context()).Want(t, 503, 0)
		if refunds := q.Store.Refunds(); refunds != nil {
			t.Errorf("what may not have been taken was given back: %v", refunds)
		}
		q.Store.Fault = nil
		arrive(q.Limit(p)(okHandler), t.Context()).Want(t, 200, 0)
		arrive(q.Limit(p)(okHandler), t.Context()).Want(t, 200, time.Second)
	})
}

// partly is a Store that is away for some policies, for which a stand-in answers.
type partly struct {
	*recorder
	away string
}

func (p partly) Take(ctx context.Context, charges []store.Charge, states []store.State) (bool, error) {
	ok, err := p.recorder.Take(ctx, charges, states)
	for i := range charges {
		states[i].Degraded = strings.HasPrefix(charges[i].Policy, p.away)
	}
	return ok, err
}

func TestOnAStandInsWordOnlyOpenPoliciesWait(t *testing.T) {
	open, closed := waiting(perIP("open", ratelimit.Every(time.Second)), time.Minute), waiting(perIP("away", ratelimit.Every(time.Second)), time.Minute)
	closed.FailClosed = true
	synctest.Test(t, func(t *testing.T) {
		s := partly{&recorder{Store: ratelimit.Must(memstore.New(memstore.Config{}))}, ""} // away for all
		defer s.Store.(*memstore.Store).Close()
		l := newLimiter(t, ratelimit.Config{Store: s, Logger: slog.New(slog.DiscardHandler)})
		arrive(l.Limit(open)(okHandler), t.Context()).Want(t, 200, 0)
		arrive(l.Limit(open)(okHandler), t.Context()).Want(t, 200, time.Second)
		a := arrive(l.Limit(open)(okHandler), t.Context())
		a.Leave()
		a.Want(t, 499, 0)
		arrive(l.Limit(closed)(okHandler), t.Context()).Want(t, 503, 0)
		arrive(l.Limit(closed)(okHandler), t.Context()).Want(t, 503, 0)
		for _, refunds := range s.Refunds() {
			if !refunds[0].Standby {
				t.Errorf("given back to a Store that it was not taken from: %v", refunds)
			}
		}
	})
	synctest.Test(t, func(t *testing.T) {
		s := partly{&recorder{Store: ratelimit.Must(memstore.New(memstore.Config{}))}, "away"}
		defer s.Store.(*memstore.Store).Close()
		l := newLimiter(t, ratelimit.Config{Store: s, Logger: slog.New(slog.DiscardHandler)})
		arrive(l.Limit(open, closed)(okHandler), t.Context()).Want(t, 503, 0)
		refunds := s.Refunds()
		if len(refunds) != 1 || len(refunds[0]) != 2 {
			t.Fatalf("given back: %v", refunds)
		}
		for _, c := range refunds[0] {
			if c.Standby != (c.Policy == "away") {
				t.Errorf("given back where it was not taken: %+v", c)
			}
		}
	})
}

func TestDecideAndTakeReserveAndDoNotWait(t *testing.T) {
	p := waiting(perIP("api", ratelimit.Every(time.Second)), 2*time.Second)
	inBubble(t, ratelimit.Config{MaxWaiting: 1}, func(t *testing.T, q *queue) {
		begin := time.Now()
		get(q.Limit(p)(okHandler))
		d, err := q.Decide(httptest.NewRequest("GET", "/", nil), p)
		if err != nil || !d.Allowed || d.Results[0].Wait != time.Second || d.Waited != 0 {
			t.Errorf("Decide: %+v, %v", d, err)
		}
		soon, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if d, err := q.Decide(httptest.NewRequest("GET", "/", nil).WithContext(soon), p); err != nil || d.Allowed {
			t.Errorf("Decide of a request that ends before its turn: %+v, %v", d, err)
		}
		r, err := q.Take(soon, p, "ip:192.0.2.1", 1)
		if err != nil || !r.Allowed || r.Wait != 2*time.Second {
			t.Errorf("Take: %+v, %v", r, err)
		}
		r, err = q.Take(t.Context(), p, "ip:192.0.2.1", 1)
		if err != nil || r.Allowed || r.RetryAfter != time.Second {
			t.Errorf("Take beyond MaxWait: %+v, %v", r, err)
		}
		if !time.Now().Equal(begin) {
			t.Errorf("they waited for %v", time.Since(begin))
		}
	})
}

func TestWaitReturnsWhenTheTokensHaveCome(t *testing.T) {
	p := ratelimit.Policy{Name: "jobs", Limit: ratelimit.PerSecond(1).WithBurst(5)}
	inBubble(t, ratelimit.Config{}, func(t *testing.T, q *queue) {
		wait := func(ctx context.Context, p ratelimit.Policy, cost int64) (r ratelimit.Result, took time.Duration) {
			t.Helper()
			begin := time.Now()
			r, err := q.Wait(ctx, p, "k", cost)
			if r.Policy != "jobs" || r.Key != "k" || r.Cost != cost {
				t.Errorf("%+v, error %v", r, err)
			}
			// Callers may look at the error alone.
			var late *ratelimit.WaitError
			if granted := r.Allowed || r.Shadow; granted != (err == nil) || errors.As(err, &late) == granted {
				t.Errorf("%+v, error %v, want a WaitError if it is not allowed", r, err)
			}
			if late != nil && (late.Result != r || late.RetryAfter != r.RetryAfter) {
				t.Errorf("the error has %+v, the result is %+v", late, r)
			}
			return r, time.Since(begin)
		}
		if r, took := wait(t.Context(), p, 5); !r.Allowed || took != 0 {
			t.Errorf("%+v after %v, want it at once", r, took)
		}
		if r, took := wait(t.Context(), p, 4); !r.Allowed || took != 4*time.Second || q.Last().Waited != took {
			t.Errorf("%+v after %v, event %+v, want it after 4s", r, took, q.Last())
		}
		if r, took := wait(t.Context(), p, 0); !r.Allowed || took != 0 {
			t.Errorf("a cost of 0: %+v after %v", r, took)
		}
		if r, took := wait(t.Context(), p, 6); r.Allowed || r.RetryAfter != ratelimit.Never || took != 0 {
			t.Errorf("a cost above the burst: %+v after %v", r, took)
		}
		if r, took := wait(t.Context(), waiting(p, 2*time.Second), 3); r.Allowed || r.RetryAfter != time.Second || took != 0 {
			t.Errorf("beyond MaxWait: %+v after %v, want it refused for 1s", r, took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		if r, took := wait(ctx, p, 3); r.Allowed || r.RetryAfter != time.Second || took != 0 {
			t.Errorf("beyond the deadline: %+v after %v, want it refused for 1s", r, took)
		}
		if r, took := wait(ctx, waiting(p, time.Hour), 2); !r.Allowed || took != 2*time.Second {
			t.Errorf("by the deadline: %+v after %v, want it after 2s", r, took)
		}
		free := p
		free.Limit = ratelimit.Unlimited
		if r, took := wait(t.Context(), free, math.MaxInt64); !r.Allowed || took != 0 {
			t.Errorf("unlimited: %+v after %v", r, took)
		}
		shadow := p
		shadow.Shadow = true
		if r, took := wait(t.Context(), shadow, 2); !r.Allowed || r.Wait != 2*time.Second || took != 0 {
			t.Errorf("a shadow: %+v after %v", r, took)
		}
		if r, took := wait(t.Context(), shadow, 6); r.Allowed || r.RetryAfter != ratelimit.Never || took != 0 {
			t.Errorf("a shadow that cannot pay: %+v after %v", r, took)
		}
		if r, took := wait(t.Context(), waiting(shadow, time.Second), 1); r.Allowed || took != 0 {
			t.Errorf("a shadow that would be too late: %+v after %v", r, took)
		}
	})
}

func TestWaitWithoutABoundWaitsForAnyTime(t *testing.T) {
	p := ratelimit.Policy{Name: "jobs", Limit: ratelimit.Every(time.Minute)}
	inBubble(t, ratelimit.Config{}, func(t *testing.T, q *queue) {
		begin := time.Now()
		var workers sync.WaitGroup
		for range 24 {
			workers.Go(func() {
				if r, err := q.Wait(t.Context(), p, "k", 1); err != nil || !r.Allowed || time.Since(begin) != r.Wait {
					t.Errorf("%+v after %v, error %v", r, time.Since(begin), err)
				}
			})
		}
		workers.Wait()
		if took := time.Since(begin); took != 23*time.Minute {
			t.Errorf("the last after %v", took)
		}
	})
}

func TestWaitEndsWithItsContext(t *testing.T) {
	p := ratelimit.Policy{Name: "jobs", Limit: ratelimit.Every(10 * time.Second)}
	inBubble(t, ratelimit.Config{}, func(t *testing.T, q *queue) {
		if _, err := q.Take(t.Context(), p, "k", 1); err != nil {
			t.Fatal(err)
		}
		for name, c := range map[string]struct {
			end  func() (context.Context, context.CancelFunc)
			want error
		}{
			"canceled": {func() (context.Context, context.CancelFunc) {
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(time.Second, cancel)
				return ctx, cancel
			}, context.Canceled},
			"over": {func() (context.Context, context.CancelFunc) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				return unannounced{ctx}, cancel
			}, context.DeadlineExceeded},
		} {
			ctx, cancel := c.end()
			before, err := q.Peek(t.Context(), p, "k")
			if err != nil {
				t.Fatal(err)
			}
			begin := time.Now()
			r, err := q.Wait(ctx, p, "k", 1)
			if r.Allowed || !errors.Is(err, c.want) || time.Since(begin) != time.Second {
				t.Errorf("%s: %+v after %v, error %v", name, r, time.Since(begin), err)
			}
			after, err := q.Peek(t.Context(), p, "k")
			if err != nil || after.ResetAfter != before.ResetAfter-time.Second {
				t.Errorf("%s: full after %v, before it was %v, error %v", name, after.ResetAfter, before.ResetAfter, err)
			}
			// One that has ended before takes nothing and does not wait.
			begin = time.Now()
			if r, err := q.Wait(ctx, p, "k", 1); r.Allowed || !errors.Is(err, c.want) || !time.Now().Equal(begin) {
				t.Errorf("%s before: %+v after %v, error %v", name, r, time.Since(begin), err)
			}
			cancel()
		}
	})
}

func TestWaitCountsAgainstMaxWaiting(t *testing.T) {
	p := ratelimit.Policy{Name: "jobs", Limit: ratelimit.Every(time.Second)}
	inBubble(t, ratelimit.Config{MaxWaiting: 1}, func(t *testing.T, q *queue) {
		if _, err := q.Take(t.Context(), p, "k", 1); err != nil {
			t.Fatal(err)
		}
		var waiter sync.WaitGroup
		waiter.Go(func() {
			if r, err := q.Wait(t.Context(), p, "k", 1); err != nil || !r.Allowed {
				t.Errorf("%+v, %v", r, err)
			}
		})
		synctest.Wait()
		var late *ratelimit.WaitError
		if r, err := q.Wait(t.Context(), p, "k", 1); !errors.As(err, &late) || r.Allowed || late.RetryAfter != 2*time.Second {
			t.Errorf("the second: %+v, %v, want it refused for 2s", r, err)
		}
		if !strings.Contains(late.Error(), "place to wait (Config.MaxWaiting)") || !strings.Contains(q.Log.String(), "no place to wait") {
			t.Errorf("error %v, log %q, want both to say why", late, q.Log.String())
		}
		waiter.Wait()
		if r, err := q.Wait(t.Context(), p, "k", 1); err != nil || !r.Allowed {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

func TestAWaitErrorSaysWhenToCallAgainAndNotTheKey(t *testing.T) {
	p := ratelimit.Policy{Name: "jobs", Limit: ratelimit.Every(time.Minute), MaxWait: time.Second}
	inBubble(t, ratelimit.Config{}, func(t *testing.T, q *queue) {
		if _, err := q.Wait(t.Context(), p, "secret", 1); err != nil {
			t.Fatal(err)
		}
		for cost, want := range map[int64]string{
			1: `ratelimit: Wait: policy jobs: the tokens would come later than MaxWait or the deadline: retry after 59s`,
			2: `ratelimit: Wait: policy jobs: cost 2 can never be paid: it is above the burst, or the rate is 0`,
		} {
			if _, err := q.Wait(t.Context(), p, "secret", cost); err == nil || err.Error() != want {
				t.Errorf("cost %d: error %v, want %s", cost, err, want)
			}
		}
		p.Limit = ratelimit.PerDay(0)
		want := `ratelimit: Wait: policy jobs: cost 1 can never be paid: it is above the burst, or the rate is 0`
		if _, err := q.WaitAll(t.Context(), ratelimit.Charge{Policy: p, Key: "secret", Cost: 1}); err == nil || err.Error() != want {
			t.Errorf("a rate of 0: error %v, want %s", err, want)
		}
	})
}

func TestFaultsOfWaiting(t *testing.T) {
	_, err := ratelimit.New(ratelimit.Config{MaxWaiting: -1, Policies: []ratelimit.Policy{waiting(perIP("api", ratelimit.PerHour(1)), -time.Second)}})
	for _, want := range []string{"MaxWaiting -1: must be positive; 0 means the default of 1024", `Policies[0] ("api"): MaxWait -1s: must not be negative`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q in it", err, want)
		}
	}
}

// A request that waits in virtual time goes on at once, with the headers of one that has waited.
func TestARequestWaitsInVirtualTime(t *testing.T) {
	second := func(ctx context.Context) (headers http.Header, waited, took time.Duration) {
		synctest.Test(t, func(t *testing.T) {
			l := newLimiter(t, ratelimit.Config{Policies: []ratelimit.Policy{{
				Name: "api", Key: ratelimit.RemoteIP(), Limit: ratelimit.Every(2500 * time.Millisecond).WithBurst(1), MaxWait: 5 * time.Second,
			}}})
			h := l.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				d, _ := ratelimit.FromContext(r.Context())
				waited = d.Waited
			}))
			began := time.Now()
			for range 2 {
				w := httptest.NewRecorder()
				h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil).WithContext(ctx))
				headers = w.Header()
			}
			took = time.Since(began)
			l.Close()
		})
		return headers, waited, took
	}
	want, waited, took := second(context.Background())
	if waited != 2500*time.Millisecond || took != waited || want.Get("X-RateLimit-Waited") == "" {
		t.Fatalf("in real time it waited %v and took %v, with %v", waited, took, want)
	}
	got, waited, took := second(virtualtime.With(context.Background(), func(time.Duration) {}))
	if waited != 2500*time.Millisecond || took != 0 {
		t.Errorf("in virtual time it waited %v and took %v", waited, took)
	}
	if !maps.EqualFunc(got, want, slices.Equal) {
		t.Errorf("headers in virtual time %v, want %v", got, want)
	}
}
