//go:build unix

package main

import (
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/redistest"
	"github.com/go-tokenbucket/ratelimit/internal/test/testprogram"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

// The rates of the tests in messages a second. The bursts are only room for a machine that is busy: the tests begin with
// a debt that the processes need their first second for.
const (
	tenantRate, allRate = 40, 100
	burst               = 4 * allRate
	debt                = time.Second
)

// messages is how many each process sends to a tenant.
var messages = map[string]int{"large": 30, "medium": 10, "small": 3}

// A fleet is some processes of the program on one Redis.
type fleet struct {
	processes []*testprogram.Program
	limiter   *ratelimit.Limiter

	// The debt was made between these two.
	begin, begun time.Time
}

func startFleet(t *testing.T) *fleet {
	t.Helper()
	server := redistest.Start(t)
	f := &fleet{limiter: ratelimit.Must(ratelimit.New(ratelimit.Config{Store: ratelimit.Must(redisstore.New(server.Client(), redisstore.Config{})), Timeout: timeout}))}
	charges := make([]ratelimit.Charge, 0, len(messages)+1)
	for name, rate := range rates() {
		policy, key := f.bucket(name)
		charges = append(charges, ratelimit.Charge{Policy: policy, Key: key, Cost: burst + rate*int64(debt/time.Second), Owed: true})
	}
	f.begin = time.Now()
	if d, err := f.limiter.TakeAll(t.Context(), charges...); err != nil || !d.Allowed {
		t.Fatalf("%+v, %v", d, err)
	}
	f.begun = time.Now()
	for range 3 {
		f.processes = append(f.processes, testprogram.Start(t, "-redis", "redis://"+server.Addr(),
			"-messages", strconv.Itoa(messages["large"]), "-tenant", tenantLimit().String(), "-all", allLimit().String()))
	}
	return f
}

func tenantLimit() ratelimit.Limit { return ratelimit.PerSecond(tenantRate).WithBurst(burst) }
func allLimit() ratelimit.Limit    { return ratelimit.PerSecond(allRate).WithBurst(burst) }

// rates returns the rate of each bucket: of the tenants, and of "all".
func rates() map[string]int64 {
	rates := map[string]int64{"all": allRate}
	for tenant := range messages {
		rates[tenant] = tenantRate
	}
	return rates
}

func (f *fleet) bucket(name string) (ratelimit.Policy, string) {
	if name == "all" {
		return providerPolicy(allLimit()), providerKey
	}
	return tenantPolicy(tenantLimit()), "tenant:" + name
}

// lines returns the lines of all processes that begin with first, for a tenant or for "all", in the order of time.
func (f *fleet) lines(first, name string) (lines []testprogram.Line) {
	for _, p := range f.processes {
		lines = append(lines, p.Lines(first)...)
	}
	lines = slices.DeleteFunc(lines, func(l testprogram.Line) bool { return name != "all" && l.Words[1] != name })
	slices.SortStableFunc(lines, func(a, b testprogram.Line) int { return a.At.Compare(b.At) })
	return lines
}

// check checks that no limit was exceeded at any time, and that of each bucket no more than lost tokens were taken for
// messages that were not begun.
func (f *fleet) check(t *testing.T, lost map[string]int) {
	t.Helper()
	for name, rate := range rates() {
		begun := f.lines("begin", name)
		for i, line := range begun {
			if most := float64(rate) * (line.At.Sub(f.begin) - debt).Seconds(); float64(i+1) > most {
				t.Errorf("%s: %d messages were begun after %v, want at most %.1f", name, i+1, line.At.Sub(f.begin), most)
				break
			}
		}
		policy, key := f.bucket(name)
		early := time.Since(f.begun)
		r, err := f.limiter.Peek(t.Context(), policy, key)
		late := time.Since(f.begin)
		if err != nil || r.ResetAfter == 0 {
			t.Fatalf("%s: %+v, %v: if the bucket is full, this machine is too slow to count its tokens", name, r, err)
		}
		charged := func(since time.Duration) float64 {
			return float64(rate)*(since-debt+r.ResetAfter).Seconds() - burst
		}
		t.Logf("%s: %d messages were begun, and %.1f to %.1f tokens taken", name, len(begun), charged(early), charged(late))
		if n := float64(len(begun)); charged(early) > n+float64(lost[name])+0.1 || charged(late) < n-0.1 {
			t.Errorf("%s: the bucket was charged %.1f to %.1f tokens for %d messages, want at most %d more", name, charged(early), charged(late), len(begun), lost[name])
		}
	}
}

// After kill -9 of one process the others send all of their messages. Lost are only the tokens that it had reserved:
// one for each tenant, and as many of the provider.
func TestFanOutGoesOnAfterKill9(t *testing.T) {
	t.Parallel()
	f := startFleet(t)
	testprogram.Until(t, "30 messages were sent", func() bool { return len(f.lines("done", "all")) >= 30 })
	f.processes[0].Kill()
	for _, p := range f.processes[1:] {
		p.Wait(t, 20*time.Second)
		if n := len(p.Lines("done")); n != 43 {
			t.Errorf("a process has sent %d messages, want 43", n)
		}
	}
	f.check(t, map[string]int{"all": len(messages), "large": 1, "medium": 1, "small": 1})
}

// A process that stops finishes the messages that it has begun, and counts the others. No token is lost.
func TestFanOutStops(t *testing.T) {
	t.Parallel()
	f := startFleet(t)
	testprogram.Until(t, "30 messages were sent", func() bool { return len(f.lines("done", "all")) >= 30 })
	stopped := f.processes[0]
	testprogram.Until(t, "a message is being sent", func() bool { return len(stopped.Lines("begin")) > len(stopped.Lines("done")) })
	stopped.Signal(t, syscall.SIGTERM)
	stopped.Wait(t, 5*time.Second)
	var left int
	for _, p := range f.processes {
		p.Wait(t, 20*time.Second)
		if begun, done := len(p.Lines("begin")), len(p.Lines("done")); begun != done {
			t.Errorf("a process has begun %d messages and sent %d", begun, done)
		}
		for _, line := range p.Lines("stopped,") {
			n, err := strconv.Atoi(line.Words[1])
			if err != nil {
				t.Fatal(err)
			}
			left += n
		}
	}
	if n := len(f.lines("done", "all")); left == 0 || n+left != 3*43 {
		t.Errorf("%d messages were sent and %d are left of %d", n, left, 3*43)
	}
	f.check(t, nil)
}
