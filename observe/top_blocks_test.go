package observe_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/ratetest"
	"github.com/go-tokenbucket/ratelimit/internal/test/testsize"
	"github.com/go-tokenbucket/ratelimit/observe"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
)

// A replica is a limiter with a Top.
type replica struct {
	*ratelimit.Limiter
	top *observe.Top
	t   *testing.T
}

func replicaOf(t *testing.T, s store.Store) replica {
	top := ratelimit.Must(observe.NewTop(observe.TopConfig{}))
	return replica{newLimiter(t, ratelimit.Config{Store: s, Observe: top.Observe}), top, t}
}

var (
	api   = ratelimit.Policy{Name: "api", Limit: ratelimit.PerSecond(100)}
	login = ratelimit.Policy{Name: "login", Limit: ratelimit.PerMinute(3), LockFor: time.Hour, Key: ratelimit.RemoteIP(), Settle: ratelimit.FailedLogins}
)

func (r replica) take(p ratelimit.Policy, key string, allowed bool) {
	r.t.Helper()
	if result, err := r.Take(r.t.Context(), p, key, 1); err != nil || result.Allowed != allowed {
		r.t.Fatalf("%s %s: got %+v, %v", p.Name, key, result, err)
	}
}

// do is for what returns a Result.
func (r replica) do(result ratelimit.Result, err error) {
	r.t.Helper()
	if err != nil || result.Degraded {
		r.t.Fatalf("got %+v, %v", result, err)
	}
}

// lists checks the list: each as "policy key until", with the time from now.
func (r replica) lists(when string, want ...string) {
	r.t.Helper()
	var got []string
	for _, b := range r.top.Blocked() {
		got = append(got, fmt.Sprint(b.Policy, " ", b.Key, " ", time.Until(b.Until)))
	}
	if !slices.Equal(got, want) {
		r.t.Errorf("%s: got %q, want %q", when, got, want)
	}
}

func TestTheBlocksThatAProcessMeets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := ratelimit.Must(memstore.New(memstore.Config{}))
		defer s.Close()
		a, b := replicaOf(t, s), replicaOf(t, s)
		ctx := t.Context()

		a.lists("at first")
		a.take(api, "ip:1", true)
		a.do(a.Block(ctx, api, "ip:1", time.Minute, "alice: scrapes"))
		a.do(a.Block(ctx, api, "ip:1", time.Hour, "alice: for an hour"))
		a.do(a.Block(ctx, login, "ip:2", time.Minute, ""))
		a.lists("blocked here", "api ip:1 1h0m0s", "login ip:2 1m0s")
		b.lists("blocked elsewhere")
		time.Sleep(10 * time.Second)
		synctest.Wait() // for the next step
		b.take(api, "ip:1", false)
		b.lists("a denial", "api ip:1 59m50s")
		a.do(a.Block(ctx, api, "ip:1", 2*time.Hour, ""))
		a.lists("blocked again", "api ip:1 2h0m0s", "login ip:2 50s")
		time.Sleep(10 * time.Second)
		synctest.Wait() // for the next step
		b.take(api, "ip:1", false)
		b.lists("a denial in the next step", "api ip:1 1h59m50s")
		time.Sleep(40 * time.Second)
		a.lists("one has ended", "api ip:1 1h59m10s")

		if _, err := b.Peek(ctx, login, "ip:2"); err != nil {
			t.Fatal(err)
		}
		a.do(a.Block(ctx, login, "ip:2", time.Minute, ""))
		if _, err := b.Peek(ctx, ratelimit.Policy{Name: "login"}, "ip:2"); err != nil {
			t.Fatal(err)
		}
		b.lists("a Peek", "api ip:1 1h59m10s", "login ip:2 1m0s")

		a.do(a.Unblock(ctx, api, "ip:1"))
		a.do(a.Reset(ctx, login, "ip:2"))
		a.lists("unblocked and reset here")
		b.lists("elsewhere", "api ip:1 1h59m10s", "login ip:2 1m0s")
		b.take(api, "ip:1", true)
		b.lists("allowed again", "login ip:2 1m0s")
		if _, err := b.Peek(ctx, ratelimit.Policy{Name: "login"}, "ip:2"); err != nil {
			t.Fatal(err)
		}
		b.lists("a Peek of what is not blocked")
	})
}

// A request that was allowed just before this process blocks its key does not end the block in the list.
func TestARequestOnItsWayDoesNotEndABlock(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	top := ratelimit.Must(observe.NewTop(observe.TopConfig{Clock: func() time.Time { return now }}))
	blocked := asked("api", "k", true)
	blocked.Op = "block"
	blocked.Results[0].State = store.State{Allowed: true, Blocked: true, RetryAfter: time.Hour, ResetAfter: time.Hour}
	top.Observe(t.Context(), blocked)
	waited := asked("api", "k", true)
	waited.Waited = time.Minute
	degraded := asked("api", "k", true)
	degraded.Results[0].Degraded = true
	for _, c := range []struct {
		after time.Duration
		event *ratelimit.Event
		want  int
	}{
		{0, asked("api", "k", true), 1},
		{19 * time.Second, asked("api", "k", true), 1},
		{time.Minute, degraded, 1},
		{2 * time.Minute, waited, 1},
		{3 * time.Minute, asked("api", "k", false), 1}, // an answer that was remembered
		{4 * time.Minute, asked("other", "k", true), 1},
		{5 * time.Minute, asked("api", "k", true), 0},
	} {
		begin := now
		now = now.Add(c.after)
		top.Observe(t.Context(), c.event)
		if got := top.Blocked(); len(got) != c.want {
			t.Errorf("after %v: got %+v", c.after, got)
		}
		now = begin
	}
}

func TestTheLocksThatAProcessMeets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := replicaOf(t, nil)
		status := 401
		h := r.Limit(login)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
		guess := func() { h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/login", nil)) }
		guess()
		guess()
		r.lists("two failures")
		status = 200
		guess()
		r.lists("the third login locks, and ends the lock when it succeeds")
		status = 401
		guess()
		r.lists("the third failure", "login ip:192.0.2.1 1h0m0s")
		time.Sleep(time.Minute)
		guess()
		r.lists("a guess later", "login ip:192.0.2.1 59m0s")
		r.do(r.Refund(t.Context(), login, "ip:192.0.2.1", 1))
		r.lists("a refund")
	})
}

// A slot is released without a look at the bucket. So an expired one does not say that a block has ended.
func TestAnExpiredSlotEndsNoBlock(t *testing.T) {
	clock := time.Unix(1, 0)
	top := ratelimit.Must(observe.NewTop(observe.TopConfig{Clock: func() time.Time { return clock }}))
	top.Observe(t.Context(), blockedFor("block", "k", time.Hour))
	clock = clock.Add(5 * time.Minute)
	e := asked("api", "k", true)
	for _, of := range []struct {
		op   string
		want int
	}{{"expired", 1}, {"peek", 0}} {
		e.Op = of.op
		top.Observe(t.Context(), e)
		if got := top.Blocked(); len(got) != of.want {
			t.Errorf("after %s: got %+v", of.op, got)
		}
	}
}

// What is locked by a settlement is met with it. A settlement that charges nothing has the answer of the decision.
func TestASettlementLocks(t *testing.T) {
	for cost, want := range map[int64]int{5: 1, 1: 0} {
		top := ratelimit.Must(observe.NewTop(observe.TopConfig{Clock: time.Now}))
		e := asked("api", "k", true)
		e.Op, e.Estimates = "settle", []int64{1}
		e.Results[0].Cost, e.Results[0].Blocked = cost, true
		e.Results[0].RetryAfter, e.Results[0].ResetAfter = time.Hour, time.Hour
		top.Observe(t.Context(), e)
		if got := top.Blocked(); len(got) != want {
			t.Errorf("a cost of %d: got %+v", cost, got)
		}
	}
}

func TestHiddenAndLongKeysThatAreBlocked(t *testing.T) {
	secret, long := []byte("a secret of 26 random byte"), strings.Repeat("k", 10<<10)
	for name, cfg := range map[string]observe.TopConfig{"shown": {Clock: time.Now}, "hidden": {KeySecret: secret, Clock: time.Now}} {
		for _, key := range []string{"", "\xff", "ip:192.0.2.1", long} {
			top := ratelimit.Must(observe.NewTop(cfg))
			top.Observe(t.Context(), blockedFor("block", key, time.Hour))
			got := top.Blocked()
			if len(got) != 1 || (got[0].Key == key) != (name == "shown" && key != long) || len(got[0].Key) > 256 {
				t.Fatalf("%s: %.20q: got %+v", name, key, got)
			}
			found, ok := top.Find("api", got[0].Key)
			if ok != (key != long) || ok && found != key {
				t.Errorf("%s: Find of %.20q: got %.20q, %t", name, key, found, ok)
			}
			if found, ok := top.Find("other", got[0].Key); ok {
				t.Errorf("%s: Find under another policy: got %.20q", name, found)
			}
			top.Observe(t.Context(), blockedFor("unblock", key, 0))
			if got := top.Blocked(); len(got) != 0 {
				t.Errorf("%s: %.20q unblocked: got %+v", name, key, got)
			}
		}
	}
}

// blockedFor is an event of an operation, or of a denied request, on a bucket that is blocked unless d is 0.
func blockedFor(op, key string, d time.Duration) *ratelimit.Event {
	e := asked("api", key, op != "request")
	e.Op = op
	e.Results[0].Blocked, e.Results[0].RetryAfter, e.Results[0].ResetAfter = d > 0, d, d
	return e
}

// A request can be denied for longer than by the block: for lack of tokens, or forever if its cost is above the burst.
func TestABlockEndsWhenItsBucketIsFullAtTheLatest(t *testing.T) {
	clock := ratetest.NewClock()
	top := ratelimit.Must(observe.NewTop(observe.TopConfig{Clock: clock.Now}))
	e := blockedFor("request", "k", time.Minute)
	e.Results[0].RetryAfter = ratelimit.Never
	top.Observe(t.Context(), e)
	if got := top.Blocked(); len(got) != 1 || !got[0].Until.Equal(clock.Now().Add(time.Minute)) {
		t.Errorf("got %+v", got)
	}
}

// A flood of locks does not push out an operator's block, which is longer.
func TestAFloodOfLocks(t *testing.T) {
	clock := ratetest.NewClock()
	top := ratelimit.Must(observe.NewTop(observe.TopConfig{Clock: clock.Now}))
	for i := range 5 {
		top.Observe(t.Context(), blockedFor("block", fmt.Sprint("operator:", i), 24*time.Hour))
	}
	for i := range 20_000 {
		top.Observe(t.Context(), blockedFor("request", fmt.Sprint("ip:", i), 15*time.Minute))
		clock.Advance(time.Millisecond)
	}
	list := top.Blocked()
	if len(list) != 1000 {
		t.Fatalf("%d blocks, want 1,000", len(list))
	}
	for i, b := range list {
		want := fmt.Sprint("ip:", 20_000+4-i)
		if i < 5 {
			want = fmt.Sprint("operator:", i)
		}
		if b.Key != want {
			t.Fatalf("number %d is %+v, want %s", i, b, want)
		}
	}
	top.Observe(t.Context(), blockedFor("block", "a short one", time.Minute))
	if list := top.Blocked(); len(list) != 1000 || slices.ContainsFunc(list, func(b observe.BlockedKey) bool { return b.Key == "a short one" }) {
		t.Errorf("a block of a minute took the place of a longer one")
	}
	clock.Advance(15 * time.Minute)
	if list := top.Blocked(); len(list) != 5 {
		t.Errorf("15 min later: %d blocks, want 5", len(list))
	}
}

func TestBlocksAgreeWithAModel(t *testing.T) {
	for seed := range uint64(testsize.Of(2, 40)) {
		random := rand.New(rand.NewPCG(seed, 31))
		clock := ratetest.NewClock()
		top := ratelimit.Must(observe.NewTop(observe.TopConfig{Clock: clock.Now}))
		until := map[string]time.Time{}
		for i := range 3000 {
			clock.Advance(10*time.Second + time.Duration(i)) // no two end at the same time, and each is in a new step
			key, d := fmt.Sprint("ip:", random.IntN(2500)), time.Duration(random.Int64N(int64(20*time.Hour)))
			switch op := random.IntN(10); op {
			case 0:
				top.Observe(t.Context(), blockedFor([]string{"unblock", "reset"}[random.IntN(2)], key, 0))
				delete(until, key)
			case 1:
				top.Observe(t.Context(), blockedFor("peek", key, 0))
				delete(until, key)
			default:
				top.Observe(t.Context(), blockedFor("request", key, d+1))
				until[key] = clock.Now().Add(d + 1)
				if len(until) > 1000 {
					delete(until, slices.MinFunc(slices.Collect(maps.Keys(until)), func(a, b string) int { return until[a].Compare(until[b]) }))
				}
			}
			if i%500 != 0 && i != 2999 {
				continue
			}
			var want []observe.BlockedKey
			for key, at := range until {
				if !at.After(clock.Now()) {
					delete(until, key)
					continue
				}
				want = append(want, observe.BlockedKey{Policy: "api", Key: key, Until: at})
			}
			slices.SortFunc(want, func(a, b observe.BlockedKey) int { return cmp.Or(b.Until.Compare(a.Until), cmp.Compare(a.Key, b.Key)) })
			if got := top.Blocked(); !slices.Equal(got, want) {
				t.Fatalf("seed %d, call %d: %d blocks, want %d:\n%v\n%v", seed, i, len(got), len(want), got, want)
			}
		}
	}
}

// If the clock is set back, blocks are listed for longer, until their keys are met again.
func TestBlocksWhenTheClockIsSetBack(t *testing.T) {
	clock := ratetest.NewClock()
	top := ratelimit.Must(observe.NewTop(observe.TopConfig{Clock: clock.Now}))
	clock.Advance(2 * time.Hour)
	for _, key := range []string{"a", "b"} {
		top.Observe(t.Context(), blockedFor("block", key, time.Minute))
	}
	clock.Advance(-time.Hour)
	top.Observe(t.Context(), blockedFor("request", "a", 30*time.Second))
	top.Observe(t.Context(), asked("api", "b", true))
	got := top.Blocked()
	if len(got) != 1 || got[0].Key != "a" || !got[0].Until.Equal(clock.Now().Add(30*time.Second)) {
		t.Errorf("got %+v", got)
	}
}

// docs/bounds.md states these figures.
func TestTheMemoryOfBlocks(t *testing.T) {
	for format, most := range map[string]int64{"ip:2001:db8:1234:%d/64": 220_000, strings.Repeat("k", 248) + "%08d": 450_000} {
		got := ratetest.HeapOf(func() any {
			top := ratelimit.Must(observe.NewTop(observe.TopConfig{Clock: time.Now}))
			for i := range 5000 {
				top.Observe(t.Context(), blockedFor("block", fmt.Sprintf(format, i), time.Hour+time.Duration(i)))
			}
			return top
		})
		if got > most || got < most*7/10 {
			t.Errorf("%.30s: %d bytes, docs/bounds.md says %d", format, got, most)
		} else {
			t.Logf("%.30s: %d bytes", format, got)
		}
	}
}

// A key may be a part of the headers of a request, which it must not keep in memory.
func TestABlockKeepsNoHeaders(t *testing.T) {
	headers := ratetest.HeapOf(func() any {
		top := ratelimit.Must(observe.NewTop(observe.TopConfig{Clock: time.Now}))
		for i := range 100 {
			all := fmt.Sprint("key-", i) + strings.Repeat("x", 100<<10)
			top.Observe(context.Background(), blockedFor("block", all[:6], time.Hour))
		}
		return top
	})
	if headers > 1<<20 {
		t.Errorf("%d bytes for 100 keys", headers)
	}
}
