package ratelimit

import "time"

// An Event is one decision, as Config.Observe sees it. It may be kept, and read by other goroutines, but not
// changed.
//
// There is one for each request that a limiter decides about, and for each call of Decide, Admit, Take, TakeAll, Wait,
// Peek, Refund and Reset. There is none for requests that Config.Skip exempts, for calls that are of an Unlimited
// policy, and for calls that fail for their arguments, except for Admit, which refuses the request then. Where limiters are stacked, each has its own. The names of policies and Route are as many
// as the program has, and good as labels of a metric; keys and the texts of errors are not.
type Event struct {
	// Allowed says whether the request goes on.
	Allowed bool

	// Results holds what each policy said, shadows and hidden policies included: the policies of this limiter, where several
	// are stacked, and not those that Err left out. There are none if the store failed, or no policy applied.
	// If the client went away while it waited, they are what it waited for. That of a Peek has a Cost of 0,
	// and those of Refund and Reset have one below.
	Results []Result

	// Err is why nothing could be decided, or not by every policy: a failure of the store, an error of a
	// KeyFunc or LimitFunc, among them ErrNoKey and ErrBadRequest, or context.Canceled if the request was
	// cancelled while it waited for its turn: its client went away, or the server shuts down.
	Err error

	// Took is how long the decision took, without Waited.
	Took time.Duration

	// Waited is how long the request waited for its turn at this limiter, or until its client went away. It
	// is 0 where nobody had to wait, and for Decide and Take, which do not.
	Waited time.Duration

	// Route is the pattern that the request matched, such as "GET /items/{id}": the key of Route without its
	// "route:". It is "" if the limiter is mounted where no router has matched the request yet, and for calls
	// without a request, such as Take.
	Route string
}

// Denied returns the names of all policies that denied the request, also of those that are Hidden from clients.
func (e *Event) Denied() []string { return denied(e.Results, false) }

// ShadowDenied returns the names of the policies that would have denied the request, were they no Shadow.
func (e *Event) ShadowDenied() []string { return denied(e.Results, true) }

// Degraded reports whether a stand-in for the store answered, for any of the policies. For those that fail
// closed none does: then Err says that the store is away.
func (e *Event) Degraded() bool {
	for i := range e.Results {
		if e.Results[i].Degraded {
			return true
		}
	}
	return false
}
