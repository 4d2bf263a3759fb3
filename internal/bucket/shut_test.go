package bucket_test

import (
	"math"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/bucket"
)

func TestShut(t *testing.T) {
	const now, minute = 1_780_000_000_000_000, 60_000_000
	l := newLimit(t, 1, time.Minute, 5)
	block := bucket.Shut{Until: now + 10*minute, For: 30 * minute}
	lock := bucket.Shut{Until: now + 10*minute, For: 30 * minute, Lock: true}
	ended := bucket.Shut{Until: now, For: 30 * minute}
	for name, c := range map[string]struct {
		s                   bucket.Shut
		need, block, tokens int64
		want                bucket.Shut
	}{
		"a look":                              {s: lock, want: lock},
		"a look at an ended block":            {s: ended},
		"a block":                             {block: minute, want: bucket.Shut{Until: now + minute, For: minute}},
		"a block in place of another":         {s: block, block: minute, want: bucket.Shut{Until: now + minute, For: minute}},
		"a block in place of a lock":          {s: lock, block: minute, want: bucket.Shut{Until: now + minute, For: minute}},
		"an end of a block":                   {s: block, block: -1},
		"an end of a lock":                    {s: lock, block: -1},
		"a reset of a block":                  {s: block, need: bucket.Reset, tokens: 5 * l.Unit},
		"a reset of a lock":                   {s: lock, need: bucket.Reset, tokens: 5 * l.Unit},
		"a charge":                            {s: block, need: l.Unit, want: block},
		"a charge that locks":                 {need: l.Unit, block: minute, tokens: l.Unit - 1, want: bucket.Shut{Until: now + minute, For: minute, Lock: true}},
		"a charge that leaves a token":        {need: l.Unit, block: minute, tokens: l.Unit},
		"a lock after a block":                {s: ended, need: l.Unit, block: minute, want: bucket.Shut{Until: now + minute, For: minute, Lock: true}},
		"a shorter lock":                      {s: lock, need: l.Unit, block: 9 * minute, want: lock},
		"a lock as long":                      {s: lock, need: l.Unit, block: 10 * minute, want: lock},
		"a longer lock":                       {s: lock, need: l.Unit, block: 10*minute + 1, want: bucket.Shut{Until: now + 10*minute + 1, For: 10*minute + 1, Lock: true}},
		"a lock shorter than a block":         {s: block, need: l.Unit, block: 9 * minute, want: block},
		"a lock longer than a block":          {s: block, need: l.Unit, block: 11 * minute, want: bucket.Shut{Until: now + 11*minute, For: 11 * minute}},
		"a lock in debt":                      {need: l.Unit, block: minute, tokens: -l.Unit, want: bucket.Shut{Until: now + minute, For: minute, Lock: true}},
		"a refund of a block":                 {s: block, need: -l.Unit, tokens: 5 * l.Unit, want: block},
		"a refund that ends a lock":           {s: lock, need: -l.Unit, tokens: l.Unit},
		"a refund that leaves a lock":         {s: lock, need: -l.Unit, tokens: l.Unit - 1, want: lock},
		"a refund of a block that has ended":  {s: ended, need: -l.Unit, tokens: l.Unit},
		"a look with more than a token left":  {s: lock, tokens: 3 * l.Unit, want: lock},
		"what is owed, with tokens that last": {s: lock, need: l.Unit, tokens: 3 * l.Unit, want: lock},
	} {
		t.Run(name, func(t *testing.T) {
			if got := l.Shut(c.s, c.need, c.block, c.tokens, now); got != c.want {
				t.Errorf("%+v, want %+v", got, c.want)
			}
		})
	}
}

func TestShutIsLeft(t *testing.T) {
	if left := (bucket.Shut{}).Left(-5); left != 0 {
		t.Errorf("%d is left of no block before 1970", left)
	}
	s := bucket.Shut{Until: 1000, For: 300}
	for now, want := range map[int64]int64{
		0: 1000, 700: 300, 999: 1, 1000: 0, 1001: 0, math.MaxInt64: 0, -5: 1005,
		math.MinInt64: math.MaxInt64 / 1000,
	} {
		if got := s.Left(now); got != want {
			t.Errorf("at %d %d is left, want %d", now, got, want)
		}
	}
}

func TestShutIsReanchored(t *testing.T) {
	s := bucket.Shut{Until: 1000, For: 300, Lock: true}
	for _, now := range []int64{700, 701, 999, 1000, 5000} {
		if got := s.Reanchor(now); got != s {
			t.Errorf("at %d: %+v, want it unchanged", now, got)
		}
	}
	for _, now := range []int64{699, 0, -10_000_000} {
		if got, want := s.Reanchor(now), (bucket.Shut{Until: now + 300, For: 300, Lock: true}); got != want {
			t.Errorf("at %d: %+v, want %+v", now, got, want)
		}
	}
}

func TestBlockIsInMicroseconds(t *testing.T) {
	for d, want := range map[time.Duration]int64{
		0: 0, 1: 1, 999: 1, 1000: 1, 1001: 2, time.Second: 1_000_000,
		-1: -1, -time.Hour: -1, math.MinInt64: -1,
		bucket.MaxWait * time.Microsecond: bucket.MaxWait, bucket.MaxWait*time.Microsecond - 1: bucket.MaxWait,
		bucket.MaxWait*time.Microsecond - 1000: bucket.MaxWait - 1, math.MaxInt64: bucket.MaxWait,
	} {
		if got := bucket.Block(d); got != want {
			t.Errorf("%d ns are %d µs, want %d", d, got, want)
		}
	}
}

func TestPasses(t *testing.T) {
	for _, c := range []struct {
		need, debt int64
		want       bool
	}{{1, 0, false}, {1, 1 << 52, false}, {0, 0, true}, {-1, 0, true}, {bucket.Reset, 0, true}, {1, bucket.AnyDebt, true}} {
		if got := bucket.Passes(c.need, c.debt); got != c.want {
			t.Errorf("need %d, debt %d: %t", c.need, c.debt, got)
		}
	}
}
