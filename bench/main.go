// Command bench compares the rate limiter with others, side by side in one run.
//
//	go run . [-rounds 9] [-time 500ms] [-only redisstore]
//
// It prints a Markdown table. Both sides of a row take short turns, and what counts is the ratio
// of their medians: the machine slows both down alike, so that it may be busy and its figures may mean
// nothing. A bound that does not hold is said so in the table and is no failure.
//
// Every comparison has a file of its own, and so has every competitor. They register themselves.
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
	var p plan
	flag.IntVar(&p.rounds, "rounds", 9, "how many `times` each side of a row is measured")
	flag.DurationVar(&p.time, "time", 500*time.Millisecond, "how long each side runs in a round")
	only := flag.String("only", "", "run the comparisons whose name contains `text`: "+names())
	flag.Parse()
	if flag.NArg() > 0 || p.rounds < 1 || p.time <= 0 {
		flag.Usage()
		os.Exit(2)
	}
	// Interrupted, it must still stop the servers that it has started.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, p, *only)
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, p plan, only string) error {
	fmt.Printf("%s. Medians of %d rounds, each side running %v in a round.\n\n", environment(ctx), p.rounds, p.time)
	fmt.Print(tableHead)
	for _, c := range comparisons {
		if !strings.Contains(c.name, only) {
			continue
		}
		rows, err := c.run(ctx, p)
		if errors.Is(err, exec.ErrNotFound) {
			fmt.Printf("| %s | not measured: %v | | | |\n", c.name, err)
			continue
		}
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		for _, r := range rows {
			fmt.Println(r)
		}
	}
	return nil
}
