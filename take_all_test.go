package ratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/store"
)

func TestTakeAllChargesAllOrNone(t *testing.T) {
	onEachStore(t, func(t *testing.T, s store.Store, _ *clock) {
		l := newLimiter(t, ratelimit.Config{Store: s})
		transfers := ratelimit.Policy{Name: "transfers", Limit: ratelimit.PerHour(2)}
		all := ratelimit.Policy{Name: "all", Limit: ratelimit.PerHour(100)}
		free := ratelimit.Policy{Name: "free", Limit: ratelimit.Unlimited}
		from := func(a, b string) []ratelimit.Charge {
			return []ratelimit.Charge{{Policy: transfers, Key: a}, {Policy: free, Key: a}, {Policy: transfers, Key: b}, {Policy: all, Key: "all", Cost: 10}}
		}
		for i, want := range []bool{true, true, false} {
			d, err := l.TakeAll(t.Context(), from("member:1", "member:2")...)
			if err != nil || d.Allowed != want || len(d.Results) != 3 || d.Results[2].Cost != 10 {
				t.Errorf("call %d: %+v, %v", i, d, err)
			}
			if i == 2 && (d.RetryAfter() <= 0 || len(d.Denied()) != 2) {
				t.Errorf("denied by %v, retry after %v", d.Denied(), d.RetryAfter())
			}
		}
		if d, err := l.TakeAll(t.Context(), from("member:1", "member:3")...); err != nil || d.Allowed {
			t.Errorf("%+v, %v", d, err)
		}
		if r, err := l.Peek(t.Context(), all, "all"); err != nil || r.Remaining != 80 {
			t.Errorf("%d left, %v: what was refused spent something", r.Remaining, err)
		}
		if d, err := l.TakeAll(t.Context(), ratelimit.Charge{Policy: free, Key: "k"}); err != nil || !d.Allowed {
			t.Errorf("%+v, %v", d, err)
		}
	})
}

func TestTakeAllNamesEveryFault(t *testing.T) {
	l := newLimiter(t, ratelimit.Config{})
	good := ratelimit.Policy{Name: "a", Limit: ratelimit.PerHour(1)}
	d, err := l.TakeAll(t.Context(),
		ratelimit.Charge{Policy: good, Key: "k"},
		ratelimit.Charge{Policy: good, Key: "k", Cost: 2},
		ratelimit.Charge{Policy: ratelimit.Policy{Name: "no limit"}, Cost: -1},
	)
	for _, want := range []string{
		"charges[1]: has the policy and key of charges[0]", `charges[2]: Policy ("no limit"): Name: must be`, "Limit: must be set",
		"charges[2]: Key: must not be empty", "charges[2]: Cost -1",
	} {
		if d.Allowed || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v, %v, want %q", d, err, want)
		}
	}
	if d, err := l.TakeAll(t.Context()); d.Allowed || err == nil {
		t.Errorf("of nothing: %+v, %v", d, err)
	}
}

// A tier may have a quota of nothing.
func TestARateOf0DeniesChargesToo(t *testing.T) {
	l := newLimiter(t, ratelimit.Config{})
	other := ratelimit.Charge{Policy: ratelimit.Policy{Name: "other", Limit: ratelimit.PerHour(1)}, Key: "k"}
	none := ratelimit.Charge{Policy: ratelimit.Policy{Name: "none", Limit: ratelimit.PerDay(0)}, Key: "k"}
	w := httptest.NewRecorder()
	if l.Admit(w, httptest.NewRequest("GET", "/", nil), other, none) || w.Code != 429 || w.Header()["Retry-After"] != nil {
		t.Errorf("Admit: %d %v", w.Code, w.Header())
	}
	if d, err := l.TakeAll(t.Context(), other, none); d.Allowed || err != nil || d.RetryAfter() != ratelimit.Never {
		t.Errorf("TakeAll: %+v, %v", d, err)
	}
	none.Policy.Shadow = true
	if d, err := l.TakeAll(t.Context(), other, none); !d.Allowed || err != nil || len(d.Results) != 2 {
		t.Errorf("as a shadow: %+v, %v", d, err)
	}
}

// The results of the limiters around a handler are those of its request, and not of what it takes beside.
func TestTakeAllInALimitedRequestReturnsItsOwnResults(t *testing.T) {
	l := newLimiter(t, ratelimit.Config{})
	jobs := ratelimit.Policy{Name: "jobs", Limit: ratelimit.Every(time.Second).WithBurst(2)}
	closed := ratelimit.Policy{Name: "closed", Limit: ratelimit.PerDay(0)}
	var decisions []ratelimit.Decision
	outer := l.Limit(perIP("outer", ratelimit.PerHour(1)))
	get(outer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		for _, charges := range [][]ratelimit.Charge{
			{{Policy: jobs, Key: "member:5", Cost: 2}},
			{{Policy: jobs, Key: "member:5", Cost: 2}},
			{{Policy: jobs, Key: "member:6"}, {Policy: closed, Key: "member:6"}},
			{{Policy: closed, Key: "member:6"}},
		} {
			d, err := l.TakeAll(r.Context(), charges...)
			if err != nil {
				t.Error(err)
			}
			decisions = append(decisions, d)
		}
	})))
	want := []string{"[jobs]", "[jobs]", "[closed]", "[closed]"}
	if len(decisions) != len(want) {
		t.Fatalf("%d decisions, want %d", len(decisions), len(want))
	}
	for i, d := range decisions {
		var names []string
		for _, r := range d.Results {
			names = append(names, r.Policy)
		}
		if got := fmt.Sprint(names); got != want[i] || d.Allowed != (i == 0) {
			t.Errorf("call %d: results of %s, allowed %t, want those of %s", i, got, d.Allowed, want[i])
		}
	}
	// The outer policy has its next token after an hour.
	if after := decisions[1].RetryAfter(); after <= 0 || after > 2*time.Second {
		t.Errorf("retry after %v, want about 2s", after)
	}
}

func charged(name string, limit ratelimit.Limit, maxWait time.Duration) ratelimit.Charge {
	return ratelimit.Charge{Policy: ratelimit.Policy{Name: name, Limit: limit, MaxWait: maxWait}, Key: "ip:192.0.2.1"}
}

func TestWaitAllBlocksForTheLongestWait(t *testing.T) {
	inBubble(t, ratelimit.Config{}, func(t *testing.T, q *queue) {
		fast, slow := charged("fast", ratelimit.Every(time.Second), 0), charged("slow", ratelimit.Every(time.Minute), 0)
		begin := time.Now()
		for i := range 4 {
			d, err := q.WaitAll(t.Context(), fast, slow)
			if err != nil || !d.Allowed || len(d.Results) != 2 || time.Since(begin) != time.Duration(i)*time.Minute {
				t.Errorf("call %d: %+v, %v, after %v", i, d, err, time.Since(begin))
			}
		}
	})
}

// What cannot be had in time is not taken, from none of the buckets, and the error says when.
func TestWaitAllTakesAllOrNone(t *testing.T) {
	inBubble(t, ratelimit.Config{}, func(t *testing.T, q *queue) {
		roomy, tight := charged("roomy", ratelimit.PerHour(10), 0), charged("tight", ratelimit.Every(time.Minute), time.Second)
		if _, err := q.WaitAll(t.Context(), roomy, tight); err != nil {
			t.Fatal(err)
		}
		want := q.ResetAfter(t, roomy.Policy)
		for name, ctx := range map[string]func() (context.Context, context.CancelFunc){
			"MaxWait": func() (context.Context, context.CancelFunc) { return context.WithCancel(t.Context()) },
			"deadline": func() (context.Context, context.CancelFunc) {
				return context.WithTimeout(t.Context(), time.Millisecond)
			},
		} {
			ctx, cancel := ctx()
			charges := []ratelimit.Charge{roomy, tight}
			if name == "deadline" {
				charges[1].Policy.MaxWait = 0
			}
			begin, patience := time.Now(), time.Second
			if name == "deadline" {
				patience = time.Millisecond
			}
			_, err := q.WaitAll(ctx, charges...)
			cancel()
			var late *ratelimit.WaitError
			if !errors.As(err, &late) || late.Result.Policy != "tight" || late.RetryAfter != time.Minute-patience || time.Since(begin) != 0 {
				t.Errorf("%s: %v after %v", name, err, time.Since(begin))
			}
			if got := q.ResetAfter(t, roomy.Policy); got != want {
				t.Errorf("%s: the other bucket is full after %v, want %v", name, got, want)
			}
			if charges[0].Policy.MaxWait != 0 {
				t.Errorf("%s: changed the caller's charges", name)
			}
		}
	})
}

func TestWaitAllGivesBackAllThatItReserved(t *testing.T) {
	inBubble(t, ratelimit.Config{}, func(t *testing.T, q *queue) {
		a, b := charged("a", ratelimit.Every(time.Minute), 0), charged("b", ratelimit.Every(time.Hour), 0)
		if _, err := q.WaitAll(t.Context(), a, b); err != nil {
			t.Fatal(err)
		}
		wantA, wantB := q.ResetAfter(t, a.Policy), q.ResetAfter(t, b.Policy)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			d, err := q.WaitAll(ctx, a, b)
			if d.Allowed {
				err = nil
			}
			done <- err
		}()
		synctest.Wait()
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
		if gotA, gotB := q.ResetAfter(t, a.Policy), q.ResetAfter(t, b.Policy); gotA != wantA || gotB != wantB {
			t.Errorf("full after %v and %v, want %v and %v", gotA, gotB, wantA, wantB)
		}
	})
}

func TestWaitAllNeverWaitsInVain(t *testing.T) {
	inBubble(t, ratelimit.Config{}, func(t *testing.T, q *queue) {
		above := charged("above", ratelimit.PerHour(10), 0)
		above.Cost = 11
		for name, c := range map[string]ratelimit.Charge{
			"above the burst": above,
			"a rate of 0":     charged("zero", ratelimit.PerDay(0), 0),
		} {
			_, err := q.WaitAll(t.Context(), charged("other", ratelimit.PerHour(10), 0), c)
			var late *ratelimit.WaitError
			if !errors.As(err, &late) || late.RetryAfter != ratelimit.Never || late.Result.Policy != c.Policy.Name {
				t.Errorf("%s: %v", name, err)
			}
		}
		shadow := charged("shadow", ratelimit.PerDay(1), 0)
		shadow.Policy.Shadow = true
		for range 3 {
			if d, err := q.WaitAll(t.Context(), shadow); err != nil || !d.Allowed {
				t.Errorf("a Shadow: %+v, %v", d, err)
			}
		}
		_, err := q.WaitAll(t.Context(), charged("", ratelimit.PerDay(1), -1))
		if err == nil || !strings.Contains(err.Error(), "ratelimit: WaitAll: ") || !strings.Contains(err.Error(), "MaxWait -1ns") {
			t.Errorf("wrong arguments: %v", err)
		}
	})
}

// An Owed charge is for what is used already: it is not denied and nothing waits for it, but the next one does.
func TestAnOwedChargeLeavesADebt(t *testing.T) {
	inBubble(t, ratelimit.Config{}, func(t *testing.T, q *queue) {
		owed := charged("llm", ratelimit.PerSecond(10), 0)
		owed.Cost, owed.Owed = 100, true // ten times the burst
		begin := time.Now()
		if d, err := q.TakeAll(t.Context(), owed); err != nil || !d.Allowed || d.Results[0].Remaining != 0 {
			t.Errorf("TakeAll: %+v, %v", d, err)
		}
		if d, err := q.WaitAll(t.Context(), owed); err != nil || !d.Allowed || time.Since(begin) != 0 {
			t.Errorf("WaitAll: %+v, %v after %v", d, err, time.Since(begin))
		}
		next := charged("llm", ratelimit.PerSecond(10), 0)
		if d, err := q.WaitAll(t.Context(), next); err != nil || !d.Allowed || time.Since(begin) != 19*time.Second+100*time.Millisecond {
			t.Errorf("the next call: %+v, %v after %v", d, err, time.Since(begin))
		}
	})
}

// Nothing waits for an Owed charge. So its bucket, which may be another one for each call, gets a busy key no places.
func TestAnOwedChargeGetsNoPlace(t *testing.T) {
	inBubble(t, ratelimit.Config{MaxWaiting: 8}, func(t *testing.T, q *queue) {
		busy := charged("busy", ratelimit.PerHour(1), 0)
		ctx, cancel := context.WithCancel(t.Context())
		var crowd sync.WaitGroup
		var denied atomic.Int64
		for i := range 8 {
			crowd.Go(func() {
				owed := charged("owed", ratelimit.PerHour(1), 0)
				owed.Key, owed.Owed = fmt.Sprint("call:", i), true
				var late *ratelimit.WaitError
				if _, err := q.WaitAll(ctx, owed, busy); errors.As(err, &late) {
					denied.Add(1)
				}
			})
			synctest.Wait()
		}
		cancel()
		crowd.Wait()
		if denied.Load() != 3 { // the first did not wait, and four of eight places may be the key's
			t.Errorf("%d found no place, want 3", denied.Load())
		}
		for i := range 8 { // only the first call was made, so only its Owed charge was
			r, err := q.Peek(t.Context(), ratelimit.Policy{Name: "owed", Limit: ratelimit.PerHour(1)}, fmt.Sprint("call:", i))
			if err != nil || r.Used != (i == 0) {
				t.Errorf("call %d: %+v, %v", i, r, err)
			}
		}
	})
}

func TestACallThatGivesUpInTheNextPeriodIsNotRefundedToIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		quota := ratelimit.Policy{Name: "quota", Limit: ratelimit.Quota(10, ratelimit.Hour)}
		rate := ratelimit.Policy{Name: "rate", Limit: ratelimit.Every(time.Hour)}
		for _, gaveUp := range []time.Duration{20 * time.Minute, 40 * time.Minute} {
			l := newLimiter(t, ratelimit.Config{})
			time.Sleep(time.Until(time.Now().Truncate(time.Hour).Add(90 * time.Minute)))
			take := func(p ratelimit.Policy, cost int64) {
				if _, err := l.Take(t.Context(), p, "k", cost); err != nil {
					t.Error(err)
				}
			}
			take(rate, 1)
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(gaveUp-time.Minute, func() { take(quota, 2) })
			time.AfterFunc(gaveUp, cancel)
			_, err := l.WaitAll(ctx, ratelimit.Charge{Policy: quota, Key: "k", Cost: 5}, ratelimit.Charge{Policy: rate, Key: "k"})
			if r, _ := l.Peek(t.Context(), quota, "k"); !errors.Is(err, context.Canceled) || r.Remaining != 8 {
				t.Errorf("gave up after %v: %d left, error %v; want the 2 of another call to be used", gaveUp, r.Remaining, err)
			}
		}
	})
}
