package ratelimit

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/configfault"
	"github.com/go-tokenbucket/ratelimit/internal/failure"
	"github.com/go-tokenbucket/ratelimit/internal/policyname"
	"github.com/go-tokenbucket/ratelimit/store"
)

// A Policy is one rule: which requests are counted together, and how many of them are allowed. Each key of each policy
// has its own token bucket. Name, Key and Limit are required, all else is optional.
type Policy struct {
	// Name identifies the policy in the store, in logs and in answers. Required: 1 to 63 ASCII
	// letters, digits or any of "-._/:". No other policy of the same request may have it.
	Name string

	// Key returns the key that a request counts for, such as the client's address. Required for
	// requests; calls that are given a key, such as [Limiter.Take], do not use it. A request without
	// a key is answered 403, see Optional. [KeyFunc] lists what happens after other errors.
	Key KeyFunc

	// Limit is the rate and the burst of each key, a [Quota], or a [Concurrency]. Required, unless
	// LimitFunc never returns the zero Limit. [Limiter.Peek] and [Limiter.Reset] do not need it. A policy
	// with a Concurrency has no Cost, Settle and LockFor. Use it with [Limiter.Handler],
	// [Limiter.Limit] or [Limiter.Acquire].
	Limit Limit

	// LimitFunc, if set, chooses the limit of a request, for example by the member's tier. It may
	// return the zero Limit (use Policy.Limit), [Unlimited] (exempt the request) or a rate of 0, such as
	// PerDay(0) (deny it). Except for Unlimited, it must depend on the key alone: a bucket that is charged
	// under two limits refills at the faster one. It is full after each change between a rate and a
	// [Quota]. It may return a [Concurrency] only if Policy.Limit is one, and then no rate and no Quota.
	// For GET and POST use two policies. Calls without a request ignore it.
	LimitFunc func(*http.Request) Limit

	// Cost, if set, returns how many tokens a request takes. Default 1. A cost of 0 is allowed unless
	// the bucket is blocked. A cost that is negative or above the burst is always denied.
	Cost func(*http.Request) int64

	// MaxWait lets a request wait for its tokens instead of being denied, for at most this long.
	// Requests of all replicas go on in the order in which they came, except under a [Quota]: when its
	// next period begins, all that wait ask again, in no order. For slots of a [Concurrency], the order
	// is exact in each Limiter, and approximate over replicas. [http.Server.WriteTimeout] must be longer
	// than MaxWait. Default 0: requests do not wait; [Limiter.Wait] has no bound. See
	// https://github.com/go-tokenbucket/ratelimit/blob/main/docs/waiting.md.
	MaxWait time.Duration

	// LockFor, if set, locks a bucket when a request leaves less than one token in it. Until LockFor has
	// passed, the bucket allows nothing, although it refills. A refund that leaves one token or more ends
	// the lock: with [FailedLogins], only failed logins lock. It needs a MaxWait of 0. At most 35 years,
	// default 0: buckets are not locked. See
	// https://github.com/go-tokenbucket/ratelimit/blob/main/docs/settling.md.
	LockFor time.Duration

	// Settle, if set, returns the final cost of a request when its response is known, such as
	// [FailedLogins] or the bytes of a download. Cost is charged before, as an estimate. The difference
	// is charged, into debt if need be, or refunded. If the handler called [SetCost], Settle is not
	// called. See https://github.com/go-tokenbucket/ratelimit/blob/main/docs/settling.md.
	Settle func(*http.Request, Response) int64

	// Optional lets requests through for which Key returns [ErrNoKey] or an empty key. Their other
	// policies still apply. It has no effect on other errors, such as [ErrBadRequest].
	Optional bool

	// FailClosed answers 503 when the store fails, also where a stand-in such as a fallback.Store
	// could decide; the stand-in is then not charged. Default: the stand-in decides. Without one, the
	// request is let through, and the failure is logged and observed. For each kind of outage, see
	// https://github.com/go-tokenbucket/ratelimit/blob/main/docs/outages.md.
	FailClosed bool

	// Shadow measures the policy and never denies. It is charged along with the others and reported
	// in [Event] and [Decision], but in no header, except by headers.Shadows. If its Key or LimitFunc
	// fails, it is left out, and the failure is logged. It shares the call of the store with the
	// others: if that fails, it fails for all.
	Shadow bool

	// Hidden keeps the policy's name and numbers out of headers and answers, for limits that are
	// nobody's quota, such as one for all clients together. It is enforced like any other, and its
	// denials have Retry-After. If only hidden policies apply, there are no rate limit headers.
	// [Decision] and [Event] have its Result, with Hidden set.
	Hidden bool
}

// A policy is a compiled Policy.
type policy struct {
	Policy
	limit  store.Limit                           // Policy.Limit compiled; zero if that is zero or Unlimited
	tiers  atomic.Pointer[map[Limit]store.Limit] // limits of LimitFunc, compiled
	swings *limitSwings                          // nil without a LimitFunc
	slots  bool                                  // its limits are concurrency limits

	mount     *mount              // that it is or was in; nil for a policy of a call
	limitFrom string              // where the limit comes from, "" for Policy.Limit of the program's first policies
	program   *policy             // as the program has it, if it is overridden
	keys      map[string]override // of single keys; nil: none
}

func (p *policy) failsClosed() bool { return p.FailClosed && !p.Shadow }

// maxTiers bounds the limits of a LimitFunc that are kept compiled. Further limits are compiled for each request.
const maxTiers = 64

// compile compiles policies, or returns [configfault.Faults] with every field at fault. field is the list or argument that
// they are in. Without needKey, for calls that are given a key, a policy needs no Key.
func compile(field string, policies []Policy, needKey bool) ([]*policy, error) {
	var faults configfault.Faults
	compiled := make([]*policy, len(policies))
	names := make(map[string]int)
	for i, p := range policies {
		at := configfault.Fault{List: field, Index: i, Name: p.Name}
		if !needKey {
			at.Index = -1
		}
		wrong := func(field, value, format string, args ...any) {
			at.Field, at.Value, at.Text = field, value, fmt.Sprintf(format, args...)
			faults = append(faults, at)
		}
		if !policyname.Valid(p.Name) {
			wrong("Name", "", "must be %s", policyname.Rule)
		} else if first, taken := names[p.Name]; taken {
			wrong("Name", "", "%s[%d] has it already: must differ", field, first)
		} else {
			names[p.Name] = i
		}
		if p.Key == nil && needKey {
			wrong("Key", "", "must be set, to RemoteIP() for example")
		}
		if p.MaxWait < 0 {
			wrong("MaxWait", p.MaxWait.String(), "must not be negative")
		}
		if p.LockFor != 0 && (p.LockFor < time.Microsecond || p.LockFor > store.MaxBlock) {
			wrong("LockFor", p.LockFor.String(), "must be from 1µs to %v (35 years), or 0 for no lock", store.MaxBlock)
		}
		if p.LockFor != 0 && p.MaxWait > 0 {
			wrong("LockFor", p.LockFor.String(), "must be 0 where requests wait, because each of them would lock the bucket: set MaxWait to 0, and do not use Wait or WaitAll")
		}
		for _, field := range p.refusedBesideSlots() {
			wrong(field, "", "must not be set beside a concurrency limit, because each request takes one slot: use a policy with a rate for it")
		}
		compiled[i] = &policy{Policy: p, slots: p.Limit.IsConcurrency()}
		switch {
		case p.Limit == Unlimited:
		case p.Limit != Limit{}:
			limit, err := p.Limit.compile()
			if err != nil {
				wrong("Limit", "", "%v", err)
			}
			compiled[i].limit = limit
		case p.LimitFunc == nil || !needKey:
			wrong("Limit", "", "must be set, to PerMinute(60) for example")
		}
	}
	if len(faults) > 0 {
		return compiled, faults
	}
	return compiled, nil
}

// refusedBesideSlots returns the fields that are set and that a concurrency limit refuses.
func (p *Policy) refusedBesideSlots() (fields []string) {
	if !p.Limit.IsConcurrency() {
		return nil
	}
	if p.Cost != nil {
		fields = append(fields, "Cost")
	}
	if p.Settle != nil {
		fields = append(fields, "Settle")
	}
	if p.LockFor != 0 {
		fields = append(fields, "LockFor")
	}
	return fields
}

// validLock reports whether compile accepts LockFor.
func (p *Policy) validLock() bool {
	return p.LockFor == 0 || p.LockFor >= time.Microsecond && p.LockFor <= store.MaxBlock && p.MaxWait == 0
}

// limitOf returns the limit that applies to r, and its compiled form unless it is Unlimited or has a rate of 0. If
// LimitFunc returned a malformed limit, it returns an error beside Policy.Limit, or beside no limit if that is not set
// or Unlimited.
func (p *policy) limitOf(r *http.Request) (Limit, store.Limit, error) {
	if p.LimitFunc == nil {
		return p.Limit, p.limit, nil
	}
	chosen := p.LimitFunc(r)
	switch {
	case chosen == Unlimited:
		return Unlimited, store.Limit{}, nil
	case chosen == Limit{} && p.Limit != Limit{}:
		return p.Limit, p.limit, nil
	case chosen == Limit{}:
		return Limit{}, store.Limit{}, errNoLimit
	case chosen.isZero():
		return chosen, store.Limit{}, nil
	}
	err := p.wrongKind(chosen)
	if err == nil {
		var limit store.Limit
		if limit, err = p.compiled(chosen); err == nil {
			return chosen, limit, nil
		}
	}
	err = failure.WithKind("LimitFunc", fmt.Errorf("LimitFunc returned %v: %w", chosen, err))
	if p.Limit == Unlimited { // only a LimitFunc that returns Unlimited exempts a request
		return Limit{}, store.Limit{}, err
	}
	return p.Limit, p.limit, err
}

// wrongKind returns an error if l is a concurrency limit and those of p are not, or the other way round.
func (p *policy) wrongKind(l Limit) error {
	switch {
	case l.IsConcurrency() == p.slots:
		return nil
	case p.slots:
		return errors.New("must be a Concurrency, as Policy.Limit is")
	}
	return errors.New("must not be a Concurrency, because Policy.Limit is none")
}

// chargeFor returns what p takes from its bucket for r, and under which limit. The charge has no Key if p does not apply: its
// limit is Unlimited, or p is Optional and r has no key. It has no Limit if the rate is 0. malformed is why Policy.Limit
// applies instead of the limit that LimitFunc returned. With look, the charge takes no tokens, and Cost is not called.
func (p *policy) chargeFor(r *http.Request, look bool) (limit Limit, charge store.Charge, malformed, err error) {
	var key string
	var keyErr error
	var compiled store.Limit
	var o *overrideLimit
	if p.keys != nil {
		key, keyErr = keyBy(p.Key, r)
		o = p.override(key)
	}
	if o != nil {
		limit, compiled = o.Limit, o.compiled
	} else if limit, compiled, err = p.limitOf(r); err != nil {
		err = failure.OfPolicy(p.Name, err)
		if limit == (Limit{}) {
			return limit, charge, nil, err
		}
		malformed = fmt.Errorf("%w: Policy.Limit applies instead, %v", err, limit)
	}
	if limit == Unlimited {
		return limit, charge, malformed, nil // also without a key
	}
	if p.keys == nil {
		key, keyErr = keyBy(p.Key, r)
	}
	if keyErr != nil {
		if p.Optional && failure.IsNoKey(keyErr) {
			return limit, charge, malformed, nil
		}
		return limit, charge, malformed, failure.OfPolicy(p.Name, keyErr)
	}
	charge = store.Charge{Policy: p.Name, Key: key, Limit: compiled, Shadow: p.Shadow}
	if !look {
		charge.Cost, charge.MaxWait = p.costOf(r), waitBound(r.Context(), p.MaxWait)
	}
	return limit, charge, malformed, nil
}

var errNoLimit error = failure.WithKind("LimitFunc", errors.New("LimitFunc returned the zero Limit, and Policy.Limit is not set"))

// compiled returns the compiled form of Policy.Limit or of a limit of LimitFunc. It keeps up to maxTiers of them.
func (p *policy) compiled(l Limit) (store.Limit, error) {
	if l == p.Limit && l != (Limit{}) {
		return p.limit, nil
	}
	known := p.tiers.Load()
	if known != nil {
		if limit, ok := (*known)[l]; ok {
			return limit, nil
		}
	}
	limit, err := l.compile()
	if err != nil || known != nil && len(*known) >= maxTiers {
		return limit, err
	}
	more := map[Limit]store.Limit{l: limit}
	if known != nil {
		for l, limit := range *known {
			more[l] = limit
		}
	}
	p.tiers.CompareAndSwap(known, &more) // if another request was faster, the next one adds the limit
	return limit, nil
}

// costOf returns the tokens that r takes.
func (p *policy) costOf(r *http.Request) int64 {
	if p.Cost == nil {
		return 1
	}
	cost := p.Cost(r)
	if cost < 0 {
		return math.MaxInt64 // never allowed
	}
	return cost
}
