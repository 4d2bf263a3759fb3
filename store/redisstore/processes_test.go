package redisstore_test

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit/internal/test/redistest"
	"github.com/go-tokenbucket/ratelimit/internal/test/testsize"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

// A hammering is what a process of TestProcesses is told, and a tally what it answers.
type hammering struct {
	Addr    string
	Rate    int64
	Burst   int64
	Callers int
	Keys    int // each of which has a bucket of its own
	From    time.Time
	For     time.Duration
}

type tally struct {
	Allowed     []int64 // of each key
	Denied      int64
	First, Last time.Time     // sending of the first call, reply to the last
	Slowest     time.Duration // of the calls
	Err         string
}

const hammerEnv = "REDISSTORE_TEST_HAMMER"

func init() { workers = append(workers, hammerHere) }

// hammerHere makes this process one of those of TestProcesses, if it was started as such.
func hammerHere() bool {
	job := os.Getenv(hammerEnv)
	if job == "" {
		return false
	}
	var h hammering
	if err := json.Unmarshal([]byte(job), &h); err != nil {
		panic(err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(h.run()); err != nil {
		panic(err)
	}
	return true
}

func (h hammering) run() (total tally) {
	client := redis.NewClient(&redis.Options{Addr: h.Addr})
	defer client.Close()
	s := redisstore.New(client, redisstore.Config{})
	limit, err := store.NewLimit(h.Rate, time.Second, h.Burst)
	if err != nil {
		return tally{Err: err.Error()}
	}
	peek := store.Charge{Policy: "hammer", Key: "0", Limit: limit}
	if _, err := s.Take(context.Background(), []store.Charge{peek}, make([]store.State, 1)); err != nil {
		return tally{Err: err.Error()}
	}
	time.Sleep(time.Until(h.From)) // the processes begin together, and connected
	tallies := make(chan tally)
	for caller := range h.Callers {
		go func() {
			mine := tally{First: time.Now(), Allowed: make([]int64, h.Keys)}
			charges := []store.Charge{{Policy: "hammer", Limit: limit, Cost: 1}}
			states := make([]store.State, 1)
			before := time.Since(h.From)
			for i := caller; before < h.For && mine.Err == ""; i++ {
				charges[0].Key = strconv.Itoa(i % h.Keys)
				switch ok, err := s.Take(context.Background(), charges, states); {
				case err != nil:
					mine.Err = err.Error()
				case ok:
					mine.Allowed[i%h.Keys]++
				default:
					mine.Denied++
				}
				after := time.Since(h.From)
				mine.Slowest = max(mine.Slowest, after-before)
				before = after
			}
			mine.Last = time.Now()
			tallies <- mine
		}()
	}
	for range h.Callers {
		total.add(<-tallies)
	}
	return total
}

func (t *tally) add(o tally) {
	if t.Allowed == nil {
		t.Allowed = make([]int64, len(o.Allowed))
	}
	for key, n := range o.Allowed {
		t.Allowed[key] += n
	}
	t.Denied += o.Denied
	t.Slowest = max(t.Slowest, o.Slowest)
	if t.First.IsZero() || o.First.Before(t.First) {
		t.First = o.First
	}
	if o.Last.After(t.Last) {
		t.Last = o.Last
	}
	if t.Err == "" {
		t.Err = o.Err
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
		total := h.byProcesses(t, 8)
		most := float64(h.Burst) + float64(h.Rate)*total.Last.Sub(total.First).Seconds() // of each key
		allowed := int64(0)
		for key, n := range total.Allowed {
			allowed += n
			if float64(n) > most {
				t.Errorf("%d allowed of key %d, want at most %.1f", n, key, most)
			}
		}
		if total.Denied == 0 {
			t.Error("none was denied: the processes did not come near the limit")
		}
		all := float64(h.Keys) * most
		t.Logf("%d allowed and %d denied, the slowest call in %v: %.2f %% of %.1f", allowed, total.Denied, total.Slowest, 100*float64(allowed)/all, all)
		// At the end each bucket holds a part of a token, of which the percent covers one.
		missing := 0.99*all - float64(h.Keys-1) - float64(allowed)
		if missing <= 0 {
			return
		}
		if stood := total.Slowest.Seconds() * float64(h.Rate) * float64(h.Keys); missing > stood || try == 5 {
			t.Fatalf("%.1f too few", missing)
		}
	}
}

func (h hammering) byProcesses(t *testing.T, processes int) (total tally) {
	server := redistest.Start(t)
	h.Addr = server.Addr()
	h.From = time.Now().Add(time.Duration(testsize.Of(1000, 2000)) * time.Millisecond)
	h.For = time.Duration(testsize.Of(1200, 3000)) * time.Millisecond
	job, err := json.Marshal(h)
	if err != nil {
		t.Fatal(err)
	}
	var running []func() tally
	for range processes {
		running = append(running, startHammer(t, string(job)))
	}
	for _, wait := range running {
		total.add(wait())
	}
	if total.Err != "" {
		t.Fatal(total.Err)
	}
	return total
}

// startHammer starts a process and returns how to wait for its tally.
func startHammer(t *testing.T, job string) func() tally {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), hammerEnv+"="+job)
	var out, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return func() (counted tally) {
		t.Helper()
		defer cancel()
		if err := cmd.Wait(); err != nil {
			t.Fatalf("%v\n%s", err, stderr.String())
		}
		line, _, _ := bufio.NewReader(strings.NewReader(out.String())).ReadLine()
		if err := json.Unmarshal(line, &counted); err != nil {
			t.Fatalf("%v: %q", err, out.String())
		}
		return counted
	}
}
