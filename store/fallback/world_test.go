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

// A world is a limit that replicas share by one primary, which some of them lose now and then, and a client of one key.
type world struct {
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

// A client sends the requests of a world.
type client func(w *world)

// A result is what a client got.
type result struct {
	asked, allowed int64
	lowest, worst  float64 // of the tokens allowed, less rate × time: the lowest so far, and the highest rise above one
}

// share is the part of the limit that was allowed: burst + rate × time is 1.
func (w *world) share() float64 {
	return float64(w.seen.allowed*w.cost) / (float64(w.burst) + w.rate*w.length.Seconds())
}

// bursts is the most that was allowed in any time above rate × time, in bursts. A limit that holds has 1.
func (w *world) bursts() float64 { return w.seen.worst / float64(w.burst) }

// honest is the part of the requests that was allowed.
func (w *world) honest() float64 { return float64(w.seen.allowed) / float64(w.seen.asked) }

// run lets a client loose, in virtual time.
func (w world) run(t *testing.T, c client) *world {
	synctest.Test(t, func(t *testing.T) {
		primary := openSmall(t)
		for range w.replicas {
			l := &link{Store: primary}
			f := ratelimit.Must(fallback.New(l, openSmall(t), fallback.Config{Replicas: w.replicas, Logger: quiet}))
			defer f.Close()
			w.links, w.stores = append(w.links, l), append(w.stores, f)
		}
		for _, o := range w.outages {
			time.AfterFunc(o.from, func() { w.turn(o.replicas, true) })
			time.AfterFunc(o.to, func() { w.turn(o.replicas, false) })
		}
		limit, err := store.NewLimit(int64(w.rate*1e6), 1e6*time.Second, w.burst)
		if err != nil {
			t.Fatal(err)
		}
		w.charge = store.Charge{Policy: "p", Key: "k", Limit: limit, Cost: w.cost}
		w.rnd, w.begin = rand.New(rand.NewPCG(w.seed, 1)), time.Now()
		c(&w)
		time.Sleep(max(0, w.length-w.now()))
	})
	return &w
}

func (w *world) turn(replicas int, down bool) {
	for _, l := range w.links[:replicas] {
		l.down.Store(down)
	}
}

func (w *world) now() time.Duration { return time.Since(w.begin) }

// goOn sleeps for d, and reports whether the world is still there then.
func (w *world) goOn(d time.Duration) bool {
	time.Sleep(d)
	return w.now() < w.length
}

// request sends a request to a replica.
func (w *world) request(replica int) {
	w.seen.asked++
	states := make([]store.State, 1)
	ok, err := w.stores[replica].Take(context.Background(), []store.Charge{w.charge}, states)
	if err != nil {
		panic(err)
	}
	if ok {
		above := float64(w.seen.allowed*w.cost) - w.rate*w.now().Seconds()
		w.seen.lowest = min(w.seen.lowest, above)
		w.seen.worst = max(w.seen.worst, above+float64(w.cost)-w.seen.lowest)
		w.seen.allowed++
	}
}

// anywhere sends a request to some replica.
func (w *world) anywhere() { w.request(w.rnd.IntN(w.replicas)) }

// isDown reports whether some replica has lost the primary.
func (w *world) isDown() bool { return w.links[0].down.Load() }

// fills returns how full the primary's bucket is.
func (w *world) fills() float64 {
	look, states := w.charge, make([]store.State, 1)
	look.Cost = 0
	if _, err := w.links[0].Store.Take(context.Background(), []store.Charge{look}, states); err != nil {
		panic(err)
	}
	return float64(states[0].Remaining) / float64(w.burst)
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// often sends many times the rate, to all replicas, while it wants to.
func often(times float64, wants func(w *world) bool) client {
	return func(w *world) {
		for w.goOn(seconds(w.rnd.ExpFloat64() / (times * w.rate))) {
			if wants(w) {
				w.anywhere()
			}
		}
	}
}

// flood sends all the time.
func flood(times float64) client { return often(times, func(*world) bool { return true }) }

// lurk floods while the primary is away and for a minute after that, and sends nothing before.
func lurk(times float64) client {
	return func(w *world) {
		last := -time.Hour
		often(times, func(w *world) bool {
			if w.isDown() {
				last = w.now()
			}
			return w.now()-last < time.Minute
		})(w)
	}
}

// watch floods while the primary is away. Otherwise it keeps that part of the primary's bucket, of which it knows how
// full it is.
func watch(times, keeps float64) client {
	return often(times, func(w *world) bool {
		return w.isDown() || w.fills()-float64(w.cost)/float64(w.burst) >= keeps
	})
}

// steady sends that part of the rate, to all replicas or one.
func steady(part float64, sticky bool) client {
	return func(w *world) {
		for w.goOn(seconds((0.7 + 0.6*w.rnd.Float64()) * float64(w.cost) / (part * w.rate))) {
			if sticky {
				w.request(0)
			} else {
				w.anywhere()
			}
		}
	}
}

// bursty sends 0.8 of a burst at once, and that part of the rate.
func bursty(part float64) client {
	return func(w *world) {
		size := max(1, int(0.8*float64(w.burst)/float64(w.cost)))
		for w.goOn(seconds(float64(size) * float64(w.cost) / (part * w.rate))) {
			for range size {
				w.anywhere()
				time.Sleep(time.Millisecond)
			}
		}
	}
}
