package code_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/ratetest"
)

type message string

func tenantSender(limiter *ratelimit.Limiter, send func(context.Context, message)) func(context.Context, string, []message) []message {
	perTenant := ratelimit.Policy{Name: "tenant", Limit: ratelimit.PerSecond(5), FailClosed: true}
	provider := ratelimit.Policy{Name: "provider", Limit: ratelimit.PerSecond(10), FailClosed: true}
	// sendAll sends messages to a tenant, one after the other, until stop ends. It returns those that it has not sent.
	sendAll := func(stop context.Context, tenant string, messages []message) (left []message) {
		for len(messages) > 0 && stop.Err() == nil {
			_, err := limiter.WaitAll(stop,
				ratelimit.Charge{Policy: perTenant, Key: "tenant:" + tenant},
				ratelimit.Charge{Policy: provider, Key: "provider:mail"},
			)
			if err != nil {
				time.Sleep(300 * time.Millisecond) // because WaitAll does not block while Redis is unavailable
				continue
			}
			send(context.WithoutCancel(stop), messages[0]) // a stop does not interrupt the message
			messages = messages[1:]
		}
		return messages
	}
	return sendAll
}

// refundUnsent has the code for a job that failed.
func refundUnsent(ctx context.Context, limiter *ratelimit.Limiter, partner ratelimit.Policy, err error) error {
	if errors.Is(err, errNotSent) { // the partner has counted nothing
		_, notReturned := limiter.Refund(ctx, partner, "partner:7", 1)
		err = errors.Join(err, notReturned)
	}
	return err
}

var errNotSent = errors.New("not sent")

// fanOut sends n messages to large in several goroutines, and two to small a moment later. It returns when small has
// got its messages.
func fanOut(t *testing.T, n, goroutines int) (small time.Duration) {
	synctest.Test(t, func(t *testing.T) {
		sendAll := tenantSender(ratetest.Quiet(t), func(context.Context, message) {})
		stop, cancel := context.WithCancel(t.Context())
		begin := time.Now()
		var sending sync.WaitGroup
		left := make([]int, goroutines)
		for i := range goroutines {
			sending.Go(func() { left[i] = len(sendAll(stop, "large", make([]message, n/goroutines))) })
		}
		sending.Go(func() {
			time.Sleep(time.Millisecond)
			if left := sendAll(stop, "small", make([]message, 2)); len(left) > 0 {
				t.Errorf("%d messages to small are left", len(left))
			}
			small = time.Since(begin)
			cancel()
		})
		sending.Wait()
		sent := n
		for _, n := range left {
			sent -= n
		}
		if most := 5 + 5*small.Seconds(); float64(sent) > most || float64(sent) < most-2 {
			t.Errorf("%d messages were sent to large in %v, want %.1f", sent, small, most)
		}
	})
	return small
}

// One goroutine for each tenant holds up nobody. Many of one tenant hold up the others.
func TestRecipeFanOut(t *testing.T) {
	if took := fanOut(t, 100, 1); took > 300*time.Millisecond {
		t.Errorf("small has its messages after %v behind one goroutine, want them at once", took)
	}
	if took := fanOut(t, 100, 50); took < 3*time.Second {
		t.Errorf("small has its messages after %v behind 50 goroutines: the recipe need not warn of them", took)
	}
}

func TestRecipeRefundOfAJobThatWasNotSent(t *testing.T) {
	limiter := ratetest.Quiet(t)
	partner := ratelimit.Policy{Name: "partner-api", Limit: ratelimit.PerHour(10)}
	for err, want := range map[error]int64{errNotSent: 10, errors.New("refused by the partner"): 9} {
		if _, err := limiter.Wait(t.Context(), partner, "partner:7", 1); err != nil {
			t.Fatal(err)
		}
		if got := refundUnsent(t.Context(), limiter, partner, err); !errors.Is(got, err) {
			t.Errorf("error %v, want %v", got, err)
		}
		r, peekErr := limiter.Peek(t.Context(), partner, "partner:7")
		if peekErr != nil || r.Remaining != want {
			t.Errorf("after %q the bucket holds %d, want %d, error %v", err, r.Remaining, want, peekErr)
		}
		limiter.Reset(t.Context(), partner, "partner:7")
	}
}
