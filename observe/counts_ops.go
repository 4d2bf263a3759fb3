package observe

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/failure"
	"github.com/go-tokenbucket/ratelimit/store"
)

// An operation is the index of an [OperationCounts.Op].
type operation uint8

const (
	opDecision operation = iota // a request or call that asked for tokens
	opPeek
	opRefund
	opReset
	opBlock
	opUnblock
	opSettle
	opExpired
	opOther
	operations
)

var opNames = [operations]string{"", "peek", "refund", "reset", "block", "unblock", "settle", "expired", otherName}

func opOf(name string) operation {
	switch name {
	case "request", "decide", "admit", "take", "take_all", "wait", "wait_all", "acquire":
		return opDecision
	case "peek":
		return opPeek
	case "refund":
		return opRefund
	case "reset":
		return opReset
	case "block":
		return opBlock
	case "unblock":
		return opUnblock
	case "settle":
		return opSettle
	case "expired":
		return opExpired
	default:
		return opOther
	}
}

// An outcome is the index of a [DecisionCounts.Outcome].
type outcome uint8

const (
	outAllowed outcome = iota
	outDenied
	outFailedOpen
	outFailedClosed
	outNoKey
	outBadRequest
	outCanceled
	outOverloaded
	outcomes
)

var outcomeNames = [outcomes]string{
	"allowed", "denied", "failed_open", "failed_closed", "no_key", "bad_request", "canceled", "overloaded",
}

// Outcome returns the [DecisionCounts.Outcome] of a decision. It returns "" for an event that is no decision, such as a
// peek or a settlement.
func Outcome(e *ratelimit.Event) string {
	if opOf(e.Op) != opDecision {
		return ""
	}
	return outcomeNames[outcomeOf(e)]
}

func outcomeOf(e *ratelimit.Event) outcome {
	switch {
	case e.Err == nil && e.Allowed:
		return outAllowed
	case e.Err == nil:
		return outDenied
	default:
		return outcomeOfFailed(e)
	}
}

func outcomeOfFailed(e *ratelimit.Event) outcome {
	deniedBy := false
	for i := range e.Results {
		deniedBy = deniedBy || !e.Results[i].Allowed && !e.Results[i].Shadow
	}
	switch {
	case e.Allowed && len(e.Results) > 0 && !errors.Is(e.Err, ratelimit.ErrOutage):
		return outAllowed // the policies that deny have decided: only a Shadow is left out for another error
	case e.Allowed:
		return outFailedOpen
	case deniedBy: // the error left out another policy
		return outDenied
	case errors.Is(e.Err, ratelimit.ErrBadRequest):
		return outBadRequest
	case failure.IsNoKey(e.Err):
		return outNoKey
	case errors.Is(e.Err, store.ErrOverloaded):
		return outOverloaded
	case len(e.Results) > 0, errors.Is(e.Err, context.Canceled): // it had results, so it ended while it waited
		return outCanceled
	default:
		return outFailedClosed
	}
}

// The bounds of the buckets of the histograms. A value counts in the first bucket whose bound is not below it. There are
// bounds closely above the times after which a fallback and a limiter give up, 50 and 100 ms: quantiles of an outage are
// interpolated between bounds.
var (
	tookBounds = [...]time.Duration{
		10 * time.Microsecond, 25 * time.Microsecond, 50 * time.Microsecond,
		100 * time.Microsecond, 250 * time.Microsecond, 500 * time.Microsecond,
		time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond,
		10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond, 60 * time.Millisecond,
		100 * time.Millisecond, 120 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond,
		time.Second,
	}
	waitedBounds = [...]time.Duration{
		5 * time.Millisecond, 10 * time.Millisecond, 25 * time.Millisecond,
		50 * time.Millisecond, 75 * time.Millisecond, 100 * time.Millisecond,
		250 * time.Millisecond, 500 * time.Millisecond, 750 * time.Millisecond,
		time.Second, 2500 * time.Millisecond, 5 * time.Second, 7500 * time.Millisecond,
		10 * time.Second,
	}
)

// A stripe has the counts that are not of a policy. Goroutines are spread over several, so that cores do not share them.
type stripe struct {
	ops, failed [operations]atomic.Int64
	took        [outcomes]struct {
		buckets [len(tookBounds) + 1]atomic.Int64
		sum     atomic.Int64
	}
	waited [outcomes]struct {
		buckets [len(waitedBounds) + 1]atomic.Int64
		sum     atomic.Int64
	}
	inner [outcomes]atomic.Int64
	_     [64]byte // so that the last counts share no cache line with the next stripe
}

// operated counts an operation that is no decision.
func (s *stripe) operated(op operation, e *ratelimit.Event) {
	s.ops[op].Add(1)
	if e.Err != nil {
		s.failed[op].Add(1)
	}
}

// decided counts a decision and how long it took.
func (s *stripe) decided(e *ratelimit.Event, inner bool) {
	out := outcomeOf(e)
	if inner {
		s.inner[out].Add(1)
	}
	took := &s.took[out]
	took.buckets[bucketOf(tookBounds[:], e.Took)].Add(1)
	took.sum.Add(max(0, int64(e.Took)))
	if e.Waited > 0 {
		waited := &s.waited[out]
		waited.buckets[bucketOf(waitedBounds[:], e.Waited)].Add(1)
		waited.sum.Add(int64(e.Waited))
	}
}

func bucketOf(bounds []time.Duration, d time.Duration) int {
	for i, bound := range bounds {
		if d <= bound {
			return i
		}
	}
	return len(bounds)
}
