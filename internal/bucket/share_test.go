package bucket_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/bucket"
)

func TestShare(t *testing.T) {
	l := newLimit(t, 20, time.Second, 40)
	for name, c := range map[string]struct {
		n, tokens int64
		want      bucket.Limit
	}{
		"a quarter":                      {4, 1, bucket.Limit{Unit: 4 * l.Unit, Refill: l.Refill, Capacity: l.Capacity}},
		"room for one request":           {4, 25, bucket.Limit{Unit: 4 * l.Unit, Refill: l.Refill, Capacity: 100 * l.Unit}},
		"but for no more than the burst": {4, 41, bucket.Limit{Unit: 4 * l.Unit, Refill: l.Refill, Capacity: 160 * l.Unit}},
		"a refund":                       {4, -5, bucket.Limit{Unit: 4 * l.Unit, Refill: l.Refill, Capacity: l.Capacity}},
		"of more than the burst":         {100, 1, bucket.Limit{Unit: 100 * l.Unit, Refill: l.Refill, Capacity: 100 * l.Unit}},
		"all":                            {1, 1, l},
	} {
		if got := l.Share(c.n, c.tokens); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

func TestASharedLimitIsOneThatNewLimitCouldHaveMade(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 0))
	for range 100_000 {
		rate, per, burst := int64(1)<<r.IntN(45), time.Duration(1)<<r.IntN(55), int64(1)<<r.IntN(45)
		l, err := bucket.NewLimit(1+r.Int64N(rate), 1+time.Duration(r.Int64N(int64(per))), 1+r.Int64N(burst))
		if err != nil {
			continue
		}
		n, tokens := int64(1)<<r.IntN(40), int64(1)<<r.IntN(62)-2
		s := l.Share(n, tokens)
		if s.Unit < l.Unit || s.Refill != l.Refill || s.Capacity < l.Capacity || s.Capacity < s.Unit || s.Capacity > bucket.MaxCredits || s.Fill() > bucket.MaxFill {
			t.Fatalf("%+v.Share(%d, %d) is %+v", l, n, tokens, s)
		}
	}
}
