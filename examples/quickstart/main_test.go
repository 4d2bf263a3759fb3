package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/go-tokenbucket/ratelimit/internal/test/redistest"
)

// programEnv is set in a process that is the quickstart instead of its tests.
const programEnv = "QUICKSTART_TEST_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(programEnv) != "" {
		main()
		return
	}
	goleak.VerifyTestMain(m)
}

// start runs the quickstart in this process, and returns its address and what it printed before.
func start(t *testing.T, args ...string) (base, printed string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	out, in := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := run(ctx, append([]string{"-addr", "127.0.0.1:0"}, args...), in)
		in.CloseWithError(io.EOF)
		ended <- err
	}()
	t.Cleanup(func() {
		cancel()
		http.DefaultClient.CloseIdleConnections()
		if err := <-ended; err != nil {
			t.Errorf("run: %v", err)
		}
	})
	base, printed = untilReady(t, out)
	go io.Copy(io.Discard, out)
	return base, printed
}

// untilReady reads up to the last line that the quickstart prints.
func untilReady(t *testing.T, out io.Reader) (base, printed string) {
	t.Helper()
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		printed += lines.Text() + "\n"
		if after, ok := strings.CutPrefix(lines.Text(), "Listening: "); ok {
			base = after
		}
		if strings.Contains(lines.Text(), "/healthz") {
			return base, printed
		}
	}
	t.Fatalf("the quickstart ended after printing %q", printed)
	return "", ""
}

func do(t *testing.T, method, url string, header ...string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	return response
}

func body(t *testing.T, r *http.Response) string {
	t.Helper()
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func wantStatuses(t *testing.T, want []int, method, url string, header ...string) {
	t.Helper()
	var got []int
	for range want {
		r := do(t, method, url, header...)
		body(t, r)
		got = append(got, r.StatusCode)
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s %s: %v, want %v", method, url, got, want)
	}
}

// drainHello sends requests until one is refused: of a bucket that was full at most after the fifth, and
// after one more for each second that it takes on a busy machine.
func drainHello(t *testing.T, base string, header ...string) {
	t.Helper()
	begin := time.Now()
	for allowed := 0; ; allowed++ {
		r := do(t, "GET", base+"/hello", header...)
		body(t, r)
		if r.StatusCode == 429 {
			return
		}
		if most := 5 + time.Since(begin).Seconds(); r.StatusCode != 200 || float64(allowed) > most {
			t.Fatalf("status %d after %d, want 429 after %.0f", r.StatusCode, allowed, most)
		}
	}
}

func TestQuickstart(t *testing.T) {
	server := redistest.Start(t)
	for name, args := range map[string][]string{
		"embedded": nil,
		"redis":    {"-redis", "redis://" + server.Addr() + "/3"},
	} {
		t.Run(name, func(t *testing.T) {
			base, printed := start(t, args...)
			uses := "embedded miniredis"
			if args != nil {
				uses = "Redis at " + server.Addr() + ", database 3"
			}
			for tries := 1; tries < 5 && strings.Contains(printed, "Diagnosis: "); tries++ {
				base, printed = start(t, args...) // the processors were busy: a fault would be found each time
			}
			if strings.Contains(printed, "Diagnosis: ") {
				t.Errorf("it finds fault with a Redis that has none:\n%s", printed)
			}
			for _, want := range []string{uses, "curl -i " + base + "/hello"} {
				if !strings.Contains(printed, want) {
					t.Errorf("it does not print %q:\n%s", want, printed)
				}
			}

			drainHello(t, base)
			token := strings.TrimSpace(body(t, do(t, "GET", base+"/token?member=5")))
			r := do(t, "GET", base+"/hello", "Authorization", "Bearer "+token)
			if text := body(t, r); r.StatusCode != 200 || text != "hello, member:5\n" || r.Header.Get("X-RateLimit-Limit") != "5" {
				t.Errorf("member 5: %d %q %v", r.StatusCode, text, r.Header)
			}
			drainHello(t, base, "Authorization", "Bearer "+token+"x") // no member: the address again
			drainHello(t, base, "X-Forwarded-For", "192.0.2.1")       // nobody is trusted

			wantStatuses(t, []int{200, 200, 200, 429}, "POST", base+"/login")
			wantStatuses(t, []int{200, 200}, "GET", base+"/items/7")
			if got := do(t, "GET", base+"/items/8").Header.Get("X-RateLimit-Limit"); got != "10" {
				t.Errorf("items: X-RateLimit-Limit is %q, want the tighter 10", got)
			}
			wantStatuses(t, []int{400}, "GET", base+"/token")
			wantStatuses(t, slices.Repeat([]int{200}, 100), "GET", base+"/healthz")
		})
	}
}

func TestTheItemsRouteHasALimitAsAWhole(t *testing.T) {
	base, _ := start(t, "-trusted-proxies", "127.0.0.0/8, ::1/128")
	allowed, begin := 0, time.Now()
	for i := range 90 {
		r := do(t, "GET", base+"/items/7", "X-Forwarded-For", "192.0.2."+string(rune('1'+i%9)))
		body(t, r)
		if r.StatusCode == 200 {
			allowed++
		}
	}
	if most := 50 + 50*time.Since(begin).Seconds(); allowed < 50 || float64(allowed) > most {
		t.Errorf("%d of 90 requests of 9 clients were allowed, want from 50 to %.0f", allowed, most)
	}
}

func TestLimitsGoOnLocallyWhileRedisIsAway(t *testing.T) {
	server := redistest.Start(t)
	base, _ := start(t, "-redis", "redis://"+server.Addr())
	wantStatuses(t, []int{200}, "POST", base+"/login")
	server.Kill()
	drainHello(t, base)
	wantStatuses(t, []int{200, 200, 200}, "GET", base+"/items/7")
	if limit := do(t, "GET", base+"/items/7").Header.Get("X-RateLimit-Limit"); limit != "10" {
		t.Errorf("X-RateLimit-Limit is %q without Redis, want 10", limit)
	}
	wantStatuses(t, []int{503, 503, 503, 503}, "POST", base+"/login")
	server.Restart()
	for begin := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		r := do(t, "POST", base+"/login")
		body(t, r)
		if r.StatusCode == 200 {
			break
		}
		if time.Since(begin) > 5*time.Second {
			t.Fatalf("/login answers %d although Redis is back", r.StatusCode)
		}
	}
}

// The embedded Redis is slow, and yet nobody who tries the quickstart under load meets an outage.
func TestUnderLoadTheEmbeddedRedisIsNoOutage(t *testing.T) {
	base, _ := start(t, "-trusted-proxies", "127.0.0.0/8, ::1/128")
	const clients = 256
	transport := &http.Transport{MaxIdleConnsPerHost: clients}
	defer transport.CloseIdleConnections()
	end := time.Now().Add(500 * time.Millisecond)
	var statuses [600]atomic.Int64
	var loading sync.WaitGroup
	for i := range clients {
		loading.Go(func() {
			for n := 0; n == 0 || time.Now().Before(end); n++ {
				method, path, from := "POST", "/login", i // half of them stay at an address, and run out of tokens
				switch n % 4 {
				case 1, 3:
					from = n*clients + i
				case 2:
					method, path = "GET", "/items/7"
				}
				r, err := http.NewRequestWithContext(t.Context(), method, base+path, nil)
				if err != nil {
					t.Error(err)
					return
				}
				r.Header.Set("X-Forwarded-For", fmt.Sprintf("10.%d.%d.%d", from>>16&255, from>>8&255, from&255))
				response, err := transport.RoundTrip(r)
				if err != nil {
					t.Error(err)
					return
				}
				io.Copy(io.Discard, response.Body)
				response.Body.Close()
				statuses[response.StatusCode].Add(1)
			}
		})
	}
	loading.Wait()
	for status := range statuses {
		if n := statuses[status].Load(); n > 0 && status != 200 && status != 429 {
			t.Errorf("%d requests were answered %d", n, status)
		}
	}
	if statuses[200].Load() < clients {
		t.Errorf("%d requests were answered 200, want at least the first of %d clients", statuses[200].Load(), clients)
	}
}

func TestItSaysThatRedisDoesNotAnswer(t *testing.T) {
	base, printed := start(t, "-redis", "redis://127.0.0.1:1/0")
	said := false
	for line := range strings.Lines(printed) {
		if strings.Contains(line, "does not answer") && strings.Contains(line, "limits are local, and /login answers 503") {
			said = true
		}
	}
	if !said {
		t.Errorf("it does not say so:\n%s", printed)
	}
	drainHello(t, base)
	wantStatuses(t, []int{503}, "POST", base+"/login")
}

func TestItPrintsWhatIsWrongWithRedis(t *testing.T) {
	server := redistest.Start(t, "--maxmemory", "1gb", "--maxmemory-policy", "allkeys-lru")
	_, printed := start(t, "-redis", "redis://"+server.Addr())
	if !strings.Contains(printed, "Diagnosis: Redis evicts buckets") {
		t.Errorf("it does not say so:\n%s", printed)
	}
}

func TestWrongFlags(t *testing.T) {
	for name, args := range map[string][]string{
		"-redis":           {"-redis", "http://a"},
		"-trusted-proxies": {"-trusted-proxies", "10.0.0.0"},
		"must be like 10":  {"-trusted-proxies", "::ffff:10.0.0.0/104"},
		"not defined":      {"-unknown"},
		"unexpected":       {"more"},
		"listen":           {"-addr", "256.0.0.1:0"},
	} {
		if err := run(t.Context(), args, io.Discard); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%v: error %v", args, err)
		}
	}
}

func TestSignalsStopItCleanly(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no SIGTERM to send")
	}
	for _, signal := range []os.Signal{syscall.SIGINT, syscall.SIGTERM} {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		cmd := exec.CommandContext(ctx, os.Args[0], "-addr", "127.0.0.1:0")
		cmd.Env = append(os.Environ(), programEnv+"=1")
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		untilReady(t, out)
		if err := cmd.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("%v: %v", signal, err)
		}
	}
}
