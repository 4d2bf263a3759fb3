package fallback

import (
	"context"
	"sync"
	"time"
)

// A prober calls probe again and again, from begin on, until that reports that the primary is back.
type prober struct {
	every time.Duration
	probe func(context.Context) bool

	ctx  context.Context // ended by close
	stop context.CancelFunc

	mu      sync.Mutex
	timer   *time.Timer
	wait    time.Duration  // before the next probe
	back    time.Time      // when the primary was back last
	running sync.WaitGroup // Add under mu and not after close
}

// The first probe comes after a part of ProbeEvery, and each later one after twice as long, up to that: a
// connection that broke is no outage to speak of.
const firstProbe = 16

// unsteady is for how long after its return a primary that is away again is not probed sooner than it would
// have been.
const unsteady = time.Second

func (p *prober) init(every time.Duration, probe func(context.Context) bool) {
	p.every, p.probe = every, probe
	p.ctx, p.stop = context.WithCancel(context.Background())
}

func (p *prober) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.back.IsZero() || time.Since(p.back) > unsteady {
		p.wait = p.every / firstProbe
	}
	p.schedule()
}

// schedule has the next probe follow. The prober is locked.
func (p *prober) schedule() {
	if p.ctx.Err() != nil {
		return
	}
	p.timer = time.AfterFunc(p.wait, func() { p.start(p.run) })
	p.wait = min(2*p.wait, p.every)
}

// start runs f in a goroutine that close waits for.
func (p *prober) start(f func(context.Context)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx.Err() == nil {
		p.running.Go(func() { f(p.ctx) })
	}
}

func (p *prober) run(ctx context.Context) {
	back := p.probe(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	if back {
		p.back = time.Now()
	} else {
		p.schedule()
	}
}

func (p *prober) close() {
	p.mu.Lock()
	p.stop()
	if p.timer != nil {
		p.timer.Stop()
	}
	p.mu.Unlock()
	p.running.Wait()
}
