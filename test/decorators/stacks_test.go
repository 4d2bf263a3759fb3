package decorators_test

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/teststore"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/denialcache"
	"github.com/go-tokenbucket/ratelimit/store/fallback"
	"github.com/go-tokenbucket/ratelimit/store/lease"
	"github.com/go-tokenbucket/ratelimit/store/storetest"
)

// stacks are how decorators are put on one another. Each closes what it opens when the test ends, from the outside
// to the inside.
var stacks = map[string]func(t testing.TB, s store.Store, lease lease.Config, fall fallback.Config, denial denialcache.Config) store.Store{
	"Lease(Fallback(s))": func(t testing.TB, s store.Store, lease lease.Config, fall fallback.Config, _ denialcache.Config) store.Store {
		return openLease(t, openFallback(t, s, fall), lease)
	},
	"Fallback(Lease(s))": func(t testing.TB, s store.Store, lease lease.Config, fall fallback.Config, _ denialcache.Config) store.Store {
		return openFallback(t, openLease(t, s, lease), fall)
	},
	"Lease(Fallback(DenialCache(s)))": func(t testing.TB, s store.Store, lease lease.Config, fall fallback.Config, denial denialcache.Config) store.Store {
		return openLease(t, openFallback(t, ratelimit.Must(denialcache.New(s, denial)), fall), lease)
	},
	"Fallback(Lease(DenialCache(s)))": func(t testing.TB, s store.Store, lease lease.Config, fall fallback.Config, denial denialcache.Config) store.Store {
		return openFallback(t, openLease(t, ratelimit.Must(denialcache.New(s, denial)), lease), fall)
	},
	"DenialCache(Lease(Fallback(s)))": func(t testing.TB, s store.Store, lease lease.Config, fall fallback.Config, denial denialcache.Config) store.Store {
		return ratelimit.Must(denialcache.New(openLease(t, openFallback(t, s, fall), lease), denial))
	},
}

func openLease(t testing.TB, s store.Store, cfg lease.Config) *lease.Store {
	l := ratelimit.Must(lease.New(s, cfg))
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

func openFallback(t testing.TB, s store.Store, cfg fallback.Config) *fallback.Store {
	cfg.Logger = slog.New(slog.DiscardHandler)
	f := ratelimit.Must(fallback.New(s, nil, cfg))
	t.Cleanup(func() { f.Close() })
	return f
}

func TestStacksKeepToTheContract(t *testing.T) {
	for name, stack := range stacks {
		t.Run(name, func(t *testing.T) {
			storetest.RunRules(t, func(t *testing.T, clock func() time.Time) store.Store {
				leased := lease.Config{Fraction: 1, Hold: time.Hour, Clock: teststore.Monotonic(clock)}
				s := stack(t, teststore.OpenMemory(t, clock), leased, fallback.Config{Slow: time.Minute}, denialcache.Config{Clock: clock})
				return &teststore.OneByOne{Store: s}
			})
		})
	}
}

// A policy that fails closed is paid from a lot, which the primary was charged for, and else fails while that is
// away. No stand-in is charged for it.
func TestWithoutStandInPassesThroughStacks(t *testing.T) {
	for name, stack := range stacks {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				primary := &teststore.Faulty{Store: teststore.OpenMemory(t, nil)}
				s := stack(t, primary, lease.Config{}, fallback.Config{Failures: 1}, denialcache.Config{})
				c := store.Charge{Policy: "p", Key: "k", Limit: teststore.Limit(t, 1, time.Second, 100), Cost: 1}
				states := make([]store.State, 1)
				take := func(ctx context.Context) (bool, error) {
					return s.Take(ctx, []store.Charge{c}, states)
				}
				for range 4 { // 3 are left, if it leases
					if ok, err := take(t.Context()); !ok || err != nil {
						t.Fatal(ok, err)
					}
				}
				primary.Have(teststore.Broken)
				only := store.WithoutStandIn(t.Context())
				paid, failed := 0, 0
				for range 10 {
					switch ok, err := take(only); {
					case ok && !states[0].Degraded:
						paid++
					case ok || !errors.Is(err, teststore.ErrBroken): // as the reason also of ErrAway
						t.Fatalf("%t, %v, %+v", ok, err, states[0])
					default:
						failed++
					}
				}
				if _, err := take(only); !errors.Is(err, store.ErrAway) || failed == 0 {
					t.Errorf("%d paid, %d failed, then error %v, want ErrAway", paid, failed, err)
				}
				// The primary has charged 7 at most, and this call takes 2 if it leases.
				ok, err := take(t.Context())
				if !ok || err != nil || !states[0].Degraded || states[0].Remaining < 91 {
					t.Errorf("%t, %+v, %v, want no less than 91 left", ok, states[0], err)
				}
			})
		})
	}
}

// Replicas with a stack each, of one primary that comes and goes, admit to a flood no more than 1.15 times the limit, and
// what was answered for calls that failed.
func TestReplicasWithStacksOverOutagesAreBounded(t *testing.T) {
	for name, stack := range stacks {
		t.Run(name, func(t *testing.T) {
			for faultName, f := range map[string]teststore.Fault{"errors": teststore.Broken, "lost replies": teststore.LostReply} {
				synctest.Test(t, func(t *testing.T) {
					const replicas, callers, rate, burst, outages = 2, 4, 100, 200, 6
					primary := &teststore.Faulty{Store: teststore.OpenMemory(t, nil)}
					var admitted, spared atomic.Int64
					var running sync.WaitGroup
					stop := make(chan struct{})
					limit := teststore.Limit(t, rate, time.Second, burst)
					begin := time.Now()
					for range replicas {
						away := new(atomic.Bool)
						s := stack(t, primary, lease.Config{Fraction: 0.2}, fallback.Config{
							Replicas: replicas,
							OnChange: func(is bool, _ error) { away.Store(is) },
						}, denialcache.Config{})
						for range callers {
							running.Go(func() {
								c := []store.Charge{{Policy: "p", Key: "k", Limit: limit, Cost: 1}}
								states := make([]store.State, 1)
								for {
									select {
									case <-stop:
										return
									case <-time.After(1 + rand.N(20*time.Millisecond)):
									}
									before := away.Load()
									ok, err := s.Take(t.Context(), c, states)
									if err != nil {
										t.Error(err)
									}
									if ok {
										admitted.Add(1)
										if states[0].Degraded && !before {
											spared.Add(1)
										}
									}
								}
							})
						}
					}
					for range outages {
						time.Sleep(700*time.Millisecond + rand.N(time.Second))
						primary.Have(f)
						time.Sleep(300*time.Millisecond + rand.N(time.Second))
						primary.Mend()
					}
					time.Sleep(2 * time.Second)
					close(stop)
					running.Wait()
					most := 1.15*(burst+rate*time.Since(begin).Seconds()) + float64(spared.Load()+replicas*outages)
					if got := float64(admitted.Load()); got > most || got < 0.7*most {
						t.Errorf("%s: %.0f admitted, want at most %.0f", faultName, got, most)
					} else {
						t.Logf("%s: %.0f of %.0f admitted, %d of them for calls that failed", faultName, got, most, spared.Load())
					}
				})
			}
		})
	}
}
