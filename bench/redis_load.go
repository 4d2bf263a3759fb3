package main

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/go-tokenbucket/ratelimit"
)

// The names of the comparisons under load, by which competitors choose theirs.
const (
	uniform64   = "redisstore uniform 64 callers"
	uniform1024 = "redisstore uniform 1024 callers"
	zipf1024    = "redisstore zipf 1024 callers"
	hot1024     = "redisstore hot 1024 callers"
	refusals256 = "redisstore refusals 256 callers"
)

// underLoad is everything but the single caller.
var underLoad = []string{uniform64, uniform1024, zipf1024, hot1024, refusals256}

func init() {
	for _, w := range []workload{
		{name: uniform64, what: "10,000 uniform keys", callers: 64, keys: 10_000, limit: endless, allowed: true,
			bounds: loadBounds{rate: atLeastTimes(2.5)}},
		{name: uniform1024, what: "10,000 uniform keys", callers: 1024, keys: 10_000, limit: endless, allowed: true,
			bounds: loadBounds{rate: atLeastTimes(5), p99: atMostTimes(0.25), cpu: atMostTimes(0.22)}},
		{name: zipf1024, what: "10,000 Zipf keys (s = 1.1)", callers: 1024, keys: 10_000, zipf: 1.1, limit: endless, allowed: true},
		{name: hot1024, what: "one key, all allowed", callers: 1024, keys: 1, limit: endless, allowed: true,
			bounds: loadBounds{rate: atLeastTimes(30), cpu: atMostTimes(0.02)}},
		{name: refusals256, what: "8 empty keys, all refused (by redisstore mostly without asking Redis)", callers: 256, keys: 8, limit: ratelimit.PerHour(1).WithBurst(1),
			bounds: loadBounds{rate: atLeastTimes(150)}},
	} {
		register(w.name, w.compare)
	}
}

// endless is a limit that no bucket is emptied by, and so slow that none is full again, and gone from Redis,
// before it is wanted again.
var endless = ratelimit.Limit{Rate: 1, Per: 10 * time.Second, Burst: 200_000_000}

// A workload is what is asked of a limiter, and by how many at once.
type workload struct {
	name, what string
	callers    int
	keys       int
	zipf       float64 // the exponent by which some keys are wanted more often than others; 0 for all alike
	limit      ratelimit.Limit
	allowed    bool // after the first call for each key, which is always allowed
	bounds     loadBounds
	ours       *redisLimiter // nil: redisstoreTake
}

// loadBounds are what we must keep to against the yardstick.
type loadBounds struct{ rate, p99, cpu bound }

// compare measures all who take part, but makes rows of ours and the yardstick's only. The others are in the
// load table.
func (w workload) compare(ctx context.Context, p plan) (findings, error) {
	server, err := startRedis(ctx)
	if err != nil {
		return findings{}, err
	}
	defer server.stop()

	keys, draws := w.draw()
	var crowds []*crowd
	for _, l := range redisLimitersIn(w.name, *cmp.Or(w.ours, &redisstoreTake)) {
		open, err := l.open(ctx, server, w.limit)
		if err != nil {
			return findings{}, fmt.Errorf("%s: %w", l.name, err)
		}
		defer open.close()
		if err := w.fill(ctx, open, keys); err != nil {
			return findings{}, fmt.Errorf("%s: %w", l.name, err)
		}
		c, err := newCrowd(l.name, w.callers, w.allowed, func(id int) (call, error) {
			take, at := open.take(), id*len(draws)/w.callers
			return func(ctx context.Context, n int) (bool, error) {
				return take(ctx, draws[(at+n)%len(draws)])
			}, nil
		})
		if err != nil {
			return findings{}, err
		}
		c.usage = server.usage
		crowds = append(crowds, c)
	}
	if err := measureCrowds(ctx, p, crowds...); err != nil {
		return findings{}, err
	}
	return w.findings(crowds), nil
}

// draw returns the keys, and a long row of them in which each appears as often as it is wanted. Callers go
// round it, each from a place of its own: to draw at random meanwhile would take more time than some
// decisions.
func (w workload) draw() (keys, draws []string) {
	keys = make([]string, w.keys)
	for i := range keys {
		keys[i] = fmt.Sprintf("member:%08d", i)
	}
	random := rand.New(rand.NewPCG(1, 0))
	next := func() uint64 { return random.Uint64N(uint64(len(keys))) }
	if w.zipf > 0 {
		next = rand.NewZipf(random, w.zipf, 1, uint64(len(keys)-1)).Uint64
	}
	draws = make([]string, 1<<16)
	for i := range draws {
		draws[i] = keys[next()]
	}
	return keys, draws
}

// fill takes the first token of every key, as many at once as later. From then on all calls find what they are
// to find.
func (w workload) fill(ctx context.Context, open openRedis, keys []string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	failures := make([]error, w.callers)
	var filling sync.WaitGroup
	for id := range w.callers {
		take := open.take()
		filling.Go(func() {
			for i := id; i < len(keys) && failures[id] == nil; i += w.callers {
				ok, err := take(ctx, keys[i])
				if err == nil && !ok {
					err = fmt.Errorf("%s: the first of %d was denied", keys[i], w.limit.Burst)
				}
				failures[id] = err
			}
		})
	}
	filling.Wait()
	return cmp.Or(failures...)
}

func (w workload) findings(crowds []*crowd) findings {
	f := findings{loads: []loadTable{{name: w.name, title: fmt.Sprintf("%s, %s callers", w.what, thousands(w.callers)), crowds: crowds}}}
	ours := crowds[0]
	for _, theirs := range crowds[1:] {
		if theirs.name != yardstick {
			continue
		}
		what := fmt.Sprintf("%s, %s, against %s: ", ours.name, f.loads[0].title, theirs.name)
		f.rows = append(f.rows,
			row{what + "decisions", ours.rate, theirs.rate, perSecond, w.bounds.rate},
			row{what: what + "time, p50", ours: ours.p50, theirs: theirs.p50, unit: duration},
			row{what + "time, p99", ours.p99, theirs.p99, duration, w.bounds.p99},
			row{what + "CPU of Redis", ours.cpu, theirs.cpu, duration, w.bounds.cpu},
			row{what: what + "allocations", ours: ours.allocs, theirs: theirs.allocs, unit: count},
		)
	}
	return f
}

// thousands writes 1024 as "1,024".
func thousands(n int) string {
	if n < 1000 {
		return strconv.Itoa(n)
	}
	return fmt.Sprintf("%s,%03d", thousands(n/1000), n%1000)
}
