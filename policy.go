package ratelimit

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/keyerr"
	"github.com/go-tokenbucket/ratelimit/store"
)

// A Policy is one rule: whose requests are counted together, and how many are allowed. Each key of each
// policy has a token bucket of its own.
type Policy struct {
	// Name tells the policy's buckets from those of others, in the store, in logs and in answers.
	// Required: 1 to 63 letters, digits or any of "-._/:", and no other policy of the same request has it.
	Name string

	// Key finds whom a request counts for. Required, except for Take, Peek, Refund and Reset, which
	// are told the key. If it returns ErrNoKey, or an empty key, the request is answered 403 unless
	// Optional is set. After ErrBadRequest the request is answered 400. After ErrOutage the policy is
	// left out, or with FailClosed the request is answered 503. After any other error the request is
	// answered 503.
	Key KeyFunc

	// Limit is how much each key is allowed. Required, unless LimitFunc never returns the zero Limit. Peek and
	// Reset do not need one.
	Limit Limit

	// LimitFunc, if set, chooses the limit of a request, by the tier of its member for example. It must
	// depend on the key alone: a bucket has one limit at a time. A faster one would refill it, and it is full
	// at the larger burst once it would be full under the faster one and is forgotten. For two kinds of request, such as GET and POST, use two policies. The zero Limit stands for Policy.Limit,
	// Unlimited exempts the request, and a rate of 0, as in PerDay(0), denies it. For another malformed
	// Limit, Policy.Limit applies; without one, or if that is Unlimited, the request is answered 503. A key
	// whose limit changes keeps the tokens it has left, up to the new burst. Take, Peek, Refund, Reset and Wait do not call it.
	LimitFunc func(*http.Request) Limit

	// Cost, if set, is how many tokens a request takes; default 1. A cost of 0 is always allowed. One
	// above the burst never is, nor is a negative one: a request must not refund itself.
	Cost func(*http.Request) int64

	// MaxWait, if above 0, lets requests wait for tokens that are still to come, up to that long, instead of
	// refusing them. Each reserves its tokens as it comes, and so all replicas together let them go on in the
	// order in which they came. With PerSecond(2), which has a burst of 2, and a MaxWait of 3 seconds, of
	// nine requests at once two go on at once, the third after half a second, the next half a second later
	// and so on, the eighth after 3 seconds; the ninth would have to wait for 3.5, so it is refused at once,
	// with a Retry-After of 1. It counts in whole microseconds. Default 0: requests are refused.
	//
	// Under several policies a request waits until all its tokens have come. It is refused at once if its
	// context has a deadline before that, or if Config.MaxWaiting leaves no place for its key, or if its cost is
	// above the burst: then it would wait for ever. A Shadow reserves as if it were enforced, which tells in State.Wait
	// who would wait and for how long, but nobody waits for it.
	//
	// If the client goes away while its request waits, its tokens are given back, and the request is
	// answered 499 for the logs. Those behind it keep their turns, none of which becomes later. Whoever comes
	// next may get a turn in place of one that was given back, and so before others who wait already, but not
	// before the first of those given back (if it costs less, by the time of the difference). In Redis,
	// replicas may refuse for up to a second before they know of what another has given back. Tokens that a
	// stand-in of the store reserved are not given back.
	//
	// net/http notices that a client went away when its request's body has been read, or has none. A waiting
	// request counts against http.Server.WriteTimeout, which must be longer than MaxWait.
	MaxWait time.Duration

	// Settle, if set, says what a request cost once it is answered, for costs that only the response tells:
	// FailedLogins, or the bytes of a download. Response.Written tells a status that was sent from one that was only
	// assumed, because the handler wrote nothing that the limiter could see. Cost is then an estimate that is charged before, and should be
	// at least 1: one of 0 is allowed in debt, too. The difference is charged or given back in one more call of
	// the Store, as soon as the handler has returned or panicked; if it is more, into debt, which has to refill
	// before the next request is allowed. Below 0 is 0. A handler that knows the cost says it by SetCost, and
	// Settle is not asked.
	//
	// Headers tell what was left after the estimate, and so does the Retry-After of a limiter inside that
	// denies; such a denial is a response, too, whose Status is 429. The end of a response that fits into the
	// server's buffer waits for the settling, so that the client's next request finds it settled. If the Store
	// fails by then, the request costs the estimate, and the failure is logged. In Redis, replicas may refuse
	// for up to a second before they know of what another has given back. Only Handler and Limit settle, and
	// no Event tells of it.
	Settle func(*http.Request, Response) int64

	// Optional lets requests through for which Key finds none (ErrNoKey). Other policies still apply to them. It
	// does not pass over ErrBadRequest and other errors.
	Optional bool

	// FailClosed answers 503 when the store fails, or when only a stand-in for it would answer, which then is
	// not charged for the request. Default: a stand-in decides where the Store is a fallback.Store; otherwise
	// the request is let through, and the failure is logged and observed. docs/outages.md shows for each kind
	// of outage what a request sees under either.
	FailClosed bool

	// Shadow measures without effect: the policy is evaluated and charged along with the others and
	// reported in Event and Decision, but denies nothing and appears in no header, unless headers.Shadows is
	// among Config.Headers. If its Key or LimitFunc fails, it is left out, and that is logged. It shares the call of the Store with the others, though, and so its failure.
	Shadow bool

	// Hidden keeps the policy out of what clients read, for a limit that is nobody's quota, such as one for all clients
	// together. The policy decides as any other, and the Retry-After of its denials is sent. But its name and numbers are
	// in no rate limit header and not among the violated-policies of an answer, and X-RateLimit-Waited does not
	// include the time for which a request waited for it. Where only hidden policies apply, there are no rate limit headers. Decision and Event
	// have the Result of the policy, in which Hidden is set.
	Hidden bool
}

// A policy is a Policy made ready to serve.
type policy struct {
	Policy
	limit  store.Limit // of Policy.Limit; zero if that is
	tiers  atomic.Pointer[map[Limit]store.Limit]
	swings *swings // nil: limits are not watched

	at *place // where it is or was in force; nil for a policy of a call
}

func (p *policy) failsClosed() bool { return p.FailClosed && !p.Shadow }

// maxTiers bounds the limits of LimitFunc that are kept compiled. Past it they are compiled each time.
const maxTiers = 64

// compile makes policies ready, or reports everything that is wrong with them, each fault after the field
// of which it is a part. Those that are told their key, as by Take, need no Key.
func compile(field string, policies []Policy, needKey bool) ([]*policy, error) {
	var faults []error
	compiled := make([]*policy, len(policies))
	names := make(map[string]int)
	for i, p := range policies {
		name := field
		if needKey {
			name = fmt.Sprintf("%s[%d]", field, i)
		}
		fault := func(format string, args ...any) {
			faults = append(faults, fmt.Errorf("%s (%q): "+format, append([]any{name, p.Name}, args...)...))
		}
		if !validName(p.Name) {
			fault(`Name: must be 1 to 63 letters, digits or any of "-._/:"`)
		} else if first, taken := names[p.Name]; taken {
			fault("Name: is that of %s[%d]: must differ", field, first)
		} else {
			names[p.Name] = i
		}
		if p.Key == nil && needKey {
			fault("Key: must be set, to RemoteIP() for example")
		}
		if p.MaxWait < 0 {
			fault("MaxWait %v: must not be negative", p.MaxWait)
		}
		compiled[i] = &policy{Policy: p}
		switch {
		case p.Limit == Unlimited:
		case p.Limit != Limit{}:
			limit, err := p.Limit.compile()
			if err != nil {
				fault("Limit: %w", err)
			}
			compiled[i].limit = limit
		case p.LimitFunc == nil || !needKey:
			fault("Limit: must be set, to PerMinute(60) for example")
		}
	}
	return compiled, errors.Join(faults...)
}

func validName(name string) bool {
	if name == "" || len(name) > 63 {
		return false
	}
	for i := range len(name) {
		switch c := name[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case c == '-', c == '.', c == '_', c == '/', c == ':':
		default:
			return false
		}
	}
	return true
}

// limitOf returns the limit that applies to r, which may be Unlimited or have a rate of 0, and the compiled form of
// others. With an error, the limit is Policy.Limit in place of one that is malformed, or none.
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
	limit, err := p.compiled(chosen)
	if err == nil {
		return chosen, limit, nil
	}
	err = keyerr.WithKind("LimitFunc", fmt.Errorf("LimitFunc returned %v: %w", chosen, err))
	if p.Limit == Unlimited { // to exempt the request, a LimitFunc has to say so
		return Limit{}, store.Limit{}, err
	}
	return p.Limit, p.limit, err
}

var errNoLimit error = keyerr.WithKind("LimitFunc", errors.New("LimitFunc returned the zero Limit, and Policy.Limit is not set"))

// compiled returns the compiled form of Policy.Limit, or of a limit of LimitFunc, of which there are few.
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
	p.tiers.CompareAndSwap(known, &more) // if another was quicker, the next request adds it
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
