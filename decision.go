package ratelimit

import (
	"context"
	"iter"
	"math"
	"time"

	"github.com/go-tokenbucket/ratelimit/store"
)

// Never is the RetryAfter of a request that can never succeed: its cost is above the burst, or the rate is 0.
const Never = store.Never

// A Decision is the result of all calls of [Limiter.Handler] and [Limiter.Limit] so far for one request, see
// [FromContext], or of one call of [Limiter.TakeAll].
type Decision struct {
	// Allowed reports whether the request goes on. If the store failed, it is true unless a policy has
	// FailClosed. After other errors, see [KeyFunc], it is false.
	Allowed bool

	// Results holds a result for each policy that applied, in the order of the policies. Where calls of
	// Handler and Limit are stacked, the results of the outer ones come first. If a rate of 0 denies the request, only
	// policies with such a rate are listed.
	Results []Result

	// At is when the decision was made, or when the request had waited for its tokens. ResetAfter in
	// Results counts from At. Results of outer limiters count from the decisions of these, shortly before.
	At time.Time

	// Waited is how long the request waited for its tokens, the sum over stacked calls of Handler and
	// Limit.
	Waited time.Duration

	// values holds the header values of a decision, which saves an allocation.
	values [3]string
}

// A Result is the result of one policy for a request. Beside the fields below it has those of [store.State], which are
// the answer of the bucket:
//   - Allowed bool: the bucket could pay
//   - Remaining int64: how many whole tokens are left
//   - RetryAfter time.Duration: how long until the bucket can pay, 0 if Allowed, [Never] if it never can
//   - ResetAfter time.Duration: how long until the bucket is full, or until the period of a quota ends
//   - Wait time.Duration: how long until the tokens come that were reserved, with [Policy.MaxWait]
//   - Blocked bool: the bucket is blocked or locked, for RetryAfter
//   - Degraded bool: a stand-in answered, while the store is unavailable
//   - Lost bool: the slot that was released was not held any more
type Result struct {
	// Policy is the policy's name, and Key the key that the request counts for.
	Policy, Key string

	// Limit is the limit that applied, and Cost the number of tokens that the request asked for.
	Limit Limit
	Cost  int64

	// Shadow is [Policy.Shadow]: the policy only measures. If State.Allowed is false, it would have
	// denied the request.
	Shadow bool

	// Hidden is [Policy.Hidden]. A [HeaderFunc] or a Deny handler of your own must not show this result
	// to clients.
	Hidden bool

	// maxWait is how long the request may wait, in milliseconds, rounded down. At this size it fits
	// beside the two fields above.
	maxWait uint32

	// State is the answer of the bucket. If another policy denied the request, Allowed may be true here,
	// and the bucket was not charged.
	store.State
}

// Tightest returns the result that headers should show to a client. If the request was denied, it is the denial with
// the longest RetryAfter. Otherwise it is the result whose bucket can pay for the fewest further requests of the same
// cost, and among equals the one with the fewest tokens left. A concurrency limit comes last then, because the slot of the
// request is free again when the client has its answer. Shadow and Hidden results do not count. If no other is left,
// Tightest returns nil.
func (d *Decision) Tightest() *Result {
	var tightest *Result
	for i := range d.Results {
		r := &d.Results[i]
		if !r.Shadow && !r.Hidden && (tightest == nil || r.tighter(tightest)) {
			tightest = r
		}
	}
	return tightest
}

// Quotas returns the results that a header with a list of quotas should show: all that are neither Shadow nor Hidden.
// Stacked calls of Limit may have several results of one policy. Of these it returns only the tightest, see
// [Decision.Tightest].
func (d *Decision) Quotas() iter.Seq[*Result] { return d.quotas(false) }

// ShadowQuotas is like [Decision.Quotas] for the results that are Shadow.
func (d *Decision) ShadowQuotas() iter.Seq[*Result] { return d.quotas(true) }

func (d *Decision) quotas(shadows bool) iter.Seq[*Result] {
	return func(yield func(*Result) bool) {
		for i := range d.Results {
			if d.lists(i, shadows) && !yield(&d.Results[i]) {
				return
			}
		}
	}
}

func (d *Decision) lists(i int, shadows bool) bool {
	r := &d.Results[i]
	if r.Shadow != shadows || r.Hidden {
		return false
	}
	for j := range d.Results {
		other := &d.Results[j]
		if j != i && other.Shadow == shadows && !other.Hidden && other.Policy == r.Policy && (other.tighter(r) || j < i && !r.tighter(other)) {
			return false
		}
	}
	return true
}

func (r *Result) tighter(than *Result) bool {
	if r.Allowed != than.Allowed {
		return than.Allowed
	}
	if r.RetryAfter != than.RetryAfter {
		return r.RetryAfter > than.RetryAfter
	}
	if slots := r.Limit.IsConcurrency(); r.Allowed && slots != than.Limit.IsConcurrency() {
		return !slots
	}
	if left, others := r.requestsLeft(), than.requestsLeft(); left != others {
		return left < others
	}
	if r.Remaining != than.Remaining {
		return r.Remaining < than.Remaining
	}
	return r.ResetAfter > than.ResetAfter
}

// requestsLeft returns how many further requests of the same cost the bucket can pay for now.
func (r *Result) requestsLeft() int64 {
	if r.Cost <= 0 {
		return math.MaxInt64
	}
	return max(0, r.Remaining) / r.Cost
}

// RetryAfter returns how long the client of a denied request should wait before it tries again. After that time every
// policy allows the request, or lets it wait for its tokens, if no other request uses the same buckets. RetryAfter is 0
// if the request was allowed, and [Never] if it can never be allowed. Where calls of Handler and Limit are stacked, it
// includes the policies of the outer ones, because they were charged for this request.
func (d *Decision) RetryAfter() time.Duration {
	if d.Allowed {
		return 0
	}
	var longest time.Duration
	for i := range d.Results {
		if r := &d.Results[i]; !r.Shadow {
			longest = max(longest, r.next())
		}
	}
	return longest
}

// PeriodEnd returns when the period of a quota ends that a denied request has to wait for, in the time zone of the quota.
// It returns the zero Time if no visible quota decides [Decision.RetryAfter].
func (d *Decision) PeriodEnd() time.Time {
	after := d.RetryAfter()
	if after == 0 || after == Never {
		return time.Time{}
	}
	for i := range d.Results {
		r := &d.Results[i]
		if r.Limit.Period() == 0 || r.Shadow || r.Hidden || r.Blocked || r.ResetAfter != after {
			continue
		}
		if period, err := store.NewPeriod(r.Limit.Period(), r.Limit.Zone()); err == nil {
			return time.Unix(d.resetOf(r), 0).In(period.Location())
		}
	}
	return time.Time{}
}

// AtOnce reports whether a denied request has to wait for a slot of a [Concurrency] limit that is not Hidden: too many
// requests run at once.
func (d *Decision) AtOnce() bool {
	after := d.RetryAfter()
	for i := range d.Results {
		r := &d.Results[i]
		if r.Limit.IsConcurrency() && !r.Allowed && !r.Shadow && !r.Hidden && !r.Blocked && r.RetryAfter == after && after != Never {
			return true
		}
	}
	return false
}

// resetOf returns when the bucket is full, in seconds of Unix time, rounded up. The period of a quota ends on a whole second.
// There the nearest one is right, because d.At is some time after the decision of the Store.
func (d *Decision) resetOf(r *Result) int64 {
	reset := d.At.Add(r.ResetAfter)
	if r.Limit.Period() != 0 && !r.Blocked { // a block may hide the end of the period
		return reset.Round(time.Second).Unix()
	}
	return reset.Add(time.Second - 1).Unix()
}

// next returns how long it takes until the bucket can pay the same cost again.
func (r *Result) next() time.Duration {
	switch {
	case !r.Allowed, !r.Degraded && r.Cost <= 0, r.Limit.IsConcurrency(): // whose slot is free again by then
		return r.RetryAfter // 0 if allowed, unless the bucket is blocked
	case r.Degraded:
		return r.ResetAfter
	default:
		// The request may come earlier by the time that it may wait.
		return max(0, r.Until(r.Cost)-time.Duration(r.maxWait)*time.Millisecond)
	}
}

// Until returns how long it takes until the bucket can give that many tokens, if no request uses it. A bucket never holds
// more than the burst of Limit. For a Degraded result it returns ResetAfter. If the bucket is blocked, it returns at least
// RetryAfter, but not more than ResetAfter. For slots that are held it returns ResetAfter, which is a guess.
func (r *Result) Until(tokens int64) time.Duration {
	if r.Degraded {
		return r.ResetAfter // a stand-in's limit may be a part of Limit
	}
	// The bucket is full after ResetAfter, and had that many while no more than the others were missing.
	var until time.Duration
	switch limit, err := r.Limit.compile(); {
	case err != nil:
	case limit.IsQuota(), limit.IsConcurrency():
		if r.Remaining < tokens {
			until = r.ResetAfter
		}
	default:
		spare := (limit.Capacity - tokens*limit.Unit) / limit.Refill
		until = max(0, r.ResetAfter-time.Duration(spare)*time.Microsecond)
	}
	if r.Blocked { // for at most RetryAfter, which may be Never
		until = max(until, min(r.RetryAfter, r.ResetAfter))
	}
	return until
}

// Known reports whether the store or a stand-in has answered. If not, Remaining, RetryAfter and ResetAfter have no
// meaning.
func (r *Result) Known() bool { return isKnown(&r.State) }

func isKnown(s *store.State) bool {
	return !s.Degraded || !s.Allowed || s.Remaining > 0 || s.ResetAfter > 0
}

// Denied returns the names of the policies that denied the request, except for Hidden ones. It is meant for answers to
// clients; [Event.Denied] returns all names.
func (d *Decision) Denied() []string {
	var names []string
	for i := range d.Results {
		if r := &d.Results[i]; !r.Allowed && !r.Shadow && !r.Hidden {
			names = append(names, r.Policy)
		}
	}
	return names
}

// VisibleWait returns Waited, or 0 if the request had to wait for a Hidden policy, or may have waited for a Hidden quota or
// concurrency limit. It is meant for headers.
func (d *Decision) VisibleWait() time.Duration {
	for i := range d.Results {
		if r := &d.Results[i]; r.Hidden && !r.Shadow && (r.Wait > 0 || r.Limit.Period() != 0 || r.Limit.IsConcurrency()) {
			return 0
		}
	}
	return d.Waited
}

// denied returns the names of the policies that denied, or with shadow of those that would have denied.
func denied(results []Result, shadow bool) []string {
	var names []string
	for i := range results {
		if r := &results[i]; !r.Allowed && r.Shadow == shadow {
			names = append(names, r.Policy)
		}
	}
	return names
}

type decisionKey struct{}

// FromContext returns the [Decision] about the request with this context. It works in handlers inside the limiter and
// in [Config.Deny]. It returns false if there is no decision: outside of a limiter, for a request that was skipped, if
// no policy applied, and if the store failed.
func FromContext(ctx context.Context) (*Decision, bool) {
	d, ok := ctx.Value(decisionKey{}).(*Decision)
	return d, ok
}

// An Event reports one decision to [Config.Observe]. It may be kept and read by other goroutines, but not changed.
// As labels of metrics use policy names and Route. Keys and error texts have too many values.
//
// Each limiter reports one Event for each request that it decides about, and a second one when it has settled the
// request. Other methods of a [Limiter], such as Take and Peek, report one for each call, and [Limiter.Usage] a "peek" for
// each request. There is none for requests that [Config.Skip] exempts and for calls with an [Unlimited] policy. There is
// none for calls with wrong arguments either, except for Admit, which refuses the request.
type Event struct {
	// Op is the operation: "request", "decide", "admit", "take", "take_all", "wait", "wait_all", "peek",
	// "refund", "reset", "block", "unblock", "acquire", "settle" or "expired". A "settle" follows a "request"
	// that was charged under a [Policy.Settle], when its handler has returned. An "expired" follows a
	// "request" or an "acquire" if its slot was lost before it was released: see [Concurrency]. Both are no
	// decisions: they are always Allowed.
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

	// Refused names the policies with FailClosed that refused the request because of an outage: the store did
	// not decide, or a function of the policy returned [ErrOutage]. Results is then empty.
	Refused []string

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
