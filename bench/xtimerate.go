package main

import (
	"sync"

	"golang.org/x/time/rate"

	"github.com/go-tokenbucket/ratelimit"
)

func init() {
	memoryCompetitors = append(memoryCompetitors, memoryLimiter{
		name: version("a sync.Map of x/time/rate", "golang.org/x/time"),
		open: openXTimeRate,
	})
}

// openXTimeRate is the limiter that most users write for a limit per key. It never forgets a key.
func openXTimeRate(l ratelimit.Limit) openMemory {
	var limiters sync.Map
	perSecond, burst := rate.Limit(float64(l.Rate)/l.Per.Seconds()), int(l.Burst)
	take := func(key string) bool {
		limiter, ok := limiters.Load(key)
		if !ok {
			limiter, _ = limiters.LoadOrStore(key, rate.NewLimiter(perSecond, burst))
		}
		return limiter.(*rate.Limiter).Allow()
	}
	return openMemory{
		take:  func() func(string) bool { return take },
		close: func() {},
	}
}
