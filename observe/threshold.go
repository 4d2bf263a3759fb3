package observe

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"maps"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/failure"
	"github.com/go-tokenbucket/ratelimit/internal/keyname"
	"github.com/go-tokenbucket/ratelimit/internal/policyname"
)

// ThresholdConfig configures [NewThreshold]. Share and Passed are required.
type ThresholdConfig struct {
	// Share is the part of a limit whose use Passed is called for, such as 0.8: the part of a quota, or of the burst of a
	// rate. It must be above 0 and below 1.
	Share float64

	// Passed is called when a key has used Share of its limit. No request waits for it. It may take its time: up to
	// 4 calls for a policy run at once, and further ones wait. ctx ends after a minute, or with [Threshold.Close]. Return
	// when it ends.
	Passed func(ctx context.Context, w Warning)

	// Policies are the names of the policies to watch. Default: all.
	Policies []string

	// Logger receives an error if Passed panics, or if a call is lost, at most once a second. Default: slog.Default().
	Logger *slog.Logger
}

// A Warning says that a key has used the Share of its limit.
type Warning struct {
	// Policy is the name of the policy, and Key the key as a [ratelimit.KeyFunc] returned it. Clients may have chosen the
	// key. It is "sha256:" and 64 hexadecimal digits for a key of more than 256 bytes.
	Policy, Key string

	// Limit is the limit of the key, and Used how many of its tokens are used. Used is above the Share if one request
	// took many tokens, or if the limit was lowered.
	Limit ratelimit.Limit
	Used  int64

	// Resets is when the bucket is full. For a quota it is the end of the period, rounded to a minute, so that it is the
	// same on all replicas.
	Resets time.Time

	// Hidden is [ratelimit.Policy.Hidden]. Do not show the warning to clients then.
	Hidden bool
}

// ThresholdStats are the counts of a [Threshold] since it was made.
type ThresholdStats struct {
	Calls    int64 // calls of Passed that have begun
	Panicked int64 // calls that panicked
	Lost     int64 // calls that were not made, because too many were waiting
	Waiting  int   // calls that wait now
}

// A Threshold calls a function when a key has used a share of its limit, for mails and webhooks. Set
// [ratelimit.Config.Observe] to its Observe method. It calls the function once, and again when the key has recovered:
//   - Under a quota: in the next period.
//   - Under a rate: when the key was below the share for as long as its bucket takes to fill, and at least an hour.
//   - Under a higher limit than that of the last call.
//
// Refunds and a Reset do not count as recovery. Each process warns by the requests that it decides: other replicas, and a
// replica that has restarted, warn of the same key again. See
// https://github.com/go-tokenbucket/ratelimit/blob/main/docs/recipes.md#mail-at-80-percent.
//
// A Threshold is safe for concurrent use, also by several Limiters. It uses 1 MB for each policy.
type Threshold struct {
	share   float64
	passed  func(context.Context, Warning)
	ctx     context.Context // ends with Close
	close   context.CancelFunc
	running sync.WaitGroup
	log     failure.Log
	began   time.Time
	seed    maphash.Seed

	all      bool // policies that were not seen before are watched, too
	mu       sync.Mutex
	policies atomic.Pointer[map[string]*watched]

	calls, panicked, lost atomic.Int64
}

// maxWatched is the number of policies that have a table each. Further ones share that of the policy "".
const maxWatched = 64

// NewThreshold returns a Threshold. It returns an error that names the field of cfg that is wrong.
func NewThreshold(cfg ThresholdConfig) (*Threshold, error) {
	wrong := func(format string, args ...any) (*Threshold, error) {
		return nil, fmt.Errorf("observe: NewThreshold: ThresholdConfig."+format, args...)
	}
	if !(cfg.Share > 0 && cfg.Share < 1) { // also if it is NaN
		return wrong("Share is %v: must be above 0 and below 1, such as 0.8", cfg.Share)
	}
	if cfg.Passed == nil {
		return wrong("Passed is nil: must be the function to call")
	}
	policies := make(map[string]*watched)
	for i, name := range cfg.Policies {
		if !policyname.Valid(name) {
			return wrong("Policies[%d] is %q: must be the name of a policy, %s", i, name, policyname.Rule)
		}
		policies[name] = newWatched()
	}
	t := &Threshold{
		share:  cfg.Share,
		passed: cfg.Passed,
		log:    failure.Log{Logger: cfg.Logger, Message: "observe: Threshold: a call of Passed failed"},
		began:  time.Now(),
		seed:   maphash.MakeSeed(),
		all:    len(cfg.Policies) == 0,
	}
	if t.all {
		policies[""] = newWatched()
	}
	t.policies.Store(&policies)
	t.ctx, t.close = context.WithCancel(context.Background())
	return t, nil
}

// Close ends the contexts of calls that run, and waits for them. Calls that have not begun are not made. Events after
// Close have no effect.
func (t *Threshold) Close() {
	t.close()
	for _, w := range *t.policies.Load() {
		w.mu.Lock() // so that no call begins beside Wait
		w.waiting = nil
		w.mu.Unlock()
	}
	t.running.Wait()
}

// Stats returns the counts.
func (t *Threshold) Stats() ThresholdStats {
	s := ThresholdStats{Calls: t.calls.Load(), Panicked: t.panicked.Load(), Lost: t.lost.Load()}
	for _, w := range *t.policies.Load() {
		w.mu.Lock()
		s.Waiting += len(w.waiting)
		w.mu.Unlock()
	}
	return s
}

// Observe calls Passed, in another goroutine, for each policy whose key has used the share. It looks at what a bucket holds.
// So it also sees what other replicas have charged, and that a limit was lowered. It leaves out:
//   - A [ratelimit.Policy.Shadow], which limits nobody. Hidden policies are watched.
//   - A concurrency limit, whose slots are taken and released all the time.
//   - Requests with a cost of 0, and operations on buckets, such as a Peek or a Refund.
//   - Buckets that are blocked or locked, and decisions by a stand-in ([ratelimit.Event.Degraded]). The next request counts.
//
// Keys that clients make up neither repeat nor suppress the call for another key. See
// https://github.com/go-tokenbucket/ratelimit/blob/main/docs/bounds.md#keys-that-are-warned-of.
func (t *Threshold) Observe(_ context.Context, e *ratelimit.Event) {
	switch e.Op {
	case "peek", "refund", "reset", "block", "unblock", "expired":
		return
	}
	for i := range e.Results {
		if r := &e.Results[i]; t.reached(r) {
			charged := r.Cost
			if e.Estimates != nil {
				charged -= e.Estimates[i]
			}
			t.warn(r, e.Allowed && r.Allowed, charged)
		}
	}
}

// reached reports whether the key of r has used the share.
func (t *Threshold) reached(r *ratelimit.Result) bool {
	return !r.Shadow && !r.Degraded && !r.Blocked && !r.Limit.IsConcurrency() && r.Cost > 0 && t.isShare(used(r), r.Limit)
}

// isShare reports whether so many tokens are the share of l or more.
func (t *Threshold) isShare(tokens int64, l ratelimit.Limit) bool {
	const rounding = 1e-6 // a share such as 0.07 of 100 is a little more than 7
	return tokens > 0 && float64(tokens) >= t.share*float64(capacity(l))-rounding
}

// used returns how many tokens of its limit the key of r has used. It is not above 0 if the rate is 0.
func used(r *ratelimit.Result) int64 { return capacity(r.Limit) - r.Remaining }

// capacity returns how many tokens a bucket holds, and 0 for a rate of 0.
func capacity(l ratelimit.Limit) int64 {
	if l.Burst != 0 && l.Rate != 0 {
		return l.Burst
	}
	return l.Rate
}

// warn calls Passed for the key of r, unless it was called before and the key has not recovered. If done is true, the
// request was charged that many tokens.
func (t *Threshold) warn(r *ratelimit.Result, done bool, charged int64) {
	w := t.watched(r.Policy)
	if w == nil {
		return
	}
	now, isRate := time.Since(t.began), r.Limit.Period() == 0
	as := warned{limit: capacity(r.Limit), until: now + min(r.ResetAfter, math.MaxInt64/2)}
	if isRate {
		as.until = max(as.until, now+quietRate)
	}
	// A bucket in debt does not say how many tokens it had before.
	passes := done && r.Wait == 0 && !t.isShare(used(r)-charged, r.Limit)
	key := maphash.Comparable(t.seed, warnedKey{r.Policy, r.Key, r.Limit.Period()})

	w.mu.Lock()
	lost := false
	switch {
	case t.ctx.Err() != nil, w.isWarned(now, key, as, isRate):
	case !w.makeRoom(now, key) && !passes:
	case len(w.waiting) >= maxWarned:
		lost = true
	default:
		w.remember(key, as)
		w.call(t, newWarning(r))
	}
	w.mu.Unlock()
	if lost {
		t.lost.Add(1)
		t.log.LogKind(t.ctx, "lost", errTooManyCalls, slog.String("policy", r.Policy))
	}
}

var errTooManyCalls = errors.New("too many calls wait: this one is not made")

func newWarning(r *ratelimit.Result) Warning {
	key := hashName
	if len(r.Key) <= keyname.MaxShort {
		key = strings.Clone // because it may be a part of a large text
	}
	w := Warning{
		Policy: r.Policy,
		Key:    key(r.Key),
		Limit:  r.Limit,
		Used:   used(r),
		Resets: time.Now().Add(r.ResetAfter),
		Hidden: r.Hidden,
	}
	if r.Limit.Period() != 0 {
		w.Resets = w.Resets.Round(time.Minute)
	}
	return w
}

// watched returns the table of a policy, or nil if it is not watched.
func (t *Threshold) watched(policy string) *watched {
	if w := (*t.policies.Load())[policy]; w != nil || !t.all {
		return w
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	policies := *t.policies.Load()
	switch w := policies[policy]; {
	case w != nil:
		return w
	case len(policies) > maxWatched:
		return policies[""]
	}
	policies = maps.Clone(policies)
	policies[policy] = newWatched()
	t.policies.Store(&policies)
	return policies[policy]
}
