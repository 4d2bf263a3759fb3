package outages_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
)

// A partial outage is one that only some replicas have.
type partial struct {
	name      string
	replicas  int
	cut       int           // replicas that do not reach the primary
	roundTrip time.Duration // if it is not cut off, but slow
	leased    bool
	offered   float64       // requests, of the limit; default 2 for each replica

	during, inAll, longest float64 // of burst + rate·t; seconds until the debt is paid
}

func partials() []*partial {
	return []*partial{
		{name: "one of two cut off", replicas: 2, cut: 1},
		{name: "one of six cut off", replicas: 6, cut: 1},
		{name: "five of six cut off", replicas: 6, cut: 5},
		{name: "all six cut off", replicas: 6, cut: 6},
		{name: "x", replicas: 2, cut: 1, offered: 0.5},
		{name: "y", replicas: 6, cut: 5, offered: 0.5},
		{name: "z", replicas: 6, cut: 6, offered: 0.5},
		{name: "one of two in a slow zone", replicas: 2, cut: 1, roundTrip: 60 * time.Millisecond},
		{name: "one of two, at times slow", replicas: 2, cut: 1, roundTrip: 49 * time.Millisecond},
	}
}

const (
	cutRate, cutBurst = 20, 20
	cutLasts          = 10 * time.Minute
)

// A link is the way of a replica to the primary, which may be cut, or slow.
type link struct {
	store.Store
	cut       atomic.Bool
	roundTrip atomic.Int64
	calls     atomic.Int64
}

var errCut = errors.New("no route to host")

func (l *link) Take(ctx context.Context, charges []store.Charge, states []store.State) (bool, error) {
	if l.cut.Load() {
		time.Sleep(100 * time.Microsecond)
		return false, errCut
	}
	// Every fifth call takes a little longer.
	wait := time.Duration(l.roundTrip.Load())
	if l.calls.Add(1)%5 == 0 {
		wait += wait / 20
	}
	select {
	case <-time.After(wait):
		return l.Store.Take(ctx, charges, states)
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// The replicas share a limit, for twice as many requests as it allows, while some of them are cut off for ten minutes.
func TestPartialOutagesAreChargedAfterThem(t *testing.T) {
	all := partials()
	for _, p := range all {
		t.Run(p.name, func(t *testing.T) {
			synctest.Test(t, p.run)
			t.Logf("%.3f during the outage, %.3f in all, %.0f s in debt", p.during, p.inAll, p.longest)
			if p.inAll > 1.02 || p.inAll < 0.9 {
				t.Errorf("%.3f of the limit in all", p.inAll)
			}
		})
	}
}

func (p *partial) run(t *testing.T) {
	primary := memstore.New(memstore.Config{})
	defer primary.Close()
	limit, err := store.NewLimit(cutRate, time.Second, cutBurst)
	if err != nil {
		t.Fatal(err)
	}
	charge := store.Charge{Policy: "p", Key: "k", Limit: limit, Cost: 1}
	var admitted atomic.Int64
	var running sync.WaitGroup
	stop := make(chan struct{})
	links := make([]*link, p.replicas)
	for i := range links {
		links[i] = &link{Store: primary}
		links[i].roundTrip.Store(int64(time.Millisecond))
		f := store.Fallback(links[i], nil, store.FallbackConfig{Replicas: p.replicas, Logger: slog.New(slog.DiscardHandler)})
		defer f.Close()
		var s store.Store = f
		if p.leased {
			l := store.Lease(f, store.LeaseConfig{})
			defer l.Close()
			s = l
		}
		gap := time.Duration(float64(time.Second) / (2 * cutRate))
		if p.offered > 0 {
			gap = time.Duration(float64(time.Second) / (p.offered * cutRate) * float64(p.replicas))
		}
		running.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(gap):
				}
				running.Go(func() {
					ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
					defer cancel()
					if ok, err := s.Take(ctx, []store.Charge{charge}, make([]store.State, 1)); err != nil {
						t.Error(err)
					} else if ok {
						admitted.Add(1)
					}
				})
			}
		})
	}
	time.Sleep(10*time.Second + 500*time.Microsecond)
	begin := time.Now()
	admitted.Store(0)
	ratio := func() float64 {
		return float64(admitted.Load()) / (cutBurst + cutRate*time.Since(begin).Seconds())
	}
	for _, l := range links[:p.cut] {
		l.cut.Store(p.roundTrip == 0)
		l.roundTrip.Store(int64(max(p.roundTrip, time.Millisecond)))
	}
	time.Sleep(cutLasts)
	p.during = ratio()
	for _, l := range links[:p.cut] {
		l.cut.Store(false)
		l.roundTrip.Store(int64(time.Millisecond))
	}
	time.Sleep(5 * time.Second) // until all have noticed
	peek := charge
	peek.Cost = 0
	for {
		states := make([]store.State, 1)
		if _, err := primary.Take(context.Background(), []store.Charge{peek}, states); err != nil {
			t.Fatal(err)
		}
		if debt := states[0].ResetAfter - time.Second*cutBurst/cutRate; debt > 0 {
			p.longest += debt.Seconds()
			time.Sleep(debt)
			continue
		}
		break
	}
	time.Sleep(10 * time.Second)
	p.inAll = ratio()
	close(stop)
	running.Wait()
}

// partialSection returns what docs/outages.md says of partial outages.
func partialSection(all []*partial) string {
	var b strings.Builder
	for _, p := range all {
		fmt.Fprintf(&b, "| %s | %.2f | %.2f |\n", p.name, p.during, p.inAll)
	}
	return b.String()
}
