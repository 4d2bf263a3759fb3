package waiting_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/redistest"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

// A rush is what a process of TestProcessesShareOneQueue is told.
type rush struct {
	Addr        string
	Process, Of int
	Waiters     int
	From        time.Time
	Every       time.Duration // one waiter comes
	LeaveAt     time.Time
	LeaveEach   int // one in so many leaves, if it still waits
	Limit       ratelimit.Limit
	MaxWait     time.Duration
}

// A turn is what became of one waiter.
type turn struct {
	Waiter   int
	Status   int
	Sent     time.Time     // before Redis was asked
	Answered time.Time     // when it had answered
	Wait     time.Duration // what it answered
	Done     time.Time     // when it went on, was refused, or had left
	Err      string
}

func (r rush) policy() ratelimit.Policy {
	return ratelimit.Policy{Name: "rush", Key: ratelimit.Static("all"), Limit: r.Limit, MaxWait: r.MaxWait}
}

const rushEnv = "RATELIMIT_TEST_RUSH"

// waitHere makes this process one of those of TestProcessesShareOneQueue, if it was started as such.
func waitHere() bool {
	job := os.Getenv(rushEnv)
	if job == "" {
		return false
	}
	var r rush
	if err := json.Unmarshal([]byte(job), &r); err != nil {
		panic(err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(r.run()); err != nil {
		panic(err)
	}
	return true
}

func (r rush) run() []turn {
	client := redis.NewClient(&redis.Options{Addr: r.Addr})
	defer client.Close()
	turns := make([]turn, r.Waiters)
	l := ratelimit.Must(ratelimit.New(ratelimit.Config{
		Store:   ratelimit.Must(redisstore.New(client, redisstore.Config{})),
		Timeout: 5 * time.Second, // the machine may be busy
		Observe: func(ctx context.Context, e *ratelimit.Event) {
			waiter, ok := ctx.Value(waiterKey{}).(*turn)
			if !ok {
				return
			}
			waiter.Done = time.Now()
			waiter.Answered = waiter.Done.Add(-e.Waited)
			if len(e.Results) > 0 {
				waiter.Wait = e.Results[0].Wait
			}
			if e.Err != nil {
				waiter.Err = e.Err.Error()
			}
		},
	}))
	if _, err := l.Peek(context.Background(), r.policy(), "static:all"); err != nil { // and connect
		turns[r.Process].Err = err.Error()
		return turns
	}
	h := l.Limit(r.policy())(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	var crowd sync.WaitGroup
	for i := r.Process; i < r.Waiters; i += r.Of {
		crowd.Go(func() {
			ctx := context.WithValue(context.Background(), waiterKey{}, &turns[i])
			if i%r.LeaveEach == r.LeaveEach-1 {
				leaving, cancel := context.WithCancel(ctx)
				defer time.AfterFunc(time.Until(r.LeaveAt), cancel).Stop()
				defer cancel()
				ctx = leaving
			}
			time.Sleep(time.Until(r.From.Add(time.Duration(i) * r.Every)))
			w := httptest.NewRecorder()
			turns[i].Sent = time.Now()
			h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil).WithContext(ctx))
			turns[i].Waiter, turns[i].Status = i, w.Code
		})
	}
	crowd.Wait()
	return turns
}

type waiterKey struct{}

// start starts a process and returns how to wait for its turns.
func (r rush) start(t *testing.T) func() []turn {
	t.Helper()
	job, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), rushEnv+"="+string(job))
	var out, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return func() (turns []turn) {
		t.Helper()
		defer cancel()
		if err := cmd.Wait(); err != nil {
			t.Fatalf("%v\n%s", err, stderr.String())
		}
		if err := json.Unmarshal([]byte(out.String()), &turns); err != nil {
			t.Fatalf("%v: %q", err, out.String())
		}
		return slices.DeleteFunc(turns, func(w turn) bool { return w.Sent.IsZero() && w.Err == "" }) // those of others
	}
}

// 500 come within 1.5 s to a bucket that has room for 50 and gets 50 a second. The last of them would have
// to wait for more than the 7 s that they may.
func TestProcessesShareOneQueue(t *testing.T) {
	const processes, rate, burst = 3, 50, 50
	server := redistest.Start(t)
	r := rush{
		Addr:      server.Addr(),
		Of:        processes,
		Waiters:   500,
		From:      time.Now().Add(2 * time.Second),
		Every:     3 * time.Millisecond,
		LeaveEach: 15,
		Limit:     ratelimit.PerSecond(rate).WithBurst(burst),
		MaxWait:   7 * time.Second,
	}
	r.LeaveAt = r.From.Add(2500 * time.Millisecond)
	var running []func() []turn
	for r.Process = range processes {
		running = append(running, r.start(t))
	}

	l := newLimiter(t, ratelimit.Config{Store: ratelimit.Must(redisstore.New(server.Client(), redisstore.Config{}))})
	time.Sleep(time.Until(r.LeaveAt.Add(time.Second)))
	peeking := time.Now()
	bucket, err := l.Peek(t.Context(), r.policy(), "static:all")
	peeked := time.Now()
	if err != nil {
		t.Fatal(err)
	}

	var turns, served, refused, left []turn
	for _, wait := range running {
		turns = append(turns, wait()...)
	}
	for _, w := range turns {
		switch {
		case w.Status == http.StatusOK && w.Err == "":
			served = append(served, w)
		case w.Status == http.StatusTooManyRequests && w.Err == "":
			refused = append(refused, w)
		case w.Status == http.StatusServiceUnavailable && w.Err == context.Canceled.Error(): // a recorder has no client that could be gone
			left = append(left, w)
		default:
			t.Fatalf("waiter %d: status %d, error %q", w.Waiter, w.Status, w.Err)
		}
	}
	t.Logf("%d were served, %d refused, %d left", len(served), len(refused), len(left))
	if len(turns) != r.Waiters || len(refused) == 0 || len(left) == 0 {
		t.Errorf("%d waiters, want %d, some of whom are refused or leave", len(turns), r.Waiters)
	}
	wantOrder(t, r, append(slices.Clone(served), left...))

	// The bucket was charged first between these two, and was never full after that.
	from, to := turns[0].Sent, turns[0].Answered
	for _, w := range turns {
		if w.Sent.Before(from) {
			from = w.Sent
		}
		if w.Answered.Before(to) {
			to = w.Answered
		}
	}
	granted := func(from, to time.Time) float64 { return burst + rate*to.Sub(from).Seconds() }

	slices.SortFunc(served, func(a, b turn) int { return a.Done.Compare(b.Done) })
	for i, w := range served {
		if most := granted(from, w.Done); float64(i+1) > most {
			t.Errorf("%d were served by %v, want at most %.1f", i+1, w.Done.Sub(from), most)
		}
	}

	// Those who were refused would have had to wait for too long.
	for _, w := range refused {
		if w.Answered.After(r.LeaveAt) {
			continue
		}
		before := 0
		for _, o := range turns {
			if o.Status != w.Status && o.Sent.Before(w.Answered) {
				before++
			}
		}
		if least := granted(to, w.Sent.Add(r.MaxWait)); float64(before+1) <= least {
			t.Errorf("waiter %d was refused behind %d, want at least %.1f", w.Waiter, before, least)
		}
	}

	// All others still had their tokens while they waited, and those who had left had not.
	late := 0
	for _, w := range left {
		if w.Done.After(peeking) {
			late++
		}
	}
	tokens := burst - rate*bucket.ResetAfter.Seconds()
	least, most := granted(to, peeking)-float64(len(served)+late), granted(from, peeked)-float64(len(served))
	if tokens < least-0.001 || tokens > most+0.001 { // times are rounded
		t.Errorf("the bucket holds %.2f tokens after %d left, want %.2f to %.2f", tokens, len(left), least, most)
	}
}

// wantOrder checks that those who came later got later turns, as long as nobody had left, and that nobody
// went on before its turn or long after it.
func wantOrder(t *testing.T, r rush, reserved []turn) {
	t.Helper()
	token := time.Duration(r.Limit.Per.Nanoseconds() / r.Limit.Rate)
	compared := 0
	for _, w := range reserved {
		if waited := w.Done.Sub(w.Answered); w.Wait > r.MaxWait || waited > r.MaxWait+5*time.Second || w.Status == http.StatusOK && waited < w.Wait {
			t.Errorf("waiter %d waited for %v, by its answer for %v, want at most %v", w.Waiter, waited, w.Wait, r.MaxWait)
		}
		if w.Wait == 0 || w.Answered.After(r.LeaveAt) {
			continue
		}
		// Its turn is no later than this, and that of one that came before earlier by a token.
		turn := w.Answered.Add(w.Wait)
		for _, o := range reserved {
			if o.Wait == 0 || !o.Answered.Before(w.Sent) { // no turn, or one under way at the same time
				continue
			}
			compared++
			if turn.Before(o.Sent.Add(o.Wait).Add(token - time.Millisecond)) {
				t.Errorf("waiter %d came at %v and has its turn at %v: too early after waiter %d, who came at %v and waits for %v",
					w.Waiter, w.Sent.Sub(r.From), turn.Sub(r.From), o.Waiter, o.Sent.Sub(r.From), o.Wait)
			}
		}
	}
	if all := len(reserved) * len(reserved) / 2; compared < all/2 {
		t.Errorf("%d pairs of %d came one after another: too few to tell", compared, all)
	}
}
