package fallback

import (
	"context"
	"sync"
	"time"
)

// A prober calls probe repeatedly, from begin on, until probe reports that the primary is back.
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

// The first probe comes after ProbeEvery / firstProbe, because a broken connection is soon replaced. The time between
// probes then doubles, up to ProbeEvery.
const firstProbe = 16

// unsteady is for how long after an outage the next one does not begin with a short wait for the first probe.
const unsteady = time.Second

func (p *prober) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.back.IsZero() || time.Since(p.back) > unsteady {
		p.wait = p.every / firstProbe
	}
	p.schedule()
}

// schedule sets the timer of the next probe. The prober must be locked.
func (p *prober) schedule() {
	if p.ctx.Err() == nil {
		p.timer = time.AfterFunc(p.wait, p.run)
		p.wait = min(2*p.wait, p.every)
	}
}

func (p *prober) run() {
	p.mu.Lock()
	if p.ctx.Err() != nil {
		p.mu.Unlock()
		return
	}
	p.running.Add(1)
	defer p.running.Done()
	p.mu.Unlock()
	back := p.probe(p.ctx)
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
