package simulate_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit/cmd/ratelimit/internal/simulate"
	"github.com/go-tokenbucket/ratelimit/internal/test/testbuild"
)

// made returns a log of cmd/ratelimit/testdata/makelog.
func made(tb testing.TB, args ...string) []byte {
	tb.Helper()
	program := filepath.Join(tb.TempDir(), "makelog")
	build := append(append([]string{"build"}, testbuild.Flags()...), "-o", program, "../../testdata/makelog")
	if out, err := exec.Command("go", build...).CombinedOutput(); err != nil {
		tb.Fatalf("%v\n%s", err, out)
	}
	cmd := exec.Command(program, args...)
	cmd.Stderr = os.Stderr
	log, err := cmd.Output()
	if err != nil {
		tb.Fatal(err)
	}
	return log
}

// A line takes about 5 µs of one processor. Another one reads and parses meanwhile.
func BenchmarkRun(b *testing.B) {
	log := made(b, "-lines", "300000", "-clients", "50000")
	lines := bytes.Count(log, []byte("\n"))
	f, err := parse(policies)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.SetBytes(int64(len(log)))
	for b.Loop() {
		if _, err := simulate.Run(context.Background(), simulate.Config{Policies: f, Logs: []simulate.Log{{Name: "access.log", Reader: bytes.NewReader(log)}}}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(lines*b.N)/b.Elapsed().Seconds(), "lines/s")
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(lines*b.N), "ns/line")
}

// A gigabyte is to take less than a minute on two processors, and no more memory than is announced.
func BenchmarkGigabyte(b *testing.B) {
	for name, file := range map[string]string{
		"decide": policies,
		"wait":   strings.Replace(policies, "limit:", "max_wait: 5s\n    limit:", 1),
	} {
		b.Run(name, func(b *testing.B) { benchmarkGigabyte(b, file) })
	}
}

func benchmarkGigabyte(b *testing.B, file string) {
	f, err := parse(file)
	if err != nil {
		b.Fatal(err)
	}
	start := time.Date(2026, 5, 23, 0, 0, 0, 0, time.UTC)
	for b.Loop() {
		random := rand.New(rand.NewPCG(18, 0))
		zipf := rand.NewZipf(random, 1.2, 10, 999_999)
		stamp := make([]byte, 0, 40)
		log := &stream{left: 5_800_000, line: func(i int, b []byte) []byte {
			if i%67 == 0 {
				stamp = start.Add(time.Duration(i/67)*time.Second).AppendFormat(stamp[:0], "02/Jan/2006:15:04:05 -0700")
			}
			n := zipf.Uint64()
			return fmt.Appendf(b, "10.%d.%d.%d - - [%s] \"GET /items/%d?page=%d HTTP/1.1\" 200 %d \"https://shop.example/items\" \"Mozilla/5.0 (X11; Linux x86_64; rv:130.0) Gecko/20100101 Firefox/130.0\"\n", n>>16, n>>8&255, n&255, stamp, n%1000, i%9, i%5000)
		}}
		cfg := simulate.Config{Policies: f}
		r, peak := measured(b, cfg, log)
		b.ReportMetric(float64(r.Bytes)/1e9, "GB/op")
		b.ReportMetric(float64(peak>>20), "peak-MB")
		b.ReportMetric(float64(cfg.Memory()>>20), "announced-MB")
	}
}
