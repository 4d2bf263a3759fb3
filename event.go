package ratelimit

import "time"

// An Event is one decision, as Config.Observe sees it. It may be kept, and read by other goroutines.
type Event struct {
	// Allowed says whether the request goes on.
	Allowed bool

	// Results holds what each policy said, shadows included: the policies of this limiter, where several
	// are stacked, and not those that Err left out. There are none if the store failed, or no policy applied.
	// If the client went away while it waited, they are what it waited for.
	Results []Result

	// Err is why nothing could be decided, or not by every policy: a failure of the store, an error of a
	// KeyFunc, ErrNoKey, or, if the client went away meanwhile, context.Canceled.
	Err error

	// Took is how long the decision took, without Waited.
	Took time.Duration

	// Waited is how long the request waited for its turn at this limiter, or until its client went away. It
	// is 0 where nobody had to wait, and for Check and Take, which do not.
	Waited time.Duration
}
