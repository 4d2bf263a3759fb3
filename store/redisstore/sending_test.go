package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/deadline"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

// decision returns a context as the Limiter makes one for a decision under parent.
func decision(parent context.Context) *deadline.Context {
	return &deadline.Context{Parent: parent, Terms: &deadline.Terms{Timeout: 100 * time.Millisecond}}
}

func TestACallThatIsAnsweredSoonTakesNoTimer(t *testing.T) {
	w := new(wire)
	onWire(t, w, redisstore.Config{}, func(t *testing.T, s *redisstore.Store) {
		var kept []context.Context
		w.send = func(ctx context.Context, n int) error {
			select {
			case <-ctx.Done(): // as go-redis looks before it takes a connection
				return errors.New("ended at once")
			default:
			}
			if done := ctx.Done(); ctx.Done() != done || ctx.Err() != nil {
				return fmt.Errorf("Done differs from call to call, or Err is %v", ctx.Err())
			}
			kept = append(kept, ctx)
			time.Sleep(time.Duration(n) * time.Millisecond)
			return nil
		}
		for range 15 { // some are there at a look of the lane
			ctx := decision(t.Context())
			if _, err := tryIn(ctx, s, charge(t, "k")); err != nil {
				t.Fatal(err)
			}
			if len(kept) == 1 && !deadline.Untimed(ctx) {
				t.Error("the decision has a timer")
			}
			ctx.End()
		}
		for _, ctx := range kept {
			<-ctx.Done()
			if ctx.Err() != context.Canceled {
				t.Errorf("after the call Err is %v, want context.Canceled", ctx.Err())
			}
		}
		if name := fmt.Sprintf("%v %+v", kept[0], kept[0]); strings.Contains(name, "{") {
			t.Errorf("printed, it is %s", name)
		}
		w.idle(t, s)
	})
}

// A client waits by its context for a connection. It waits no longer than the caller does, and notices a caller that
// goes away soon.
func TestACallThatWaitsForAConnectionEndsByItsContext(t *testing.T) {
	for _, tt := range []struct {
		name         string
		leave, ended time.Duration // after the beginning
		want         error
	}{
		{"by the deadline", time.Hour, 100 * time.Millisecond, context.DeadlineExceeded},
		{"by a caller that leaves at once", 5 * time.Millisecond, 20 * time.Millisecond, context.Canceled},
		{"by a caller that leaves later", 50 * time.Millisecond, 50 * time.Millisecond, context.Canceled},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := new(wire)
			onWire(t, w, redisstore.Config{}, func(t *testing.T, s *redisstore.Store) {
				parent, leave := context.WithCancel(t.Context())
				defer leave()
				time.AfterFunc(tt.leave, leave)
				ctx := decision(parent)
				defer ctx.End()
				begin := time.Now()
				var sent time.Duration
				w.send = func(ctx context.Context, _ int) error {
					<-ctx.Done()
					sent = time.Since(begin)
					return ctx.Err()
				}
				if _, err := tryIn(ctx, s, charge(t, "k")); !errors.Is(err, tt.want) || sent != tt.ended {
					t.Errorf("error %v after %v, want %v after %v", err, sent, tt.want, tt.ended)
				}
			})
		})
	}
}
