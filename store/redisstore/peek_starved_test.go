package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/starved"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

// A read that misses its deadline because this process lacks processor time says nothing about the server. A lack of
// processor time before is no excuse: a server that never answers would not be given up.
func TestAReadThatMissesItsDeadlineInAStarvedProcessIsOverloaded(t *testing.T) {
	for _, deaf := range []bool{false, true} { // the caller waits for another goroutine, and else calls the client itself
		for _, lacks := range []bool{false, true} {
			t.Run(fmt.Sprintf("deaf %t, starved %t", deaf, lacks), func(t *testing.T) {
				w := &wire{deaf: deaf, send: func(ctx context.Context, _ int) error {
					<-ctx.Done()
					if lacks {
						time.Sleep(30 * time.Millisecond) // until the goroutine runs again
					}
					return ctx.Err()
				}}
				onWire(t, w, redisstore.Config{}, func(t *testing.T, s *redisstore.Store) {
					if lacks {
						time.Sleep(1000 * time.Hour) // other bubbles begin at the same time, and would be starved, too
						starved.Since(time.Now().Add(-30 * time.Millisecond))
					}
					for what, read := range map[string]func(context.Context) error{
						"Inspect": func(ctx context.Context) error { _, err := s.Inspect(ctx, "p", "k"); return err },
						"ReadValues": func(ctx context.Context) error {
							_, err := s.ReadValues(ctx, "s", store.Value{})
							return err
						},
					} {
						ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
						err := read(ctx)
						cancel()
						want := lacks && !deaf // where another goroutine waits, the caller returns in time
						if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, store.ErrOverloaded) != want {
							t.Errorf("%s: %v: overloaded %t, want %t", what, err, errors.Is(err, store.ErrOverloaded), want)
						}
					}
					s.Close()
				})
			})
		}
	}
}
