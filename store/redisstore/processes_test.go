package redisstore_test

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit/internal/redistest"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

// A hammering is what a process of TestProcesses is told, and a tally what it answers.
type hammering struct {
	Addr    string
	Rate    int64
	Burst   int64
	Callers int
	From    time.Time
	For     time.Duration
}

type tally struct {
	Allowed, Denied int64
	First, Last     time.Time // sending of the first call, reply to the last
	Err             string
}

const hammerEnv = "REDISSTORE_TEST_HAMMER"

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
	charges := []store.Charge{{Policy: "hammer", Key: "one", Limit: limit, Cost: 1}}
	peek := charges[0]
	peek.Cost = 0
	if _, err := s.Take(context.Background(), []store.Charge{peek}, make([]store.State, 1)); err != nil {
		return tally{Err: err.Error()}
	}
	time.Sleep(time.Until(h.From)) // the processes begin together, and connected
	tallies := make(chan tally)
	for range h.Callers {
		go func() {
			mine := tally{First: time.Now()}
			states := make([]store.State, 1)
			for time.Since(h.From) < h.For && mine.Err == "" {
				switch ok, err := s.Take(context.Background(), charges, states); {
				case err != nil:
					mine.Err = err.Error()
				case ok:
					mine.Allowed++
				default:
					mine.Denied++
				}
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
	t.Allowed += o.Allowed
	t.Denied += o.Denied
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
	const processes = 8
	server := redistest.Start(t)
	h := hammering{
		Addr:    server.Addr(),
		Rate:    250,
		Burst:   500,
		Callers: 4,
		From:    time.Now().Add(2 * time.Second),
		For:     3 * time.Second,
	}
	job, err := json.Marshal(h)
	if err != nil {
		t.Fatal(err)
	}
	var total tally
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
	took := total.Last.Sub(total.First)
	most := float64(h.Burst) + float64(h.Rate)*took.Seconds()
	t.Logf("%d allowed and %d denied in %v: %.2f %% of %.1f", total.Allowed, total.Denied, took, 100*float64(total.Allowed)/most, most)
	if float64(total.Allowed) > most {
		t.Errorf("%d allowed, want at most %.1f", total.Allowed, most)
	}
	if float64(total.Allowed) < 0.99*most {
		t.Errorf("%d allowed, want at least 99 %% of %.1f", total.Allowed, most)
	}
	if total.Denied == 0 {
		t.Error("none was denied: the processes did not come near the limit")
	}
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
