//go:build long

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

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/fallback"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
)

// A partial outage is one that only some replicas have.
type partial struct {
	name      string
	replicas  int
	cut       int           // replicas that have it
	roundTrip time.Duration // of these; 0: they do not reach the primary
	offered   float64       // requests, of the limit

	during, inAll float64 // admitted of the limit
}

func partials() []*partial {
	return []*partial{
		{name: "one of two cut off", replicas: 2, cut: 1, offered: 4},
		{name: "one of six cut off", replicas: 6, cut: 1, offered: 8},
		{name: "five of six cut off", replicas: 6, cut: 5, offered: 8},
		{name: "all six cut off", replicas: 6, cut: 6, offered: 8},
		{name: "one of two in a slow zone, 60 ms away", replicas: 2, cut: 1, offered: 4, roundTrip: 60 * time.Millisecond},
		{name: "one of two in a zone that is slow at times, 49 to 51 ms away", replicas: 2, cut: 1, offered: 4, roundTrip: 49 * time.Millisecond},
		{name: "one of two cut off, requests for half of the limit", replicas: 2, cut: 1, offered: 0.5},
		{name: "all six cut off, requests for half of the limit", replicas: 6, cut: 6, offered: 0.5},
	}
}

const (
	cutRate, cutBurst = 10, 10
)

// cutLasts is how long an outage takes. The race detector would take ten times as long for it.
var cutLasts = 10 * time.Minute

func init() {
	if raceEnabled {
		cutLasts = 2 * time.Minute
	}
}

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

// Replicas share a limit while some of them are cut off for ten minutes, and come back one after another. Nobody is in debt
// then.
func TestPartialOutagesAreBounded(t *testing.T) {
	all := partials()
	for _, p := range all {
		t.Run(p.name, func(t *testing.T) {
			synctest.Test(t, p.run)
			t.Logf("%.3f during the outage, %.3f in all", p.during, p.inAll)
			most := 1 + float64(p.cut)/float64(p.replicas)
			if p.cut == p.replicas {
				most = 1
			}
			if p.during > most+0.02 || p.inAll > most+0.02 {
				t.Errorf("%.3f of the limit during the outage, %.3f in all, want at most %.3f", p.during, p.inAll, most)
			}
			if p.inAll < min(0.97, 0.75*p.offered) {
				t.Errorf("%.3f of the limit in all", p.inAll)
			}
		})
	}
	writeDocument(t, "partial", partialSection(all))
}

func (p *partial) run(t *testing.T) {
	primary := ratelimit.Must(memstore.New(memstore.Config{}))
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
		f := ratelimit.Must(fallback.New(links[i], nil, fallback.Config{Replicas: p.replicas, Logger: slog.New(slog.DiscardHandler)}))
		defer f.Close()
		gap := time.Duration(float64(time.Second) / (p.offered * cutRate) * float64(p.replicas))
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
					if ok, err := f.Take(ctx, []store.Charge{charge}, make([]store.State, 1)); err != nil {
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
		time.Sleep(300 * time.Millisecond)
	}
	time.Sleep(5 * time.Second) // until all have noticed
	peek := charge
	peek.Cost = 0
	states := make([]store.State, 1)
	if _, err := primary.Take(context.Background(), []store.Charge{peek}, states); err != nil {
		t.Fatal(err)
	}
	if debt := states[0].ResetAfter - time.Second*cutBurst/cutRate; debt > 0 {
		t.Errorf("a debt of %v", debt)
	}
	time.Sleep(10 * time.Second)
	p.inAll = ratio()
	close(stop)
	running.Wait()
}

// partialSection returns what docs/outages.md says of partial outages.
func partialSection(all []*partial) string {
	var b strings.Builder
	fmt.Fprintf(&b, `## Outages that only some replicas have

Replicas share a limit of %d per second and a burst of %d. fallback.Config.Replicas is the number of replicas. Some of them do not reach
Redis for %.0f minutes of virtual time. Admitted is the part of burst + rate × time during the outage.

| Outage | Admitted during the outage |
|---|--:|
`, cutRate, cutBurst, cutLasts.Minutes())
	for _, p := range all {
		fmt.Fprintf(&b, "| %s | %.2f |\n", p.name, p.during)
	}
	b.WriteString(`
- **During the outage**: the replicas that reach Redis admit up to the whole limit together, and each other replica admits up to its share.
  If that is not acceptable, set Policy.FailClosed: a replica that does not reach Redis then answers 503.
- **After the outage**: the first request of a replica for a key charges Redis for all requests that the replica admitted, at most for what
  the bucket holds.
- **Slow replicas**: a replica whose round trip is near fallback.Config.Slow loses Redis again and again, and logs each time. Give it a longer
  Slow, and a Config.Timeout that is even longer.
`)
	return b.String()
}
