package bucket_test

import (
	"math"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/bucket"
)

func TestAfter(t *testing.T) {
	const now, minute = 1_780_000_000_000_000, 60_000_000
	l := newLimit(t, 1, time.Minute, 5)
	block := bucket.Block{Until: now + 10*minute}
	lock := bucket.Block{Until: now + 10*minute, Lock: true}
	ended := bucket.Block{Until: now}
	endedLock := bucket.Block{Until: now, Lock: true}
	newLock := bucket.Block{Until: now + minute, Lock: true}
	for name, c := range map[string]struct {
		before             bucket.Block
		need, lock, tokens int64
		want               bucket.Block
	}{
		"a look":                             {before: lock, want: lock},
		"a look at an ended block":           {before: ended},
		"a look with tokens at a lock":       {before: lock, tokens: 3 * l.Unit, want: lock},
		"a reset of a block":                 {before: block, need: bucket.Reset, tokens: 5 * l.Unit},
		"a reset of a lock":                  {before: lock, need: bucket.Reset, tokens: 5 * l.Unit},
		"an owed charge of a block":          {before: block, need: l.Unit, want: block},
		"an owed charge of a lock":           {before: lock, need: l.Unit, tokens: 3 * l.Unit, want: lock},
		"a charge that locks":                {need: l.Unit, lock: minute, tokens: l.Unit - 1, want: newLock},
		"a charge that locks in debt":        {need: l.Unit, lock: minute, tokens: -l.Unit, want: newLock},
		"a charge that leaves a token":       {need: l.Unit, lock: minute, tokens: l.Unit},
		"a charge without a lock":            {need: l.Unit},
		"a charge after a block":             {before: ended, need: l.Unit},
		"a lock after a block":               {before: ended, need: l.Unit, lock: minute, want: newLock},
		"a lock after a lock":                {before: endedLock, need: l.Unit, lock: minute, want: newLock},
		"a lock shorter than a lock":         {before: lock, need: l.Unit, lock: minute, want: lock},
		"a lock longer than a lock":          {before: lock, need: l.Unit, lock: 20 * minute, want: lock},
		"a lock longer than a block":         {before: block, need: l.Unit, lock: 20 * minute, want: block},
		"a refund of a block":                {before: block, need: -l.Unit, tokens: 5 * l.Unit, want: block},
		"a refund that ends a lock":          {before: lock, need: -l.Unit, tokens: l.Unit},
		"a refund that leaves a lock":        {before: lock, need: -l.Unit, tokens: l.Unit - 1, want: lock},
		"a refund of a block that has ended": {before: ended, need: -l.Unit, tokens: l.Unit},
	} {
		if got := l.After(c.before, c.need, c.lock, c.tokens, now); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

func TestBlockIsLeft(t *testing.T) {
	if left := (bucket.Block{}).Left(-5); left != 0 {
		t.Errorf("%d is left of no block before 1970", left)
	}
	b := bucket.Block{Until: 1000}
	for now, want := range map[int64]int64{
		0: 1000, 700: 300, 999: 1, 1000: 0, 1001: 0, math.MaxInt64: 0, -5: 1005,
		math.MinInt64: math.MaxInt64 / 1000,
	} {
		if got := b.Left(now); got != want {
			t.Errorf("at %d %d is left, want %d", now, got, want)
		}
	}
}

func TestMicroseconds(t *testing.T) {
	for d, want := range map[time.Duration]int64{
		0: 0, 1: 1, 999: 1, 1000: 1, 1001: 2, time.Second: 1_000_000,
		-1: 0, -time.Hour: 0, math.MinInt64: 0,
		bucket.MaxWait * time.Microsecond: bucket.MaxWait, bucket.MaxWait*time.Microsecond - 1: bucket.MaxWait,
		bucket.MaxWait*time.Microsecond - 1000: bucket.MaxWait - 1, math.MaxInt64: bucket.MaxWait,
	} {
		if got := bucket.Microseconds(d); got != want {
			t.Errorf("%d ns are %d µs, want %d", d, got, want)
		}
	}
}

func TestPasses(t *testing.T) {
	for _, c := range []struct {
		need, debt int64
		want       bool
	}{
		{1, 0, false}, {1, 1 << 52, false}, {0, 0, true}, {-1, 0, true}, {bucket.Reset, 0, true},
		{1, bucket.AnyDebt, true}, {1, bucket.NoDebt, true},
	} {
		if got := bucket.Passes(c.need, c.debt); got != c.want {
			t.Errorf("need %d, debt %d: %t", c.need, c.debt, got)
		}
	}
}
