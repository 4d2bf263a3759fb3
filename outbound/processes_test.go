//go:build long

package outbound_test

import (
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/redistest"
)

// start starts n processes, and returns how to wait for their end.
func (j job) start(t *testing.T, n int) (wait func()) {
	t.Helper()
	text, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	var waits []func()
	for range n {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), jobEnv+"="+string(text))
		var output strings.Builder
		cmd.Stdout, cmd.Stderr = &output, &output
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		waits = append(waits, func() {
			if err := cmd.Wait(); err != nil || output.Len() > 0 {
				t.Errorf("a process: %v\n%s", err, &output)
			}
		})
	}
	return func() {
		for _, wait := range waits {
			wait()
		}
	}
}

const processes, callers = 8, 16

// A github answers as the API of GitHub: with the quota of a fixed window, and with a second limit on calls at the same
// time.
type github struct {
	api    api
	most   int64 // calls at the same time
	slow   time.Duration
	inside atomic.Int64

	mu     sync.Mutex
	calls  []time.Time
	second []time.Time // refusals by the second limit
}

func (g *github) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	now := time.Now()
	inside := g.inside.Add(1)
	defer g.inside.Add(-1)
	g.mu.Lock()
	g.calls = append(g.calls, now)
	if inside > g.most {
		g.second = append(g.second, now)
	}
	g.mu.Unlock()
	h := w.Header()
	if inside > g.most {
		h.Set("Retry-After", "2")
		http.Error(w, `{"message":"You have exceeded a secondary rate limit."}`, http.StatusForbidden)
		return
	}
	time.Sleep(time.Duration(rand.Int64N(int64(5*time.Millisecond))) + g.slow)
	v := g.api.call(time.Now())
	h.Set("X-RateLimit-Remaining", strconv.FormatInt(v.left, 10))
	h.Set("X-RateLimit-Reset", strconv.FormatInt(v.reset.Unix(), 10))
	if !v.ok {
		http.Error(w, `{"message":"API rate limit exceeded"}`, http.StatusForbidden)
	}
}

// In the first window the replicas learn, and in the second one they may begin late.
func TestProcessesUseTheQuotaOfAFixedWindow(t *testing.T) {
	const quota, window = 2000, 10 * time.Second
	const windows = int64(4)
	server := redistest.Start(t)
	a := &fixedWindow{quota: quota, window: window, start: time.Now().Truncate(time.Second).Add(3 * time.Second), floor: true}
	g := &github{api: a, most: 10000}
	web := httptest.NewServer(g)
	defer web.Close()
	job{
		Redis: server.Addr(), URL: web.URL, Callers: callers,
		Limit: ratelimit.Limit{Rate: quota, Per: window},
		From:  a.start.Add(100 * time.Millisecond), To: a.start.Add(time.Duration(windows)*window + 200*time.Millisecond),
	}.start(t, processes)()
	web.Close() // which waits for calls that their processes have left
	counts := a.of(windows)
	t.Log("used/refused in each window:", counts)
	for i, c := range counts[1:] {
		least := int64(quota * 98 / 100)
		if i == 0 {
			least = quota * 90 / 100
		}
		if c.refused > 0 || c.used < least {
			t.Errorf("window %d: %d of %d used, %d refused", i+2, c.used, quota, c.refused)
		}
	}
}

// Our own middleware is the server.
func TestProcessesUseTheQuotaOfOurMiddleware(t *testing.T) {
	const rate, seconds = 200, 6
	server := redistest.Start(t)
	limit := ratelimit.PerSecond(rate).WithBurst(2 * rate)
	limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{Policies: []ratelimit.Policy{{Name: "all", Key: ratelimit.Static("all"), Limit: limit}}}))
	var mu sync.Mutex
	var passed, denied []time.Time
	counted := limiter.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		mu.Lock()
		passed = append(passed, time.Now())
		mu.Unlock()
	}))
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		counted.ServeHTTP(w, r)
		if w.Header().Get("Retry-After") != "" {
			mu.Lock()
			denied = append(denied, time.Now())
			mu.Unlock()
		}
	}))
	defer web.Close()
	from := time.Now().Add(3 * time.Second)
	job{
		Redis: server.Addr(), URL: web.URL, Callers: callers, Limit: limit,
		From: from, To: from.Add((seconds + 2) * time.Second),
	}.start(t, processes)()
	web.Close() // which waits for calls that their processes have left
	learned := passed[0].Add(2 * time.Second)
	used, refused := 0, 0
	for _, at := range passed {
		if at.After(learned) && at.Before(learned.Add((seconds-1)*time.Second)) {
			used++
		}
	}
	for _, at := range denied {
		if at.After(learned) {
			refused++
		}
	}
	t.Logf("%d of %d used, %d refused, and %d before", used, rate*(seconds-1), refused, len(denied)-refused)
	if used < rate*(seconds-1)*98/100 || refused > 0 {
		t.Errorf("%d of %d used, %d refused", used, rate*(seconds-1), refused)
	}
}

// A refusal stops all processes until the time that it names.
func TestProcessesStopAfterARefusal(t *testing.T) {
	server := redistest.Start(t)
	g := &github{api: &bucketAPI{rate: 1e6, burst: 1e6}, most: 40, slow: 20 * time.Millisecond}
	web := httptest.NewServer(g)
	defer web.Close()
	from := time.Now().Add(3 * time.Second)
	job{
		Redis: server.Addr(), URL: web.URL, Callers: callers, Limit: ratelimit.PerSecond(200),
		From: from, To: from.Add(6 * time.Second),
	}.start(t, processes)()
	web.Close() // which waits for calls that their processes have left
	if len(g.second) == 0 {
		t.Fatal("no calls at the same time were refused")
	}
	slices.SortFunc(g.calls, time.Time.Compare)
	first := g.second[0]
	late, after := 0, 0
	for _, at := range g.calls {
		switch since := at.Sub(first); {
		case since > 500*time.Millisecond && since < 1900*time.Millisecond: // those under way have arrived
			late++
		case since >= 1900*time.Millisecond:
			after++
		}
	}
	if late > 0 || after < 100 {
		t.Errorf("%d calls in the stop, %d after it", late, after)
	}
	t.Logf("%d refused, %d calls after the stop", len(g.second), after)
}
