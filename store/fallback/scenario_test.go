package fallback_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/fallback"
)

// A scenario is a limit that replicas share by one primary, which some of them lose now and then, and a client of one key.
type scenario struct {
	replicas int
	rate     float64 // tokens a second
	burst    int64
	cost     int64
	outages  []cut
	length   time.Duration
	seed     uint64

	links  []*link
	stores []*fallback.Store
	charge store.Charge
	rnd    *rand.Rand
	begin  time.Time
	seen   result
}

// A cut is an outage of the first replicas.
type cut struct {
	from, to time.Duration
	replicas int
}

// every returns cuts of all replicas that begin in the middle of each period.
func every(period, length, until time.Duration, replicas int) (cuts []cut) {
	for at := period / 2; at+length <= until; at += period {
		cuts = append(cuts, cut{at, at + length, replicas})
	}
	return cuts
}

// A link is the way of one replica to the primary.
type link struct {
	store.Store
	down atomic.Bool
}

func (l *link) Take(ctx context.Context, charges []store.Charge, states []store.State) (bool, error) {
	if l.down.Load() {
		return false, fmt.Errorf("unreachable: %w", store.ErrNotCharged)
	}
	return l.Store.Take(ctx, charges, states)
}

// A client sends the requests of a scenario.
type client func(s *scenario)

// A result is what a client got.
type result struct {
	asked, allowed int64
	lowest, worst  float64 // of the tokens allowed, less rate × time: the lowest so far, and the highest rise above one
}

// share is the part of the limit that was allowed: burst + rate × time is 1.
func (s *scenario) share() float64 {
	return float64(s.seen.allowed*s.cost) / (float64(s.burst) + s.rate*s.length.Seconds())
}

// bursts is the most that was allowed in any time above rate × time, in bursts. A limit that holds has 1.
func (s *scenario) bursts() float64 { return s.seen.worst / float64(s.burst) }

// honest is the part of the requests that was allowed.
func (s *scenario) honest() float64 { return float64(s.seen.allowed) / float64(s.seen.asked) }

// run lets a client loose, in virtual time.
func (s scenario) run(t *testing.T, c client) *scenario {
	synctest.Test(t, func(t *testing.T) {
		primary := openSmall(t)
		for range s.replicas {
			l := &link{Store: primary}
			f := ratelimit.Must(fallback.New(l, openSmall(t), fallback.Config{Replicas: s.replicas, Logger: quiet}))
			defer f.Close()
			s.links, s.stores = append(s.links, l), append(s.stores, f)
		}
		for _, o := range s.outages {
			time.AfterFunc(o.from, func() { s.turn(o.replicas, true) })
			time.AfterFunc(o.to, func() { s.turn(o.replicas, false) })
		}
		limit, err := store.NewLimit(int64(s.rate*1e6), 1e6*time.Second, s.burst)
		if err != nil {
			t.Fatal(err)
		}
		s.charge = store.Charge{Policy: "p", Key: "k", Limit: limit, Cost: s.cost}
		s.rnd, s.begin = rand.New(rand.NewPCG(s.seed, 1)), time.Now()
		c(&s)
		time.Sleep(max(0, s.length-s.now()))
	})
	return &s
}

func (s *scenario) turn(replicas int, down bool) {
	for _, l := range s.links[:replicas] {
		l.down.Store(down)
	}
}

func (s *scenario) now() time.Duration { return time.Since(s.begin) }

// goOn sleeps for d, and reports whether the scenario is still there then.
func (s *scenario) goOn(d time.Duration) bool {
	time.Sleep(d)
	return s.now() < s.length
}

// request sends a request to a replica.
func (s *scenario) request(replica int) {
	s.seen.asked++
	states := make([]store.State, 1)
	ok, err := s.stores[replica].Take(context.Background(), []store.Charge{s.charge}, states)
	if err != nil {
		panic(err)
	}
	if ok {
		above := float64(s.seen.allowed*s.cost) - s.rate*s.now().Seconds()
		s.seen.lowest = min(s.seen.lowest, above)
		s.seen.worst = max(s.seen.worst, above+float64(s.cost)-s.seen.lowest)
		s.seen.allowed++
	}
}

// anywhere sends a request to some replica.
func (s *scenario) anywhere() { s.request(s.rnd.IntN(s.replicas)) }

// isDown reports whether some replica has lost the primary.
func (s *scenario) isDown() bool { return s.links[0].down.Load() }

// fills returns how full the primary's bucket is.
func (s *scenario) fills() float64 {
	look, states := s.charge, make([]store.State, 1)
	look.Cost = 0
	if _, err := s.links[0].Store.Take(context.Background(), []store.Charge{look}, states); err != nil {
		panic(err)
	}
	return float64(states[0].Remaining) / float64(s.burst)
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// often sends many times the rate, to all replicas, while it wants to.
func often(times float64, wants func(s *scenario) bool) client {
	return func(s *scenario) {
		for s.goOn(seconds(s.rnd.ExpFloat64() / (times * s.rate))) {
			if wants(s) {
				s.anywhere()
			}
		}
	}
}

// flood sends all the time.
func flood(times float64) client { return often(times, func(*scenario) bool { return true }) }

// lurk floods while the primary is away and for a minute after that, and sends nothing before.
func lurk(times float64) client {
	return func(s *scenario) {
		last := -time.Hour
		often(times, func(s *scenario) bool {
			if s.isDown() {
				last = s.now()
			}
			return s.now()-last < time.Minute
		})(s)
	}
}

// watch floods while the primary is away. Otherwise it keeps that part of the primary's bucket, of which it knows how
// full it is.
func watch(times, keeps float64) client {
	return often(times, func(s *scenario) bool {
		return s.isDown() || s.fills()-float64(s.cost)/float64(s.burst) >= keeps
	})
}

// steady sends that part of the rate, to all replicas or one.
func steady(part float64, sticky bool) client {
	return func(s *scenario) {
		for s.goOn(seconds((0.7 + 0.6*s.rnd.Float64()) * float64(s.cost) / (part * s.rate))) {
			if sticky {
				s.request(0)
			} else {
				s.anywhere()
			}
		}
	}
}

// bursty sends 0.8 of a burst at once, and that part of the rate.
func bursty(part float64) client {
	return func(s *scenario) {
		size := max(1, int(0.8*float64(s.burst)/float64(s.cost)))
		for s.goOn(seconds(float64(size) * float64(s.cost) / (part * s.rate))) {
			for range size {
				s.anywhere()
				time.Sleep(time.Millisecond)
			}
		}
	}
}
