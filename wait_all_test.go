package ratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit"
)

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
		want := q.resetAfter(t, roomy.Policy)
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
			if got := q.resetAfter(t, roomy.Policy); got != want {
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
		wantA, wantB := q.resetAfter(t, a.Policy), q.resetAfter(t, b.Policy)
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
		if gotA, gotB := q.resetAfter(t, a.Policy), q.resetAfter(t, b.Policy); gotA != wantA || gotB != wantB {
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
