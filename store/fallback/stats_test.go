package fallback_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/teststore"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/denialcache"
	"github.com/go-tokenbucket/ratelimit/store/fallback"
	"github.com/go-tokenbucket/ratelimit/store/storetest"
)

func TestStatsOfAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := openSmall(t)
		r := newRigWith(t, ratelimit.Must(denialcache.New(memory, denialcache.Config{})), fallback.Config{MaxKeys: 64})
		stats := func() store.FallbackStats {
			t.Helper()
			s := r.Stats().Fallback
			if s == nil {
				t.Fatal("none")
			}
			return *s
		}
		r.take(teststore.Months(t, 10))
		if s := stats(); s.Away || !s.Since.IsZero() || s.Reason != "" || s.Answered != 0 || s.Max != 64 || s.Outages != nil || s.Secondary.Denials == nil {
			t.Errorf("before: %+v", s)
		}

		r.fail(teststore.Broken)
		begin := time.Now()
		answered := stats().Answered // of the calls that failed
		calls := r.primary.Calls.Load()
		for range 7 {
			r.take(teststore.Months(t, 2))
		}
		r.take(teststore.Months(t, 1000)) // is refused
		time.Sleep(3 * time.Second)
		probes := r.primary.Calls.Load() - calls
		s := stats()
		if !s.Away || !s.Since.Equal(begin) || s.Reason != teststore.ErrBroken.Error() || s.Answered-answered != 8 || s.Probes != probes || probes < 5 || s.Charged != 0 {
			t.Errorf("away: %+v, %d probes", s, probes)
		}
		if s.Pending != 1 {
			t.Errorf("%d pending", s.Pending)
		}
		if len(s.Outages) != 1 || !s.Outages[0].Until.IsZero() || !s.Outages[0].Since.Equal(begin) || s.Outages[0].Answered != 9 || s.Outages[0].Probes != probes {
			t.Errorf("away: %+v", s.Outages)
		}

		r.comeBack()
		end := time.Now()
		if s := stats(); s.Away || s.Pending != 1 || s.Charged != 0 {
			t.Errorf("back: %+v, want one bucket pending", s)
		}
		r.take(teststore.Months(t, 1)) // settles
		if taken := 600 - r.peekPrimary(teststore.Months(t, 0)).Remaining; taken != 25 {
			t.Errorf("%d taken of the primary", taken)
		}
		s = stats()
		// The primary may have carried out the calls that failed, so it is not charged for those.
		if s.Away || s.Since.Before(begin.Add(3*time.Second)) || s.Since.After(end) || s.Reason != teststore.ErrBroken.Error() || s.Pending != 0 || s.Charged != 14 {
			t.Errorf("back: %+v", s)
		}
		if o := s.Outages[0]; len(s.Outages) != 1 || !o.Until.Equal(s.Since) || o.Answered != 9 || o.Charged != 14 || o.Probes != s.Probes || o.Reason != s.Reason {
			t.Errorf("back: %+v", s.Outages)
		}

		// What comes later is not of that outage.
		r.primary.Have(teststore.Broken)
		r.take(teststore.Months(t, 1))
		if s := stats(); s.Away || s.Answered != answered+8+1 || s.Outages[0].Answered != 9 {
			t.Errorf("after a single failure: %+v", s)
		}
	})
}

func TestStatsRememberTheLastSixteenOutages(t *testing.T) {
	inBubble(t, fallback.Config{}, func(t *testing.T, r *fallbackRig) {
		reason := errors.New("a reason" + strings.Repeat(" that is long\x1b", 1000))
		for i := range 20 {
			r.fail(teststore.Broken)
			r.take(teststore.Months(t, int64(i+1)))
			if i == 19 {
				break
			}
			time.Sleep(2 * time.Second)
			r.comeBack()
			r.take(teststore.Months(t, 1)) // settles
		}
		s := r.Stats().Fallback
		if len(s.Outages) != 16 || !s.Away {
			t.Fatalf("%d outages, away %t", len(s.Outages), s.Away)
		}
		for i, o := range s.Outages {
			if want := int64(20 - i); i > 0 && o.Charged != want {
				t.Errorf("%d: %d charged, want %d", i, o.Charged, want)
			}
			if o.Until.IsZero() != (i == 0) || i > 0 && (!o.Until.After(o.Since) || s.Outages[i-1].Since.Before(o.Until)) {
				t.Errorf("%d: %+v", i, o)
			}
		}
		time.Sleep(2 * time.Second)
		r.comeBack()
		r.primary.Have(func(context.Context, func() error) error { return reason })
		for i := 0; r.Away() == nil; i++ {
			r.take(teststore.Months(t, 1))
		}
		if got := r.Stats().Fallback.Reason; !strings.HasPrefix(got, "a reason that is long") || len(got) > 1500 || strings.Contains(got, "\x1b") {
			t.Errorf("%q", got)
		}
	})
}

func TestStatsWhileCallsAreMade(t *testing.T) {
	inBubble(t, fallback.Config{Replicas: 2}, func(t *testing.T, r *fallbackRig) {
		begin, until := time.Now(), 5*time.Second
		var running sync.WaitGroup
		for g := range 4 {
			running.Go(func() {
				for i := 0; time.Since(begin) < until; i++ {
					one := teststore.Months(t, 1)
					one.Key = fmt.Sprint(g, i%50)
					if _, _, err := r.takeBy(t.Context(), one); err != nil {
						t.Error(err)
					}
					time.Sleep(20 * time.Millisecond)
				}
			})
		}
		running.Go(func() {
			for last := *r.Stats().Fallback; time.Since(begin) < until; time.Sleep(20 * time.Millisecond) {
				s := *r.Stats().Fallback
				if s.Answered < last.Answered || s.Probes < last.Probes || s.Charged < last.Charged || s.Since.Before(last.Since) || len(s.Outages) < len(last.Outages) {
					t.Errorf("%+v after %+v", s, last)
				}
				last = s
			}
		})
		for range 3 {
			time.Sleep(200 * time.Millisecond)
			r.primary.Have(teststore.Broken)
			time.Sleep(time.Second)
			r.primary.Mend()
			time.Sleep(400 * time.Millisecond)
		}
		running.Wait()
		s := *r.Stats().Fallback
		if len(s.Outages) != 3 || s.Away || s.Charged == 0 || s.Answered < s.Charged {
			t.Errorf("%+v", s)
		}
	})
}

func TestStatsHaveThoseOfThePrimary(t *testing.T) {
	storetest.RunDecorator(t, func(t *testing.T, inner store.Store) store.Store {
		return openFallback(t, inner, fallback.Config{})
	})
}
