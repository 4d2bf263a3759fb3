package ratelimit

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"

	"github.com/go-tokenbucket/ratelimit/internal/deadline"
	"github.com/go-tokenbucket/ratelimit/store"
)

// SetCost sets the final cost of a request under a policy with [Policy.Settle], which is then not called. Use it in
// handlers that know the cost, such as the tokens of a language model. ctx is the request's context, n is in tokens.
//
//	ratelimit.SetCost(r.Context(), "llm", usage.TotalTokens)
//
// The last call before the handler returns counts. n below 0 counts as 0. SetCost returns false if no policy of that
// name with a Settle was charged for the request, or if the request is settled already.
func SetCost(ctx context.Context, policy string, n int64) bool {
	s, _ := ctx.Value(settlementKey{}).(*settlement)
	found := false
	for ; s != nil; s = s.outer {
		found = s.set(policy, n) || found
	}
	return found
}

// FailedLogins is a [Policy.Settle] that refunds requests with a successful response. Only failed ones then count:
//
//	login := ratelimit.Policy{Name: "login", Key: ratelimit.RemoteIP(), Settle: ratelimit.FailedLogins,
//		Limit: ratelimit.Every(15 * time.Minute).WithBurst(5)} // five failures at once, then one in 15 minutes
//
// A response is successful if the handler wrote a status from 200 to 399 to the limiter's [http.ResponseWriter] and
// returned. A handler that succeeds without writing must call SetCost(ctx, policy, 0). A handler that answers a
// failed login with 200 or a redirect must call SetCost(ctx, policy, 1). A request holds its tokens until the handler
// has returned: parallel guesses do not exceed the limit, and parallel logins above the burst are denied. See
// https://github.com/go-tokenbucket/ratelimit/blob/main/docs/settling.md.
func FailedLogins(_ *http.Request, response Response) int64 {
	succeeded := response.Written && response.Status >= 200 && response.Status < 400
	if succeeded && !response.Panicked && !response.Hijacked {
		return 0
	}
	return response.Cost
}

type settlementKey struct{}

// A settlement holds the charges of a request that are still to be settled. It is the context of the request from then
// on.
type settlement struct {
	context.Context
	outer *settlement // of the limiter around this one

	mu      sync.Mutex
	bills   []bill
	settled bool
}

// A bill is the charge of a request under a policy, and its cost by SetCost.
type bill struct {
	policy *policy
	charge store.Charge
	said   bool // SetCost was called
	cost   int64
}

func (s *settlement) Value(key any) any {
	if key == (settlementKey{}) {
		return s
	}
	return s.Context.Value(key)
}

// String returns the names of the chain of contexts, without their values.
func (s *settlement) String() string { return deadline.Name(s.Context) + ".WithSettlement" }

// Format prints String for each verb.
func (s *settlement) Format(f fmt.State, _ rune) { io.WriteString(f, s.String()) }

func (s *settlement) set(policy string, n int64) (found bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.bills {
		if b := &s.bills[i]; b.charge.Policy == policy && !s.settled {
			b.said, b.cost, found = true, n, true
		}
	}
	return found
}

// settles reports whether one of policies has a Settle.
func settles(policies []*policy) bool {
	for _, p := range policies {
		if p.Settle != nil {
			return true
		}
	}
	return false
}

// serveAndSettle calls next with r, the request of x. Then it settles the charges of policies that have a Settle.
func (l *Limiter) serveAndSettle(w http.ResponseWriter, r *http.Request, x *exchange, policies []*policy, next http.Handler) {
	bills := x.bills(policies)
	if len(bills) == 0 {
		next.ServeHTTP(w, r)
		return
	}
	outer, _ := r.Context().Value(settlementKey{}).(*settlement)
	s := &settlement{Context: r.Context(), outer: outer, bills: bills}
	settled := r.WithContext(s)
	var answered interface{ Response() Response }
	if responder, ok := w.(Responder); ok {
		answered = responder
	} else {
		a := new(watched)
		w, answered = a.watch(w), a
	}
	response, returned := Response{Panicked: true}, false
	defer func() { l.settle(s, settled, response) }() // also if Response panics, which may call an error handler
	defer func() {                                    // also if next panics
		returnLearned(r, settled)
		response = answered.Response()
		response.complete(settled, !returned)
	}()
	next.ServeHTTP(w, settled)
	returned = true
}

// bills returns the charges of policies that are to be settled. They are copies, because handlers see the results, too.
// A Shadow whose bucket could not pay, or gave no answer, was not charged.
func (x *exchange) bills(policies []*policy) (bills []bill) {
	for _, p := range policies {
		if p.Settle == nil {
			continue
		}
		result := x.charged(p.Name)
		if result == nil || !result.Allowed || !result.Known() {
			continue
		}
		if limit, err := p.compiled(result.Limit); err == nil { // always, since it was charged
			bills = append(bills, bill{policy: p, charge: store.Charge{
				Policy: result.Policy,
				Key:    result.Key,
				Limit:  limit,
				Cost:   result.Cost,
				Shadow: result.Shadow,
			}})
		}
	}
	return bills
}

// charged returns the result of this limiter's policy of that name, nil if it did not apply. Results of outer limiters
// come before it.
func (x *exchange) charged(name string) *Result {
	outer := 0
	if d := x.outer(); d != nil {
		outer = len(d.Results)
	}
	for i := outer; i < len(x.decision.Results); i++ {
		if r := &x.decision.Results[i]; r.Policy == name {
			return r
		}
	}
	return nil
}

// settle charges or refunds the difference between the final cost of a request and what it was charged, in one call of
// the Store. A charge may leave a debt.
func (l *Limiter) settle(s *settlement, r *http.Request, response Response) {
	charges, failsClosed := s.charges(r, response)
	if len(charges) == 0 {
		return
	}
	// The cost is the same if the client has left.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), l.timeout)
	defer cancel()
	if failsClosed {
		ctx = store.WithoutStandIn(ctx)
	}
	if _, err := l.store.Take(ctx, charges, make([]store.State, len(charges))); err != nil {
		l.failures.Log(ctx, fmt.Errorf("a request was not settled, and costs what it was charged before: %w", err))
	}
}

// charges closes s and returns the charges that settle it.
func (s *settlement) charges(r *http.Request, response Response) (charges []store.Charge, failsClosed bool) {
	s.mu.Lock()
	s.settled = true
	bills := s.bills
	s.mu.Unlock()
	for _, b := range bills {
		response.Cost = b.charge.Cost
		if !b.said {
			b.cost = b.policy.Settle(r, response)
		}
		charge := b.charge
		charge.Limit = b.policy.inForce(charge.Limit)
		charge.Cost = max(0, b.cost) - b.charge.Cost
		if charge.Cost != 0 {
			if charge.Owed = charge.Cost > 0; charge.Owed {
				charge.Block = b.policy.LockFor
			}
			charges = append(charges, charge)
			failsClosed = failsClosed || b.policy.failsClosed()
		}
	}
	return charges, failsClosed
}
