//go:build unix

package slots_test

import (
	"context"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit/internal/test/redistest"
	"github.com/go-tokenbucket/ratelimit/internal/test/testprogram"
	"github.com/go-tokenbucket/ratelimit/internal/test/testsize"
)

// A process is a replica behind a link of its own.
type process struct {
	*testprogram.Program
	link *redistest.Proxy

	away  []time.Time // from when on slots that it held then may be lost, because it was out of touch for a lease
	ended time.Time
}

// A scene is replicas under load.
type scene struct {
	*testing.T
	server  *redistest.Server
	watch   *watch
	lease   time.Duration
	callers int

	mu    sync.Mutex
	all   []*process
	freed []time.Duration // from a kill until no slot of the replica counts
}

func (s *scene) start() *process {
	p := &process{link: redistest.NewProxy(s, s.server.Addr())}
	p.Program = testprogram.Start(s.T, p.link.Addr(), strconv.Itoa(s.callers), s.lease.String())
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, p)
	return p
}

// kill ends p.
func (s *scene) kill(p *process) {
	p.Kill()
	at := time.Now()
	p.ended = at
	before := s.watch.holders()
	time.Sleep(s.lease + 2*time.Second)
	s.watch.mu.Lock()
	defer s.watch.mu.Unlock()
	for _, holder := range before {
		// The slots of all other replicas count again and again.
		if last := s.watch.lastSeen[holder]; time.Since(last) > time.Second {
			s.mu.Lock()
			s.freed = append(s.freed, last.Sub(at))
			s.mu.Unlock()
		}
	}
}

// disturb keeps p out of touch for the time d.
func (s *scene) disturb(p *process, d time.Duration, begin, end func()) {
	at := time.Now()
	begin()
	time.Sleep(d)
	end()
	if from := at.Add(s.lease * 6 / 10); time.Now().After(from) { // the last renewal may be a third of the lease ago
		p.away = append(p.away, from)
	}
}

// cause has p meet faults until ctx ends. It returns the replica that is then in its place.
func (s *scene) cause(ctx context.Context, p *process) {
	for ctx.Err() == nil {
		long := s.lease + s.lease/3
		switch rand.IntN(8) {
		case 0:
			s.kill(p)
			p = s.start()
		case 1:
			s.disturb(p, long, func() { p.Signal(s.T, syscall.SIGSTOP) }, func() { p.Signal(s.T, syscall.SIGCONT) })
		case 2:
			s.disturb(p, long, p.link.BlackHole, p.link.Pass)
		case 3:
			s.disturb(p, s.lease/5, func() { p.Signal(s.T, syscall.SIGSTOP) }, func() { p.Signal(s.T, syscall.SIGCONT) })
		case 4:
			s.disturb(p, s.lease/5, p.link.DropReplies, p.link.Pass)
		case 5:
			s.disturb(p, s.lease/5, p.link.Cut, p.link.Pass)
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(rand.Int64N(int64(s.lease / 2)))):
		}
	}
}

// Redis never counts more slots than there are. More handlers run only while a replica has been out of touch for longer than
// the lease, and not more than were held by it.
func TestReplicasThatAreKilledStoppedAndCutOff(t *testing.T) {
	took, replicas := 10*time.Second, testsize.Of(3, 4)
	s := &scene{T: t, lease: 2 * time.Second, callers: 32}
	if d, err := time.ParseDuration(os.Getenv("RATELIMIT_SLOTS")); err == nil { // for docs: eight replicas of 64 callers
		took, replicas, s.lease, s.callers = d, 8, 15*time.Second, 64
	}
	s.server = redistest.Start(t)
	client := redis.NewClient(&redis.Options{Addr: s.server.Addr()})
	defer client.Close()
	s.watch = &watch{TB: t, client: client, top: make(map[name]int64), lastSeen: make(map[string]time.Time)}
	ctx, cancel := context.WithTimeout(t.Context(), took)
	defer cancel()
	var running, watching sync.WaitGroup
	looking, stop := context.WithCancel(t.Context())
	watching.Go(func() { s.watch.run(looking) })
	for range replicas {
		p := s.start()
		running.Go(func() { s.cause(ctx, p) })
	}
	running.Wait()
	stop()
	watching.Wait()
	s.judge(time.Now())
}

func (s *scene) judge(end time.Time) {
	var all, inTouch []span
	expired := 0
	for _, p := range s.all {
		last := end
		if !p.ended.IsZero() {
			last = p.ended
		}
		expired += len(p.Lines("expired"))
		spans := spansOf(p.Program, last)
		all = append(all, spans...)
		for _, h := range spans {
			for _, away := range p.away {
				if h.from.Before(away) && h.to.After(away) {
					h.to = away
				}
			}
			inTouch = append(inTouch, h)
		}
	}
	running, touching := most(all), most(inTouch)
	for _, p := range policies {
		for _, key := range keys {
			of, n := name{p.Name, key}, p.Limit.Rate
			s.Logf("%s %s: at most %d at once; by Redis %d, handlers in touch %d, all handlers %d", p.Name, key, n, s.watch.top[of], touching[of], running[of])
			if s.watch.top[of] > n || int64(touching[of]) > n {
				s.Errorf("more than %d", n)
			}
			if s.watch.top[of] < n {
				s.Errorf("never all %d: the test shows nothing", n)
			}
		}
	}
	s.Logf("%d handlers of %d replicas, %d slots expired while held", len(all), len(s.all), expired)
	s.Logf("slots of killed replicas were free after %v", s.freed)
	for _, d := range s.freed {
		if d > s.lease+time.Second {
			s.Errorf("slots of a killed replica were held for %v", d)
		}
	}
}
