package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/go-tokenbucket/ratelimit"
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

// Two exports of a client run at once. One whose client has left makes room for another.
func TestExportsAtOnce(t *testing.T) {
	base, _ := start(t)
	statuses := make(chan int)
	export := func(ctx context.Context) {
		r, err := http.NewRequestWithContext(ctx, "GET", base+"/export", nil)
		if err != nil {
			t.Error(err)
		}
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			statuses <- 0 // it had begun, and ctx ended
			return
		}
		response.Body.Close()
		statuses <- response.StatusCode
	}
	ctx, leave := context.WithCancel(t.Context())
	for range 3 {
		go export(ctx)
	}
	if got := <-statuses; got != 429 {
		t.Errorf("the first of three answers is %d, want 429", got)
	}
	leave()
	for range 2 {
		if got := <-statuses; got != 0 {
			t.Errorf("status %d of an export that was left", got)
		}
	}
	got := 429
	for got == 429 { // until the server has noticed
		ctx, leave := context.WithTimeout(t.Context(), 200*time.Millisecond)
		go export(ctx)
		got = <-statuses
		leave()
	}
	if got != 0 {
		t.Errorf("status %d, want an export that runs", got)
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
		"-redis":                  {"-redis", "http://a"},
		"-trusted-proxies":        {"-trusted-proxies", "10.0.0"},
		"must be like 10.0.0.0/8": {"-trusted-proxies", "::ffff:10.0.0.0/104"},
		"not defined":             {"-unknown"},
		"unexpected":              {"more"},
		"listen":                  {"-addr", "256.0.0.1:0"},
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

func TestThePageShowsWhoIsLimited(t *testing.T) {
	base, printed := start(t)
	if first, _, _ := strings.Cut(printed, "\n"); !strings.HasPrefix(first, "Admin:     "+base+"/admin/ ") || !strings.Contains(first, "this machine only") {
		t.Errorf("the first line is %q", first)
	}
	drainHello(t, base)
	page := do(t, "GET", base+"/admin/")
	if text := body(t, page); page.StatusCode != 200 || !strings.Contains(text, "Quickstart") || !strings.Contains(text, ">hello<") || !strings.Contains(text, "ip:127.0.0.1") {
		t.Errorf("status %d, page %s", page.StatusCode, text)
	}
	var facts any
	if err := json.Unmarshal([]byte(body(t, do(t, "GET", base+"/admin/facts.json"))), &facts); err != nil {
		t.Error(err)
	}

	// The page lets a client in again.
	r, err := http.Post(base+"/admin/key/reset", "application/x-www-form-urlencoded", strings.NewReader("policy=hello&key=ip:127.0.0.1"))
	if err != nil {
		t.Fatal(err)
	}
	body(t, r)
	if r.StatusCode != 200 {
		t.Errorf("reset: status %d", r.StatusCode)
	}
	wantStatuses(t, []int{200, 200, 200, 200, 200}, "GET", base+"/hello")
}

// The page changes a limit, and explains a request to a route with two policies.
func TestThePageChangesAndExplainsLimits(t *testing.T) {
	base, _ := start(t)
	if text := body(t, do(t, "GET", base+"/admin/overrides")); !strings.Contains(text, "items-route") || strings.Contains(text, "cannot be changed here") {
		t.Errorf("the page of limits is %s", text)
	}
	post := func(path, form string) string {
		t.Helper()
		r, err := http.Post(base+path, "application/x-www-form-urlencoded", strings.NewReader(form))
		if err != nil {
			t.Fatal(err)
		}
		text := body(t, r)
		if r.StatusCode != 200 {
			t.Errorf("%s: status %d: %s", path, r.StatusCode, text)
		}
		return text
	}
	post("/admin/overrides", "policy=hello&limit=2/1s+burst+7")
	wantStatuses(t, []int{200, 200, 200, 200, 200}, "GET", base+"/hello")
	wantStatuses(t, []int{200}, "GET", base+"/items/1")
	text := post("/admin/explain.json", "url=/items/7&peer=192.0.2.1&route=GET+/items/{id}")
	for _, want := range []string{`"GET /items/{id}"`, `"ip:192.0.2.1"`, `"items-route"`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
	if text := post("/admin/explain.json", "url=/hello&peer=192.0.2.1&route=GET+/hello"); !strings.Contains(text, "2/1s burst 7") {
		t.Errorf("the changed limit is not explained: %s", text)
	}
}

func TestThePageBeforeTheFirstRequest(t *testing.T) {
	base, _ := start(t)
	if text := body(t, do(t, "GET", base+"/admin/")); strings.Count(text, "No requests so far.") != 6 || strings.Contains(text, "CountsConfig") {
		t.Errorf("before the first request the page is %s", text)
	}
}

func TestTheLimitsDoNotCountThePage(t *testing.T) {
	base, _ := start(t)
	for range 60 { // more than any limit
		wantStatuses(t, []int{200}, "GET", base+"/admin/")
	}
	wantStatuses(t, []int{200, 200, 200, 200, 200}, "GET", base+"/hello")
}

func TestThePageAnswersThisMachineOnly(t *testing.T) {
	api, err := newAPI(t.Context(), ratelimit.Config{}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for peer, want := range map[string]int{"127.0.0.1:1": 200, "192.0.2.1:1": 403} {
		for _, path := range []string{"/admin/", "/admin/facts.json", "/admin/key?key=ip:127.0.0.1"} {
			r := httptest.NewRequest("GET", path, nil)
			r.RemoteAddr, r.Host = peer, "127.0.0.1:8080"
			w := httptest.NewRecorder()
			if api.ServeHTTP(w, r); w.Code != want || want == 403 && strings.Contains(w.Body.String(), "hello") {
				t.Errorf("%s of %s: status %d: %s", path, peer, w.Code, w.Body)
			}
		}
	}
}

func TestWhereThePageIs(t *testing.T) {
	for ip, want := range map[string]string{
		"127.0.0.1":   "http://base/admin/ ",
		"::1":         "http://base/admin/ ",
		"0.0.0.0":     "http://base/admin/ ",
		"::":          "http://base/admin/ ",
		"192.168.1.2": "not shown: ",
	} {
		if got := describeAdmin(&net.TCPAddr{IP: net.ParseIP(ip), Port: 8080}, "http://base"); !strings.HasPrefix(got, want) {
			t.Errorf("%s: got %q", ip, got)
		}
	}
}

// The README's transcript is what one gets, but for the times.
func TestReadmeTranscript(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, transcript, found := strings.Cut(string(readme), "```console\n$ curl -i http://127.0.0.1:8080/hello\n")
	transcript, _, ends := strings.Cut(transcript, "```\n")
	if !found || !ends {
		t.Fatal("README.md has no transcript")
	}
	transcript = "$ curl -i http://127.0.0.1:8080/hello\n" + transcript

	times := regexp.MustCompile(`(Date: |Reset: ).*`)
	plain := func(s string) string {
		return strings.TrimSpace(times.ReplaceAllString(strings.ReplaceAll(s, "\r", ""), "$1…"))
	}
	var got string
	for range 5 {
		base, _ := start(t)
		begin := time.Now()
		if got = replay(t, transcript, base); plain(got) == plain(transcript) {
			return
		}
		if time.Since(begin) < time.Second {
			break // it was not for a token that came meanwhile
		}
	}
	t.Errorf("got\n%s\n\nthe README says\n%s", plain(got), plain(transcript))
}

// replay runs the commands of a transcript and returns them with what they print.
func replay(t *testing.T, transcript, base string) string {
	t.Helper()
	var got strings.Builder
	for line := range strings.Lines(transcript) {
		command, ok := strings.CutPrefix(line, "$ ")
		if !ok {
			continue
		}
		got.WriteString(line)
		here := strings.ReplaceAll(command, "http://127.0.0.1:8080", base)
		out, err := exec.Command("sh", "-c", strings.ReplaceAll(here, "curl -i", "curl -s -i")).Output()
		if err != nil {
			t.Fatalf("%s: %v", here, err)
		}
		got.Write(out)
	}
	return got.String()
}
