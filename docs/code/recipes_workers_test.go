package code_test

import (
	"context"
	"errors"
	"io"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/ratetest"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

// A queue holds jobs, such as a list in Redis or a message broker.
type queue interface {
	next(context.Context) (job, error) // blocks until there is a job, or until the context ends
	putBack(job)                       // tries until the queue has the job
}

type job func(context.Context)

func partnerWorker(limiter *ratelimit.Limiter) func(context.Context, queue) {
	partner := ratelimit.Policy{Name: "partner-api", Limit: ratelimit.PerSecond(10).WithBurst(1), FailClosed: true}
	doOne := func(stop context.Context, jobs queue) error {
		job, err := jobs.next(stop)
		if err != nil {
			return err
		}
		if _, err := limiter.Wait(stop, partner, "partner:7", 1); err != nil {
			jobs.putBack(job) // otherwise the job is lost
			return err
		}
		job(context.WithoutCancel(stop)) // a stop does not interrupt the job
		return nil
	}
	// work does jobs until stop ends.
	work := func(stop context.Context, jobs queue) {
		for stop.Err() == nil {
			if err := doOne(stop, jobs); err != nil && stop.Err() == nil {
				log.Print(err)
				time.Sleep(300 * time.Millisecond) // because Wait does not block while Redis is unavailable
			}
		}
	}
	return work
}

func runWorkers(ctx context.Context, work func(context.Context, queue), jobs queue, buckets *redisstore.Store, client *redis.Client) {
	stop, cancel := signal.NotifyContext(ctx, syscall.SIGTERM, os.Interrupt)
	defer cancel()
	var workers sync.WaitGroup
	for range 20 {
		workers.Go(func() { work(stop, jobs) })
	}
	workers.Wait()  // until each job is done or put back
	buckets.Close() // until the last tokens are given back
	client.Close()
}

// A backlog is a queue in memory with room for all jobs of a test.
type backlog chan job

func (b backlog) next(ctx context.Context) (job, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case j := <-b:
		return j, nil
	}
}

func (b backlog) putBack(j job) { b <- j }

// partnerCalls records when jobs were done.
type partnerCalls struct {
	start time.Time
	mu    sync.Mutex
	done  []time.Duration
}

// jobs returns n jobs that take a while each, and fail if their context ends.
func (p *partnerCalls) jobs(t *testing.T, n int, takes time.Duration) backlog {
	jobs := make(backlog, n)
	for range n {
		jobs <- func(ctx context.Context) {
			begin := time.Since(p.start)
			time.Sleep(takes)
			if ctx.Err() != nil {
				t.Error("a job was interrupted")
			}
			p.mu.Lock()
			defer p.mu.Unlock()
			p.done = append(p.done, begin)
		}
	}
	return jobs
}

// wantEven checks that n jobs were done, one each 100 ms.
func (p *partnerCalls) wantEven(t *testing.T, n int) {
	t.Helper()
	if len(p.done) != n {
		t.Fatalf("%d jobs were done, want %d", len(p.done), n)
	}
	slices.Sort(p.done)
	for i, at := range p.done {
		if want := time.Duration(i) * time.Second / 10; at != want {
			t.Errorf("job %d was begun after %v, want %v", i, at, want)
		}
	}
}

func TestRecipeWorkersLoseNoJobAtAStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		work := partnerWorker(ratetest.Quiet(t))
		partner := partnerCalls{start: time.Now()}
		jobs := partner.jobs(t, 21, 150*time.Millisecond)
		run := func(stopAfter time.Duration) (took time.Duration) {
			begin := time.Now()
			stop, cancel := context.WithCancel(t.Context())
			time.AfterFunc(stopAfter, cancel)
			var workers sync.WaitGroup
			for range 5 {
				workers.Go(func() { work(stop, jobs) })
			}
			workers.Wait()
			return time.Since(begin)
		}
		if took := run(1060 * time.Millisecond); took != 1150*time.Millisecond {
			t.Errorf("the workers ended after %v, want them to end with their last job after 1.15s", took)
		}
		partner.wantEven(t, 11)
		if len(jobs) != 10 {
			t.Errorf("%d jobs are left, want 10", len(jobs))
		}
		run(2 * time.Second)
		if len(partner.done) != 21 || len(jobs) != 0 {
			t.Errorf("%d jobs were done and %d are left, want 21 and none", len(partner.done), len(jobs))
		}
	})
}

func TestRecipeWorkersGoOnAfterAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log.SetOutput(io.Discard)
		defer log.SetOutput(os.Stderr)
		primary := &switched{Store: memstore.New(memstore.Config{})}
		primary.down.Store(true)
		time.AfterFunc(time.Second, func() { primary.down.Store(false) })
		var failures atomic.Int64
		work := partnerWorker(ratetest.NewLimiter(t, ratelimit.Config{
			Store:  primary,
			Logger: slog.New(slog.DiscardHandler),
			Observe: func(_ context.Context, e *ratelimit.Event) {
				if e.Err != nil && failures.Add(1) > 1000 {
					primary.down.Store(false) // otherwise a loop without a pause has no end here
				}
			},
		}))
		partner := partnerCalls{start: time.Now().Add(1200 * time.Millisecond)} // after four pauses
		jobs := partner.jobs(t, 21, 0)
		stop, cancel := context.WithCancel(t.Context())
		time.AfterFunc(10*time.Second, cancel)
		var workers sync.WaitGroup
		for range 5 {
			workers.Go(func() { work(stop, jobs) })
		}
		workers.Wait()
		partner.wantEven(t, 21)
		if n := failures.Load(); n != 5*4 {
			t.Errorf("5 workers called Wait %d times in an outage of a second, want 20", n)
		}
	})
}

func TestRecipeWorkersStop(t *testing.T) {
	client := redis.NewClient(ratetest.Must(redisstore.Options("redis://" + miniredis.RunT(t).Addr())))
	buckets := redisstore.New(client, redisstore.Config{})
	limiter := ratetest.NewLimiter(t, ratelimit.Config{Store: buckets})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var done atomic.Int64
	jobs := make(backlog, 50)
	for range cap(jobs) {
		jobs <- func(context.Context) { done.Add(1); cancel() }
	}
	runWorkers(ctx, partnerWorker(limiter), jobs, buckets, client)
	if n := int(done.Load()); n == 0 || n+len(jobs) != cap(jobs) {
		t.Errorf("%d jobs were done and %d are left, of %d", n, len(jobs), cap(jobs))
	}
	if _, err := limiter.Take(t.Context(), ratelimit.Policy{Name: "p", Limit: ratelimit.PerHour(1)}, "k", 1); !errors.Is(err, redisstore.ErrClosed) {
		t.Errorf("the error of the store is %v, want ErrClosed", err)
	}
	if err := client.Ping(t.Context()).Err(); !errors.Is(err, redis.ErrClosed) {
		t.Errorf("the error of the client is %v, want ErrClosed", err)
	}
}

// The errors of Wait are as the table of the recipe has them.
func TestRecipeWorkersErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := ratetest.Quiet(t)
		partner := ratelimit.Policy{Name: "partner-api", Limit: ratelimit.PerSecond(10).WithBurst(1)}
		wait := func(ctx context.Context, cost int64) error {
			_, err := limiter.Wait(ctx, partner, "partner:7", cost)
			return err
		}
		if err := wait(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		near, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		begin := time.Now()
		var late *ratelimit.WaitError
		if err := wait(near, 1); !errors.As(err, &late) || late.RetryAfter != 50*time.Millisecond || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a deadline before the turn: %v, want a WaitError for 50ms", err)
		}
		if err := wait(t.Context(), 2); !errors.As(err, &late) || late.RetryAfter != ratelimit.Never {
			t.Errorf("a cost above the burst: %v, want a WaitError for ever", err)
		}
		if time.Since(begin) != 0 {
			t.Errorf("the errors came after %v, want them at once", time.Since(begin))
		}
		time.Sleep(60 * time.Millisecond)
		if err := wait(near, 1); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a deadline that has passed: %v, want one that wraps DeadlineExceeded", err)
		}
		ends, end := context.WithCancel(t.Context())
		time.AfterFunc(10*time.Millisecond, end)
		if err := wait(ends, 1); !errors.Is(err, context.Canceled) {
			t.Errorf("a context that ends meanwhile: %v, want one that wraps Canceled", err)
		}
	})
}
