package ratelimit

import "time"

// An Event reports one decision to [Config.Observe]. It may be kept and read by other goroutines, but not changed.
// As labels of metrics use policy names and Route. Keys and error texts have too many values.
//
// Each limiter reports one Event for each request that it decides about, and a second one when it has settled the
// request. Other methods of a [Limiter], such as Take and Peek, report one for each call. There is none for requests that
// [Config.Skip] exempts and for calls with an [Unlimited] policy. There is none for calls with wrong arguments either,
// except for Admit, which refuses the request.
type Event struct {
	// Op is the operation: "request", "decide", "admit", "take", "take_all", "wait", "wait_all", "peek",
	// "refund", "reset", "block", "unblock" or "settle". A "settle" follows a "request" that was charged
	// under a [Policy.Settle], when its handler has returned. It is no decision: it is always Allowed.
	Op string

	// Allowed reports whether the request goes on.
	Allowed bool

	// Results holds a result for each policy of this limiter that applied, also for Shadow and Hidden
	// ones. It is empty if the store failed, and does not have policies that an error left out. If the
	// client left while it waited, Results has the buckets that it waited for. The Cost is 0 for
	// Peek, Block and Unblock, and below 0 for Refund and Reset.
	Results []Result

	// Estimates is set for a "settle". Results[i], of a policy with a Settle, was charged Estimates[i]
	// tokens before, and Results[i].Cost is the final cost. If these are equal, or if Err is set, nothing
	// was charged, and State is still that of the decision.
	Estimates []int64

	// Err is why the decision failed, or why a policy was left out. It is an error of the store, of a
	// [KeyFunc] (also [ErrNoKey] and [ErrBadRequest]) or of a LimitFunc. It is [context.Canceled] if the
	// request was cancelled while it waited: its client left, or the server shuts down.
	Err error

	// Took is how long the operation took, without Waited.
	Took time.Duration

	// Waited is how long the request waited for its tokens at this limiter, or until its client left.
	// Decide and Take do not wait.
	Waited time.Duration

	// Route is the pattern that the request matched, such as "GET /items/{id}", as in the key of [Route].
	// It is "" if no router has matched the request yet. It is also "" under a router other than ServeMux
	// and chi, unless the Pattern of the [http.Request] is set: see [Route]. It is "" for calls without a
	// request, too, such as Take.
	Route string
}

// Denied returns the names of all policies that denied the request, also of Hidden ones.
func (e *Event) Denied() []string { return denied(e.Results, false) }

// ShadowDenied returns the names of the Shadow policies that would have denied the request.
func (e *Event) ShadowDenied() []string { return denied(e.Results, true) }

// Degraded reports whether a stand-in for the store answered for any of the policies. For a policy with FailClosed no
// stand-in answers: Err then reports that the store is unavailable.
func (e *Event) Degraded() bool {
	for i := range e.Results {
		if e.Results[i].Degraded {
			return true
		}
	}
	return false
}
