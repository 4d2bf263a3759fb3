package lease_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
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
	"github.com/go-tokenbucket/ratelimit/store/lease"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func openLease(t testing.TB, s store.Store, cfg lease.Config) *lease.Store {
	l := ratelimit.Must(lease.New(s, cfg))
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// Calls of few buckets at times that move a little: many of them are paid here, all of them answered as by
// the store.
func TestALeaseAnswersAsTheStoreDoes(t *testing.T) {
	for name, cfg := range map[string]lease.Config{
		"default":       {},
		"a short Hold":  {Hold: 5 * time.Millisecond},
		"whole bursts":  {Fraction: 1},
		"a single slot": {MaxKeys: 1},
		"few slots":     {MaxKeys: 4},
	} {
		t.Run(name, func(t *testing.T) {
			calls := testsize.Of(3_000, 10_000)
			leaseTest(t, cfg, func(t *testing.T, r *leaseRig) {
				plain := teststore.OpenMemory(r.T, nil)
				rand := rand.New(rand.NewPCG(6, 0))
				limits := []store.Limit{
					teststore.Limit(t, 10, time.Second, 200), teststore.Limit(t, 1000, time.Second, 1000), teststore.Limit(t, 7, time.Second, 100),
					teststore.Limit(t, 300, time.Second, 500), teststore.Limit(t, 1_000_000, time.Second, 100_000), teststore.Limit(t, 2_500_000, time.Second, 100_000),
				}
				local := 0
				for i := range calls {
					switch rand.IntN(16) {
					case 0, 1, 2:
						r.advance(time.Microsecond)
					case 3, 4:
						r.advance(time.Duration(rand.IntN(int(10 * time.Millisecond))))
					case 5:
						r.advance(time.Duration(rand.IntN(int(200 * time.Millisecond))))
					}
					charges := make([]store.Charge, 1+max(0, rand.IntN(8)-5))
					key := rand.IntN(len(limits))
					for i := range charges {
						charges[i] = store.Charge{Policy: fmt.Sprint("p", i), Key: fmt.Sprint("k", key), Limit: limits[key], Cost: 1 + rand.Int64N(3)}
						switch rand.IntN(256) {
						case 0:
							charges[i].Cost = 0
						case 1:
							charges[i].Cost = -charges[i].Cost
						case 2:
							charges[i].Cost = math.MaxInt64
						case 3:
							charges[i].Cost = math.MinInt64
						case 4, 5:
							charges[i].MaxWait = time.Duration(rand.IntN(int(10 * time.Millisecond)))
						case 6, 7:
							charges[i].Shadow = true
						case 8, 9, 10:
							charges[i].Cost = limits[key].Capacity / limits[key].Unit / 2
						case 11, 12:
							charges[i].Owed = true
							charges[i].Cost *= 1 + rand.Int64N(100)
						case 13, 14:
							d := max(0, time.Duration(rand.IntN(int(20*time.Millisecond)))-10*time.Millisecond)
							block(t, plain, charges[i], d)
							block(t, r.Store, charges[i], d)
						case 15:
							charges[i].Lock = time.Duration(rand.IntN(int(10 * time.Millisecond)))
						case 16:
							if i == 0 { // a settlement is a call of its own
								charges, charges[0].Settles = charges[:1], true
							}
						}
						if charges[0].Settles {
							break
						}
					}
					want := make([]store.State, len(charges))
					wantOK, err := plain.Take(context.Background(), charges, want)
					if err != nil {
						t.Fatal(err)
					}
					ok, got, asked := r.Take(charges...)
					if ok != wantOK || !slices.Equal(got, want) {
						t.Fatalf("call %d of %+v, asked %t:\n\tgot  %t %+v\n\twant %t %+v", i, charges, asked, ok, got, wantOK, want)
					}
					if !asked {
						local++
					}
				}
				if t.Logf("%d calls were answered without the store", local); local < calls/100 {
					t.Error("want one in 100")
				}
			})
		})
	}
}

// A leaseRig is a rig whose store leases, in a bubble whose time is that of all clocks.
type leaseRig struct{ *teststore.Rig }

// leaseTest runs a test on a leaseRig.
func leaseTest(t *testing.T, cfg lease.Config, test func(*testing.T, *leaseRig)) {
	synctest.Test(t, func(t *testing.T) {
		behind := &teststore.Counted{Store: teststore.OpenMemory(t, nil)}
		test(t, &leaseRig{&teststore.Rig{T: t, Behind: behind, Store: openLease(t, behind, cfg)}})
	})
}

func (r *leaseRig) advance(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// takes makes n calls.
func (r *leaseRig) takes(n int, charges ...store.Charge) {
	r.Helper()
	for range n {
		r.Take(charges...)
	}
}

// have gives the store behind a fault until mend is called.
func (r *leaseRig) have(f teststore.Fault) (mend func()) {
	behind := r.Behind.Store
	faulty := &teststore.Faulty{Store: behind}
	faulty.Have(f)
	r.Behind.Store = faulty
	return func() { r.Behind.Store = behind }
}

// slow is the fault of a store that calls and replies take some time to and from.
func slow(way time.Duration) teststore.Fault {
	return func(_ context.Context, take func() error) error {
		time.Sleep(way)
		err := take()
		time.Sleep(way)
		return err
	}
}

// fails makes a call that must fail.
func (r *leaseRig) fails(charges ...store.Charge) {
	r.Helper()
	if ok, err := r.Store.Take(context.Background(), charges, make([]store.State, len(charges))); ok || err == nil {
		r.Fatalf("ok %t, error %v", ok, err)
	}
}

// pays makes a call that must be paid without the store behind, and returns its first state.
func (r *leaseRig) pays(charges ...store.Charge) store.State {
	r.Helper()
	ok, states, asked := r.Take(charges...)
	if !ok || asked {
		r.Fatalf("ok %t, asked %t, want to pay %+v without the store", ok, asked, charges)
	}
	return states[0]
}

// paysFor makes n such calls.
func (r *leaseRig) paysFor(n int, charges ...store.Charge) {
	r.Helper()
	for range n {
		r.pays(charges...)
	}
}

// hot takes one of a bucket that refills a token a second, up to 100.
func hot(t testing.TB, key string) store.Charge {
	t.Helper()
	return store.Charge{Policy: "p", Key: key, Limit: teststore.Limit(t, 1, time.Second, 100), Cost: 1}
}

func TestTheFirstCallOfAKeyTakesItsOwnTokenOnly(t *testing.T) {
	leaseTest(t, lease.Config{}, func(t *testing.T, r *leaseRig) {
		for i := range 100 {
			c := hot(t, fmt.Sprint(i))
			r.Asks(c)
			r.wantInStore(c, 99)
		}
	})
}

// inStore returns what the store behind holds of a bucket.
func (r *leaseRig) inStore(c store.Charge) store.State {
	r.Helper()
	c.Cost = 0
	states := make([]store.State, 1)
	if ok, err := r.Behind.Store.Take(context.Background(), []store.Charge{c}, states); !ok || err != nil {
		r.Fatal(ok, err)
	}
	return states[0]
}

// wantInStore checks how many tokens of a bucket the store behind holds.
func (r *leaseRig) wantInStore(c store.Charge, want int64) {
	r.Helper()
	if s := r.inStore(c); s.Remaining != want {
		r.Fatalf("the store holds %d, want %d", s.Remaining, want)
	}
}

func TestALeaseDoublesUpToFractionOfTheBurst(t *testing.T) {
	leaseTest(t, lease.Config{}, func(t *testing.T, r *leaseRig) {
		c := hot(t, "k")
		left := int64(100)
		next := func() int64 { left--; return left }
		check := func(s store.State) {
			t.Helper()
			r.Want(s, store.State{Allowed: true, Remaining: next(), ResetAfter: time.Duration(100-left) * time.Second})
		}
		check(r.Asks(c))
		for _, n := range []int64{2, 4, 8, 10, 10, 10} {
			check(r.Asks(c))
			r.wantInStore(c, left-n+1)
			for range n - 1 {
				check(r.pays(c))
			}
		}
	})
}

func TestAKeyThatIsUsedLessOftenThanHoldIsNotLeased(t *testing.T) {
	leaseTest(t, lease.Config{}, func(t *testing.T, r *leaseRig) {
		c := hot(t, "k")
		for range 20 {
			r.Asks(c)
			r.advance(502 * time.Millisecond) // as long as it is remembered by, in 1,024 µs
			if a, b := r.asksPeek(c), r.inStore(c); a != b {
				t.Fatalf("%+v, and in the store %+v", a, b)
			}
		}
	})
}

func (r *leaseRig) asksPeek(c store.Charge) store.State {
	r.Helper()
	c.Cost = 0
	return r.Asks(c)
}

func TestWhatIsNotSimpleFirstGivesBack(t *testing.T) {
	other := teststore.Limit(t, 2, time.Second, 50)
	for name, change := range map[string]func(c *store.Charge){
		"a peek":        func(c *store.Charge) { c.Cost = 0 },
		"a refund":      func(c *store.Charge) { c.Cost = -1 },
		"a wait":        func(c *store.Charge) { c.MaxWait = time.Second },
		"a shadow":      func(c *store.Charge) { c.Shadow = true },
		"another limit": func(c *store.Charge) { c.Limit = other },
		"more than all": func(c *store.Charge) { c.Cost = 101 },
		"what is owed":  func(c *store.Charge) { c.Owed = true },
	} {
		t.Run(name, func(t *testing.T) {
			leaseTest(t, lease.Config{}, func(t *testing.T, r *leaseRig) {
				c := hot(t, "k")
				r.takes(4, c)
				r.wantInStore(c, 93) // 100 without 1, 2 and 4
				r.pays(c)
				changed := c
				change(&changed)
				s := r.Asks(changed)
				changed.Cost = 0
				if got := r.inStore(changed); got.Remaining != s.Remaining || s.Remaining < 49 {
					t.Fatalf("the store holds %d, told %d", got.Remaining, s.Remaining)
				}
			})
		})
	}
}

func TestSlotsAreNotLeased(t *testing.T) {
	leaseTest(t, lease.Config{Fraction: 1}, func(t *testing.T, r *leaseRig) {
		limit, err := store.NewConcurrency(100)
		if err != nil {
			t.Fatal(err)
		}
		slot := store.Charge{Policy: "slots", Key: "k", Limit: limit, Cost: 1}
		for i := range int64(20) {
			r.Asks(slot)
			if s := r.Asks(slot, hot(t, "k")); s.Remaining != 98-i {
				t.Fatalf("%+v, want %d left", s, 98-i)
			}
			slot.Cost = -1
			r.Asks(slot)
			slot.Cost = 1
		}
	})
}

func TestTokensGoBackBeforeTheyAreHeldForLongerThanHold(t *testing.T) {
	leaseTest(t, lease.Config{Hold: time.Second, MaxKeys: 1 << 20}, func(t *testing.T, r *leaseRig) {
		r.takes(2, hot(t, "other")) // sets the timer
		r.advance(10 * time.Millisecond)
		c := hot(t, "k")
		c.Limit = teststore.Limit(t, 1, time.Hour, 100)
		r.takes(8, c) // 1, 2, 4, and 8 of which one is spent
		r.wantInStore(c, 85)
		time.Sleep(time.Second)
		synctest.Wait()
		r.wantInStore(c, 92) // with those that were not spent
		// Half as many are taken then.
		r.Asks(c)
		r.wantInStore(c, 88)
		// And after a while nothing is known of the key.
		time.Sleep(5 * time.Second)
		calls := r.Behind.Calls.Load()
		r.Asks(c)
		r.wantInStore(c, 90)
		time.Sleep(time.Hour)
		if n := r.Behind.Calls.Load() - calls; n != 1 {
			t.Errorf("%d calls of an idle store, want none", n-1)
		}
	})
}

func TestCloseGivesBackWhatIsLeft(t *testing.T) {
	leaseTest(t, lease.Config{}, func(t *testing.T, r *leaseRig) {
		l := r.Store.(*lease.Store)
		for key := range 100 {
			r.takes(4, hot(t, fmt.Sprint(key)))
		}
		for range 2 {
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
		}
		for key := range 100 {
			c := hot(t, fmt.Sprint(key))
			r.wantInStore(c, 96)
			for range 20 {
				r.Asks(c)
			}
			r.wantInStore(c, 76)
		}
	})
}

func TestCloseSaysWhatWasLostAndEnds(t *testing.T) {
	leaseTest(t, lease.Config{}, func(t *testing.T, r *leaseRig) {
		r.takes(4, hot(t, "k"))
		r.have(teststore.Hung)
		begin := time.Now()
		err := r.Store.(*lease.Store).Close()
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "1 of 1 buckets") {
			t.Errorf("error %v", err)
		}
		if took := time.Since(begin); took != time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

func TestARefusedDrawTakesWhatIsThere(t *testing.T) {
	leaseTest(t, lease.Config{Fraction: 1}, func(t *testing.T, r *leaseRig) {
		c := hot(t, "k")
		for left := int64(99); left >= 0; left-- {
			if _, states, _ := r.Take(c); states[0].Remaining != left || !states[0].Allowed {
				t.Fatalf("%+v, want %d left", states[0], left)
			}
		}
		for range 3 {
			r.Want(r.Asks(c), store.State{RetryAfter: time.Second, ResetAfter: 100 * time.Second})
		}
		// A spent bucket is asked once a call.
		calls := r.Behind.Calls.Load()
		for range 10 {
			r.Asks(c)
		}
		if n := r.Behind.Calls.Load() - calls; n != 10 {
			t.Errorf("%d calls of the store for 10", n)
		}
	})
}

// What a lease has left is spent with what is taken next.
func TestALeftoverIsSpentWithTheNextDraw(t *testing.T) {
	leaseTest(t, lease.Config{}, func(t *testing.T, r *leaseRig) {
		c := hot(t, "k")
		r.takes(4, c)
		r.pays(c) // of 4, 2 are left
		c.Cost = 3
		calls := r.Behind.Calls.Load()
		r.Want(r.Asks(c), store.State{Allowed: true, Remaining: 92, ResetAfter: 8 * time.Second})
		if n := r.Behind.Calls.Load() - calls; n != 1 {
			t.Errorf("%d calls of the store", n)
		}
		r.wantInStore(c, 87) // 92 without the 5 that are left of 8
		c.Cost = 5
		r.pays(c)
	})
}

func TestALeftoverGoesBackWhenACallIsRefused(t *testing.T) {
	leaseTest(t, lease.Config{Fraction: 1}, func(t *testing.T, r *leaseRig) {
		c := hot(t, "k")
		r.takes(8, c)
		for _, cost := range []int64{93, 101} {
			c.Cost = cost
			want := store.State{Remaining: 92, RetryAfter: time.Second, ResetAfter: 8 * time.Second}
			if cost > 100 {
				want.RetryAfter = store.Never
			}
			r.Want(r.Asks(c), want)
			r.wantInStore(c, 92)
		}
	})
}

func TestACallOfSeveralChargesIsPaidWhereItCanBe(t *testing.T) {
	leaseTest(t, lease.Config{MaxKeys: 1 << 20}, func(t *testing.T, r *leaseRig) {
		small, large := hot(t, "k"), hot(t, "k")
		small.Policy, large.Policy = "small", "large"
		large.Limit = teststore.Limit(t, 1, time.Second, 1000)
		r.takes(7, small, large) // 1, 2, 4
		r.Asks(small, large)
		r.paysFor(7, small, large)
		if a, b := r.inStore(small), r.inStore(large); a.Remaining != 85 || b.Remaining != 985 {
			t.Fatalf("the store holds %d and %d", a.Remaining, b.Remaining)
		}
		r.Asks(small, large) // 10 and 16
		r.paysFor(9, small, large)
		r.Asks(small, large) // of small only
		if a, b := r.inStore(small), r.inStore(large); a.Remaining != 65 || b.Remaining != 969 {
			t.Fatalf("the store holds %d and %d", a.Remaining, b.Remaining)
		}
		// A refusal by one takes nothing of the other.
		small.Cost = 100
		_, states, _ := r.Take(small, large)
		r.Want(states[0], store.State{Remaining: 74, RetryAfter: 26 * time.Second, ResetAfter: 26 * time.Second})
		r.Want(states[1], store.State{Allowed: true, Remaining: 974, ResetAfter: 26 * time.Second})
		r.Want(r.pays(large), store.State{Allowed: true, Remaining: 973, ResetAfter: 27 * time.Second})
	})
}

func TestACallOfManyChargesIsPaid(t *testing.T) {
	leaseTest(t, lease.Config{MaxKeys: 1 << 20}, func(t *testing.T, r *leaseRig) {
		var charges []store.Charge
		for i := range 6 {
			charges = append(charges, hot(t, fmt.Sprint(i)))
		}
		r.takes(4, charges...)
		r.pays(charges...)
	})
}

func TestATokenIsNotSpentAtATimeWhenTheBucketWouldBeFullWithIt(t *testing.T) {
	leaseTest(t, lease.Config{Fraction: 1, Hold: time.Hour}, func(t *testing.T, r *leaseRig) {
		c := hot(t, "k")
		r.takes(8, c) // 7 are left
		r.advance(20 * time.Second)
		for left := int64(99); left >= 0; left-- {
			if _, states, _ := r.Take(c); !states[0].Allowed || states[0].Remaining != left {
				t.Fatalf("%+v, want %d left", states[0], left)
			}
		}
		if s := r.Asks(c); s.Allowed {
			t.Fatalf("%+v after the burst", s)
		}
	})
}

// The store's clock may be 0.1 % faster: after 8.995 s by ours it has had up to 9.004, and of the 15 that the
// bucket lacked it lacks less than 6.
func TestALeaseAllowsForClocksThatDisagree(t *testing.T) {
	leaseTest(t, lease.Config{Hold: time.Hour}, func(t *testing.T, r *leaseRig) {
		r.have(slow(time.Microsecond))
		c := hot(t, "k")
		c.Limit = teststore.Limit(t, 1, time.Second, 200)
		r.takes(8, c) // 7 are left
		r.advance(8_995 * time.Millisecond)
		r.paysFor(5, c)
		r.Asks(c)
	})
}

// After a call that took 20 ms each way, nothing is known to the microsecond, which is no reason to ask again.
func TestTimesOfAPaidCallCountFromWhenTheReplyCame(t *testing.T) {
	leaseTest(t, lease.Config{}, func(t *testing.T, r *leaseRig) {
		r.have(slow(20 * time.Millisecond))
		c := store.Charge{Policy: "p", Key: "k", Limit: teststore.Limit(t, 3, time.Second, 100), Cost: 1}
		r.takes(4, c) // the last of them took 4
		r.advance(100 * time.Millisecond)
		now := r.pays(c)
		// 5 were spent, of which 0.6 came since the first. Of those 0.06 came on the way of the last reply.
		if least := 4_400_000 / 3 * time.Microsecond; now.Remaining != 95 || now.ResetAfter < least || now.ResetAfter > least+20*time.Millisecond+2*time.Microsecond {
			t.Errorf("%+v", now)
		}
		r.pays(c)
	})
}

func TestAFailedDrawLosesItsTokens(t *testing.T) {
	leaseTest(t, lease.Config{}, func(t *testing.T, r *leaseRig) {
		c := hot(t, "k")
		r.Take(c)
		mend := r.have(teststore.LostReply)
		r.fails(c)
		mend()
		r.wantInStore(c, 97)
		r.Want(r.Asks(c), store.State{Allowed: true, Remaining: 96, ResetAfter: 4 * time.Second})
	})
}

func TestTokensGoBackOnceThoughTheReplyIsLost(t *testing.T) {
	leaseTest(t, lease.Config{}, func(t *testing.T, r *leaseRig) {
		c := hot(t, "k")
		r.takes(4, c)
		mend, peek := r.have(teststore.LostReply), c
		peek.Cost = 0
		for range 3 {
			r.fails(peek)
		}
		mend()
		r.wantInStore(c, 96)
	})
}

func TestWhatWasPaidForACallThatFailsIsPutBack(t *testing.T) {
	leaseTest(t, lease.Config{MaxKeys: 1 << 20}, func(t *testing.T, r *leaseRig) {
		c, other := hot(t, "k"), hot(t, "other")
		r.takes(4, c)
		mend := r.have(teststore.Broken)
		for range 10 {
			r.fails(c, other)
		}
		r.paysFor(3, c)
		mend()
		r.Asks(c)
	})
}

// standIn answers as if the real store was away.
type standIn struct{ store.Store }

func (s standIn) Take(ctx context.Context, charges []store.Charge, states []store.State) (bool, error) {
	ok, err := s.Store.Take(ctx, charges, states)
	for i := range charges {
		states[i].Degraded = true
	}
	return ok, err
}

func TestWhatAStandInAnswersIsNotLeased(t *testing.T) {
	leaseTest(t, lease.Config{}, func(t *testing.T, r *leaseRig) {
		c := hot(t, "k")
		r.takes(4, c) // 3 are left
		behind := r.Behind.Store
		r.Behind.Store = standIn{teststore.OpenMemory(r.T, nil)}
		for range 3 {
			if s := r.pays(c); s.Degraded {
				t.Fatalf("%+v", s)
			}
		}
		if s := r.Asks(c); !s.Degraded || s.Remaining != 92 {
			t.Fatalf("%+v, want what is left after 8", s)
		}
		for left := int64(91); left >= 0; left-- { // one by one
			r.Want(r.Asks(c), store.State{Allowed: true, Degraded: true, Remaining: left, ResetAfter: time.Duration(100-left) * time.Second})
		}
		if s := r.Asks(c); s.Allowed || !s.Degraded {
			t.Fatalf("%+v", s)
		}
		r.Behind.Store = behind
		r.Want(r.Asks(c), store.State{Allowed: true, Remaining: 92, ResetAfter: 8 * time.Second})
	})
}

func TestAStateThatNoBucketAnswersMakesNoLease(t *testing.T) {
	leaseTest(t, lease.Config{}, func(t *testing.T, r *leaseRig) {
		behind := r.Behind.Store
		r.Asks(hot(t, "k"))
		r.Behind.Store = &teststore.Answering{State: store.State{Allowed: true, Remaining: 7, ResetAfter: time.Second}, OK: true}
		r.Asks(hot(t, "k"))
		r.Behind.Store = behind
		r.Asks(hot(t, "k"))
	})
}

// If there is room for one bucket, the first has the lease, until it has not been used for Hold.
func TestLeasesAreOfMaxKeysBucketsAtMost(t *testing.T) {
	leaseTest(t, lease.Config{MaxKeys: 1}, func(t *testing.T, r *leaseRig) {
		a, b := hot(t, "a"), hot(t, "b")
		r.takes(4, a)
		for range 10 {
			r.Asks(b)
		}
		r.pays(a)
		r.pays(a)
		r.pays(a)
		r.Asks(b)                         // still a's
		r.advance(751 * time.Millisecond) // in which the collector ran
		r.Asks(b)
		r.Asks(b)
		r.pays(b)
		for range 3 {
			r.Asks(a)
		}
		// Both in one call.
		for range 10 {
			r.Asks(a, b)
		}
		if s := r.asksPeek(b); s.Remaining != 100-10-1-3-10 {
			t.Errorf("%+v", s)
		}
		// The names are compared whole.
		for _, name := range [][2]string{{"p", "bb"}, {"pb", "b"}, {"pb", ""}, {"p", "B"}, {"b", "p"}} {
			c := b
			c.Policy, c.Key = name[0], name[1]+"b"
			if s := r.Asks(c); s.Remaining != 99 {
				t.Errorf("%q: %+v", name, s)
			}
		}
	})
}

func TestLongKeysAreKeptByTheirHash(t *testing.T) {
	leaseTest(t, lease.Config{Hold: time.Hour, MaxKeys: 1 << 10}, func(t *testing.T, r *leaseRig) {
		kept := teststore.LeftOnHeap(func() { teststore.LongKeys(t, func(c store.Charge) { r.takes(3, c) }) })
		if kept > teststore.MostOfLongKeys {
			t.Errorf("300 keys of 90 KB keep %d bytes", kept)
		}
		long := strings.Repeat("k", 10_000)
		r.takes(4, hot(t, long+"a"))
		r.pays(hot(t, long+"a"))
		r.Asks(hot(t, long+"b"))
	})
}

func TestNamesOfLeasesAreCopied(t *testing.T) {
	leaseTest(t, lease.Config{}, func(t *testing.T, r *leaseRig) {
		policy, key := []byte("p"), []byte("key")
		c := hot(t, "")
		c.Policy, c.Key = unsafe.String(&policy[0], len(policy)), unsafe.String(&key[0], len(key))
		r.takes(4, c)
		policy[0], key[0] = 'P', 'K'
		r.Asks(c)
		c.Policy, c.Key = "p", "key"
		r.pays(c)
	})
}

func TestACallThatIsOverIsNotPaid(t *testing.T) {
	leaseTest(t, lease.Config{}, func(t *testing.T, r *leaseRig) {
		c := hot(t, "k")
		r.takes(4, c)
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		for range 5 {
			if ok, err := r.Store.Take(ctx, []store.Charge{c}, make([]store.State, 1)); ok || !errors.Is(err, context.Canceled) {
				t.Fatalf("ok %t, error %v", ok, err)
			}
		}
		r.paysFor(3, c)
	})
}

func TestNothingIsLeasedByAClockThatMayGoBack(t *testing.T) {
	r := &leaseRig{&teststore.Rig{T: t, Behind: &teststore.Counted{Store: teststore.OpenMemory(t, nil)}}} // in a bubble, no time has a monotonic reading
	r.Store = openLease(t, r.Behind, lease.Config{Clock: func() time.Time { return time.Now().Round(0) }})
	for range 20 {
		r.Asks(hot(t, "k"))
	}
	r.Store = openLease(t, r.Behind, lease.Config{Clock: time.Now, Hold: time.Hour})
	r.takes(2, hot(t, "k"))
	r.pays(hot(t, "k"))
}

func TestPaidCallsDoNotAllocate(t *testing.T) {
	s := openLease(t, teststore.OpenMemory(t, nil), lease.Config{Fraction: 1, Hold: time.Hour})
	states := make([]store.State, 3)
	one := hot(t, "one")
	one.Limit = teststore.Limit(t, 1, time.Hour, 600_000)
	two, three := one, one
	two.Key, three.Key = "two", "three"
	for name, charges := range map[string][]store.Charge{"one": {one}, "several": {one, two, three}} {
		for range 5000 {
			s.Take(context.Background(), charges, states)
		}
		if n := testing.AllocsPerRun(1000, func() {
			if ok, err := s.Take(context.Background(), charges, states); !ok || err != nil {
				t.Error(ok, err)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
	// Nor do those of keys that are used once.
	keys := make([][]store.Charge, 1001)
	for i := range keys {
		keys[i] = []store.Charge{hot(t, fmt.Sprint("key", i))}
	}
	plain := teststore.OpenMemory(t, nil)
	count := func(s store.Store) float64 {
		i := 0
		return testing.AllocsPerRun(1000, func() { s.Take(context.Background(), keys[i], states); i++ })
	}
	if with, without := count(s), count(plain); with > without {
		t.Errorf("%v allocations for a new key, and %v without Lease", with, without)
	}
}

func TestLeaseConfigIsChecked(t *testing.T) {
	for want, err := range map[string]error{
		"Fraction -0.1: must be above 0": ratetest.Err(lease.New(ratetest.Generous{}, lease.Config{Fraction: -0.1})),
		"Fraction 1.1: must be above 0":  ratetest.Err(lease.New(ratetest.Generous{}, lease.Config{Fraction: 1.1})),
		"Fraction NaN: must be above 0":  ratetest.Err(lease.New(ratetest.Generous{}, lease.Config{Fraction: math.NaN()})),
		"Hold -1ns: must be positive":    ratetest.Err(lease.New(ratetest.Generous{}, lease.Config{Hold: -1})),
		"MaxKeys -1: must be positive":   ratetest.Err(lease.New(ratetest.Generous{}, lease.Config{MaxKeys: -1})),
		"s is nil":                       ratetest.Err(lease.New(nil, lease.Config{})),
	} {
		ratetest.CheckText(t, fmt.Sprint(err), want)
	}
}
