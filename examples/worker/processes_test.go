//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/redistest"
	"github.com/go-tokenbucket/ratelimit/internal/test/testprogram"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

// rate is that of the tests, in tokens a second. The burst is only room for a machine that is busy: the tests begin
// with an empty bucket, and the workers keep it empty.
const rate = 200

var limit = ratelimit.PerSecond(rate).WithBurst(3 * rate)

// A fleet is some processes of the program on one Redis.
type fleet struct {
	processes []*testprogram.Program
	jobs      *queue
	limiter   *ratelimit.Limiter
	partner   ratelimit.Policy

	// The bucket was empty between these two.
	begin, begun time.Time
}

// startFleet starts processes, empties the bucket, and then puts jobs into the queue.
func startFleet(t *testing.T, processes, jobs int, hold time.Duration) *fleet {
	t.Helper()
	server := redistest.Start(t)
	f := &fleet{
		jobs:    &queue{client: server.Client(), key: "worker-example:jobs", hold: hold},
		limiter: ratelimit.Must(ratelimit.New(ratelimit.Config{Store: ratelimit.Must(redisstore.New(server.Client(), redisstore.Config{})), Timeout: timeout})),
		partner: partner(limit, hold),
	}
	for range processes {
		f.processes = append(f.processes, testprogram.Start(t, "-redis", "redis://"+server.Addr(), "-add", "0",
			"-limit", limit.String(), "-hold", hold.String()))
	}
	for _, p := range f.processes {
		testprogram.Until(t, "a process is ready", func() bool { return len(p.Lines("Stop:")) == 1 })
	}
	f.begin = time.Now()
	if r, err := f.limiter.Take(t.Context(), f.partner, partnerKey, limit.Burst); err != nil || !r.Allowed {
		t.Fatalf("%+v, %v", r, err)
	}
	f.begun = time.Now()
	if err := f.jobs.add(newJobs(jobs)...); err != nil {
		t.Fatal(err)
	}
	return f
}

// lines returns the lines of all processes that begin with one of firsts, in the order of time.
func (f *fleet) lines(firsts ...string) (lines []testprogram.Line) {
	for _, p := range f.processes {
		for _, first := range firsts {
			lines = append(lines, p.Lines(first)...)
		}
	}
	slices.SortStableFunc(lines, func(a, b testprogram.Line) int { return a.At.Compare(b.At) })
	return lines
}

func (f *fleet) untilDone(t *testing.T, n int) {
	t.Helper()
	testprogram.Until(t, fmt.Sprintf("%d jobs are done", n), func() bool { return len(f.lines("done")) >= n })
}

// spent returns the tokens of the jobs that were begun, without those that went back. It fails if they were more at
// any time than the limit allows.
func (f *fleet) spent(t *testing.T) (tokens float64) {
	t.Helper()
	for _, line := range f.lines("begin", "refund") {
		cost, err := strconv.ParseFloat(line.Words[3], 64)
		if err != nil {
			t.Fatal(err)
		}
		if line.Words[0] == "refund" {
			tokens -= cost
			continue
		}
		tokens += cost
		if most := rate * line.At.Sub(f.begin).Seconds(); tokens > most {
			t.Errorf("after %v the jobs had made %.0f calls, want at most %.1f", line.At.Sub(f.begin), tokens, most)
		}
	}
	return tokens
}

// charged returns how many tokens all processes have taken: at least and at most.
func (f *fleet) charged(t *testing.T) (least, most float64) {
	t.Helper()
	least = time.Since(f.begun).Seconds()
	r, err := f.limiter.Peek(t.Context(), f.partner, partnerKey)
	most = time.Since(f.begin).Seconds()
	if err != nil {
		t.Fatal(err)
	}
	if r.ResetAfter == 0 {
		t.Fatal("the bucket is full: this machine is too slow to count its tokens")
	}
	left := float64(limit.Burst) - rate*r.ResetAfter.Seconds()
	return rate*least - left, rate*most - left
}

// untilEmpty waits until all jobs are done.
func (f *fleet) untilEmpty(t *testing.T) {
	t.Helper()
	testprogram.Until(t, "the queue is empty", func() bool {
		left, err := f.jobs.left()
		return err == nil && left == 0
	})
}

// wantOnce checks that n jobs were done, each once. Of those that killed had begun, it may not have said so of all.
func (f *fleet) wantOnce(t *testing.T, n int, killed *testprogram.Program) {
	t.Helper()
	times := make(map[string]int)
	for _, line := range f.lines("done") {
		times[line.Words[1]]++
	}
	if killed != nil {
		for _, line := range killed.Lines("begin") {
			if id := line.Words[1]; times[id] == 0 {
				times[id] = 1
			}
		}
	}
	for id, n := range times {
		if n != 1 {
			t.Errorf("job %s was done %d times", id, n)
		}
	}
	if len(times) != n {
		t.Errorf("%d jobs were done, want %d", len(times), n)
	}
}

// A process that stops finishes the jobs that it has begun. The others do all the rest.
func TestWorkersLoseNoJobAtAStop(t *testing.T) {
	t.Parallel()
	const n = 120
	f := startFleet(t, 3, n, time.Minute)
	f.untilDone(t, n/4)
	stopped := f.processes[0]
	testprogram.Until(t, "a job runs", func() bool {
		return len(stopped.Lines("begin")) > len(stopped.Lines("done"))+len(stopped.Lines("refund"))
	})
	stopped.Signal(t, syscall.SIGTERM)
	stopped.Wait(t, 5*time.Second)
	if begun, done, back := len(stopped.Lines("begin")), len(stopped.Lines("done")), len(stopped.Lines("refund")); begun == 0 || begun != done+back {
		t.Errorf("the process that stopped has begun %d jobs, done %d and refunded %d", begun, done, back)
	}
	f.untilEmpty(t)
	for _, p := range f.processes[1:] {
		p.Signal(t, syscall.SIGTERM)
	}
	for _, p := range f.processes[1:] {
		p.Wait(t, 5*time.Second)
	}
	f.wantOnce(t, n, nil)

	// The tokens of jobs that waited when the process stopped went back, and those of jobs that made no call.
	spent := f.spent(t)
	if least, most := f.charged(t); least > spent+0.1 || most < spent-0.1 {
		t.Errorf("the bucket was charged %.1f to %.1f tokens, want %.0f", least, most, spent)
	}
}

// reserved returns how many tokens a killed process can have reserved: those of the jobs in held that nobody had begun
// before another process could take them, and of those whose tokens it may have been about to give back.
func (f *fleet) reserved(t *testing.T, held []redis.Z) (tokens float64) {
	t.Helper()
	lines := f.lines("begin", "refund")
	for _, z := range held {
		var j job
		if err := json.Unmarshal([]byte(z.Member.(string)), &j); err != nil {
			t.Fatal(err)
		}
		until := time.UnixMilli(int64(z.Score))
		taken := until.Add(time.Millisecond - f.jobs.hold) // at the latest
		begun := 0
		for _, l := range lines {
			switch {
			case l.Words[1] != j.ID || l.At.Before(taken) || l.At.After(until):
			case l.Words[0] == "begin":
				begun++
			default:
				begun--
			}
		}
		if begun <= 0 {
			tokens += float64(j.Cost)
		}
	}
	return tokens
}

// After kill -9 of one process the others do all jobs. Lost are only the tokens that it had reserved.
func TestWorkersGoOnAfterKill9(t *testing.T) {
	t.Parallel()
	const n = 120
	f := startFleet(t, 3, n, 2*time.Second)
	f.untilDone(t, n/4)
	f.processes[0].Kill()
	killed := time.Now()
	held, err := f.jobs.client.ZRangeByScoreWithScores(t.Context(), f.jobs.key, &redis.ZRangeBy{Min: "1", Max: "+inf"}).Result()
	if err != nil {
		t.Fatal(err)
	}
	f.untilEmpty(t)
	for _, p := range f.processes[1:] {
		p.Signal(t, syscall.SIGTERM)
	}
	for _, p := range f.processes[1:] {
		p.Wait(t, 5*time.Second)
	}
	f.wantOnce(t, n, f.processes[0])
	spent, reserved := f.spent(t), f.reserved(t, held)
	least, most := f.charged(t)
	t.Logf("%.1f to %.1f tokens were lost, of %.0f", least-spent, most-spent, reserved)
	if least > spent+reserved+0.1 || most < spent-0.1 {
		t.Errorf("the bucket was charged %.1f to %.1f tokens, want %.0f and at most %.0f more", least, most, spent, reserved)
	}

	f.processes = f.processes[1:]
	for _, line := range f.lines("begin") {
		if after := line.At.Sub(killed); after > 0 {
			// The turns before the next one are those of the killed process.
			if longest := time.Duration(reserved)*time.Second/rate + time.Second; after > longest {
				t.Errorf("the others went on after %v, want at most %v", after, longest)
			}
			break
		}
	}
}

// A process whose workers wait for their turns stops at once, and gives back their jobs.
func TestWorkerStopsWhileItWaits(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 1, 0, time.Minute)
	if r, err := f.limiter.Take(t.Context(), f.partner, partnerKey, limit.Burst); err != nil || r.Wait < 2*time.Second {
		t.Fatalf("%+v, %v", r, err)
	}
	if err := f.jobs.add(newJobs(20)...); err != nil {
		t.Fatal(err)
	}
	testprogram.Until(t, "8 workers have a job", func() bool {
		return f.jobs.client.ZCount(t.Context(), f.jobs.key, "1", "+inf").Val() == 8
	})
	f.processes[0].Signal(t, os.Interrupt)
	f.processes[0].Wait(t, 2*time.Second)
	for range 20 { // nobody holds them
		if _, err := f.jobs.take(); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(f.lines("begin")); n != 0 {
		t.Errorf("%d jobs were begun before their turn", n)
	}
}
