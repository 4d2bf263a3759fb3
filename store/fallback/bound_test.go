package fallback_test

import (
	"fmt"
	"testing"
	"time"
)

// worlds are limits and outages of all replicas.
var worlds = map[string]world{
	"once for 60 s":                     {replicas: 4, rate: 2, burst: 20, cost: 1, length: 1000 * time.Second, outages: []cut{{100 * time.Second, 160 * time.Second, 4}}},
	"once for 60 s, 8 replicas":         {replicas: 8, rate: 2, burst: 20, cost: 1, length: 1000 * time.Second, outages: []cut{{100 * time.Second, 160 * time.Second, 8}}},
	"once, a cost of the burst":         {replicas: 8, rate: 2, burst: 20, cost: 20, length: 1000 * time.Second, outages: []cut{{100 * time.Second, 160 * time.Second, 8}}},
	"once, a burst of 1":                {replicas: 8, rate: 0.1, burst: 1, cost: 1, length: 1000 * time.Second, outages: []cut{{100 * time.Second, 160 * time.Second, 8}}},
	"every other second":                {replicas: 4, rate: 2, burst: 20, cost: 1, length: 600 * time.Second, outages: every(2*time.Second, time.Second, 600*time.Second, 4)},
	"1 s in 10 s":                       {replicas: 4, rate: 2, burst: 20, cost: 1, length: 900 * time.Second, outages: every(10*time.Second, time.Second, 900*time.Second, 4)},
	"1 s in 10 s, 8 replicas, burst 4":  {replicas: 8, rate: 2, burst: 4, cost: 1, length: 900 * time.Second, outages: every(10*time.Second, time.Second, 900*time.Second, 8)},
	"1 s in 10 s, 8 replicas, burst 30": {replicas: 8, rate: 3, burst: 30, cost: 1, length: 900 * time.Second, outages: every(10*time.Second, time.Second, 900*time.Second, 8)},
	"1 s in 60 s":                       {replicas: 4, rate: 1, burst: 60, cost: 1, length: time.Hour, outages: every(time.Minute, time.Second, time.Hour, 4)},
}

func TestX(t *testing.T) {
	for name, w := range worlds {
		for _, c := range []struct {
			n string
			c client
		}{{"flood", flood(20)}, {"lurk", lurk(20)}, {"watch .5", watch(20, .5)}, {"watch .3", watch(20, .3)}, {"steady", steady(.9, false)}, {"sticky", steady(.9, true)}, {"bursty", bursty(.9)}} {
			begin := time.Now()
			w.seed = 1
			r := w.run(t, c.c)
			fmt.Printf("%-34s %-10s %5.1f bursts %.2f of the limit, %.3f of requests (%v)\n", name, c.n, r.bursts(), r.share(), r.honest(), time.Since(begin).Round(time.Millisecond))
		}
	}
}
