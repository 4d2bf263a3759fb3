package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/deadline"
)

// An exchange is one request, or one call without a request, on its way through a limiter. It holds the decision, and is the
// context of the request from then on.
type exchange struct {
	limited     deadline.Context // the context of the Store's call. Its Parent is the request's first context
	decision    Decision
	firstResult [1]Result // room for the result of a single policy
	held        *heldSlots
}

// A requestExchange is an exchange and its request in one allocation.
type requestExchange struct {
	exchange
	request http.Request
}

// newExchange returns the exchange of a call without a request. It ends with ctx.
func (l *Limiter) newExchange(ctx context.Context) *exchange {
	return &exchange{limited: deadline.Context{Parent: ctx, Terms: &l.ofCalls}}
}

// newRequestExchange returns the exchange of a request with context ctx, under terms that are l.ofRequests or those of a
// visit. It does not end when ctx is cancelled. The server may be shutting down while its clients wait, and a client that
// leaves pays for its request.
func newRequestExchange(ctx context.Context, terms *deadline.Terms) *requestExchange {
	return &requestExchange{exchange: exchange{limited: deadline.Context{Parent: ctx, Terms: terms}}}
}

// with returns r with x as its context.
func (x *requestExchange) with(r *http.Request) *http.Request {
	x.request = *r.WithContext(&x.exchange) // inlined, so that this is the only copy on the heap
	return &x.request
}

func (x *exchange) parent() context.Context { return x.limited.Parent }

// outer returns the decision of the limiters around this one, nil if there are none. For a call without a request it is
// nil, even in the handler of a limited request.
func (x *exchange) outer() *Decision {
	if !x.limited.Terms.Detached {
		return nil
	}
	d, _ := FromContext(x.parent())
	return d
}

func (x *exchange) Deadline() (time.Time, bool) { return x.parent().Deadline() }

func (x *exchange) Done() <-chan struct{} { return x.parent().Done() }

func (x *exchange) Err() error { return x.parent().Err() }

func (x *exchange) Value(key any) any {
	switch {
	case key == (decisionKey{}) && len(x.decision.Results) > 0:
		return &x.decision
	case key == (visitKey{}) && x.limited.Terms.Owner != nil:
		return x.limited.Terms.Owner
	}
	return x.parent().Value(key)
}

// String returns the names of the chain of contexts, without their values and the request.
func (x *exchange) String() string { return deadline.Name(x.parent()) + ".WithDecision" }

// Format prints String for each verb. Otherwise %#v prints the request with its credentials.
func (x *exchange) Format(f fmt.State, _ rune) { io.WriteString(f, x.String()) }

// errNoTime is why a request is refused whose own deadline has passed. It must not be let through without a charge.
var errNoTime = errors.New("the request has no time left")

// lastMoment is how long before a request's own deadline a failure counts as caused by it. A connection may notice a
// deadline before its context does.
const lastMoment = 10 * time.Millisecond

// tooLate returns an error if it is too late to decide. For a request: its deadline passes within the given time. For a
// call without a request: its context has ended.
func (x *exchange) tooLate(within time.Duration) error {
	if x.limited.Terms.Detached {
		if at, limited := x.parent().Deadline(); limited && time.Until(at) <= within {
			return fmt.Errorf("%w: %w", errNoTime, context.DeadlineExceeded)
		}
		return nil
	}
	return x.Err()
}
