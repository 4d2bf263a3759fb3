package fallback_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/test/teststore"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/fallback"
)

// after answers after a time that calls itself take.
func after(roundTrip func() time.Duration) teststore.Fault {
	return func(ctx context.Context, take func() error) error {
		select {
		case <-time.After(roundTrip()):
			return take()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// runLogged makes a call every 10 ms for four minutes, each with 100 ms, and returns the log.
func runLogged(t *testing.T, f teststore.Fault) string {
	var text strings.Builder
	primary := &teststore.Faulty{Store: teststore.OpenMemory(t, nil)}
	primary.Have(f)
	s := fallback.New(primary, nil, fallback.Config{Logger: slog.New(slog.NewTextHandler(&text, nil))})
	c := []store.Charge{{Policy: "p", Key: "k", Limit: teststore.Limit(t, 1, time.Hour, 500_000), Cost: 1}}
	for begin := time.Now(); time.Since(begin) < 4*time.Minute; time.Sleep(10 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		if ok, err := s.Take(ctx, c, make([]store.State, 1)); !ok || err != nil {
			t.Fatal(ok, err)
		}
		cancel()
	}
	s.Close()
	return text.String()
}

func TestAPrimaryThatStaysAwayIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, f := range []teststore.Fault{teststore.Broken, after(func() time.Duration { return 60 * time.Millisecond })} {
			text := runLogged(t, f)
			if got := strings.Count(text, "the primary is still unavailable"); got < 3 || got > 4 {
				t.Errorf("%d lines in four minutes, want about one a minute", got)
			}
		}
	})
}
