// Command bench runs the benchmarks of this folder in rounds, and prints tables of their medians.
//
//	go run . [-rounds 9] [-time 500ms] [-bench regexp] [-raw rows.txt] [-markdown page.md] [-svg chart.svg]
//	go run . -growth [-short]
//
// Both sides of a row take turns, in reverse order in every second round. A busy machine slows both sides down alike: its
// figures may be wrong while their ratio is right. The raw rows are those of go test -bench, for benchstat. With -from it
// measures nothing, and prints the tables of such a file.
//
// To measure a few things while you work, go test -bench does: the program adds the rounds and the tables.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"time"
)

// reversed and short are environment variables for the benchmarks, which are set to anything.
const (
	reversed = "BENCH_REVERSED"
	short    = "BENCH_SHORT"
)

type options struct {
	rounds        int
	time          time.Duration
	bench, from   string
	growth, short bool
	raw, md, svg  string // names of files to write
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("bench: ")
	var o options
	flag.IntVar(&o.rounds, "rounds", 9, "how many `times` each side is measured")
	flag.DurationVar(&o.time, "time", 500*time.Millisecond, "about how long each side runs in a round")
	flag.StringVar(&o.bench, "bench", "", "only the benchmarks that match `regexp`, as for go test")
	flag.BoolVar(&o.growth, "growth", false, "measure how the limiter grows, instead of comparing it with others")
	flag.BoolVar(&o.short, "short", false, "leave out the largest sizes of -growth")
	flag.StringVar(&o.from, "from", "", "measure nothing: read the raw rows of `file`")
	flag.StringVar(&o.raw, "raw", "", "write the raw rows to `file`")
	flag.StringVar(&o.md, "markdown", "", "write the tables, and how they came about, to `file`")
	flag.StringVar(&o.svg, "svg", "", "draw how many decisions a second each Redis library makes to `file`")
	flag.Parse()
	if flag.NArg() > 0 || o.rounds < 1 || o.time <= 0 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := o.run(ctx); err != nil {
		log.Fatal(err)
	}
}

func (o options) run(ctx context.Context) error {
	raw, err := o.rows(ctx)
	if err != nil {
		return err
	}
	if err := write(o.raw, raw); err != nil {
		return err
	}
	r, err := parse(raw)
	if err != nil {
		return err
	}
	tables := r.comparisons()
	page := func() string { return r.page(tables, filepath.Base(cmp.Or(o.raw, o.from)), filepath.Base(o.svg)) }
	if o.growth {
		tables = r.growth()
		page = func() string { return r.growthPage(tables) }
	}
	fmt.Print(tables)
	if err := write(o.md, page()); err != nil {
		return err
	}
	return write(o.svg, r.chart().svg())
}

func write(name, text string) error {
	if name == "" {
		return nil
	}
	return os.WriteFile(name, []byte(text), 0o666)
}

// rows measures, and returns the raw rows.
func (o options) rows(ctx context.Context) (string, error) {
	if o.from != "" {
		text, err := os.ReadFile(o.from)
		return string(text), err
	}
	dir, err := os.MkdirTemp("", "bench-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	program := filepath.Join(dir, "bench.test.exe")
	build := exec.CommandContext(ctx, "go", "test", "-c", "-o", program, ".")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return "", fmt.Errorf("go test -c: %w", err)
	}
	pattern, skip := cmp.Or(o.bench, "."), "^BenchmarkGrowth"
	if o.growth {
		pattern, skip = cmp.Or(o.bench, "^BenchmarkGrowth"), "^$"
	}
	text := o.conditions(ctx)
	for round := range o.rounds {
		log.Printf("round %d of %d", round+1, o.rounds)
		test := exec.CommandContext(ctx, program, "-test.run=^$", "-test.bench="+pattern, "-test.skip="+skip, "-test.benchtime="+o.time.String(), "-test.timeout=2h")
		test.Cancel = func() error { return test.Process.Signal(os.Interrupt) }
		test.Env, test.Stderr = os.Environ(), os.Stderr
		if round%2 == 1 {
			test.Env = append(test.Env, reversed+"=1")
		}
		if o.short {
			test.Env = append(test.Env, short+"=1")
		}
		out, err := test.StdoutPipe()
		if err != nil {
			return "", err
		}
		if err := test.Start(); err != nil {
			return "", err
		}
		rows, _ := io.ReadAll(io.TeeReader(out, os.Stderr))
		if err := test.Wait(); err != nil {
			return "", fmt.Errorf("round %d: %w", round+1, err)
		}
		text += string(rows)
	}
	return text, nil
}
