package store

import (
	"context"
	"math"

	"github.com/go-tokenbucket/ratelimit/internal/bucket"
)

// overdraw charges c's bucket tokens, into debt if it does not hold as many, and returns its state after that.
//
// What is above the burst is never allowed. So if tokens are more, it goes on under a limit with room for twice
// as many, and again: a bucket that is not full keeps what it holds under a larger limit.
func overdraw(ctx context.Context, s Store, c Charge, tokens int64) (state State, err error) {
	capacity, states := c.Limit.Capacity, make([]State, 1)
	c.MaxWait = math.MaxInt64
	for ; tokens > 0; tokens -= c.Cost {
		c.Cost = min(tokens, c.Limit.Capacity/c.Limit.Unit)
		if _, err := s.Take(ctx, []Charge{c}, states); err != nil {
			return State{}, err
		}
		state = states[0]
		state.ResetAfter -= duration((c.Limit.Capacity - capacity) / c.Limit.Refill)
		c.Limit.Capacity = min(2*c.Limit.Capacity, bucket.MaxCredits)
	}
	return state, nil
}
