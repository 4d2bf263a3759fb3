package lease_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/teststore"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/lease"
)

// far is a Store that calls and replies take up to latency to and from, and that keeps what was given back.
type far struct {
	store.Store
	latency time.Duration

	mu    sync.Mutex
	backs []spending
}

// A spending is a call that took or gave back tokens.
type spending struct {
	begin, end time.Duration // since the start of the test
	tokens     int64
}

func (s *far) travel() { time.Sleep(1 + rand.N(s.latency)) }

func (s *far) Take(ctx context.Context, charges []store.Charge, states []store.State) (bool, error) {
	s.travel()
	ok, err := s.Store.Take(context.WithoutCancel(ctx), charges, states)
	s.mu.Lock()
	for _, c := range charges {
		if ok && c.Cost < 0 {
			s.backs = append(s.backs, spending{begin: sinceStart(), tokens: -c.Cost})
		}
	}
	s.mu.Unlock()
	s.travel()
	return ok, err
}

// start is when all bubbles begin.
var start = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

func sinceStart() time.Duration { return time.Since(start) }

// Replicas of random demand, some of which are killed and replaced, admit no more in any window than burst +
// rate·t and what came back in the Hold before it. Nor much less, if they want all that there is.
func TestReplicasThatLeaseKeepToTheLimitInEveryWindow(t *testing.T) {
	const (
		replicas, callers = 4, 3
		rate, burst       = 100, 200
		fraction          = 0.2
		latency           = 2 * time.Millisecond
		length            = 10 * time.Second
	)
	const quick, slow = 4 * time.Millisecond, 300 * time.Millisecond
	for name, c := range map[string]struct {
		pause    func(now time.Duration) time.Duration // of a caller
		hold     time.Duration
		kills    int
		wantsAll bool
	}{
		"more than there is":           {func(time.Duration) time.Duration { return rand.N(quick) }, 200 * time.Millisecond, 0, true},
		"more, and crashes":            {func(time.Duration) time.Duration { return rand.N(quick) }, 200 * time.Millisecond, 3, true},
		"less than there is":           {func(time.Duration) time.Duration { return rand.N(slow) }, 200 * time.Millisecond, 0, false},
		"less, and nothing comes back": {func(time.Duration) time.Duration { return rand.N(slow) }, time.Minute, 0, false},
		"at times, and crashes": {func(time.Duration) time.Duration {
			if rand.IntN(100) == 0 {
				return rand.N(4 * time.Second)
			}
			return rand.N(quick)
		}, 200 * time.Millisecond, 3, false},
		// A few calls, then none until the bucket is full, and then as many as it takes.
		"a little, and all when it is full": {func(now time.Duration) time.Duration {
			switch phase := now % (4 * time.Second); {
			case phase < 10*time.Millisecond, phase > 2500*time.Millisecond && phase < 2700*time.Millisecond:
				return rand.N(quick)
			case phase <= 2500*time.Millisecond:
				return 2500*time.Millisecond - phase
			default:
				return 4*time.Second - phase
			}
		}, time.Minute, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &far{Store: teststore.OpenMemory(t, nil), latency: latency}
				charge := store.Charge{Policy: "p", Key: "k", Limit: teststore.Limit(t, rate, time.Second, burst)}
				var mu sync.Mutex
				var taken []spending
				var calls, asked atomic.Int64
				begin := sinceStart()
				var working sync.WaitGroup
				// serve is the life of a replica. Killed, it does not reach the store any more.
				serve := func(until time.Duration, killed bool) {
					behind := &teststore.Faulty{Store: s}
					leased := ratelimit.Must(lease.New(behind, lease.Config{Fraction: fraction, Hold: c.hold}))
					var serving sync.WaitGroup
					for range callers {
						serving.Go(func() {
							state := make([]store.State, 1)
							for sinceStart() < until {
								call := charge
								call.Cost = 1 + rand.Int64N(2)
								now := sinceStart()
								ok, err := leased.Take(t.Context(), []store.Charge{call}, state)
								if err != nil && !errors.Is(err, teststore.ErrBroken) {
									t.Error(err)
								}
								if calls.Add(1); ok {
									mu.Lock()
									taken = append(taken, spending{now, sinceStart(), call.Cost})
									mu.Unlock()
								}
								time.Sleep(1 + c.pause(sinceStart()-begin))
							}
						})
					}
					if killed {
						time.Sleep(until - sinceStart())
						behind.Have(teststore.Broken)
					}
					serving.Wait()
					if err := leased.Close(); err != nil && !killed {
						t.Error(err)
					}
					asked.Add(behind.Calls.Load())
				}
				for id := range replicas {
					working.Go(func() {
						if id < c.kills {
							serve(begin+time.Duration(id+1)*length/5, true)
						}
						serve(begin+length, false)
					})
				}
				working.Wait()

				came := func(from, to time.Duration) (tokens int64) {
					for _, b := range s.backs {
						if b.begin >= from && b.begin <= to {
							tokens += b.tokens
						}
					}
					return tokens
				}
				bare := 0
				for _, a := range taken {
					back := came(a.begin-c.hold-2*latency, a.begin+2*latency)
					if back == 0 {
						bare++
					}
					sum := int64(0)
					// They are in the order of their ends.
					for _, b := range taken {
						if b.begin < a.begin {
							continue
						}
						sum += b.tokens
						t0 := (b.end - a.begin + 2*time.Microsecond).Microseconds()
						most := burst + (t0*rate)/1_000_000
						if sum > most+back {
							t.Fatalf("%d admitted from %v to %v: at most %d, and %d came back", sum, a.begin, b.end, most, back)
						}
					}
				}
				total := int64(0)
				last := time.Duration(0)
				for _, a := range taken {
					total += a.tokens
					last = max(last, a.end)
				}
				if most := burst + rate*(last-begin).Seconds(); float64(total) > most {
					t.Errorf("%d admitted, want at most %.1f", total, most)
				}
				share := fraction * burst
				least := burst + rate*length.Seconds() - (replicas+float64(c.kills))*share
				if c.wantsAll && float64(total) < least {
					t.Errorf("%d admitted, want at least %.1f", total, least)
				}
				t.Logf("%d tokens admitted; %d calls, %d of the store; %d came back; %d of %d windows without any that came back",
					total, calls.Load(), asked.Load(), came(0, length), bare, len(taken))
			})
		})
	}
}

// overlap runs a test with a bucket of 250 a second and a burst of 200 that is full by now, and a replica that
// holds tokens of it all the same: 31 that came back were taken before those that it holds, which count as if
// they were not back.
func overlap(t *testing.T, test func(t *testing.T, s, leased store.Store, c store.Charge, took int64)) {
	synctest.Test(t, func(t *testing.T) {
		s := &far{Store: teststore.OpenMemory(t, nil), latency: time.Millisecond}
		cfg := lease.Config{Fraction: 0.5, Hold: time.Second}
		one, two := ratelimit.Must(lease.New(s, cfg)), openLease(t, s, cfg)
		c := store.Charge{Policy: "p", Key: "k", Limit: teststore.Limit(t, 250, time.Second, 200), Cost: 1}
		took := int64(0)
		for _, leased := range []store.Store{one, two} {
			for range 32 {
				took += admit(t, leased, c)
			}
		}
		if err := one.Close(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(400 * time.Millisecond)
		test(t, s, two, c, took)
	})
}

// admit returns what a call was admitted to take.
func admit(t *testing.T, s store.Store, c store.Charge) int64 {
	t.Helper()
	ok, err := s.Take(t.Context(), []store.Charge{c}, make([]store.State, 1))
	if err != nil {
		t.Fatal(err)
	}
	if ok {
		return c.Cost
	}
	return 0
}

// What the package comment says of windows.
func TestWhatComesBackMayBeAdmittedOnTopLater(t *testing.T) {
	overlap(t, func(t *testing.T, s, leased store.Store, c store.Charge, took int64) {
		full := sinceStart()
		all := c
		all.Cost = 200
		admitted := admit(t, s, all)
		for admit(t, leased, c) == 1 {
			admitted++
		}
		if over := admitted - 200 - int64((sinceStart()-full).Seconds()*250); over <= 0 || over > 31 {
			t.Errorf("%d admitted above burst + rate·t, want some and at most 31", over)
		}
		if total, most := float64(took+admitted), 200+250*sinceStart().Seconds(); total > most {
			t.Errorf("%v admitted from the start, want at most %.1f", total, most)
		}
	})
}

func TestALeftoverDoesNotPayForMoreThanTheBurst(t *testing.T) {
	overlap(t, func(t *testing.T, _, leased store.Store, c store.Charge, _ int64) {
		c.Cost = 201
		if admit(t, leased, c) > 0 {
			t.Error("admitted")
		}
	})
}
