// Command bench compares the rate limiter with others, side by side in one run.
//
//	go run . [-rounds 9] [-time 500ms] [-only limiter] [-markdown report.md] [-svg chart.svg]
//	go run . growth [-short] [-rounds 3] [-time 1s] [-only replicas] [-markdown growth.md]
//
// It prints Markdown: tables of comparisons, and tables for each load. Both sides of a row take short turns, and the
// result is the ratio of their medians. A busy machine slows both sides down alike, so its figures may be wrong while
// the ratio is right. A missed target is marked in the table, and is not a failure.
//
// With growth, it measures the limiter alone, as keys, policies, replicas and masters grow.
//
// Each comparison and each competitor has a file, which registers it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"time"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("bench: ")
	// After an interrupt, the program must still stop the servers that it has started.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := start(ctx, os.Args[1:])
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

// start runs the part of the program that the first argument names.
func start(ctx context.Context, arguments []string) error {
	if len(arguments) > 0 {
		switch arguments[0] {
		case serveArgument:
			return serve(arguments[1:])
		case growthArgument:
			return measureGrowth(ctx, arguments[1:])
		}
	}
	return compareAll(ctx, arguments)
}

func compareAll(ctx context.Context, arguments []string) error {
	var p plan
	var f files
	flag.IntVar(&p.rounds, "rounds", 9, "how many `times` each side of a row is measured")
	flag.DurationVar(&p.time, "time", 500*time.Millisecond, "how long each side runs in a round")
	flag.StringVar(&f.markdown, "markdown", "", "also write what is printed, and how it was measured, to `file`")
	flag.StringVar(&f.svg, "svg", "", "draw how many decisions a second each Redis library makes to `file`")
	only := flag.String("only", "", "run the comparisons whose name contains `text`: "+names())
	flag.CommandLine.Parse(arguments)
	if flag.NArg() > 0 || p.rounds < 1 || p.time <= 0 {
		flag.Usage()
		os.Exit(2)
	}
	return run(ctx, p, *only, f)
}

func run(ctx context.Context, p plan, only string, f files) error {
	r := report{environment: environment(ctx), plan: p}
	fmt.Println(r.conditions())
	for s := range sections {
		fmt.Printf("\n## %v\n\n%s", s, tableHead)
		if err := runSection(ctx, p, s, only, &r.found[s]); err != nil {
			return err
		}
	}
	return f.write(r)
}

// runSection prints the results of the comparisons of a section, and adds them to found.
func runSection(ctx context.Context, p plan, s section, only string, found *findings) error {
	for _, c := range comparisons {
		if c.section != s || !strings.Contains(c.name, only) {
			continue
		}
		of, err := c.run(ctx, p)
		if errors.Is(err, exec.ErrNotFound) {
			fmt.Printf("| %s | not measured: %v | | | |\n", c.name, err)
			continue
		}
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		for _, row := range of.rows {
			fmt.Println(row)
		}
		found.add(of)
	}
	for _, t := range found.loads {
		fmt.Printf("\n%s", t)
	}
	return nil
}
