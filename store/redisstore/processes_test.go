package redisstore_test

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/redistest"
	"github.com/go-tokenbucket/ratelimit/internal/test/testsize"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/lease"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

// A hammering is what processes of a test do. For each token that one is admitted it writes a byte, at once, because it
// may be killed: the number of the key, and fromLease. At its end it writes a tally.
type hammering struct {
	Addr        string
	Rate, Burst int64
	Keys        int     // each of which has a bucket of its own
	Fraction    float64 // of leases; 0: there are none
	Callers     int
	Pause       time.Duration // of a caller after each call
	From        time.Time
	For         time.Duration
}

// fromLease says that a token was paid without Redis.
const fromLease = 0x40

type tally struct {
	Denied      int64
	First, Last time.Time     // sending of the first call, reply to the last
	Slowest     time.Duration // of the calls
}

func (t *tally) add(o tally) {
	t.Denied += o.Denied
	t.Slowest = max(t.Slowest, o.Slowest)
	if t.First.IsZero() || o.First.Before(t.First) {
		t.First = o.First
	}
	if o.Last.After(t.Last) {
		t.Last = o.Last
	}
}

const hammerEnv = "REDISSTORE_TEST_HAMMER"

// hammerHere makes this process one of those of a test, if it was started as such.
func hammerHere() bool {
	job := os.Getenv(hammerEnv)
	if job == "" {
		return false
	}
	var h hammering
	if err := json.Unmarshal([]byte(job), &h); err != nil {
		panic(err)
	}
	total, err := h.run()
	if err != nil {
		panic(err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(total); err != nil {
		panic(err)
	}
	return true
}

// A noting is a Store that notes in a call's context that it was asked.
type noting struct{ store.Store }

type payment struct{}

func (s noting) Take(ctx context.Context, charges []store.Charge, states []store.State) (bool, error) {
	if paid, ok := ctx.Value(payment{}).(*byte); ok {
		*paid &^= fromLease
	}
	return s.Store.Take(ctx, charges, states)
}

func (h hammering) run() (total tally, err error) {
	client := redis.NewClient(&redis.Options{Addr: h.Addr})
	defer client.Close()
	limit, err := store.NewLimit(h.Rate, time.Second, h.Burst)
	if err != nil {
		return total, err
	}
	var s store.Store = noting{ratelimit.Must(redisstore.New(client, redisstore.Config{}))}
	if _, err := tryIn(context.Background(), s, store.Charge{Policy: "hammer", Key: "0", Limit: limit}); err != nil {
		return total, err
	}
	if h.Fraction > 0 {
		leased := ratelimit.Must(lease.New(s, lease.Config{Fraction: h.Fraction}))
		defer func() { err = leased.Close() }()
		s = leased
	}
	time.Sleep(time.Until(h.From)) // the processes begin together, and connected
	var callers sync.WaitGroup
	var mu sync.Mutex
	for caller := range h.Callers {
		callers.Go(func() {
			mine := tally{First: time.Now()}
			before := time.Since(h.From)
			for i := caller; before < h.For; i++ {
				paid := byte(i%h.Keys) | fromLease
				ctx := context.WithValue(context.Background(), payment{}, &paid)
				ok, err := tryIn(ctx, s, store.Charge{Policy: "hammer", Key: strconv.Itoa(i % h.Keys), Limit: limit, Cost: 1})
				if err == nil && ok {
					_, err = os.Stdout.Write([]byte{paid})
				} else {
					mine.Denied++
				}
				if err != nil {
					panic(err)
				}
				after := time.Since(h.From)
				mine.Slowest = max(mine.Slowest, after-before)
				time.Sleep(h.Pause)
				before = time.Since(h.From)
			}
			mine.Last = time.Now()
			mu.Lock()
			defer mu.Unlock()
			total.add(mine)
		})
	}
	callers.Wait()
	return total, nil
}

// What processes were admitted in all.
type admissions struct {
	tally          // of those that were not killed
	of     []int64 // each key
	leased int64   // without Redis
	all    int64
	latest time.Time
}

// byProcesses has so many processes do h, and kills the first of them at regular times.
func (h hammering) byProcesses(t *testing.T, processes, killed int) *admissions {
	h.Addr = redistest.Start(t).Addr()
	job, err := json.Marshal(h)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	total := &admissions{of: make([]int64, h.Keys)}
	var mu sync.Mutex
	var reading sync.WaitGroup
	var running []*exec.Cmd
	for range processes {
		cmd := exec.CommandContext(ctx, os.Args[0])
		cmd.Env = append(os.Environ(), hammerEnv+"="+string(job))
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		running = append(running, cmd)
		reading.Go(func() { total.read(t, &mu, bufio.NewReader(out)) })
	}
	for i, cmd := range running[:killed] {
		time.Sleep(time.Until(h.From.Add(h.For * time.Duration(i+1) / time.Duration(killed+1))))
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
	}
	reading.Wait()
	for i, cmd := range running {
		if err := cmd.Wait(); err != nil && i >= killed {
			t.Fatal(err)
		}
	}
	return total
}

// read reads what a process writes.
func (a *admissions) read(t *testing.T, mu *sync.Mutex, out *bufio.Reader) {
	for b, err := out.ReadByte(); err == nil; b, err = out.ReadByte() {
		if b == '{' {
			var its tally
			rest, _ := out.ReadBytes('\n')
			if err := json.Unmarshal(append([]byte{b}, rest...), &its); err != nil {
				t.Errorf("a tally: %v", err)
			}
			mu.Lock()
			a.add(its)
			mu.Unlock()
			return
		}
		mu.Lock()
		a.latest = time.Now()
		a.all++
		a.of[b&^fromLease]++
		if b >= fromLease {
			a.leased++
		}
		mu.Unlock()
	}
}

func TestProcessesShareALimitExactly(t *testing.T) {
	hammer(t, hammering{Rate: 250, Burst: 500, Callers: 4, Keys: 1})
}

// hammer checks that eight processes are admitted no more than the limit allows, and no less than 99 % of it. It
// begins anew where the machine stood still for as long as what is missing took to be added: of that, nobody could
// take any before the end.
func hammer(t *testing.T, h hammering) {
	for try := 1; ; try++ {
		h.From = time.Now().Add(time.Duration(testsize.Of(1000, 2000)) * time.Millisecond)
		h.For = time.Duration(testsize.Of(1200, 3000)) * time.Millisecond
		total := h.byProcesses(t, 8, 0)
		most := float64(h.Burst) + float64(h.Rate)*total.Last.Sub(total.First).Seconds() // of each key
		for key, n := range total.of {
			if float64(n) > most {
				t.Errorf("%d allowed of key %d, want at most %.1f", n, key, most)
			}
		}
		if total.Denied == 0 {
			t.Error("none was denied: the processes did not come near the limit")
		}
		if total.leased > 0 {
			t.Errorf("%d were allowed without Redis", total.leased)
		}
		all := float64(h.Keys) * most
		t.Logf("%d allowed and %d denied, the slowest call in %v: %.2f %% of %.1f", total.all, total.Denied, total.Slowest, 100*float64(total.all)/all, all)
		// At the end each bucket holds a part of a token, of which the percent covers one.
		missing := 0.99*all - float64(h.Keys-1) - float64(total.all)
		if missing <= 0 {
			return
		}
		if stood := total.Slowest.Seconds() * float64(h.Rate) * float64(h.Keys); missing > stood || try == 5 {
			t.Fatalf("%.1f too few", missing)
		}
	}
}
