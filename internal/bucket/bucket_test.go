package bucket_test

import (
	"math"
	"math/big"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/bucket"
	"github.com/go-tokenbucket/ratelimit/internal/test/testsize"
)

const month = 30 * 24 * time.Hour

func newLimit(t testing.TB, rate int64, per time.Duration, burst int64) bucket.Limit {
	t.Helper()
	l, err := bucket.NewLimit(rate, per, burst)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestNewLimitIsInLowestTerms(t *testing.T) {
	for name, c := range map[string]struct {
		rate  int64
		per   time.Duration
		burst int64
		want  bucket.Limit
	}{
		"1 per second":            {1, time.Second, 5, bucket.Limit{Unit: 1_000_000, Refill: 1, Capacity: 5_000_000}},
		"3 per second":            {3, time.Second, 1, bucket.Limit{Unit: 1_000_000, Refill: 3, Capacity: 1_000_000}},
		"60 per minute":           {60, time.Minute, 10, bucket.Limit{Unit: 1_000_000, Refill: 1, Capacity: 10_000_000}},
		"1 per month":             {1, month, 1, bucket.Limit{Unit: 2_592_000_000_000, Refill: 1, Capacity: 2_592_000_000_000}},
		"10^6 per second":         {1_000_000, time.Second, 7, bucket.Limit{Unit: 1, Refill: 1, Capacity: 7}},
		"1 per 1.5 µs":            {1, 1500 * time.Nanosecond, 2, bucket.Limit{Unit: 3, Refill: 2, Capacity: 6}},
		"1 per nanosecond":        {1, 1, 1000, bucket.Limit{Unit: 1, Refill: 1000, Capacity: 1000}},
		"the finest without loss": {1, month, 868, bucket.Limit{Unit: 2_592_000_000_000, Refill: 1, Capacity: 868 * 2_592_000_000_000}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := newLimit(t, c.rate, c.per, c.burst); got != c.want {
				t.Errorf("%+v, want %+v", got, c.want)
			}
		})
	}
}

// checkLimit checks what NewLimit promises of a limit that it made.
func checkLimit(t *testing.T, l bucket.Limit, rate int64, per time.Duration, burst int64) {
	t.Helper()
	if l.Unit < 1 || l.Refill < 1 || l.Capacity != burst*l.Unit || l.Capacity > bucket.MaxCredits || l.Refill > l.Capacity || l.Fill() > bucket.MaxFill+bucket.MaxFill/1_000_000_000 {
		t.Fatalf("%d per %v, burst %d: %+v is out of bounds", rate, per, burst, l)
	}
	// Refill/Unit tokens a microsecond against 1000·rate/per.
	want := new(big.Rat).Quo(new(big.Rat).SetInt64(rate), big.NewRat(int64(per), 1000))
	slower := new(big.Rat).Sub(want, big.NewRat(l.Refill, l.Unit))
	slower.Quo(slower, want)
	if slower.Sign() < 0 || slower.Cmp(big.NewRat(1, 1_000_000_000)) >= 0 {
		t.Fatalf("%d per %v, burst %d: %+v is slower by %s", rate, per, burst, l, slower.FloatString(12))
	}
}

func TestALimitTooFineForTheIntegersIsSlowerByLessThan1e9(t *testing.T) {
	for _, c := range []struct {
		rate, burst int64
	}{{10_007, 10_007}, {999_983, 999_983}, {999_983, 2_000_000}} {
		l := newLimit(t, c.rate, month, c.burst)
		checkLimit(t, l, c.rate, month, c.burst)
		if exact := big.NewRat(l.Refill, l.Unit).Cmp(big.NewRat(c.rate, month.Microseconds())) == 0; exact {
			t.Errorf("%d per month, burst %d: %+v is exact: not what this test is for", c.rate, c.burst, l)
		}
	}
}

func TestRandomLimitsAreRightOrRefused(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 0))
	refused := 0
	n := testsize.Of(20_000, 100_000)
	for range n {
		rate, per, burst := int64(1)<<r.IntN(45), time.Duration(1)<<r.IntN(55), int64(1)<<r.IntN(45)
		rate, per, burst = 1+r.Int64N(rate), 1+time.Duration(r.Int64N(int64(per))), 1+r.Int64N(burst)
		l, err := bucket.NewLimit(rate, per, burst)
		if err == nil {
			checkLimit(t, l, rate, per, burst)
			continue
		}
		refused++
		// What the error says would fit does, if any burst fits that rate.
		text, bound, _ := strings.Cut(err.Error(), "must be at ")
		kind, number, _ := strings.Cut(bound, " ")
		fitting, convErr := strconv.ParseInt(number, 10, 64)
		if convErr != nil || !strings.HasPrefix(text, "Burst ") {
			t.Fatalf("%v", err)
		}
		l, err2 := bucket.NewLimit(rate, per, fitting)
		if err2 == nil {
			checkLimit(t, l, rate, per, fitting)
		} else if kind == "most" && strings.Contains(err2.Error(), "at most") {
			t.Fatalf("%v, but then: %v", err, err2)
		}
	}
	if refused < n/100 {
		t.Fatalf("only %d were refused", refused)
	}
}

func TestNewLimitNamesEveryField(t *testing.T) {
	_, err := bucket.NewLimit(0, -1, -5)
	for _, field := range []string{"Rate 0", "Per -1ns", "Burst -5"} {
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("error %v does not name %s", err, field)
		}
	}
	for name, c := range map[string]struct {
		rate  int64
		per   time.Duration
		burst int64
		want  string
	}{
		"too fine":                     {1, month, 5000, "at most"},
		"decades to fill":              {1, month, 900, "at most 868"},
		"refills within a microsecond": {1_000_000_000, time.Second, 10, "at least 1000"},
		"a rate beyond the integers":   {math.MaxInt64, time.Second, 1, "Rate"},
		"a burst beyond the integers":  {1, time.Second, math.MaxInt64, "Burst"},
	} {
		if _, err := bucket.NewLimit(c.rate, c.per, c.burst); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", name, err, c.want)
		}
	}
}

func TestAdvance(t *testing.T) {
	l := newLimit(t, 3, time.Second, 4) // 10^6 credits a token, 3 a microsecond
	full := l.Capacity
	for name, c := range map[string]struct {
		unit   int64 // of the limit before, 0 for none
		bucket bucket.Bucket
		now    int64
		want   bucket.Bucket
	}{
		"an absent bucket is full":                   {0, bucket.Bucket{}, 50, bucket.Bucket{Tokens: full, At: 50}},
		"time adds credits":                          {l.Unit, bucket.Bucket{Tokens: 7, At: 50}, 60, bucket.Bucket{Tokens: 37, At: 60}},
		"up to full":                                 {l.Unit, bucket.Bucket{Tokens: full - 1, At: 50}, 51, bucket.Bucket{Tokens: full, At: 51}},
		"eternity does not overflow":                 {l.Unit, bucket.Bucket{Tokens: 7, At: 0}, math.MaxInt64, bucket.Bucket{Tokens: full, At: math.MaxInt64}},
		"out of debt":                                {l.Unit, bucket.Bucket{Tokens: -40, At: 50}, 60, bucket.Bucket{Tokens: -10, At: 60}},
		"no time, no credits":                        {l.Unit, bucket.Bucket{Tokens: 7, At: 50}, 50, bucket.Bucket{Tokens: 7, At: 50}},
		"time backwards changes nothing":             {l.Unit, bucket.Bucket{Tokens: 7, At: 50}, 40, bucket.Bucket{Tokens: 7, At: 50}},
		"another unit carries over":                  {2, bucket.Bucket{Tokens: 5, At: 50}, 50, bucket.Bucket{Tokens: 2_500_000, At: 50}},
		"rounded down":                               {7_000_000, bucket.Bucket{Tokens: 5, At: 50}, 50, bucket.Bucket{Tokens: 0, At: 50}},
		"rounded down also in debt":                  {7_000_000, bucket.Bucket{Tokens: -5, At: 50}, 50, bucket.Bucket{Tokens: -1, At: 50}},
		"cut to the new capacity":                    {1, bucket.Bucket{Tokens: 5000, At: 50}, 50, bucket.Bucket{Tokens: full, At: 50}},
		"a debt of another unit is bounded":          {1, bucket.Bucket{Tokens: -bucket.MaxCredits, At: 50}, 50, bucket.Bucket{Tokens: -bucket.MaxCredits, At: 50}},
		"a lower capacity cuts before time is added": {l.Unit, bucket.Bucket{Tokens: 2 * full, At: 50}, 60, bucket.Bucket{Tokens: full, At: 60}},
	} {
		if got := l.Advance(&bucket.Limit{Unit: c.unit, Refill: min(c.unit, 1)}, c.bucket, c.now); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

func TestReanchor(t *testing.T) {
	l := newLimit(t, 1, time.Second, 2) // full after 2 s
	b := bucket.Bucket{Tokens: 5, At: 10_000_000}
	if got := l.Reanchor(b, 8_000_000); got != b {
		t.Errorf("set back by the time to full: %+v, want no change", got)
	}
	moved := bucket.Bucket{Tokens: 5, At: 7_999_999}
	if got := l.Reanchor(b, 7_999_999); got != moved {
		t.Errorf("set back by more: %+v, want %+v", got, moved)
	}
}

func TestNeedAndDebtAreBounded(t *testing.T) {
	for _, l := range []bucket.Limit{newLimit(t, 1, month, 800), newLimit(t, 1, time.Second, 5), newLimit(t, 1_000_000, time.Second, 1), newLimit(t, 999_983, time.Second, 100)} {
		burst := l.Capacity / l.Unit
		for cost, want := range map[int64]int64{
			0: 0, 1: l.Unit, burst: l.Capacity, burst + 1: l.Capacity + 1, math.MaxInt64: l.Capacity + 1,
			-1: -l.Unit, -math.MaxInt64: -2 * bucket.MaxCredits, math.MinInt64: bucket.Reset,
		} {
			if got := l.Need(cost); got != want {
				t.Errorf("%+v: Need(%d) is %d, want %d", l, cost, got, want)
			}
		}
		for wait, want := range map[int64]int64{
			-1: 0, 0: 0, 1: l.Refill, math.MinInt64: 0,
			math.MaxInt64: min(bucket.MaxCredits, bucket.MaxWait*min(l.Refill, 4)), // 4 MaxWait are MaxCredits
		} {
			if got := l.Debt(wait); got != want {
				t.Errorf("%+v: Debt(%d) is %d, want %d", l, wait, got, want)
			}
		}
	}
}

func TestGrantsAndCharge(t *testing.T) {
	l := bucket.Limit{Unit: 10, Refill: 1, Capacity: 100}
	for name, c := range map[string]struct {
		tokens, need, debt, count int64
		grants, left              int64
	}{
		"as many as fit":           {35, 10, 0, 9, 3, 5},
		"no more than asked":       {35, 10, 0, 2, 2, 15},
		"exactly":                  {30, 10, 0, 3, 3, 0},
		"one credit short":         {29, 10, 0, 3, 2, 9},
		"into debt":                {5, 10, 25, 9, 3, -25},
		"deep in debt":             {-30, 10, 25, 9, 0, -30},
		"never, however much debt": {100, 101, 1000, 9, 0, 100},
		"a peek in debt":           {-30, 0, 0, 4, 4, -30},
		"a refund in debt":         {-30, -10, 0, 4, 4, 10},
		"a refund up to full":      {95, -10, 0, 4, 4, 100},
		"an unbounded refund":      {-bucket.MaxCredits, -2 * bucket.MaxCredits, 0, 1000, 1000, 100},
		"owed":                     {35, 10, bucket.AnyDebt, 9, 9, -55},
		"owed above the capacity":  {100, 101, bucket.AnyDebt, 2, 2, -102},
		"owed in debt":             {-30, 10, bucket.AnyDebt, 1, 1, -40},
		"owed to the deepest debt": {10 - bucket.MaxCredits, 10, bucket.AnyDebt, 1, 1, -bucket.MaxCredits},
		"owed beyond it":           {11 - bucket.MaxCredits, 10, bucket.AnyDebt, 2, 2, -bucket.MaxCredits},
		"owed without bound":       {100, 2 * bucket.MaxCredits, bucket.AnyDebt, 1, 1, -bucket.MaxCredits},
		"owed beyond 64 bits":      {100, 2 * bucket.MaxCredits, bucket.AnyDebt, 1 << 20, 1 << 20, -bucket.MaxCredits},
		"none of what is owed":     {35, 2 * bucket.MaxCredits, bucket.AnyDebt, 0, 0, 35},
		"settled":                  {35, 10, bucket.NoDebt, 1, 1, 25},
		"settled more than it has": {35, 40, bucket.NoDebt, 1, 1, 0},
		"settled in debt":          {-30, 40, bucket.NoDebt, 1, 1, -30},
		"settled above a burst":    {100, 2 * bucket.MaxCredits, bucket.NoDebt, 1, 1, 0},
		"several settlements":      {35, 10, bucket.NoDebt, 9, 9, 0},
	} {
		grants := l.Grants(c.tokens, c.need, c.debt, c.count)
		if left := l.Charge(c.tokens, c.need, c.debt, grants); grants != c.grants || left != c.left {
			t.Errorf("%s: %d granted and %d left, want %d and %d", name, grants, left, c.grants, c.left)
		}
	}
}

func TestOwedChargesAndSettlementsAskForAll(t *testing.T) {
	for _, l := range []bucket.Limit{newLimit(t, 1, month, 800), newLimit(t, 1, time.Second, 5), newLimit(t, 1_000_000, time.Second, 1)} {
		burst := l.Capacity / l.Unit
		for _, settles := range []bool{false, true} {
			always := int64(bucket.AnyDebt)
			if settles {
				always = bucket.NoDebt
			}
			for cost, want := range map[int64]int64{
				1: l.Unit, burst: l.Capacity, burst + 1: l.Capacity + l.Unit, bucket.MaxCredits / l.Unit: bucket.MaxCredits / l.Unit * l.Unit,
				math.MaxInt64: 2 * bucket.MaxCredits,
			} {
				if need, debt := l.Ask(cost, 1, !settles, settles); need != want || debt != always {
					t.Errorf("%+v: %d asks %d and %d, want %d and %d", l, cost, need, debt, want, always)
				}
				if retry := l.RetryAfter(-bucket.MaxCredits, want, always, 0); retry != 0 {
					t.Errorf("%+v: %d is to be retried after %d", l, cost, retry)
				}
			}
			for _, cost := range []int64{0, -1, math.MinInt64} {
				need, debt := l.Ask(cost, 7, !settles, settles)
				if wantNeed, wantDebt := l.Need(cost), l.Debt(7); need != wantNeed || debt != wantDebt {
					t.Errorf("%+v: %d asks %d and %d, want %d and %d", l, cost, need, debt, wantNeed, wantDebt)
				}
			}
		}
	}
}

func FuzzNewLimit(f *testing.F) {
	f.Add(int64(1), int64(month), int64(800))
	f.Add(int64(999_983), int64(month), int64(2_000_000))
	f.Add(int64(1_000_000_000), int64(time.Second), int64(1000))
	f.Fuzz(func(t *testing.T, rate, per, burst int64) {
		if l, err := bucket.NewLimit(rate, time.Duration(per), burst); err == nil {
			checkLimit(t, l, rate, time.Duration(per), burst)
		}
	})
}

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
	for range testsize.Of(20_000, 100_000) {
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
