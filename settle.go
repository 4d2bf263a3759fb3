package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

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
// failed login with 200 or a redirect must call SetCost(ctx, policy, 1). See
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
	charges []openCharge
	settled bool
}

// An openCharge is the charge of a request under a policy, and its cost by SetCost.
type openCharge struct {
	policy  *policy
	result  Result // a copy, because handlers see the results, too
	limit   store.Limit
	at      time.Time // of the decision
	costSet bool      // SetCost was called
	cost    int64
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
	for i := range s.charges {
		if c := &s.charges[i]; c.result.Policy == policy && !s.settled {
			c.costSet, c.cost, found = true, n, true
		}
	}
	return found
}

// needAfterwards reports whether one of policies has a Settle, and whether one takes slots.
func needAfterwards(policies []*policy) (settles, slots bool) {
	for _, p := range policies {
		settles = settles || p.Settle != nil
		slots = slots || p.slots
	}
	return settles, slots
}

// serveAndSettle calls next with r, the request of x. Then it settles the charges of policies that have a Settle.
func (l *Limiter) serveAndSettle(w http.ResponseWriter, r *http.Request, x *exchange, policies []*policy, next http.Handler) {
	charges := x.openCharges(policies)
	if len(charges) == 0 {
		next.ServeHTTP(w, r)
		return
	}
	outer, _ := r.Context().Value(settlementKey{}).(*settlement)
	s := &settlement{Context: r.Context(), outer: outer, charges: charges}
	settled := r.WithContext(s)
	var answered interface{ Response() Response }
	if responder, ok := w.(Responder); ok {
		answered = responder
	} else {
		a := new(responseRecorder)
		w, answered = a.wrap(w), a
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

// openCharges returns the charges of policies that are to be settled. A Shadow whose bucket could not pay, or gave no answer,
// was not charged.
func (x *exchange) openCharges(policies []*policy) (charges []openCharge) {
	for _, p := range policies {
		if p.Settle == nil {
			continue
		}
		result := x.charged(p.Name)
		if result == nil || !result.Allowed || !result.Known() {
			continue
		}
		if limit, err := p.compiledFor(result); err == nil { // always, since it was charged
			charges = append(charges, openCharge{policy: p, result: *result, limit: limit, at: x.decision.At})
		}
	}
	return charges
}

// compiledFor returns the limit that r was charged under, compiled. Those of keys must not fill the table of tiers.
func (p *policy) compiledFor(r *Result) (store.Limit, error) {
	if o := p.override(r.Key); o != nil {
		return o.compiled, nil
	}
	return p.compiled(r.Limit)
}

// own returns the results of this limiter's policies. Those of outer limiters come before them.
func (x *exchange) own() []Result {
	if outer := x.outer(); outer != nil && len(x.decision.Results) > 0 {
		return x.decision.Results[len(outer.Results):]
	}
	return x.decision.Results
}

// charged returns the result of this limiter's policy of that name, nil if it did not apply.
func (x *exchange) charged(name string) *Result {
	own := x.own()
	for i := range own {
		if own[i].Policy == name {
			return &own[i]
		}
	}
	return nil
}

// settle charges or refunds the difference between the final cost of a request and what it was charged, in one call of
// the Store. A charge may leave a debt.
func (l *Limiter) settle(s *settlement, r *http.Request, response Response) {
	open := s.close()
	// The cost is the same if the client has left.
	ctx := context.WithoutCancel(r.Context())
	err := errPanicked
	if l.observe != nil {
		begin, estimates := time.Now(), make([]int64, len(open))
		for i := range open {
			estimates[i] = open[i].result.Cost
		}
		defer func() { // also if Settle panics
			results := make([]Result, len(open))
			for i := range open {
				results[i] = open[i].result
			}
			l.observe(ctx, &Event{
				Op:        "settle",
				Allowed:   true,
				Results:   results,
				Estimates: estimates,
				Err:       err,
				Took:      time.Since(begin),
				Route:     l.routeOf(r),
			})
		}()
	}
	err = l.settleCharges(ctx, open, r, response)
}

// errPanicked is the Err of the Event of a request whose Settle panicked.
var errPanicked = errors.New("a Settle panicked: the request costs what it was charged before")

// close ends SetCost, and returns the charges.
func (s *settlement) close() []openCharge {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settled = true
	return s.charges
}

// expired reports whether c was taken from a quota whose period has ended. A refund would go to the next period. But with
// LockFor it may have to end a lock, which goes on.
func (c *openCharge) expired() bool {
	return c.limit.IsQuota() && c.policy.LockFor == 0 && time.Since(c.at) >= c.result.ResetAfter
}

// settleCharges settles open charges. It sets the Cost of each result to the final one, and its Limit and State to those of
// the bucket if that was charged again.
func (l *Limiter) settleCharges(ctx context.Context, open []openCharge, r *http.Request, response Response) error {
	var charges []store.Charge
	var charged []*Result
	var limits []Limit
	failsClosed := false
	for i := range open {
		c := &open[i]
		estimate := c.result.Cost
		if !c.costSet {
			response.Cost = estimate
			c.cost = c.policy.Settle(r, response)
		}
		c.result.Cost = max(0, c.cost)
		if c.result.Cost == estimate || c.result.Cost < estimate && c.expired() {
			continue
		}
		limit, compiled := c.policy.inForce(c.result.Key, c.result.Limit, c.limit)
		charge := store.Charge{
			Policy: c.result.Policy,
			Key:    c.result.Key,
			Limit:  compiled,
			Cost:   c.result.Cost - estimate,
			Shadow: c.result.Shadow,
		}
		if charge.Cost > 0 {
			charge.Owed, charge.Lock = true, c.policy.successor().LockFor
		} else {
			charge.Standby = c.result.Degraded
		}
		charges, charged, limits = append(charges, charge), append(charged, &c.result), append(limits, limit)
		failsClosed = failsClosed || c.policy.failsClosed()
	}
	if len(charges) == 0 {
		return nil
	}
	if failsClosed {
		ctx = store.WithoutStandIn(ctx)
	}
	limited, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	states := make([]store.State, len(charges))
	if _, err := l.store.Take(limited, charges, states); err != nil {
		l.failures.Log(limited, fmt.Errorf("a request was not settled, and costs what it was charged before: %w", err))
		return err
	}
	for i, result := range charged {
		result.Limit, result.State = limits[i], states[i]
	}
	return nil
}
