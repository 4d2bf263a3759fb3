package denialcache_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"go.uber.org/goleak"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/ratetest"
	"github.com/go-tokenbucket/ratelimit/internal/test/testsize"
	"github.com/go-tokenbucket/ratelimit/internal/test/teststore"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/denialcache"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Calls of few buckets, most of which are short, at times that move a little: many of them are answered
// without the store, all of them as by it.
func TestDenialsAreThoseOfTheStore(t *testing.T) {
	for name, cfg := range map[string]denialcache.Config{
		"default":        {},
		"a short MaxAge": {MaxAge: 5 * time.Millisecond},
		"a single slot":  {MaxKeys: 1},
		"few slots":      {MaxKeys: 4},
	} {
		t.Run(name, func(t *testing.T) {
			calls := testsize.Of(8_000, 30_000)
			r := newRig(t, cfg)
			plain := teststore.OpenMemory(t, r.clock)
			rand := rand.New(rand.NewPCG(6, 0))
			limits := []store.Limit{teststore.Limit(t, 1, time.Second, 5), teststore.Limit(t, 7, time.Second, 20), teststore.Limit(t, 333, time.Second, 100), teststore.Limit(t, 999_983, time.Second, 1000)}
			blocks := 0
			for i := range calls {
				switch rand.IntN(16) {
				case 0, 1, 2:
					r.advance(time.Microsecond)
				case 3:
					r.advance(time.Duration(rand.IntN(int(100 * time.Millisecond))))
				case 4:
					r.advance(-time.Duration(rand.IntN(int(20 * time.Millisecond))))
				}
				charges := make([]store.Charge, 1+max(0, rand.IntN(5)-2))
				for i := range charges {
					l := rand.IntN(len(limits))
					charges[i] = store.Charge{Policy: fmt.Sprint("p", i), Key: fmt.Sprint("k", l), Limit: limits[l], Cost: 1 + rand.Int64N(5)}
					switch rand.IntN(64) {
					case 0:
						charges[i].Cost = 0
					case 1:
						charges[i].Cost = -charges[i].Cost
					case 2:
						charges[i].Limit = limits[rand.IntN(len(limits))]
					case 3:
						charges[i].Cost = math.MaxInt64
					case 4, 5, 6:
						charges[i].MaxWait = time.Duration(rand.IntN(int(10 * time.Millisecond)))
					case 7, 8, 9:
						charges[i].Shadow = true
					case 10:
						charges[i].Owed = true
					case 11, 12:
						d := max(0, time.Duration(rand.IntN(int(200*time.Millisecond)))-20*time.Millisecond)
						block(t, plain, charges[i], d)
						block(t, r.Store, charges[i], d)
						blocks++
					case 13, 14, 15:
						charges[i].Lock = time.Duration(rand.IntN(int(50 * time.Millisecond)))
					}
				}
				if charges[0].Lock == 0 && rand.IntN(32) == 0 {
					charges = charges[:1]
					charges[0] = store.Charge{Policy: charges[0].Policy, Key: charges[0].Key, Limit: charges[0].Limit, Cost: 2, Settles: true}
				}
				want := make([]store.State, len(charges))
				wantOK, err := plain.Take(context.Background(), charges, want)
				if err != nil {
					t.Fatal(err)
				}
				if ok, got, asked := r.Take(charges...); ok != wantOK || !slices.Equal(got, want) {
					t.Fatalf("call %d of %+v, asked %t:\n\tgot  %t %+v\n\twant %t %+v", i, charges, asked, ok, got, wantOK, want)
				}
			}
			local := calls + blocks - int(r.Behind.Calls.Load())
			t.Logf("%d calls were answered without the store", local)
			if local < calls/200 {
				t.Error("want one in 200")
			}
		})
	}
}

// A rig is a teststore.Rig of a denial cache, and its clock.
type rig struct {
	*teststore.Rig
	time time.Time
}

func newRig(t *testing.T, cfg denialcache.Config) *rig {
	r := &rig{time: time.Date(2026, 5, 23, 10, 20, 30, 123_456_000, time.UTC)}
	behind := &teststore.Counted{Store: teststore.OpenMemory(t, r.clock)}
	cfg.Clock = r.clock
	r.Rig = &teststore.Rig{T: t, Store: ratelimit.Must(denialcache.New(behind, cfg)), Behind: behind}
	return r
}

func (r *rig) clock() time.Time { return r.time }

func (r *rig) advance(d time.Duration) { r.time = r.time.Add(d) }

// refuses makes a call that must be refused without asking the store behind, and returns its first state.
func (r *rig) refuses(charges ...store.Charge) store.State {
	r.Helper()
	ok, states, asked := r.Take(charges...)
	if ok || asked {
		r.Fatalf("ok %t, asked %t, want to refuse %+v without the store", ok, asked, charges)
	}
	return states[0]
}

// charge takes cost of a bucket that refills a token in 10 s, up to 5.
func charge(t testing.TB, key string, cost int64) store.Charge {
	t.Helper()
	return store.Charge{Policy: "p", Key: key, Limit: teststore.Limit(t, 6, time.Minute, 5), Cost: cost}
}

// spend empties a bucket, and has it refuse one more.
func (r *rig) spend(key string) store.Charge {
	r.Helper()
	r.Asks(charge(r, key, 5))
	c := charge(r, key, 1)
	r.Asks(c)
	return c
}

func TestADenialIsRepeatedUntilTheBucketMayPay(t *testing.T) {
	test := func(t *testing.T, r *rig, advance func(time.Duration)) {
		c := r.spend("k")
		r.Want(r.refuses(c), store.State{RetryAfter: 10 * time.Second, ResetAfter: 50 * time.Second})
		advance(9 * time.Second)
		r.Want(r.refuses(c), store.State{RetryAfter: time.Second, ResetAfter: 41 * time.Second})
		advance(time.Second)
		if s := r.Asks(c); !s.Allowed {
			t.Errorf("%+v after RetryAfter", s)
		}
	}
	r := newRig(t, denialcache.Config{MaxAge: time.Minute})
	test(t, r, r.advance)
	synctest.Test(t, func(t *testing.T) { // by the clock of the machine
		behind := &teststore.Counted{Store: teststore.OpenMemory(t, nil)}
		d := ratelimit.Must(denialcache.New(behind, denialcache.Config{MaxAge: time.Minute}))
		test(t, &rig{Rig: &teststore.Rig{T: t, Store: d, Behind: behind}}, time.Sleep)
	})
}

// The store's clock may be 0.1 % faster: after 9.98 s by ours it has had 9.99, and after 9.995 s 10.005.
func TestADenialAllowsForClocksThatDisagree(t *testing.T) {
	r := newRig(t, denialcache.Config{MaxAge: time.Minute})
	c := r.spend("k")
	r.advance(9_980 * time.Millisecond)
	r.refuses(c)
	r.advance(15 * time.Millisecond)
	r.Asks(c)
}

func TestADenialTellsWhatOtherCostsAndWaitsFind(t *testing.T) {
	r := newRig(t, denialcache.Config{})
	c := r.spend("k")
	c.Cost = 3
	r.Want(r.refuses(c), store.State{RetryAfter: 30 * time.Second, ResetAfter: 50 * time.Second})
	c.Cost = 6
	r.Want(r.refuses(c), store.State{RetryAfter: store.Never, ResetAfter: 50 * time.Second})
	c.Cost = math.MaxInt64
	r.Want(r.refuses(c), store.State{RetryAfter: store.Never, ResetAfter: 50 * time.Second})
	c.Cost, c.MaxWait = 1, 9*time.Second
	r.Want(r.refuses(c), store.State{RetryAfter: time.Second, ResetAfter: 50 * time.Second})
	c.MaxWait = 10 * time.Second
	if s := r.Asks(c); s.Wait != c.MaxWait {
		t.Fatalf("%+v, want to be allowed", s)
	}
}

func TestADenialIsNotUsedLongerThanMaxAge(t *testing.T) {
	for name, c := range map[string]struct{ cfg, want time.Duration }{
		"default": {0, time.Second},
		"set":     {3 * time.Second, 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, denialcache.Config{MaxAge: c.cfg})
			charge := r.spend("k")
			r.advance(c.want)
			r.refuses(charge)
			r.advance(time.Microsecond)
			r.Asks(charge)
			r.refuses(charge)
		})
	}
}

// A call that is allowed renews what is known of the bucket, but only for MaxAge after the denial: a
// bucket that is charged now and then and not short is forgotten.
func TestAnAllowedCallRenewsALineUntilMaxAgeAfterTheDenial(t *testing.T) {
	r := newRig(t, denialcache.Config{})
	r.Asks(charge(t, "k", 1))
	r.Asks(charge(t, "k", 5))
	for left := range int64(3) {
		r.advance(300 * time.Millisecond)
		r.Asks(charge(t, "k", 1))
		if s := r.refuses(charge(t, "k", 5)); s.Remaining != 3-left {
			t.Fatalf("%d left, want %d", s.Remaining, 3-left)
		}
	}
	r.advance(200 * time.Millisecond)
	r.Asks(charge(t, "k", 1))
	r.Asks(charge(t, "k", 5))
}

func TestWhatAddsTokensCountsAtOnce(t *testing.T) {
	other := teststore.Limit(t, 600, time.Minute, 50)
	for name, change := range map[string]func(c *store.Charge){
		"a refund":      func(c *store.Charge) { c.Cost = -1 },
		"a reset":       func(c *store.Charge) { c.Cost = math.MinInt64 },
		"another limit": func(c *store.Charge) { c.Limit = other },
		"a peek":        func(c *store.Charge) { c.Cost = 0 },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, denialcache.Config{})
			c := r.spend("k")
			r.refuses(c)
			changed := c
			change(&changed)
			r.Asks(changed)
			r.Asks(changed)
			switch {
			case changed.Cost < 0:
				if s := r.Asks(c); !s.Allowed {
					t.Errorf("%+v after it", s)
				}
			case changed.Cost == 0:
				r.refuses(c) // what a peek tells is a denial, too
				changed.Policy = "q"
				r.Asks(c, changed)
			}
		})
	}
}

func TestAClockThatGoesBackwards(t *testing.T) {
	r := newRig(t, denialcache.Config{MaxAge: time.Minute})
	c := r.spend("k")
	r.advance(5 * time.Second)
	r.Asks(charge(t, "other", 1))
	r.advance(-5*time.Second - time.Microsecond)
	r.Asks(c) // from before the denial was made
	r.advance(time.Microsecond)
	r.refuses(c)

	// Its last refill is ahead of the clock, until when the bucket stands still.
	r.advance(20 * time.Second)
	r.Asks(c)
	r.advance(-10 * time.Second)
	denied := store.State{Remaining: 1, RetryAfter: 10 * time.Second, ResetAfter: 40 * time.Second}
	c.Cost = 2
	r.Want(r.Asks(c), denied)
	r.advance(5 * time.Second)
	r.Want(r.Asks(c), denied)
	r.advance(5 * time.Second)
	r.Want(r.refuses(c), denied) // as the allowed call said
}

// A bucket that was only looked at is not yet under the limit of the peek, so that the first charge has to be sent.
func TestAPeekUnderAnotherLimitKeepsNoChargeFromTheStore(t *testing.T) {
	r := newRig(t, denialcache.Config{})
	spent, full := r.spend("spent"), r.spend("full")
	other := spent
	other.Limit = teststore.Limit(t, 1, time.Hour, 1000)
	peek := other
	peek.Cost = 0
	for range 3 {
		r.Asks(peek, full) // which refuses
	}
	r.Asks(other)
	if b, err := store.Inspect(t.Context(), r.Store, other.Policy, other.Key); err != nil || b.Limit != other.Limit {
		t.Errorf("%+v, %v, want it under %+v", b, err, other.Limit)
	}
	r.refuses(other)
}

func TestACallOfSeveralChargesIsRefusedWhenAllAreKnown(t *testing.T) {
	r := newRig(t, denialcache.Config{})
	spent := r.spend("k")
	r.refuses(spent)
	plenty, shadow := spent, spent
	plenty.Policy, shadow.Policy = "plenty", "shadow"
	plenty.Cost, shadow.Cost, shadow.Shadow = 2, 5, true
	r.Asks(plenty)
	r.Asks(shadow)

	_, want, asked := r.Take(plenty, spent, shadow)
	if !asked {
		t.Fatal("refused without what all buckets hold")
	}
	ok, got, asked := r.Take(plenty, spent, shadow)
	if ok || asked {
		t.Fatalf("ok %t, asked %t", ok, asked)
	}
	for i := range want {
		r.Want(got[i], want[i])
	}
	r.Want(got[0], store.State{Allowed: true, Remaining: 3, ResetAfter: 20 * time.Second})
	r.Want(got[2], store.State{RetryAfter: 50 * time.Second, ResetAfter: 50 * time.Second})

	// A shadow vetoes nothing, and without a veto the store is asked.
	r.Asks(shadow)
	r.Asks(plenty, shadow)
	r.refuses(spent)
	spent.Shadow = true
	r.Asks(spent)
}

// A slot may be free at any time.
func TestSlotsAreAskedForEachTime(t *testing.T) {
	r := newRig(t, denialcache.Config{})
	limit, err := store.NewConcurrency(1)
	if err != nil {
		t.Fatal(err)
	}
	take := store.Charge{Policy: "slots", Key: "k", Limit: limit, Cost: 1}
	release, spent := take, r.spend("k")
	release.Cost = -1
	for range 3 {
		if s := r.Asks(take); !s.Allowed {
			t.Fatalf("%+v", s)
		}
		for range 3 {
			if s := r.Asks(take); s.Allowed {
				t.Fatalf("%+v", s)
			}
			r.Asks(spent, take)
			r.refuses(spent)
		}
		if s := r.Asks(release); s.Lost {
			t.Fatalf("%+v", s)
		}
	}
}

// More charges than Take has room for on its stack.
func TestACallOfManyCharges(t *testing.T) {
	r := newRig(t, denialcache.Config{MaxKeys: 1 << 20}) // of the default number, two would often share a slot
	var charges []store.Charge
	for i := range 20 {
		charges = append(charges, charge(t, fmt.Sprint(i), 3))
	}
	r.Asks(charges...)
	r.Asks(charges...)
	r.refuses(charges...)
}

// In a single slot, the bucket that was answered last has the denial.
func TestBucketsThatShareASlot(t *testing.T) {
	r := newRig(t, denialcache.Config{MaxKeys: 1})
	a := r.spend("a")
	r.refuses(a)
	b := r.spend("b")
	r.refuses(b)
	r.Asks(a)
	r.refuses(a)
	r.Asks(b)
	// Not both can be known, so that a call of both is asked.
	for range 3 {
		r.Asks(a, b)
	}
	// The names are compared whole.
	for _, name := range [][2]string{{"p", "bb"}, {"pb", "b"}, {"pb", ""}, {"p", "B"}, {"b", "p"}} {
		c := b
		c.Policy, c.Key = name[0], name[1]+"b"
		if s := r.Asks(c); !s.Allowed {
			t.Errorf("%q: %+v", name, s)
		}
	}
}

func TestDenialsAreKeptOfMaxKeysBucketsAtMost(t *testing.T) {
	for name, c := range map[string]struct{ cfg, most, least int }{
		"default":             {0, 16_384, 10_000},
		"a power of two":      {64, 64, 32},
		"one more is doubled": {65, 128, 65},
		"one":                 {1, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, denialcache.Config{MaxKeys: c.cfg})
			calls := make([]store.Charge, 2*c.most)
			above := charge(t, "", 6) // the burst
			for i := range calls {
				calls[i] = above
				calls[i].Key = fmt.Sprint(i)
				r.Asks(calls[i])
			}
			known := 0
			r.Behind.Store = &teststore.Answering{} // nothing that would be kept
			for i := range calls {
				if _, states, asked := r.Take(calls[i]); !asked && states[0].RetryAfter == store.Never {
					known++
				}
			}
			if known > c.most || known < c.least {
				t.Errorf("%d denials are known, want up to %d", known, c.most)
			}
		})
	}
}

func TestLongKeysAreKeptByTheirHash(t *testing.T) {
	s := ratelimit.Must(denialcache.New(teststore.OpenMemory(t, nil), denialcache.Config{MaxKeys: 1 << 10}))
	kept := teststore.LeftOnHeap(func() {
		teststore.LongKeys(t, func(c store.Charge) {
			c.Cost = 101 // which is refused, so that the store keeps nothing
			if ok, err := s.Take(t.Context(), []store.Charge{c}, make([]store.State, 1)); ok || err != nil {
				t.Fatal(ok, err)
			}
		})
	})
	if kept > teststore.MostOfLongKeys {
		t.Errorf("300 keys of 90 KB keep %d bytes", kept)
	}
	runtime.KeepAlive(s)

	r := newRig(t, denialcache.Config{})
	long := strings.Repeat("k", 10_000)
	c := r.spend(long + "a")
	r.refuses(c)
	r.Asks(charge(t, long+"b", 1))
	r.Store.(*denialcache.Store).Forget("p", long+"a")
	r.Asks(c)
}

func TestNamesAreCopied(t *testing.T) {
	r := newRig(t, denialcache.Config{})
	policy, key := []byte("p"), []byte("key")
	c := charge(t, "", 6)
	c.Policy, c.Key = unsafe.String(&policy[0], len(policy)), unsafe.String(&key[0], len(key))
	r.Asks(c)
	policy[0], key[0] = 'P', 'K'
	c.Policy, c.Key = "p", "key"
	r.refuses(c)
}

func TestACallThatIsOverOrInvalidIsNotAnswered(t *testing.T) {
	r := newRig(t, denialcache.Config{})
	c := r.spend("k")
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for name, call := range map[string]struct {
		ctx     context.Context
		charges []store.Charge
		want    error
	}{
		"over":             {over, []store.Charge{c}, context.Canceled},
		"no charges":       {t.Context(), nil, store.ErrInvalidCall},
		"one bucket twice": {t.Context(), []store.Charge{c, c}, store.ErrInvalidCall},
		"no limit":         {t.Context(), []store.Charge{{Policy: "p", Key: "k", Cost: 1}}, store.ErrInvalidCall},
	} {
		calls := r.Behind.Calls.Load()
		if ok, err := r.Store.Take(call.ctx, call.charges, make([]store.State, 2)); ok || !errors.Is(err, call.want) {
			t.Errorf("%s: ok %t, error %v", name, ok, err)
		}
		if call.want == store.ErrInvalidCall && r.Behind.Calls.Load() != calls {
			t.Errorf("%s: the store was asked", name)
		}
		r.refuses(c) // as before
	}
}

// A charge that failed may have been carried out, so that nothing is known after it.
func TestAFailedCallVoidsALine(t *testing.T) {
	r := newRig(t, denialcache.Config{})
	r.Asks(charge(t, "k", 3))
	c := charge(t, "k", 5)
	r.Asks(c)
	r.refuses(c)
	behind := r.Behind.Store
	r.Behind.Store = ratetest.Failing(func() error { return errors.New("away") })
	if _, err := r.Store.Take(context.Background(), []store.Charge{charge(t, "k", 1)}, make([]store.State, 1)); err == nil {
		t.Fatal("no error")
	}
	r.Behind.Store = behind
	r.Asks(c)
	r.refuses(c)
}

// Of a bucket that refills 3 credits a microsecond, a State leaves 3 open, and the call took 10 seconds.
func TestOnlyWhatAStateLeavesNoDoubtOfIsAnswered(t *testing.T) {
	r := newRig(t, denialcache.Config{MaxAge: time.Hour})
	empty := 333_333_334 * time.Microsecond // it holds -2, -1 or 0 of 10^9 credits
	r.Behind.Store = &teststore.Answering{
		State: store.State{RetryAfter: empty, ResetAfter: empty},
		Wait:  func() { r.advance(10 * time.Second) },
	}
	c := store.Charge{Policy: "p", Key: "k", Limit: teststore.Limit(t, 3, time.Second, 1000), Cost: 1000}
	other := c
	other.Policy = "q"
	r.Asks(c, other)
	r.Behind.Store = &teststore.Answering{} // nothing that would be kept

	r.advance(20 * time.Second)
	r.Asks(c) // 60 tokens, or a credit less
	r.advance(time.Microsecond)
	full := 313_333_333 * time.Microsecond
	r.Want(r.refuses(c), store.State{Remaining: 60, RetryAfter: full, ResetAfter: full})

	c.Cost = 92
	r.Asks(c) // to wait for 31,999,997 credits, or two more
	c.Cost = 91
	r.Want(r.refuses(c), store.State{Remaining: 60, RetryAfter: 10_333_333 * time.Microsecond, ResetAfter: full})
	// If it had answered as soon as it was asked, there would be 91 now.
	r.advance(400 * time.Millisecond)
	r.Asks(c)
	r.refuses(other)
	r.Asks(other, c)
}

func TestAStateThatNoBucketAnswersIsNotKept(t *testing.T) {
	for name, s := range map[string]store.State{
		"the zero State": {},
		"too soon":       {RetryAfter: time.Second, ResetAfter: 50 * time.Second},
		"too much left":  {Remaining: 1, RetryAfter: 10 * time.Second, ResetAfter: 50 * time.Second},
		"of a stand-in":  {RetryAfter: 10 * time.Second, ResetAfter: 50 * time.Second, Degraded: true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, denialcache.Config{})
			r.Behind.Store = &teststore.Answering{State: s}
			for range 3 {
				r.Want(r.Asks(charge(t, "k", 1)), s)
			}
		})
	}
}

func TestAReplyBeforeItsCallIsNotKept(t *testing.T) {
	r := newRig(t, denialcache.Config{})
	r.Behind.Store = &teststore.Answering{
		State: store.State{RetryAfter: 10 * time.Second, ResetAfter: 50 * time.Second},
		Wait:  func() { r.advance(-time.Microsecond) },
	}
	r.Asks(charge(t, "k", 1))
	r.advance(time.Second)
	r.Asks(charge(t, "k", 1))
}

func TestDenialsDoNotAllocate(t *testing.T) {
	s := ratelimit.Must(denialcache.New(teststore.OpenMemory(t, nil), denialcache.Config{MaxAge: time.Hour}))
	states := make([]store.State, 3)
	ctx := context.Background()
	several := func(cost int64) []store.Charge {
		hourly := teststore.Limit(t, 1, time.Hour, 600_000)
		return []store.Charge{
			{Policy: "p", Key: fmt.Sprint("one", cost), Limit: hourly, Cost: cost},
			{Policy: "p", Key: fmt.Sprint("two", cost), Limit: hourly, Cost: cost},
			{Policy: "p", Key: fmt.Sprint("three", cost), Limit: hourly, Cost: cost},
		}
	}
	for name, charges := range map[string][]store.Charge{
		"allowed":          several(1)[:1],
		"denied":           several(2_000_000)[:1],
		"several, allowed": several(2),
		"several, denied":  several(3_000_000),
	} {
		if n := testing.AllocsPerRun(1000, func() {
			if _, err := s.Take(ctx, charges, states); err != nil {
				t.Error(err)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func TestDenialConfigIsChecked(t *testing.T) {
	for want, err := range map[string]error{
		"MaxKeys -1: must be positive":  ratetest.Err(denialcache.New(ratetest.Generous{}, denialcache.Config{MaxKeys: -1})),
		"MaxAge -1ns: must be positive": ratetest.Err(denialcache.New(ratetest.Generous{}, denialcache.Config{MaxAge: -1})),
		"s is nil":                      ratetest.Err(denialcache.New(nil, denialcache.Config{})),
	} {
		ratetest.CheckText(t, fmt.Sprint(err), want)
	}
}

// panicking is a Store that panics once, in a call that adds tokens.
type panicking struct {
	store.Store
	times int
}

func (p *panicking) Take(ctx context.Context, charges []store.Charge, states []store.State) (bool, error) {
	if charges[0].Cost < 0 && p.times == 0 {
		p.times++
		panic("in the store")
	}
	return p.Store.Take(ctx, charges, states)
}

func TestDenialsAreRememberedAfterAPanicOfTheStore(t *testing.T) {
	limit, err := store.NewLimit(1, time.Hour, 1)
	if err != nil {
		t.Fatal(err)
	}
	d := ratelimit.Must(denialcache.New(&panicking{Store: teststore.OpenMemory(t, time.Now)}, denialcache.Config{MaxAge: time.Minute}))
	take := func(cost int64) {
		defer func() { _ = recover() }()
		charges := []store.Charge{{Policy: "p", Key: "k", Limit: limit, Cost: cost}}
		if _, err := d.Take(t.Context(), charges, make([]store.State, 1)); err != nil {
			t.Error(err)
		}
	}
	for _, cost := range []int64{-1, 1, 1, 1} {
		take(cost)
	}
	if n := d.Stats().Denials.Answered; n != 1 {
		t.Errorf("%d denials were answered without the store, want 1", n)
	}
}
