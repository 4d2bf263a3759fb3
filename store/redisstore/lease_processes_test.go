//go:build long

package redisstore_test

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit/internal/test/redistest"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/lease"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

// A leasing is what a process of TestKilledProcessesThatLeaseKeepToTheLimit is told. It writes a byte for each
// token that it admits, at once, so that it may be killed at any time.
type leasing struct {
	Addr        string
	Rate, Burst int64
	Fraction    float64
	Callers     int
	Pause       time.Duration // of a caller after each call
	From        time.Time
	For         time.Duration
}

const leasingEnv = "REDISSTORE_TEST_LEASE"

// What a token was paid from.
const (
	fromLease = 'l'
	fromRedis = 'r'
)

func init() { workers = append(workers, leaseHere) }

// leaseHere makes this process one of those of the test, if it was started as such.
func leaseHere() bool {
	job := os.Getenv(leasingEnv)
	if job == "" {
		return false
	}
	var l leasing
	if err := json.Unmarshal([]byte(job), &l); err != nil {
		panic(err)
	}
	if err := l.run(); err != nil {
		panic(err)
	}
	return true
}

type askedKey struct{}

// noting is a Store that notes in a call's context that it was asked.
type noting struct{ store.Store }

func (s noting) Take(ctx context.Context, charges []store.Charge, states []store.State) (bool, error) {
	if asked, ok := ctx.Value(askedKey{}).(*bool); ok {
		*asked = true
	}
	return s.Store.Take(ctx, charges, states)
}

func (l leasing) run() error {
	client := redis.NewClient(&redis.Options{Addr: l.Addr})
	defer client.Close()
	limit, err := store.NewLimit(l.Rate, time.Second, l.Burst)
	if err != nil {
		return err
	}
	s := redisstore.New(client, redisstore.Config{})
	charges := []store.Charge{{Policy: "lease", Key: "k", Limit: limit}}
	if _, err := s.Take(context.Background(), charges, make([]store.State, 1)); err != nil {
		return err
	}
	leased := lease.New(noting{s}, lease.Config{Fraction: l.Fraction})
	time.Sleep(time.Until(l.From)) // the processes begin together, and connected
	failures := make(chan error)
	for range l.Callers {
		go func() {
			charges := []store.Charge{{Policy: "lease", Key: "k", Limit: limit, Cost: 1}}
			states := make([]store.State, 1)
			var failure error
			for time.Since(l.From) < l.For && failure == nil {
				asked := false
				ok, err := leased.Take(context.WithValue(context.Background(), askedKey{}, &asked), charges, states)
				paid := byte(fromLease)
				if asked {
					paid = fromRedis
				}
				if failure = err; ok {
					_, failure = os.Stdout.Write([]byte{paid})
				}
				time.Sleep(l.Pause)
			}
			failures <- failure
		}()
	}
	for range l.Callers {
		if failure := <-failures; failure != nil && err == nil {
			err = failure
		}
	}
	if err != nil {
		return err
	}
	return leased.Close()
}

// A machine that is too busy to ask as often as it would be admitted gets two more tries. A limiter that admits too
// few does so in each of them, and one that admits too many has no second.
func TestKilledProcessesThatLeaseKeepToTheLimit(t *testing.T) {
	for try := 1; !killedProcessesKeepToTheLimit(t, try == 3); try++ {
	}
}

// killedProcessesKeepToTheLimit reports whether they were admitted as much as they should be, which is a failure if
// this is the last try.
func killedProcessesKeepToTheLimit(t *testing.T, last bool) bool {
	const processes, killed = 8, 2
	l := leasing{Rate: 2000, Burst: 1000, Fraction: 0.1, Callers: 4, Pause: 5 * time.Millisecond, From: time.Now().Add(2 * time.Second), For: 10 * time.Second}
	l.Addr = redistest.Start(t).Addr()
	job, err := json.Marshal(l)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var mu sync.Mutex
	var latest time.Time
	admitted := make(map[byte]int64)
	var reading sync.WaitGroup
	var running []*exec.Cmd
	for range processes {
		cmd := exec.CommandContext(ctx, os.Args[0])
		cmd.Env = append(os.Environ(), leasingEnv+"="+string(job))
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		running = append(running, cmd)
		reading.Go(func() {
			for bytes := bufio.NewReader(out); ; {
				b, err := bytes.ReadByte()
				if err != nil {
					return
				}
				mu.Lock()
				admitted[b]++
				latest = time.Now()
				mu.Unlock()
			}
		})
	}
	for i, cmd := range running[:killed] {
		time.Sleep(time.Until(l.From.Add(l.For * time.Duration(i+1) / (killed + 1))))
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
	}
	reading.Wait()
	took := latest.Sub(l.From)
	for i, cmd := range running {
		if err := cmd.Wait(); err != nil && i >= killed {
			t.Error(err)
		}
	}

	total := admitted[fromLease] + admitted[fromRedis]
	most := float64(l.Burst) + float64(l.Rate)*took.Seconds()
	// Other processes hold a lease each at the end, and those killed have lost theirs, and what they admitted
	// and did not write.
	under := float64(processes+killed)*l.Fraction*float64(l.Burst) + float64(killed*l.Callers)
	least := float64(l.Burst) + float64(l.Rate)*l.For.Seconds() - under
	t.Logf("%d admitted in %v, %d of them without Redis: %.2f %% of %.1f", total, took, admitted[fromLease], 100*float64(total)/most, most)
	if float64(total) > most {
		t.Errorf("want at most %.1f", most)
	}
	if float64(total) < least && !last {
		t.Logf("want at least %.1f: once more", least)
		return t.Failed()
	}
	if float64(total) < least {
		t.Errorf("want at least %.1f", least)
	}
	if admitted[fromLease] < total/10 {
		t.Error("want a tenth without Redis, or it is not leases that are tested")
	}
	return true
}
