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

// A workload is the calls to a limiter, the number of concurrent callers, and the servers.
type workload struct {
	name, what string
	callers    int
	keys       int
	zipf       float64           // the exponent of the distribution of the keys; 0 for equal use
	limits     []ratelimit.Limit // of each key, all charged together
	allowed    bool              // the expected result, except for the first call for each key, which is always allowed
	handler    bool              // calls are HTTP requests, served without a network
	prepared   bool              // one context for many calls; otherwise each call has a new one
	shape      shape
	servers    int // 0: 1
	settings   clientSettings
	ours       redisLimiter
	bounds     loadBounds
}

// loadBounds are the bounds against the yardstick.
type loadBounds struct{ rate, p50, p99, redis, script, own bound }

// title describes the measurement.
func (w workload) title() string {
	callers := thousands(w.callers) + " callers"
	if w.callers == 1 {
		callers = "1 caller"
	}
	return fmt.Sprintf("%s, %s", w.what, callers)
}

// compare measures all limiters that take part. It makes rows only for ours and the yardstick. The load table has the
// others, too.
func (w workload) compare(ctx context.Context, p plan) (findings, error) {
	d, err := deploy(ctx, w.shape, cmp.Or(w.servers, 1), w.settings)
	if err != nil {
		return findings{}, err
	}
	defer d.stop()
	keys, draws := w.draw()
	var opened []namedRedis
	for _, l := range w.limiters() {
		open, err := l.open(ctx, d, w.limits)
		if err != nil {
			return findings{}, fmt.Errorf("%s: %w", l.name, err)
		}
		defer open.close()
		if !w.prepared {
			open.take = ownContexts(open.take)
		}
		if err := w.fill(ctx, open, keys); err != nil {
			return findings{}, fmt.Errorf("%s: %w", l.name, err)
		}
		opened = append(opened, namedRedis{l.name, open})
	}
	measure := w.measureCrowds
	if w.callers == 1 {
		measure = w.measureLone
	}
	sides, err := measure(ctx, p, d, opened, draws)
	if err != nil {
		return findings{}, err
	}
	return w.findings(sides), nil
}

// A namedRedis is an open limiter with its name.
type namedRedis struct {
	name string
	openRedis
}

// measureCrowds measures each limiter with all its callers at once.
func (w workload) measureCrowds(ctx context.Context, p plan, d *deployment, opened []namedRedis, draws []string) ([]side, error) {
	var crowds []*crowd
	for _, open := range opened {
		c, err := w.crowd(open, draws)
		if err != nil {
			return nil, err
		}
		c.usage = d.usage
		crowds = append(crowds, c)
	}
	if err := measureCrowds(ctx, p, crowds...); err != nil {
		return nil, err
	}
	var sides []side
	for _, c := range crowds {
		sides = append(sides, c.side)
	}
	return sides, nil
}

// crowd returns the callers of a limiter.
func (w workload) crowd(open namedRedis, draws []string) (*crowd, error) {
	return newCrowd(open.name, w.callers, w.allowed, func(id int) (call, error) {
		take, at := open.take(), id*len(draws)/w.callers
		return func(ctx context.Context, n int) (bool, error) {
			return take(ctx, draws[(at+n)%len(draws)])
		}, nil
	})
}

// memberKey returns the ith key, of 15 bytes.
func memberKey(i int) string { return fmt.Sprintf("member:%08d", i) }

// draw returns the keys, and a long list in which each key appears as often as it is used. Callers read this list in
// a loop, each from another start. Random choices during the measurement would take longer than some decisions.
func (w workload) draw() (keys, draws []string) {
	keys = make([]string, w.keys)
	for i := range keys {
		keys[i] = memberKey(i)
	}
	random := rand.New(rand.NewPCG(1, 0))
	next := func() uint64 { return random.Uint64N(uint64(len(keys))) }
	if w.zipf > 0 {
		next = rand.NewZipf(random, w.zipf, 1, uint64(len(keys)-1)).Uint64
	}
	draws = make([]string, max(1<<16, len(keys)))
	for i := range draws {
		draws[i] = keys[next()]
	}
	return keys, draws
}

// fill takes the first token of every key, with many callers at once. All later calls then find the expected content.
func (w workload) fill(ctx context.Context, open openRedis, keys []string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	failures := make([]error, max(w.callers, 64))
	var filling sync.WaitGroup
	for id := range failures {
		take := open.take()
		filling.Go(func() {
			for i := id; i < len(keys) && failures[id] == nil; i += len(failures) {
				ok, err := take(ctx, keys[i])
				if err == nil && !ok {
					err = fmt.Errorf("%s: the first token was denied", keys[i])
				}
				failures[id] = err
			}
		})
	}
	filling.Wait()
	return cmp.Or(failures...)
}

func (w workload) findings(sides []side) findings {
	t := loadTable{name: w.name, title: w.title(), sides: sides}
	f := findings{loads: []loadTable{t}}
	ours := sides[0]
	for _, theirs := range sides[1:] {
		if theirs.name == yardstick {
			f.rows = append(f.rows, w.rows(ours, theirs)...)
		}
	}
	return f
}

func (w workload) rows(ours, theirs side) []row {
	what := fmt.Sprintf("%s, %s, against %s: ", ours.name, w.title(), theirs.name)
	rows := []row{
		{what + "decisions", ours.rate, theirs.rate, perSecond, w.bounds.rate},
		{what + "time, p50", ours.p50, theirs.p50, duration, w.bounds.p50},
		{what + "time, p99", ours.p99, theirs.p99, duration, w.bounds.p99},
		{what + "CPU of Redis", ours.redis, theirs.redis, duration, w.bounds.redis},
	}
	if w.callers == 1 {
		rows = append(rows, row{what + "of it in the script", ours.script, theirs.script, duration, w.bounds.script})
	}
	return append(rows,
		row{what + "CPU of Go", ours.own, theirs.own, duration, w.bounds.own},
		row{what: what + "allocations", ours: ours.allocs, theirs: theirs.allocs, unit: count},
	)
}

// thousands writes 1024 as "1,024".
func thousands(n int) string {
	if n < 1000 {
		return strconv.Itoa(n)
	}
	return fmt.Sprintf("%s,%03d", thousands(n/1000), n%1000)
}
