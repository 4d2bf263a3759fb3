package simulate_test

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"runtime/metrics"
	"strings"
	"testing"

	"github.com/go-tokenbucket/ratelimit/cmd/ratelimit/internal/report"
	"github.com/go-tokenbucket/ratelimit/cmd/ratelimit/internal/simulate"
	"github.com/go-tokenbucket/ratelimit/internal/test/testsize"
)

// A stream is a log that is made while it is read.
type stream struct {
	left int // lines
	line func(i int, b []byte) []byte
	rest []byte
	i    int
}

func (s *stream) Read(p []byte) (n int, err error) {
	for n < len(p) {
		if len(s.rest) == 0 {
			if s.i == s.left {
				break
			}
			s.rest = s.line(s.i, s.rest[:0])
			s.i++
		}
		copied := copy(p[n:], s.rest)
		s.rest = s.rest[copied:]
		n += copied
	}
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

// used is the memory that the process has from the system.
func used() int64 {
	samples := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(samples)
	return int64(samples[0].Value.Uint64() - samples[1].Value.Uint64())
}

// A sampler notes the most memory that the process had when it is written to.
type sampler struct{ peak *int64 }

func (s sampler) Write(p []byte) (int, error) {
	*s.peak = max(*s.peak, used())
	return len(p), nil
}

// measured runs a simulation of a stream, and returns the most memory that the process had meanwhile.
func measured(tb testing.TB, cfg simulate.Config, log *stream) (r *report.Report, peak int64) {
	tb.Helper()
	runtime.GC()
	cfg.Logs = []simulate.Log{{Name: "stream", Reader: io.TeeReader(log, sampler{&peak})}}
	r, err := simulate.Run(context.Background(), cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return r, peak
}

// Memory is bounded by the bound on clients, whatever their number and the length of their keys.
func TestMemoryIsBounded(t *testing.T) {
	key := strings.Repeat("k", 900)
	log := &stream{left: testsize.Of(10_000, 200_000), line: func(i int, b []byte) []byte {
		b = fmt.Appendf(b, "10.0.0.1 - - [23/May/2026:12:%02d:%02d +0000] \"POST /login HTTP/1.1\" 401 0 \"-\" \"-\" \"", i/12_000%60, i/200%60)
		if i%10 == 0 {
			b = append(b, key...)
		}
		return fmt.Appendf(b, "%d\"\n", i)
	}}
	cfg := simulate.Config{Clients: 2_000, Extra: []string{"X-Api-Key"}, Policies: file(t, `
version: 1
policies:
  - name: first
    key: {header: X-Api-Key}
    limit: 1/1h burst 2
  - name: second
    key: {join: [remote_ip, {header: X-Api-Key}]}
    limit: 1/15m
    lock_for: 1h
  - name: third
    key: {header: X-Api-Key}
    limit: 1/1h
    max_wait: 1h
    optional: true
`)}
	r, peak := measured(t, cfg, log)
	if peak > cfg.Memory() {
		t.Errorf("took %d bytes, and announced %d", peak, cfg.Memory())
	}
	p := &r.Policies[0]
	if p.Clients != 2_000 || p.ClientsBeyond != p.Requests-2_000 || r.Evicted == 0 {
		t.Errorf("%d clients, %d requests beyond, %d buckets forgotten", p.Clients, p.ClientsBeyond, r.Evicted)
	}
}

// Requests that wait are bounded in memory, too, however long their lines are.
func TestMemoryOfRequestsThatWaitIsBounded(t *testing.T) {
	agent := strings.Repeat("a", 60_000)
	clients := testsize.Of(60, 1_100)
	log := &stream{left: 2 * clients, line: func(i int, b []byte) []byte {
		long := agent[:len(agent)*(i%2)] // the first request of each client does not wait
		return fmt.Appendf(b, "10.0.%d.%d - - [23/May/2026:12:00:00 +0000] \"GET /items HTTP/1.1\" 200 0 \"-\" \"%s\"\n", i/512, i/2%256, long)
	}}
	cfg := simulate.Config{Clients: 10, Policies: file(t, `
version: 1
policies:
  - name: patient
    key: remote_ip
    limit: 1/1h
    max_wait: 1h
  - name: behind
    on: [GET /items]
    key: {static: all}
    limit: 1/1h
`)}
	r, peak := measured(t, cfg, log)
	if peak > cfg.Memory() {
		t.Errorf("took %d bytes, and announced %d", peak, cfg.Memory())
	}
	if p := find(t, r, "patient"); p.Waited != int64(min(clients, 1024)) || p.RequestsDenied != int64(log.left/2)-p.Waited {
		t.Errorf("%d waited, %d denied", p.Waited, p.RequestsDenied)
	}
}
