package simulate

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/testsize"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
)

// A logged request is a line of a made log, and the request that it tells of.
type logged struct {
	at      time.Time
	addr    string
	method  string
	target  string
	status  int
	bytes   int64
	apiKey  string
	garbage string // the line is none
}

func (l *logged) line() string {
	if l.garbage != "" {
		return l.garbage
	}
	return fmt.Sprintf("%s - - [%s] \"%s %s HTTP/1.1\" %d %d \"-\" \"curl/8\" \"%s\"\n", l.addr, l.at.Format("02/Jan/2006:15:04:05.999999 -0700"), l.method, l.target, l.status, l.bytes, cmp.Or(l.apiKey, "-"))
}

func (l *logged) request() *http.Request {
	r := httptest.NewRequest(l.method, "http://example.com/", nil)
	r.URL, _ = url.ParseRequestURI(l.target)
	r.RequestURI = l.target
	r.Host = ""
	r.RemoteAddr = l.addr + ":4711"
	if strings.Contains(l.addr, ":") {
		r.RemoteAddr = "[" + l.addr + "]:4711"
	}
	r.Header = http.Header{"User-Agent": {"curl/8"}}
	if l.apiKey != "" {
		r.Header.Set("X-Api-Key", l.apiKey)
	}
	return r
}

var routes = []string{"GET /items/{id}", "POST /login", "GET /files/"}

// madeLog returns a log of few clients, some of which come in bursts, with a clock that goes back at times. It begins in the
// last minutes of an hour, a day, a week and a month.
func madeLog(r *rand.Rand, n int, backwards bool) (log []logged) {
	now := time.Date(2026, 5, 31, 23, 55+r.IntN(5), 30, 0, time.UTC).In(time.FixedZone("", 3600*r.IntN(10)))
	addrs := []string{"192.0.2.1", "192.0.2.2", "198.51.100.7", "2001:db8::1", "2001:db8::2", "203.0.113.9", "web-1.example"}
	for range n {
		switch r.IntN(10) {
		case 0:
			now = now.Add(time.Duration(r.IntN(90)) * time.Second)
		case 1, 2, 3:
			now = now.Add(time.Duration(r.IntN(3)) * time.Second)
		case 4:
			if backwards {
				now = now.Add(-time.Duration(r.IntN(30)) * time.Second)
			}
		}
		l := logged{at: now, addr: addrs[min(r.IntN(len(addrs)+4), r.IntN(len(addrs)))], method: "GET", status: []int{200, 200, 304, 404, 500}[r.IntN(5)], bytes: r.Int64N(5000)}
		switch r.IntN(4) {
		case 0:
			l.method, l.target = "POST", "/login"
			l.status = []int{200, 302, 401, 401, 403}[r.IntN(5)]
		case 1:
			l.target = fmt.Sprint("/files/a?b=", r.IntN(3))
		case 2:
			l.target = "/nowhere%20at/all"
		default:
			l.target = fmt.Sprint("/items/", r.IntN(3))
		}
		if r.IntN(3) == 0 {
			l.apiKey = fmt.Sprint("k", r.IntN(3), strings.Repeat("x", r.IntN(2)*100))
		}
		if r.IntN(40) == 0 {
			l.garbage = []string{"\n", "what\n", `192.0.2.1 - - [99/Foo/2026:10:20:30 +0000] "GET / HTTP/1.1" 200 5 "-" "-" "-"` + "\n", "\x00\xff\n"}[r.IntN(4)]
		}
		log = append(log, l)
	}
	return log
}

// policiesOf returns random policies for madeLog. Some of them have routes.
func policiesOf(r *rand.Rand) (listed []ratelimit.Policy, mounted map[string][]ratelimit.Policy) {
	keys := []ratelimit.KeyFunc{
		ratelimit.RemoteIP(), ratelimit.RemoteIP(), ratelimit.Static("all"), ratelimit.Header("X-Api-Key"),
		ratelimit.FirstOf(ratelimit.Header("X-Api-Key"), ratelimit.RemoteIP()),
		ratelimit.Join(ratelimit.Route(), ratelimit.FirstOf(ratelimit.RemoteIP(), ratelimit.Static("none"))),
	}
	n := 0
	policy := func() ratelimit.Policy {
		n++
		p := ratelimit.Policy{
			Name:  fmt.Sprint("p", n),
			Key:   keys[r.IntN(len(keys))],
			Limit: ratelimit.Limit{Rate: 1 + r.Int64N(20), Per: time.Duration(1+r.IntN(60)) * time.Second, Burst: 1 + r.Int64N(10)},
		}
		p.Shadow, p.Optional, p.Hidden = r.IntN(5) == 0, r.IntN(2) == 0, r.IntN(5) == 0
		quota := r.IntN(3) == 0
		if quota {
			p.Limit = ratelimit.Quota(1+r.Int64N(40), ratelimit.Hour+ratelimit.Period(r.IntN(4))).In([]string{"", "", "Europe/London", "Asia/Kolkata", "Asia/Kathmandu"}[r.IntN(5)])
		}
		switch r.IntN(8) {
		case 0:
			p.Settle = ratelimit.FailedLogins
		case 1:
			p.Settle = func(_ *http.Request, response ratelimit.Response) int64 { return response.Bytes / 1000 }
		case 2:
			p.LockFor = time.Duration(1+r.IntN(60)) * time.Second
			p.Settle = ratelimit.FailedLogins
		case 3:
			if quota {
				break // those that wait for a period go on in no order
			}
			p.MaxWait = time.Duration(1+r.IntN(20)) * time.Second
		case 4:
			p.Cost = func(r *http.Request) int64 { return int64(len(r.URL.RawQuery)) }
		}
		return p
	}
	for range r.IntN(3) {
		listed = append(listed, policy())
	}
	mounted = make(map[string][]ratelimit.Policy)
	for _, route := range routes {
		for range r.IntN(3) {
			mounted[route] = append(mounted[route], policy())
		}
	}
	if n == 0 {
		listed = append(listed, policy())
	}
	return listed, mounted
}

// mount mounts the policies as docs/routers.md says.
func mount(l *ratelimit.Limiter, listed []ratelimit.Policy, mounted map[string][]ratelimit.Policy, end http.Handler) http.Handler {
	mux := http.NewServeMux()
	handle := func(route string) {
		h := end
		if ps := mounted[route]; len(ps) > 0 {
			h = l.Limit(ps...)(h)
		}
		if len(listed) > 0 {
			h = l.Handler(h)
		}
		mux.Handle(route, h)
	}
	for _, route := range routes {
		handle(route)
	}
	handle("/")
	return mux
}

func setupFor(listed []ratelimit.Policy, mounted map[string][]ratelimit.Policy) setup {
	s := setup{policies: slices.Clone(listed), listed: listed, on: make(map[string]string)}
	for _, route := range routes {
		for _, p := range mounted[route] {
			s.policies = append(s.policies, p)
			s.on[p.Name] = route
		}
	}
	s.mount = func(l *ratelimit.Limiter, end http.Handler) http.Handler { return mount(l, listed, mounted, end) }
	return s
}

// A verdict is what both the simulation and the middleware say about a request and a policy.
type verdict struct {
	Line           int64   `json:"line"`
	Policy         string  `json:"policy"`
	Key            string  `json:"key"`
	Allowed        bool    `json:"allowed"`
	RequestAllowed bool    `json:"request_allowed"`
	Cost           int64   `json:"cost"`
	Remaining      int64   `json:"remaining"`
	RetryAfter     float64 `json:"retry_after"`
	Wait           float64 `json:"wait"`
	Error          string  `json:"error"`
	Status         int     `json:"status"`
}

// lineOf is the key of the number of a line in the context of its request.
type lineOf struct{}

// replay sends the requests of a log through the middleware itself, each at its time. Those that wait do so in the time of
// the log, while others arrive.
func replay(t *testing.T, log []logged, listed []ratelimit.Policy, mounted map[string][]ratelimit.Policy) (all []verdict) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { all = replayed(t, log, listed, mounted) })
	return all
}

func replayed(t *testing.T, log []logged, listed []ratelimit.Policy, mounted map[string][]ratelimit.Policy) (all []verdict) {
	t.Helper()
	var ahead time.Duration // of the clock of the log
	buckets := ratelimit.Must(memstore.New(memstore.Config{Clock: func() time.Time { return time.Now().Add(ahead) }}))
	buckets.Close() // see "Order" in docs of memstore: with a clock that goes back, what it forgets matters
	var mu sync.Mutex
	lines := make([][]verdict, len(log))
	l, err := ratelimit.New(ratelimit.Config{
		Store:    buckets,
		Policies: listed,
		Timeout:  time.Minute,
		Logger:   slog.New(slog.DiscardHandler),
		Observe: func(ctx context.Context, e *ratelimit.Event) {
			if e.Op == "settle" {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			line := &lines[ctx.Value(lineOf{}).(int)]
			for _, r := range e.Results {
				v := verdict{Policy: r.Policy, Key: r.Key, Allowed: r.Allowed, RequestAllowed: e.Allowed, Cost: r.Cost, Remaining: r.Remaining, Wait: r.Wait.Seconds()}
				if r.RetryAfter != ratelimit.Never {
					v.RetryAfter = r.RetryAfter.Seconds()
				}
				*line = append(*line, v)
			}
			if e.Err != nil {
				*line = append(*line, verdict{Error: e.Err.Error()})
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	page := make([]byte, 1000)
	h := mount(l, listed, mounted, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := &log[r.Context().Value(lineOf{}).(int)]
		w.WriteHeader(answer.status)
		for n := answer.bytes; n > 0; n -= int64(len(page)) {
			w.Write(page[:min(n, int64(len(page)))])
		}
	}))
	var waiting sync.WaitGroup
	for i := range log {
		if log[i].garbage != "" {
			continue
		}
		if late := log[i].at.Sub(time.Now().Add(ahead)); i == 0 || late < 0 {
			ahead += late
		} else {
			time.Sleep(late)
		}
		synctest.Wait()
		waiting.Go(func() {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, log[i].request().WithContext(context.WithValue(context.Background(), lineOf{}, i)))
			for at := range lines[i] {
				lines[i][at].Line, lines[i][at].Status = int64(i+1), w.Code
			}
		})
		synctest.Wait()
	}
	waiting.Wait()
	return slices.Concat(lines...)
}

func simulated(t *testing.T, text string, s setup, cfg Config) (all []verdict) {
	t.Helper()
	var out bytes.Buffer
	cfg.Logs, cfg.Decisions = []Log{{Name: "access.log", Reader: strings.NewReader(text)}}, &out
	cfg.Extra = []string{"X-Api-Key"}
	if _, err := run(context.Background(), cfg, s); err != nil {
		t.Fatal(err)
	}
	for d := json.NewDecoder(&out); ; {
		var v verdict
		if err := d.Decode(&v); err == io.EOF {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, v)
	}
}

// compare compares verdicts. Errors have other texts in a file of decisions, and stand before the other verdicts of a
// line there.
func compare(t *testing.T, got, want []verdict) {
	t.Helper()
	order := func(vs []verdict) {
		for i := range vs {
			if v := &vs[i]; v.Error != "" {
				*v = verdict{Line: v.Line, Status: v.Status, Error: "error"}
			}
		}
		slices.SortStableFunc(vs, func(a, b verdict) int {
			return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(b.Error, a.Error))
		})
	}
	order(got)
	order(want)
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			t.Fatalf("decision %d:\n%+v, want\n%+v", i, got[i], want[i])
		}
	}
	if len(got) != len(want) {
		t.Fatalf("%d decisions, want %d", len(got), len(want))
	}
}

func textOf(log []logged) string {
	var text strings.Builder
	for i := range log {
		text.WriteString(log[i].line())
	}
	return text.String()
}

// apart moves the times of lines apart. In life, of requests that arrive or stop to wait at the same moment any one may be
// the first.
func apart(log []logged) {
	for i := range log {
		log[i].at = log[i].at.Add(time.Duration(i) * 7 * time.Microsecond)
	}
}

func TestSimulationEqualsReplay(t *testing.T) {
	for seed := range uint64(testsize.Of(20, 300)) {
		r := rand.New(rand.NewPCG(seed, 18))
		log := madeLog(r, 300, seed%2 == 1)
		listed, mounted := policiesOf(r)
		apart(log)
		got := simulated(t, textOf(log), setupFor(listed, mounted), Config{Clients: 100})
		if compare(t, got, replay(t, log, listed, mounted)); t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// A limiter has 1,024 places to wait. One client gets at most half of them.
func TestPlacesToWaitEqualReplay(t *testing.T) {
	start := time.Date(2026, 5, 23, 10, 0, 0, 0, time.UTC)
	var log []logged
	for i := range 1500 {
		log = append(log, logged{at: start, addr: fmt.Sprint("192.0.2.", i/600), method: "POST", target: "/login", status: 200 + i%3*100})
	}
	log = append(log, logged{at: start.Add(20 * time.Second), addr: "192.0.2.9", method: "POST", target: "/login", status: 200})
	apart(log)
	listed := []ratelimit.Policy{{Name: "patient", Key: ratelimit.RemoteIP(), Limit: ratelimit.PerSecond(50).WithBurst(1), MaxWait: time.Minute}}
	mounted := map[string][]ratelimit.Policy{routes[1]: {{Name: "login", Key: ratelimit.Static("all"), Limit: ratelimit.PerSecond(30), Settle: ratelimit.FailedLogins}}}
	got := simulated(t, textOf(log), setupFor(listed, mounted), Config{})
	compare(t, got, replay(t, log, listed, mounted))
	if slices.IndexFunc(got, func(v verdict) bool { return v.Policy == "patient" && !v.Allowed }) < 0 {
		t.Error("there was always a place to wait")
	}
}
