//go:build unix

package override_test

import (
	"context"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/admin"
	"github.com/go-tokenbucket/ratelimit/internal/test/redistest"
	"github.com/go-tokenbucket/ratelimit/internal/test/testprogram"
	"github.com/go-tokenbucket/ratelimit/override"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

func TestMain(m *testing.M) { testprogram.Main(m, program) }

// decidedBy is a header with the limit by which a request was decided.
const decidedBy = "Decided-By"

// program is a replica of TestThreeProcessesFollowAChange. Its argument is the address of Redis.
func program() {
	log.SetOutput(os.Stdout)
	log.SetFlags(log.LstdFlags | log.Lmicroseconds)
	quiet := slog.New(slog.DiscardHandler)
	o, err := redisstore.Options("redis://" + os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	buckets := ratelimit.Must(redisstore.New(redis.NewClient(o), redisstore.Config{Logger: quiet}))
	answer := func(status int) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if d, ok := ratelimit.FromContext(r.Context()); ok && len(d.Results) == 1 {
				w.Header().Set(decidedBy, d.Results[0].Limit.String())
			}
			w.WriteHeader(status)
		})
	}
	l := ratelimit.Must(ratelimit.New(ratelimit.Config{
		Store: buckets, Logger: quiet, Timeout: 5 * time.Second, Deny: answer(http.StatusTooManyRequests),
		Policies: []ratelimit.Policy{policy("api", ratelimit.PerMinute(60).WithBurst(10))},
	}))
	h := l.Handler(answer(http.StatusOK))
	changed, err := override.Watch(context.Background(), l, buckets, override.Config{Logger: quiet})
	if err != nil {
		log.Fatal(err)
	}
	page := admin.Handler(l, func(*http.Request) (string, admin.Access) { return "alice", admin.Change }, admin.Config{Overrides: changed, Logger: quiet})
	var at []any
	for _, h := range []http.Handler{h, page} {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			log.Fatal(err)
		}
		at = append(at, "http://"+listener.Addr().String())
		go func() { log.Fatal(http.Serve(listener, h)) }()
	}
	log.Println(append([]any{"serves"}, at...)...)
	select {}
}

// A worker is a replica that is a process, under load.
type worker struct {
	*testprogram.Program
	url, page string
	stop      func() // the load
}

// work starts replica i and its load.
func (f *fleet) work(i int) *worker {
	f.Helper()
	w := &worker{Program: testprogram.Start(f.T, f.server.Addr())}
	testprogram.Until(f.T, "the replica serves", func() bool { return len(w.Lines("serves")) > 0 })
	words := w.Lines("serves")[0].Words
	w.url, w.page = words[1], words[2]
	f.load(i, w)
	return w
}

// load has replica i decide again and again.
func (f *fleet) load(i int, w *worker) {
	ctx, cancel := context.WithCancel(context.Background())
	var load sync.WaitGroup
	for range 2 {
		load.Go(func() {
			for ctx.Err() == nil {
				f.request(ctx, i, w.url)
				time.Sleep(5 * time.Millisecond)
			}
		})
	}
	w.stop = func() {
		cancel()
		load.Wait()
	}
}

// request has replica i decide once, and notes by which limit.
func (f *fleet) request(ctx context.Context, i int, url string) {
	began := time.Now()
	limit := f.limit(ctx, url)
	if limit == "" {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.decisions = append(f.decisions, decision{replica: i, began: began, end: time.Now(), policy: "api", limit: limit})
}

// limit returns the limit by which a replica decides a request, or "" if none has: it was killed, or Redis did not answer
// in time.
func (f *fleet) limit(ctx context.Context, url string) string {
	r, err := http.NewRequestWithContext(ctx, "GET", url, nil)
	if err != nil {
		f.Error(err)
		return ""
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return ""
	}
	io.Copy(io.Discard, response.Body)
	response.Body.Close()
	limit := response.Header.Get(decidedBy)
	if burst := response.Header.Get("X-RateLimit-Limit"); limit != "" && !strings.HasSuffix(limit, " burst "+burst) {
		f.Errorf("decided by %s, and the header says %s", limit, burst)
	}
	return limit
}

// decided waits until each of some replicas has made n decisions that began after a time.
func (f *fleet) decided(n int, after time.Time, replicas ...int) {
	f.Helper()
	testprogram.Until(f.T, "enough decisions", func() bool {
		counts := make(map[int]int)
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, d := range f.decisions {
			if d.began.After(after) {
				counts[d.replica]++
			}
		}
		for _, i := range replicas {
			if counts[i] < n {
				return false
			}
		}
		return true
	})
}

// followed is when a change that is answered now is in force everywhere.
func followed() time.Time { return time.Now().Add(2 * time.Second) }

// Replicas that are processes follow a change on the page of one of them, also those that are killed, or stopped, while it
// is made.
func TestThreeProcessesFollowAChange(t *testing.T) {
	t.Parallel()
	f := &fleet{T: t, server: redistest.Start(t), history: map[string][]phase{"api": {{limit: "60/1m burst 10"}}}}
	var workers []*worker
	for i := range 3 {
		workers = append(workers, f.work(i))
	}
	defer func() {
		for _, w := range workers {
			w.Kill()
			w.stop()
		}
	}()
	f.decided(20, time.Time{}, 0, 1, 2)
	f.change(workers[0].page, "120/1m burst 20")
	f.decided(20, followed(), 0, 1, 2)
	f.check()

	// One that was killed begins with a change that was made meanwhile, however young.
	workers[2].Kill()
	workers[2].stop()
	f.change(workers[0].page, "90/1m burst 15")
	restarted := time.Now()
	workers[2] = f.work(2)
	f.decided(20, restarted, 2)
	f.mu.Lock()
	for _, d := range f.decisions {
		if d.replica == 2 && d.began.After(restarted) && d.limit != "90/1m burst 15" {
			t.Errorf("restarted, and decided by %s", d.limit)
		}
	}
	f.mu.Unlock()
	f.decided(20, followed(), 0, 1)

	// One that was stopped, as a machine may be, decides by the limit that it has read last until it reads again, and not
	// by the one before after that.
	const before, now = "90/1m burst 15", "240/1m burst 40"
	workers[1].stop()
	workers[1].Signal(t, syscall.SIGSTOP)
	f.change(workers[0].page, now)
	time.Sleep(time.Until(followed()))
	workers[1].Signal(t, syscall.SIGCONT)
	testprogram.Until(t, "the replica follows", func() bool {
		limit := f.limit(t.Context(), workers[1].url)
		if limit != "" && limit != before && limit != now {
			t.Errorf("goes on, and decides by %q", limit)
		}
		return limit == now
	})
	late := time.Now()
	f.load(1, workers[1])
	f.decided(20, late, 0, 1, 2)
	f.check()
}
