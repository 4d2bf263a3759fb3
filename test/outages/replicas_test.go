//go:build long

package outages_test

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/test/redistest"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/fallback"
)

// A balance is how requests are spread over four replicas.
type balance struct {
	name    string
	offered float64    // of the limit
	parts   [4]float64 // of each replica
	bounds  bool       // what is admitted must be near the limit

	admitted atomic.Int64
	result   float64 // of the limit
}

func balances() []*balance {
	uneven := [4]float64{0.9, 1. / 30, 1. / 30, 1. / 30}
	return []*balance{
		{name: "even, twice the limit", offered: 2, parts: [4]float64{0.25, 0.25, 0.25, 0.25}, bounds: true},
		{name: "even, ten times the limit", offered: 10, parts: [4]float64{0.25, 0.25, 0.25, 0.25}, bounds: true},
		{name: "90 % to one replica, ten times the limit", offered: 10, parts: uneven, bounds: true},
		{name: "90 % to one replica, twice the limit", offered: 2, parts: uneven},
		{name: "90 % to one replica, half of the limit", offered: 0.5, parts: uneven},
	}
}

// Four replicas have the limits of one between them while Redis is away for 10 s.
func TestReplicasShareALimitWithoutRedis(t *testing.T) {
	const outage = 10 * time.Second
	server := redistest.Start(t)
	var replicas [4]store.Store
	for i := range replicas {
		replicas[i], _ = withFallback(t, openStore(t, at(t, server.Addr())()), fallback.Config{Replicas: len(replicas)})
	}
	limit, err := store.NewLimit(rate, time.Second, burst)
	if err != nil {
		t.Fatal(err)
	}
	all := balances()
	// Each limit is in use before, so that what is measured are its rates and not the bursts.
	serve(t, all, replicas, limit, 2*time.Second)
	server.Kill()
	serve(t, all, replicas, limit, time.Second)
	for _, b := range all {
		b.admitted.Store(0)
	}
	took := serve(t, all, replicas, limit, outage)
	for _, b := range all {
		b.result = float64(b.admitted.Load()) / (rate * took.Seconds())
		t.Logf("%s: %.2f of the limit", b.name, b.result)
		if b.bounds && b.result < 0.8 || b.result > 1.2 {
			t.Errorf("%s: %.2f of the limit", b.name, b.result)
		}
	}
	writeDocument(t, "replicas", replicasSection(all))
}

// serve sends requests for a time, and returns how long that was.
func serve(t *testing.T, all []*balance, replicas [4]store.Store, limit store.Limit, lasts time.Duration) time.Duration {
	begin := time.Now()
	var running sync.WaitGroup
	for _, b := range all {
		for i, s := range replicas {
			running.Go(func() {
				charges := []store.Charge{{Policy: "p", Key: b.name, Limit: limit, Cost: 1}}
				states := make([]store.State, 1)
				gap := time.Duration(float64(time.Second) / (rate * b.offered * b.parts[i]))
				for sent := 0; ; sent++ {
					next := begin.Add(time.Duration(sent) * gap)
					if next.Sub(begin) > lasts {
						return
					}
					time.Sleep(time.Until(next))
					if ok, err := s.Take(t.Context(), charges, states); err != nil {
						t.Error(err)
					} else if ok {
						b.admitted.Add(1)
					}
				}
			})
		}
	}
	running.Wait()
	return time.Since(begin)
}

func replicasSection(all []*balance) string {
	var b strings.Builder
	fmt.Fprintf(&b, `## Over replicas

Four replicas have fallback.Config.Replicas 4, and Redis is unavailable for 10 s. The table shows which part of a limit of %d per second
they admitted together.

| Requests | Admitted of the limit |
|---|--:|
`, rate)
	for _, one := range all {
		fmt.Fprintf(&b, "| %s | %.2f |\n", one.name, one.result)
	}
	b.WriteString(`
Without Redis, a replica cannot lend its share to another one. So if one replica has nearly all requests, it admits no more than its quarter
of the limit. If that is common, set Replicas lower. With Replicas 2, four replicas that are all busy admit up to twice the limit.
`)
	return b.String()
}
