package observe_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/keyname"
	"github.com/go-tokenbucket/ratelimit/internal/test/ratetest"
	"github.com/go-tokenbucket/ratelimit/observe"
	"github.com/go-tokenbucket/ratelimit/store"
)

// maxWarned is the number of keys of a policy that a Threshold remembers.
const maxWarned = 16_384

// A warner is a Threshold of 80 percent and a limiter with it, and the warnings in the order in which they came.
type warner struct {
	*observe.Threshold
	limiter  *ratelimit.Limiter
	mu       sync.Mutex
	warnings []observe.Warning
	passed   func(context.Context, observe.Warning) // nil: returns at once
}

func newWarner(t *testing.T, cfg observe.ThresholdConfig) *warner {
	w := new(warner)
	cfg.Share, cfg.Passed = 0.8, func(ctx context.Context, warning observe.Warning) {
		w.mu.Lock()
		w.warnings = append(w.warnings, warning)
		w.mu.Unlock()
		if w.passed != nil {
			w.passed(ctx, warning)
		}
	}
	w.Threshold = ratelimit.Must(observe.NewThreshold(cfg))
	t.Cleanup(w.Close)
	w.limiter = newLimiter(t, ratelimit.Config{Store: ratetest.NewStore(), Observe: w.Observe})
	return w
}

// take takes n tokens, one after the other.
func (w *warner) take(t *testing.T, key string, limit ratelimit.Limit, n int) {
	t.Helper()
	for range n {
		if _, err := w.limiter.Take(t.Context(), ratelimit.Policy{Name: "api", Limit: limit}, key, 1); err != nil {
			t.Fatal(err)
		}
	}
}

// want checks that there were so many warnings since the last call, and forgets them.
func (w *warner) want(t *testing.T, when string, want int) {
	t.Helper()
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.warnings) != want {
		t.Errorf("%s: warnings %+v, want %d", when, w.warnings, want)
	}
	w.warnings = nil
}

// asks reports a request of key at a limit of 100 a month that has used so many tokens, the last of them by this request.
func (w *warner) asks(policy, key string, used int64) {
	w.Observe(context.Background(), usedOf(policy, key, used))
}

func usedOf(policy, key string, used int64) *ratelimit.Event {
	return &ratelimit.Event{Op: "request", Allowed: true, Results: []ratelimit.Result{{
		Policy: policy, Key: key, Limit: ratelimit.Quota(100, ratelimit.Month), Cost: 1,
		State: store.State{Allowed: true, Remaining: 100 - used, ResetAfter: 30 * 24 * time.Hour},
	}}}
}

func TestAQuotaIsWarnedOfOnceAPeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, quota := newWarner(t, observe.ThresholdConfig{}), ratelimit.Quota(10, ratelimit.Day)
		for day := 1; day <= 3; day++ {
			w.take(t, "k", quota, 7)
			w.want(t, "below the share", 0)
			w.take(t, "k", quota, 1)
			synctest.Wait()
			want := observe.Warning{Policy: "api", Key: "k", Limit: quota, Used: 8, Resets: time.Date(2000, 1, 1+day, 0, 0, 0, 0, time.UTC)}
			for i := range w.warnings {
				w.warnings[i].Resets = w.warnings[i].Resets.UTC()
			}
			if !slices.Equal(w.warnings, []observe.Warning{want}) {
				t.Errorf("day %d: got %+v, want %+v", day, w.warnings, want)
			}
			w.want(t, "at the share", 1)
			time.Sleep(20 * time.Hour)
			w.take(t, "k", quota, 5)
			w.limiter.Refund(t.Context(), ratelimit.Policy{Name: "api", Limit: quota}, "k", 9)
			w.take(t, "k", quota, 9)
			w.want(t, "later, also after a refund", 0)
			time.Sleep(4 * time.Hour)
		}
		w.take(t, "j", quota, 10)
		w.want(t, "another key", 1)
	})
}

// A reply of the store that comes late is of the period that has ended meanwhile.
func TestALateReplyIsNoNewPeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWarner(t, observe.ThresholdConfig{})
		asks := func(used int64, rest time.Duration) {
			e := usedOf("api", "k", used)
			e.Results[0].ResetAfter = rest
			w.Observe(t.Context(), e)
		}
		asks(80, time.Hour)
		w.want(t, "at the share", 1)
		time.Sleep(time.Hour + 10*time.Millisecond)
		asks(100, time.Millisecond)
		w.want(t, "11 ms late", 0)
		asks(80, time.Hour-10*time.Millisecond)
		w.want(t, "in the next period", 1)
	})
}

func TestARateIsWarnedOfAgainWhenItHasRecovered(t *testing.T) {
	for name, c := range map[string]struct {
		limit    ratelimit.Limit
		recovers time.Duration // after 8 of 10 tokens
	}{
		"a fast one": {ratelimit.PerMinute(10), time.Hour},
		"a slow one": {ratelimit.PerDay(10), 8 * 24 * time.Hour / 10},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWarner(t, observe.ThresholdConfig{})
				w.take(t, "k", c.limit, 7)
				w.want(t, "below the share", 0)
				w.take(t, "k", c.limit, 1)
				w.want(t, "at the share", 1)
				time.Sleep(c.recovers - time.Second)
				w.take(t, "k", c.limit, 8)
				w.want(t, "before it recovers", 0)
				time.Sleep(c.recovers + time.Minute)
				w.take(t, "k", c.limit, 7)
				w.want(t, "recovered, and below the share", 0)
				w.take(t, "k", c.limit, 3)
				w.want(t, "recovered", 1)
			})
		})
	}
}

// A client that stays near its limit has one warning, not one an hour.
func TestARateThatStaysAboveTheShareIsWarnedOfOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWarner(t, observe.ThresholdConfig{})
		w.take(t, "k", ratelimit.PerMinute(10), 10)
		for range 24 * 6 {
			time.Sleep(10 * time.Minute)
			w.take(t, "k", ratelimit.PerMinute(10), 12)
		}
		w.want(t, "after a day", 1)
	})
}

func TestAHigherLimitIsWarnedOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		small, large := ratelimit.Quota(10, ratelimit.Month), ratelimit.Quota(50, ratelimit.Month)
		w := newWarner(t, observe.ThresholdConfig{})
		w.take(t, "k", small, 9)
		w.want(t, "9 of 10", 1)
		w.take(t, "k", large, 30)
		w.want(t, "39 of 50", 0)
		w.take(t, "k", large, 1)
		w.want(t, "40 of 50", 1)
		for range 5 { // as a LimitFunc that swings
			w.take(t, "k", small, 1)
			w.take(t, "k", large, 1)
		}
		w.want(t, "the lower limit, and the higher one again", 0)
	})
}

// No request of its own takes a key past the share if its limit is lowered, or if other replicas have used the bucket.
func TestAKeyThatIsPastTheShareIsWarnedOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWarner(t, observe.ThresholdConfig{})
		w.take(t, "k", ratelimit.Quota(100, ratelimit.Month), 9)
		w.take(t, "k", ratelimit.Quota(10, ratelimit.Month), 1)
		w.want(t, "a lower limit", 1)
		w.asks("api", "other", 95)
		w.want(t, "other replicas", 1)
		w.limiter.Take(t.Context(), ratelimit.Policy{Name: "api", Limit: ratelimit.Quota(100, ratelimit.Month)}, "k", 98)
		w.take(t, "k", ratelimit.Quota(1000, ratelimit.Month), 1)
		w.want(t, "far below a higher limit", 0)
	})
}

// A policy that changes from months to days is warned of in the days of this month, too.
func TestAnotherPeriodBeginsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWarner(t, observe.ThresholdConfig{})
		w.take(t, "k", ratelimit.Quota(10, ratelimit.Month), 9)
		w.want(t, "a month", 1)
		w.take(t, "k", ratelimit.Quota(10, ratelimit.Day), 9)
		w.want(t, "a day", 1)
		w.take(t, "k", ratelimit.PerMinute(10), 9)
		w.want(t, "a rate", 1)
		w.take(t, "k", ratelimit.Quota(10, ratelimit.Month), 9)
		w.want(t, "the month again", 0)
	})
}

func TestWhatAThresholdWatches(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*ratelimit.Event)
		want   int
	}{
		"a request":                      {func(*ratelimit.Event) {}, 1},
		"one that is denied":             {func(e *ratelimit.Event) { e.Allowed, e.Results[0].Allowed = false, false }, 1},
		"one that waits":                 {func(e *ratelimit.Event) { e.Op, e.Results[0].Remaining, e.Results[0].Wait = "wait", 0, time.Hour }, 1},
		"a final cost":                   {func(e *ratelimit.Event) { e.Op, e.Estimates = "settle", []int64{0} }, 1},
		"a Hidden policy":                {func(e *ratelimit.Event) { e.Results[0].Hidden = true }, 1},
		"a Shadow":                       {func(e *ratelimit.Event) { e.Results[0].Shadow = true }, 0},
		"a stand-in with half the limit": {func(e *ratelimit.Event) { e.Results[0].Degraded, e.Results[0].Remaining = true, 10 }, 0},
		"a stand-in that did not answer": {func(e *ratelimit.Event) { e.Results[0].Degraded, e.Results[0].Remaining = true, 0 }, 0},
		"slots that are held":            {func(e *ratelimit.Event) { e.Results[0].Limit = ratelimit.Concurrency(100) }, 0},
		"a slot that has expired":        {func(e *ratelimit.Event) { e.Op = "expired" }, 0},
		"a blocked bucket":               {func(e *ratelimit.Event) { e.Results[0].Blocked, e.Results[0].Remaining = true, 0 }, 0},
		"a look":                         {func(e *ratelimit.Event) { e.Results[0].Cost = 0 }, 0},
		"a rate of 0":                    {func(e *ratelimit.Event) { e.Results[0].Limit, e.Results[0].Remaining = ratelimit.PerDay(0), 0 }, 0},
		"a rate of 0 and a burst": {func(e *ratelimit.Event) {
			e.Results[0].Limit, e.Results[0].Remaining = ratelimit.PerDay(0).WithBurst(5), 0
		}, 0},
		"more tokens than the limit has":  {func(e *ratelimit.Event) { e.Results[0].Remaining = 200 }, 0},
		"a request without results":       {func(e *ratelimit.Event) { e.Results = nil }, 0},
		"a peek":                          {func(e *ratelimit.Event) { e.Op = "peek" }, 0},
		"a refund":                        {func(e *ratelimit.Event) { e.Op = "refund" }, 0},
		"a reset":                         {func(e *ratelimit.Event) { e.Op = "reset" }, 0},
		"a block":                         {func(e *ratelimit.Event) { e.Op = "block" }, 0},
		"the end of a block":              {func(e *ratelimit.Event) { e.Op = "unblock" }, 0},
		"the longest time until it fills": {func(e *ratelimit.Event) { e.Results[0].ResetAfter = math.MaxInt64 }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, e := newWarner(t, observe.ThresholdConfig{}), usedOf("api", "k", 80)
				c.change(e)
				w.Observe(t.Context(), e)
				w.Observe(t.Context(), e)
				w.want(t, "twice", c.want)
			})
		})
	}
}

func TestTheShareIsExact(t *testing.T) {
	for _, share := range []float64{0.07, 0.1, 0.29, 0.5, 0.57, 0.7, 0.8, 0.9, 0.99} {
		synctest.Test(t, func(t *testing.T) {
			least := int64(math.MaxInt64)
			th := ratelimit.Must(observe.NewThreshold(observe.ThresholdConfig{Share: share, Passed: func(_ context.Context, w observe.Warning) { least = min(least, w.Used) }}))
			for used := range int64(101) {
				th.Observe(t.Context(), usedOf("api", "k", used))
				synctest.Wait()
			}
			th.Close()
			if want := int64(math.Round(share * 100)); least != want {
				t.Errorf("%v of 100: warned at %d", share, least)
			}
		})
	}
}

// Four calls run at once, and further ones wait in their order. No request and no other policy waits for them.
func TestSlowCallsHoldUpNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWarner(t, observe.ThresholdConfig{})
		w.passed = func(ctx context.Context, warning observe.Warning) {
			if warning.Policy == "slow" {
				<-ctx.Done() // which is a minute later
			}
		}
		begin := time.Now()
		for i := range 10 {
			w.asks("slow", fmt.Sprint(i), 80)
		}
		if waited := time.Since(begin); waited != 0 {
			t.Errorf("requests waited for %v", waited)
		}
		synctest.Wait()
		if got := w.Stats(); got != (observe.ThresholdStats{Calls: 4, Waiting: 6}) {
			t.Errorf("got %+v", got)
		}
		w.want(t, "at once", 4)
		w.asks("other", "k", 80)
		w.want(t, "another policy", 1)
		time.Sleep(time.Minute)
		w.want(t, "a minute later", 4)
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := w.Stats(); got != (observe.ThresholdStats{Calls: 11}) || w.warnings[0].Key != "8" && w.warnings[0].Key != "9" {
			t.Errorf("got %+v, %+v", got, w.warnings)
		}
	})
}

func TestCallsThatPanicOrExitEndNoOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines bytes.Buffer
		w := newWarner(t, observe.ThresholdConfig{Logger: slog.New(slog.NewTextHandler(&lines, nil))})
		w.passed = func(_ context.Context, warning observe.Warning) {
			switch warning.Key[0] {
			case 'p':
				panic("the mail has no address")
			case 'e':
				runtime.Goexit()
			}
		}
		for i := range 20 {
			w.asks("api", fmt.Sprint("panic", i), 80)
			w.asks("api", fmt.Sprint("exit", i), 80)
		}
		w.want(t, "calls", 40)
		w.asks("api", "panic1", 81)
		w.want(t, "the same key", 0)
		if got := w.Stats(); got != (observe.ThresholdStats{Calls: 40, Panicked: 20}) {
			t.Errorf("got %+v", got)
		}
		ratetest.CheckText(t, lines.String(), "level=ERROR", "observe: Threshold: a call of Passed failed", "the mail has no address", "threshold_test.go", "policy=api")
		if n := strings.Count(lines.String(), "\n"); n != 1 {
			t.Errorf("%d lines in a second", n)
		}
	})
}

// Clients with many keys take all places. They repeat no warning, and a request that takes a further key past the share
// still has its call.
func TestManyKeysNeitherRepeatNorSuppressAWarning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWarner(t, observe.ThresholdConfig{})
		flood := func() {
			for i := range 2 * maxWarned {
				w.asks("api", fmt.Sprint("ip:", i), 90)
			}
		}
		w.asks("api", "before", 80)
		w.want(t, "before", 1)
		flood()
		w.want(t, "the flood", maxWarned-1)
		w.asks("api", "before", 81)
		flood()
		w.want(t, "again", 0)
		for used := range int64(100) {
			w.asks("api", "during", used+1)
		}
		w.want(t, "the request that passes the share", 1)
		debt := usedOf("api", "during", 100)
		debt.Results[0].Cost, debt.Results[0].Wait = 50, time.Hour
		w.Observe(t.Context(), debt)
		denied := usedOf("api", "during", 80)
		denied.Allowed = false
		w.Observe(t.Context(), denied)
		settled := usedOf("api", "during", 85)
		settled.Op, settled.Results[0].Cost, settled.Estimates = "settle", 40, []int64{38}
		w.Observe(t.Context(), settled)
		w.want(t, "requests that do not pass it", 0)
		settled.Estimates[0] = 10
		w.Observe(t.Context(), settled)
		w.want(t, "a final cost that passes it", 1)
		w.asks("other", "during", 90)
		w.want(t, "another policy", 1)
		time.Sleep(30 * 24 * time.Hour)
		w.asks("api", "during", 90)
		w.want(t, "when the others have recovered", 1)
	})
}

// If no more calls can wait, the next request of a key tries again.
func TestACallThatCannotWaitIsCountedAndMadeLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines bytes.Buffer
		w := newWarner(t, observe.ThresholdConfig{Logger: slog.New(slog.NewTextHandler(&lines, nil))})
		release := make(chan struct{})
		w.passed = func(context.Context, observe.Warning) { <-release }
		for i := range maxWarned - 100 {
			w.asks("api", fmt.Sprint("ip:", i), 80)
		}
		for i := range 104 { // of keys that the table is not full of, and that pass the share again and again
			w.asks("api", fmt.Sprint("more:", i), 80)
		}
		w.want(t, "running", 4)
		if got := w.Stats(); got != (observe.ThresholdStats{Calls: 4, Waiting: maxWarned}) {
			t.Fatalf("got %+v", got)
		}
		w.asks("api", "late", 80)
		if got := w.Stats().Lost; got != 1 {
			t.Errorf("%d lost", got)
		}
		ratetest.CheckText(t, lines.String(), "too many calls wait", "policy=api")
		close(release)
		w.want(t, "released", maxWarned)
		w.asks("api", "late", 80)
		w.want(t, "its next request", 1)
	})
}

func TestPoliciesOfAThreshold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		some := newWarner(t, observe.ThresholdConfig{Policies: []string{"plan", "trial"}})
		for _, policy := range []string{"plan", "address", "trial", ""} {
			some.asks(policy, "k", 80)
		}
		some.want(t, "two of four", 2)

		all := newWarner(t, observe.ThresholdConfig{})
		for i := range 200 {
			for range 2 {
				all.asks(fmt.Sprint("policy ", i), "k", 80)
			}
		}
		all.want(t, "more policies than have tables", 200)
	})
}

func TestLongKeysAreWarnedOfByTheirHash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWarner(t, observe.ThresholdConfig{})
		longest := strings.Repeat("k", keyname.MaxShort)
		for _, key := range []string{"", "\xff", longest, longest + "k", longest + "l"} {
			w.asks("api", key, 80)
			w.asks("api", key, 80)
			synctest.Wait()
			want := key
			if len(key) > len(longest) {
				want = fmt.Sprintf("sha256:%x", keyname.Short(key)[1:])
			}
			if len(w.warnings) != 1 || w.warnings[0].Key != want {
				t.Errorf("%.20q: got %+v", key, w.warnings)
			}
			w.warnings = nil
		}
	})
}

func TestCloseEndsCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWarner(t, observe.ThresholdConfig{})
		w.passed = func(ctx context.Context, _ observe.Warning) {
			<-ctx.Done()
			time.Sleep(time.Second)
		}
		for i := range 10 {
			w.asks("api", fmt.Sprint(i), 80)
		}
		synctest.Wait()
		begin := time.Now()
		w.Close()
		if took := time.Since(begin); took != time.Second {
			t.Errorf("took %v, which is not the time of a call", took)
		}
		w.asks("api", "late", 80)
		w.asks("late", "late", 80)
		w.Close()
		w.want(t, "calls", 4)
		if got := w.Stats(); got != (observe.ThresholdStats{Calls: 4}) {
			t.Errorf("got %+v", got)
		}
	})
}

func TestNewThresholdChecksItsConfig(t *testing.T) {
	passed := func(context.Context, observe.Warning) {}
	for want, cfg := range map[string]observe.ThresholdConfig{
		"Share is 0: must be above 0 and below 1":  {Passed: passed},
		"Share is 80: must be above 0 and below 1": {Share: 80, Passed: passed},
		"Share is 1: ":    {Share: 1, Passed: passed},
		"Share is -0.5: ": {Share: -0.5, Passed: passed},
		"Share is NaN: ":  {Share: math.NaN(), Passed: passed},
		"Passed is nil: ": {Share: 0.8},
		`Policies[1] is "a b": must be the name of a policy, 1 to 63`: {Share: 0.8, Passed: passed, Policies: []string{"a", "a b"}},
	} {
		ratetest.CheckText(t, fmt.Sprint(ratetest.Err(observe.NewThreshold(cfg))), "observe: NewThreshold: ThresholdConfig."+want)
	}
}

func TestAThresholdIsSafeForConcurrentUse(t *testing.T) {
	var mu sync.Mutex
	calls := make(map[string]int)
	th := ratelimit.Must(observe.NewThreshold(observe.ThresholdConfig{Share: 0.8, Passed: func(_ context.Context, w observe.Warning) {
		mu.Lock()
		defer mu.Unlock()
		calls[w.Policy+w.Key]++
	}}))
	var done sync.WaitGroup
	for range 8 {
		done.Go(func() {
			for i := range 2000 {
				th.Observe(t.Context(), usedOf(fmt.Sprint("policy ", i%100), fmt.Sprint(i%1000), 80))
				if i%500 == 0 {
					th.Stats()
				}
			}
		})
	}
	done.Wait()
	for th.Stats().Calls < 1000 {
		runtime.Gosched()
	}
	th.Close()
	for key, n := range calls {
		if n != 1 {
			t.Errorf("%s: %d calls", key, n)
		}
	}
	if len(calls) != 1000 {
		t.Errorf("calls for %d keys, want 1000", len(calls))
	}
}

// docs/bounds.md states this figure.
func TestTheMemoryOfAThreshold(t *testing.T) {
	got := ratetest.HeapOf(func() any {
		th := ratelimit.Must(observe.NewThreshold(observe.ThresholdConfig{Share: 0.8, Passed: func(context.Context, observe.Warning) {}}))
		for i := range 2 * maxWarned {
			th.Observe(t.Context(), usedOf("api", fmt.Sprint("ip:", i), 90))
		}
		for th.Stats().Waiting > 0 {
			runtime.Gosched()
		}
		return th
	})
	t.Logf("%d bytes", got)
	if got > 1<<20 {
		t.Errorf("%d bytes, docs/bounds.md says at most 1 MB", got)
	}
}

func TestAThresholdDoesNotAllocate(t *testing.T) {
	w := newWarner(t, observe.ThresholdConfig{})
	for name, used := range map[string]int64{"below": 79, "warned of": 90} {
		e := usedOf("api", "k", used)
		w.Observe(t.Context(), e)
		if n := testing.AllocsPerRun(100, func() { w.Observe(context.Background(), e) }); n > 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
