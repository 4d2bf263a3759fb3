package fallback_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/starved"
	"github.com/go-tokenbucket/ratelimit/internal/test/teststore"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/fallback"
)

// What a call of a process without processor time meets says nothing about the primary, whether it charges or reads.
func TestCallsOfAStarvedProcessDoNotGiveThePrimaryUp(t *testing.T) {
	overloaded := fmt.Errorf("%w: %w", store.ErrOverloaded, context.DeadlineExceeded)
	charge := store.Charge{Policy: "p", Key: "k", Limit: teststore.Limit(t, 1, time.Hour, 200), Cost: 1}
	for name, call := range map[string]func(context.Context, *duo) error{
		"Take": func(ctx context.Context, d *duo) error {
			_, err := d.Take(ctx, []store.Charge{charge}, make([]store.State, 1))
			return err
		},
		"Inspect": func(ctx context.Context, d *duo) error {
			_, err := d.Inspect(ctx, charge.Policy, charge.Key)
			return err
		},
	} {
		t.Run(name+" of an overloaded process", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDuo(t, fallback.Config{Failures: 1})
				for _, err := range []error{overloaded, teststore.ErrBroken} {
					d.primary.Have(func(context.Context, func() error) error {
						time.Sleep(time.Second)
						return err
					})
					ctx := store.WithoutStandIn(t.Context())
					for range 5 {
						if got := call(ctx, d); d.Away() == nil && !errors.Is(got, err) {
							t.Errorf("%v, want %v", got, err)
						}
					}
					if away, want := d.Away() != nil, err != overloaded; away != want {
						t.Errorf("%v: given up: %t, want %t", err, away, want)
					}
				}
			})
		})
		t.Run(name+" that is slow", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(1000 * time.Hour) // other bubbles begin at the same time, and would be starved, too
				d := newDuo(t, fallback.Config{Failures: 1})
				d.primary.Have(func(_ context.Context, take func() error) error {
					time.Sleep(60 * time.Millisecond)
					return take()
				})
				slow := func() {
					ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
					defer cancel()
					if err := call(ctx, d); err != nil {
						t.Error(err)
					}
				}
				for range 5 {
					starved.Since(time.Now().Add(-30 * time.Millisecond)) // a goroutine that was ready did not run for so long
					slow()
				}
				if d.Away() != nil {
					t.Errorf("given up: %v", d.Away())
				}
				time.Sleep(time.Second)
				if slow(); d.Away() == nil {
					t.Error("not given up for a slow answer of a process that lacks nothing")
				}
			})
		})
	}
}
