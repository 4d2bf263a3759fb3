package bucket_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/bucket"
)

func newConcurrency(t testing.TB, n int64) bucket.Limit {
	t.Helper()
	l, err := bucket.NewConcurrency(n)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestNewConcurrency(t *testing.T) {
	for _, n := range []int64{1, 3, bucket.MaxSlots} {
		l := newConcurrency(t, n)
		if want := (bucket.Limit{Unit: 1, Capacity: n}); l != want || !l.Valid() || !l.IsConcurrency() || l.IsQuota() {
			t.Errorf("%+v, want %+v: valid, and no quota", l, want)
		}
	}
	if large := (bucket.Limit{Unit: 1, Capacity: bucket.MaxSlots + 1}); large.Valid() {
		t.Errorf("%+v is valid", large)
	}
	for _, n := range []int64{math.MinInt64, -1, 0, bucket.MaxSlots + 1, math.MaxInt64} {
		if _, err := bucket.NewConcurrency(n); err == nil || !strings.Contains(err.Error(), "Rate") || !strings.Contains(err.Error(), "1000000") {
			t.Errorf("%d slots: error %v, want one that names Rate and 1000000", n, err)
		}
	}
	month, err := bucket.NewPeriod(bucket.Month, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range []bucket.Limit{{}, newLimit(t, 1, time.Microsecond, 5), {Unit: 1, Capacity: 5, Period: month}} {
		if l.IsConcurrency() || l.Held(-2) != 0 || l.Loses(5, -9) {
			t.Errorf("%+v has slots", l)
		}
	}
}

func TestSlotsThatAreHeld(t *testing.T) {
	const now, second = 1_780_000_000_000_000, 1_000_000
	month, err := bucket.NewPeriod(bucket.Month, "")
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]bucket.Limit{
		"none": {}, "a rate": newLimit(t, 1, time.Second, 5), "the fastest rate": newLimit(t, 1, time.Microsecond, 5),
		"a quota": {Unit: 1, Capacity: 9, Period: month}, "slots": newConcurrency(t, 3),
	}
	l := kinds["slots"]
	for name, was := range kinds {
		for other, to := range kinds {
			if to == (bucket.Limit{}) || (name == "slots") == (other == "slots") {
				continue
			}
			b := to.Advance(&was, bucket.Bucket{Tokens: -7, At: now}, now)
			if b.Tokens != to.Capacity {
				t.Errorf("from %s to %s: %d, want a full bucket", name, other, b.Tokens)
			}
			late := name != "none"
			if to.Spares(&was, -1, 0) != late || to.Spares(&was, 1, 0) || to.Spares(&was, 0, 0) || to.Spares(&was, bucket.Reset, 0) {
				t.Errorf("from %s to %s: only refunds must leave the bucket as it is", name, other)
			}
			if until := to.KeepUntil(&was, math.MaxInt64, b); until != to.FullAt(b) {
				t.Errorf("from %s to %s: kept until %d, want %d", name, other, until, to.FullAt(b))
			}
		}
	}

	for _, c := range []struct {
		n, free, under  int64 // free slots of n, and under the next limit
		retry, reset    int64
		granted, fullAt int64
	}{
		{3, 3, 3, 0, 0, 3, now},
		{3, 1, 1, 0, second, 1, math.MaxInt64},
		{3, 0, 0, second, second, 0, math.MaxInt64},
		{5, 1, -1, second, second, 0, math.MaxInt64},
		{9, -4, -10, second, second, 0, math.MaxInt64},
		{1, 1, 3, 0, 0, 3, now},
		{2, 0, 1, 0, second, 1, math.MaxInt64},
	} {
		was := newConcurrency(t, c.n)
		b := l.Advance(&was, bucket.Bucket{Tokens: c.free, At: now + second}, now) // also if the clock was set back
		if b != (bucket.Bucket{Tokens: c.under, At: now}) || l.Held(b.Tokens) != c.n-c.free || l.Reanchor(b, now+second).Tokens != b.Tokens {
			t.Errorf("%+v: %+v", c, b)
		}
		if retry, reset := l.RetryAfter(b.Tokens, 1, l.Debt(math.MaxInt64), 0), l.ResetAfter(b.Tokens, 0); retry != c.retry || reset != c.reset {
			t.Errorf("%+v: retry after %d, reset after %d", c, retry, reset)
		}
		granted := l.Grants(b.Tokens, 1, 0, 100)
		if left := l.Charge(b.Tokens, 1, 0, granted); granted != c.granted || left != c.under-granted || l.Remaining(b.Tokens) != max(0, c.under) {
			t.Errorf("%+v: %d are granted, and leave %d", c, granted, left)
		}
		if at := l.KeepUntil(&was, 0, b); at != c.fullAt || l.FullAt(b) != c.fullAt || l.Rest(b, now) != 0 {
			t.Errorf("%+v: kept until %d", c, at)
		}
		held := c.n - c.free
		if l.Loses(b.Tokens, -held) || !l.Loses(b.Tokens, -held-1) || l.Loses(b.Tokens, 1) || l.Loses(b.Tokens, bucket.Reset) {
			t.Errorf("%+v: a release loses what is not held, and no other charge does", c)
		}
		if free := l.Charge(b.Tokens, -1, 0, held+2); free != l.Capacity {
			t.Errorf("%+v: %d are free when all are released", c, free)
		}
	}
	if l.RetryAfter(3, l.Need(4), 0, 0) != bucket.Never || l.Wait(0, 0) != 0 {
		t.Error("more slots than there are must never be granted")
	}
	// A lock is of a time under another kind of limit.
	lock := bucket.Block{Until: now + second, Lock: true}
	if got := l.After(lock, -1, 0, 1, now); got != (bucket.Block{}) {
		t.Errorf("a release of a locked bucket leaves %+v", got)
	}
	if got := l.After(lock, 1, 0, 0, now); got != lock {
		t.Errorf("a charge of a locked bucket leaves %+v", got)
	}
}

func TestShareOfSlots(t *testing.T) {
	for _, c := range []struct{ n, replicas, want int64 }{{4, 1, 4}, {4, 2, 2}, {5, 2, 2}, {4, 8, 1}, {1, 3, 1}, {bucket.MaxSlots, 3, 333_333}} {
		l := newConcurrency(t, c.n)
		if got := l.Share(c.replicas, 1); got != newConcurrency(t, c.want) || !got.Valid() {
			t.Errorf("one of %d parts of %d slots: %+v, want %d", c.replicas, c.n, got, c.want)
		}
	}
}
