package ratelimit

import (
	"fmt"
	"time"
)

// A WaitError is the error of [Limiter.Wait] if the tokens would come later than the call may wait, if
// Config.MaxWaiting leaves no place to wait, or if the cost is above the burst. Nothing was taken.
type WaitError struct {
	// RetryAfter is how long until the same call could succeed, if nobody else takes the tokens. It is Never for
	// a cost above the burst.
	RetryAfter time.Duration

	// Result is what Wait returned beside the error.
	Result Result

	crowded bool // there was no place to wait, or no time
}

// Error names the policy and says when to call again. It does not contain the key.
func (e *WaitError) Error() string {
	switch {
	case e.RetryAfter == Never:
		return fmt.Sprintf("ratelimit: Wait: policy %s: cost %d is above the burst", e.Result.Policy, e.Result.Cost)
	case e.crowded:
		return fmt.Sprintf("ratelimit: Wait: policy %s: no time or no place to wait (Config.MaxWaiting): retry after %v", e.Result.Policy, e.RetryAfter)
	}
	return fmt.Sprintf("ratelimit: Wait: policy %s: the tokens would come too late: retry after %v", e.Result.Policy, e.RetryAfter)
}
