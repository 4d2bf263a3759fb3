//go:build unix

package fiberratelimit_test

import (
	"io"
	"net"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/gofiber/fiber/v3"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/contrib/fiberratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/rounds"
)

// aRequest is what a browser sends through a proxy: eight header lines besides Host.
const aRequest = "GET /items/42?page=2 HTTP/1.1\r\n" +
	"Host: api.example.com\r\n" +
	"User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36\r\n" +
	"Accept: application/json\r\n" +
	"Accept-Encoding: gzip, deflate, br\r\n" +
	"Accept-Language: en-US,en;q=0.9\r\n" +
	"Authorization: Bearer eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U\r\n" +
	"X-Forwarded-For: 203.0.113.7\r\n" +
	"X-Request-Id: 7b1c2f4e-6f0e-4d1c-9a61-5d0a3d1a7c11\r\n" +
	"Connection: keep-alive\r\n\r\n"

// A feed is a connection of a client that sends n requests and does not wait for the responses.
type feed struct {
	idle
	n      int
	rest   string
	closed chan struct{}
}

func newFeed(n int) *feed { return &feed{n: n, closed: make(chan struct{})} }

func (f *feed) Read(p []byte) (int, error) {
	if f.rest == "" {
		if f.n == 0 {
			return 0, io.EOF
		}
		f.n, f.rest = f.n-1, aRequest
	}
	n := copy(p, f.rest)
	f.rest = f.rest[n:]
	return n, nil
}

func (f *feed) Write(p []byte) (int, error) { return len(p), nil }

func (f *feed) Close() error {
	select {
	case <-f.closed:
	default:
		close(f.closed)
	}
	return nil
}

// BenchmarkCost measures a request from its bytes to those of the response, in processor time: by Fiber and by net/http,
// bare and with a limiter, in turn. It is not enough to measure handlers: net/http builds its request before, and writes
// the header after them, and a limiter makes the header longer. It reports the medians, and what a limiter adds. Fiber
// with a limiter must not take longer than net/http with one. The limiter must not add more to Fiber than to net/http.
func BenchmarkCost(b *testing.B) {
	const each = 200 // requests in a round
	took := rounds.Measure(b, 1, processorTime,
		netHTTP(b, false, each), netHTTP(b, true, each),
		byFiberServer(b, false, each), byFiberServer(b, true, each),
	)
	median := func(of []float64) float64 { return rounds.Quantile(of, 0.5) / each }
	for i, name := range []string{"net/http", "middleware", "fiber", "adapter"} {
		b.ReportMetric(median(took[i]), name+"-ns")
	}
	adds := [2][]float64{rounds.Minus(took[1], took[0]), rounds.Minus(took[3], took[2])}
	b.ReportMetric(median(adds[0]), "middleware-adds-ns")
	b.ReportMetric(median(adds[1]), "adapter-adds-ns")
	if len(adds[0]) < 100 {
		return // noise
	}
	if theirs, ours := median(adds[0]), median(adds[1]); ours > theirs {
		b.Errorf("the adapter adds %.0f ns, the middleware of net/http %.0f ns", ours, theirs)
	}
	if theirs, ours := median(took[1]), median(took[3]); ours > theirs {
		b.Errorf("Fiber with the adapter takes %.0f ns, net/http with the middleware %.0f ns", ours, theirs)
	}
}

func processorTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func benchmarkLimiter(b *testing.B) *ratelimit.Limiter {
	l := newRatelimit(ratelimit.Policy{Name: "api", Key: ratelimit.RemoteIP(), Limit: ratelimit.PerHour(1_000_000_000)})
	b.Cleanup(func() { l.Close() })
	return l
}

// netHTTP returns a function that serves n requests by net/http.
func netHTTP(b *testing.B, limited bool, n int) func() {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /items/{id}", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok") })
	server := &http.Server{Handler: mux}
	if limited {
		server.Handler = benchmarkLimiter(b).Handler(mux)
	}
	listener := &chanListener{make(chan net.Conn)}
	go server.Serve(listener)
	return func() {
		f := newFeed(n)
		listener.conns <- f
		<-f.closed
	}
}

// byFiberServer returns a function that serves n requests by Fiber.
func byFiberServer(b *testing.B, limited bool, n int) func() {
	app := fiber.New()
	if limited {
		app.Use("*", fiberratelimit.New(benchmarkLimiter(b), fiberratelimit.Config{}).Handler())
	}
	app.Get("/items/:id", func(c fiber.Ctx) error { return c.SendString("ok") })
	app.Handler()
	return func() { _ = app.Server().ServeConn(newFeed(n)) }
}
