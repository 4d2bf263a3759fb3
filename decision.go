package ratelimit

import (
	"context"
	"iter"
	"math"
	"time"

	"github.com/go-tokenbucket/ratelimit/store"
)

// Never is the RetryAfter of a request that cannot succeed however long its client waits, because its
// cost is above the burst.
const Never = store.Never

// A Decision is what the limiters said of one request.
type Decision struct {
	// Allowed says whether the request goes on. If nothing could be decided because the store failed, it is as
	// FailClosed says, and false for other errors: see KeyFunc.
	Allowed bool

	// Results holds what each policy said, in the order of the policies. Policies that did not apply
	// have none. Where limiters are stacked, those of the outer ones come first.
	Results []Result

	// At is when the decision was made, and for a request that waited the end of that. ResetAfter in
	// Results counts from then.
	At time.Time

	// Waited is how long the request has waited for its turn, at stacked limiters all together; 0 if it did
	// not have to.
	Waited time.Duration

	// values is room for the header values of a decision, so that they need no allocation of their own.
	values [3]string
}

// A Result is what one policy said of a request.
type Result struct {
	// Policy is the policy's name, and Key whom the request counts for.
	Policy, Key string

	// Limit is the limit that applied, and Cost how many tokens of it the request asked for.
	Limit Limit
	Cost  int64

	// Shadow says that the policy only measures. If its State is not Allowed, it would have denied.
	Shadow bool

	// Hidden says that clients are not told of the policy: a HeaderFunc or Deny handler of your own must not show it.
	Hidden bool
	// Used says, of a Peek, that the bucket has been charged and has not refilled since.
	Used bool

	// maxWait is how long the request might wait, in milliseconds, rounded down. So it fits beside the
	// three above, and an exchange into 576 bytes.
	maxWait uint32

	// State is what the bucket answered. A policy may have allowed a request that another denied; then
	// its bucket was not charged.
	store.State
}

// Tightest returns the result that headers should show a client, nil if there is none: one that is neither Shadow nor
// Hidden. Where such policies denied the request, it is the one that takes longest to allow it. Otherwise it is the one
// whose bucket can pay for the fewest further requests of the same cost, and of those with as many, the one with the
// fewest tokens remaining.
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

// Quotas returns the results that a list of quotas in a header has: those of policies that are neither Shadow nor Hidden.
// Of several results with one Policy, which stacked limiters may have, it is the tightest, as by Tightest.
func (d *Decision) Quotas() iter.Seq[*Result] { return d.quotas(false) }

// ShadowQuotas is Quotas for the policies that are a Shadow.
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
	if left, others := r.requestsLeft(), than.requestsLeft(); left != others {
		return left < others
	}
	if r.Remaining != than.Remaining {
		return r.Remaining < than.Remaining
	}
	return r.ResetAfter > than.ResetAfter
}

// requestsLeft returns for how many further requests of the same cost the bucket can pay now.
func (r *Result) requestsLeft() int64 {
	if r.Cost <= 0 {
		return math.MaxInt64
	}
	return max(0, r.Remaining) / r.Cost
}

// RetryAfter returns how long the client of a denied request should wait until every policy would allow
// it, or let it wait, if nobody else uses its tokens: 0 if it was allowed, Never if it never will be. With
// stacked limiters that includes the outer ones, which allowed this request but were charged for it.
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

// next returns how long until a bucket can pay the same cost again.
func (r *Result) next() time.Duration {
	if !r.Allowed {
		return r.RetryAfter
	}
	if r.Degraded {
		return r.ResetAfter
	}
	if r.Cost <= 0 {
		return 0
	}
	// By what the request may wait, it can come sooner.
	return max(0, r.Until(r.Cost)-time.Duration(r.maxWait)*time.Millisecond)
}

// Until returns how long it takes until the bucket holds that many tokens if nobody uses it. It has room for no more
// than the burst of Limit. If the result is Degraded it returns ResetAfter.
func (r *Result) Until(tokens int64) time.Duration {
	if r.Degraded {
		return r.ResetAfter // a stand-in's limit may be a part of Limit
	}
	// The bucket is full after ResetAfter, and had that many while no more than the others were missing.
	limit, err := r.Limit.compile()
	if err != nil {
		return 0
	}
	spare := (limit.Capacity - tokens*limit.Unit) / limit.Refill
	return max(0, r.ResetAfter-time.Duration(spare)*time.Microsecond)
}

// Known reports whether a bucket has answered. Where neither the store nor a stand-in did, Remaining, RetryAfter and
// ResetAfter say nothing.
func (r *Result) Known() bool {
	return !r.Degraded || !r.Allowed || r.Remaining > 0 || r.ResetAfter > 0
}

// Denied returns the names of the policies that denied the request, without those that are Hidden from clients.
func (d *Decision) Denied() []string {
	var names []string
	for i := range d.Results {
		if r := &d.Results[i]; !r.Allowed && !r.Shadow && !r.Hidden {
			names = append(names, r.Policy)
		}
	}
	return names
}

// VisibleWait returns Waited, or 0 if the request had to wait for a policy that is Hidden.
func (d *Decision) VisibleWait() time.Duration {
	for i := range d.Results {
		if r := &d.Results[i]; r.Hidden && !r.Shadow && r.Wait > 0 {
			return 0
		}
	}
	return d.Waited
}

// denied returns the names of the policies that denied, or of the shadows that would have.
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

// FromContext returns the Decision about the request that ctx belongs to, also in a Deny handler. It is
// false where no limiter decided: outside of one, on a request that was skipped or to which no policy
// applied, or when the store failed.
func FromContext(ctx context.Context) (*Decision, bool) {
	d, ok := ctx.Value(decisionKey{}).(*Decision)
	return d, ok
}
