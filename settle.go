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

// SetCost says what the request that ctx belongs to costs in the end under the policy of that name, in tokens, in
// place of what the policy's Settle would say: for handlers that know more than their response shows, such as
// the tokens of a language model.
//
//	ratelimit.SetCost(r.Context(), "llm", usage.TotalTokens)
//
// The last call before the handler returns counts. Below 0 is 0. SetCost reports false if there is nothing to
// settle: no policy of that name with a Settle was charged for the request, or it is settled already.
func SetCost(ctx context.Context, policy string, n int64) bool {
	s, _ := ctx.Value(settlementKey{}).(*settlement)
	found := false
	for ; s != nil; s = s.outer {
		found = s.set(policy, n) || found
	}
	return found
}

// FailedLogins is a Settle under which a successful response costs nothing, and any other what was charged. With
// PerHour(3), a fourth guess after three wrong ones is denied, and users who know their password are never locked out:
//
//	ratelimit.Policy{Name: "login", Key: ratelimit.RemoteIP(), Limit: ratelimit.PerHour(3), Settle: ratelimit.FailedLogins}
//
// A response is successful if the handler wrote a status from 200 to 399 to the http.ResponseWriter of the limiter,
// and returned. A request also counts if its client hung up before, if its handler panicked or wrote nothing, or if a
// framework writes its error later. A handler that succeeds and does not write to that writer must call
// SetCost(ctx, policy, 0). One that answers a failed login with 200 or a redirect must call SetCost(ctx, policy, 1).
//
// Requests are charged before the handler runs, so parallel guesses are no more than the policy has tokens for.
func FailedLogins(_ *http.Request, response Response) int64 {
	succeeded := response.Written && response.Status >= 200 && response.Status < 400
	if succeeded && !response.Panicked && !response.Hijacked {
		return 0
	}
	return response.Cost
}

type settlementKey struct{}

// A settlement is what is still to be settled of a request. It is the context that the request goes on with.
type settlement struct {
	context.Context
	outer *settlement // that of a limiter around this one

	mu      sync.Mutex
	bills   []bill
	settled bool
}

// A bill is what a request was charged under a policy, and what it costs by SetCost.
type bill struct {
	policy *policy
	charge store.Charge
	said   bool
	cost   int64
}

func (s *settlement) Value(key any) any {
	if key == (settlementKey{}) {
		return s
	}
	return s.Context.Value(key)
}

// String names the chain of contexts and nothing that they hold.
func (s *settlement) String() string { return deadline.Name(s.Context) + ".WithSettlement" }

// Format prints String, whatever the verb.
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

// settles reports whether one of policies does.
func settles(policies []*policy) bool {
	for _, p := range policies {
		if p.Settle != nil {
			return true
		}
	}
	return false
}

// serveAndSettle has next answer r, about which x is, and then settles what those of policies that settle have charged.
func (l *Limiter) serveAndSettle(w http.ResponseWriter, r *http.Request, x *exchange, policies []*policy, next http.Handler) {
	bills := x.bills(policies)
	if len(bills) == 0 {
		next.ServeHTTP(w, r)
		return
	}
	outer, _ := r.Context().Value(settlementKey{}).(*settlement)
	s := &settlement{Context: r.Context(), outer: outer, bills: bills}
	settled := r.WithContext(s)
	a := new(watched)
	defer func() { // also if next panics
		returnLearned(r, settled)
		l.settle(s, settled, a.response(settled))
	}()
	next.ServeHTTP(a.watch(w), settled)
	a.returned = true
}

// bills returns what is to be settled of what policies have charged. It is copied, since handlers see the
// results, too. A Shadow whose bucket could not pay, or was not asked, was not charged.
func (x *exchange) bills(policies []*policy) (bills []bill) {
	for _, p := range policies {
		if p.Settle == nil {
			continue
		}
		result := x.charged(p.Name)
		if result == nil || !result.Allowed || !result.Known() {
			continue
		}
		if limit, err := p.compiled(result.Limit); err == nil { // or it could not have been charged
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

// charged returns what this limiter's policy of that name said, nil if it did not apply. Results of limiters
// around this one come before it.
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

// settle charges the difference between what the request was charged and what it costs, in one call of the
// Store: more as a debt if need be, less as a refund.
func (l *Limiter) settle(s *settlement, r *http.Request, response Response) {
	charges, failsClosed := s.charges(r, response)
	if len(charges) == 0 {
		return
	}
	// The client may be gone, which changes nothing about what the request cost.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), l.timeout)
	defer cancel()
	if failsClosed {
		ctx = store.WithoutStandIn(ctx)
	}
	if _, err := l.store.Take(ctx, charges, make([]store.State, len(charges))); err != nil {
		l.failures.Log(ctx, fmt.Errorf("a request was not settled, and costs what it was charged before: %w", err))
	}
}

// charges closes s and returns what it takes to settle it.
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
			charge.Owed = charge.Cost > 0
			charges = append(charges, charge)
			failsClosed = failsClosed || b.policy.failsClosed()
		}
	}
	return charges, failsClosed
}
