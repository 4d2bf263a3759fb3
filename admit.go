package ratelimit

import (
	"fmt"
	"net/http"

	"github.com/go-tokenbucket/ratelimit/internal/failure"
)

// Admit limits r inside a handler, by keys that only the handler knows, such as the user name of a login form. It sets
// the rate limit headers, and answers a request that is refused, as [Limiter.Handler] does. If it returns false,
// return:
//
//	if !limiter.Admit(w, r, ratelimit.Charge{Policy: perUser, Key: "user:" + r.PostFormValue("user")}) {
//		return
//	}
//
// Call it once for a request, with all charges: a second call does not know of the first. It waits for up to
// [Policy.MaxWait]. It does not call [Config.Skip] or [Policy.Settle]; for work that costs less, use
// [Limiter.Refund]. [FromContext] does not return its decision. For an empty Key it answers 403, unless the policy is
// Optional or Shadow. For wrong arguments it answers 503 and logs the error.
func (l *Limiter) Admit(w http.ResponseWriter, r *http.Request, charges ...Charge) bool {
	x := newRequestExchange(r.Context(), &l.ofRequests)
	return l.answer(w, r, x, l.admit(&x.exchange, r, charges)) != nil
}

var errNoChargeKey = fmt.Errorf("%w: Admit was called with an empty Key", ErrNoKey)

// admit decides about r under charges, into x.decision.
func (l *Limiter) admit(x *exchange, r *http.Request, charges []Charge) error {
	start := l.start(r, "admit")
	c := calls.Get().(*call)
	defer c.release()
	keyed := make([]Charge, 0, len(charges))
	for _, charge := range charges {
		if charge.Key != "" {
			charge.Policy.MaxWait = waitBound(r.Context(), charge.Policy.MaxWait)
			keyed = append(keyed, charge)
		} else if !charge.Policy.Optional && !charge.Policy.Shadow {
			return l.rejectRequest(x, failure.OfPolicy(charge.Policy.Name, errNoChargeKey), start)
		}
	}
	if len(keyed) > 0 || len(charges) == 0 {
		if err := c.addCharges(keyed); err != nil {
			return l.fail(x, nil, true, 0, fmt.Errorf("ratelimit: Admit: %w", err), start)
		}
	}
	return l.takeCharges(x, c, true, nil, start)
}
