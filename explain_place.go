package ratelimit

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"

	"github.com/go-tokenbucket/ratelimit/explain"
	"github.com/go-tokenbucket/ratelimit/internal/dryrun"
	"github.com/go-tokenbucket/ratelimit/internal/failurelog"
	"github.com/go-tokenbucket/ratelimit/internal/keyerr"
	"github.com/go-tokenbucket/ratelimit/store"
)

// A dryPlace is a place of the Limiter that the explained request has met, and what was decided there.
type dryPlace struct {
	explain.Limiter
	policies []*dryPolicy
	looked   bool
	event    *Event // nil: not decided
	trace    *dryrun.Run
	x        *exchange
}

// A dryPolicy is a policy of a dryPlace, and what it makes of the request.
type dryPolicy struct {
	explain.Policy
	of     *policy
	asked  bool
	chosen *Limit // that LimitFunc returned
	err    error  // of a function of the policy
}

// pass sends r through a place, and to next if it goes on.
func (run *dryRun) pass(w http.ResponseWriter, r *http.Request, at *place, next http.Handler) {
	here := &dryPlace{trace: run.trace, Limiter: explain.Limiter{Mounted: "Limit", Pattern: run.note(r)}}
	if at == &run.of.places.list {
		here.Mounted = "Handler"
	}
	run.met = append(run.met, here)
	l := run.limiter(here)
	dry := new(place)
	var policies []*policy
	for _, p := range at.policies() {
		policies = append(policies, here.copyOf(p))
	}
	dry.now.Store(&policies)
	l.wrap(dry, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		here.Allowed = true
		next.ServeHTTP(w, r)
	})).ServeHTTP(w, r)
}

// limiter returns a Limiter that decides as the explained one, and writes nothing.
func (run *dryRun) limiter(here *dryPlace) *Limiter {
	l := run.of
	quiet := slog.New(slog.DiscardHandler)
	dry := &Limiter{
		store:    lookFirst{run.store, here},
		headers:  l.headers,
		deny:     l.deny,
		refuse:   l.refuse,
		timeout:  l.timeout,
		waiting:  run.waiting,
		observe:  run.decided(here),
		failures: failurelog.Log{Logger: quiet},
		refusals: failurelog.Log{Logger: quiet},
		run:      run,

		ofCalls:    l.ofCalls,
		ofRequests: l.ofRequests,
	}
	if l.skip != nil {
		dry.skip = func(r *http.Request) bool {
			here.Skipped = l.skip(r)
			return here.Skipped
		}
	}
	return dry
}

// copyOf returns a policy that decides as p. It is not settled, and its limits are not watched.
func (here *dryPlace) copyOf(p *policy) *policy {
	as := &dryPolicy{of: p}
	here.policies = append(here.policies, as)
	dry := &policy{Policy: p.Policy, limit: p.limit}
	dry.Settle = nil
	if p.LimitFunc != nil {
		dry.LimitFunc = func(r *http.Request) Limit {
			limit := p.LimitFunc(r)
			as.chosen = &limit
			return limit
		}
	}
	return dry
}

func (here *dryPlace) policy(name string) *dryPolicy {
	return here.policies[slices.IndexFunc(here.policies, func(p *dryPolicy) bool { return p.of.Name == name })]
}

// keyed notes how the key of p was looked for.
func (run *dryRun) keyed(p *policy) {
	run.met[len(run.met)-1].policy(p.Name).Found = run.trace.Took()
}

// added notes what p adds to c, or why it adds nothing.
func (run *dryRun) added(p *policy, c *call, err error) {
	as := run.met[len(run.met)-1].policy(p.Name)
	as.asked, as.err = true, err
	for i := range c.charges {
		if charge := &c.charges[i]; charge.Policy == p.Name {
			as.Key, as.Cost = charge.Key, charge.Cost
		}
	}
	for i := range c.barred {
		if r := &c.barred[i].result; r.Policy == p.Name {
			as.Key, as.Cost = r.Key, r.Cost
		}
	}
}

// decided returns the observer of a place. The time that the request waits there passes for the places behind it.
func (run *dryRun) decided(here *dryPlace) func(context.Context, *Event) {
	return func(x context.Context, event *Event) {
		here.x, _ = x.(*exchange)
		here.event = event
		run.store.Pass(event.Waited)
		run.waited.Add(int64(event.Waited))
	}
}

// A lookFirst looks at the buckets of a place before it charges them.
type lookFirst struct {
	store.Store
	here *dryPlace
}

func (s lookFirst) Take(ctx context.Context, charges []store.Charge, states []store.State) (bool, error) {
	if !s.here.looked {
		s.here.looked = true
		looks := slices.Clone(charges)
		for i := range looks {
			looks[i].Cost, looks[i].MaxWait, looks[i].Block = 0, 0, 0
		}
		before := make([]store.State, len(looks))
		if _, err := s.Store.Take(ctx, looks, before); err == nil {
			for i := range looks {
				s.here.policy(looks[i].Policy).Before = &before[i]
			}
		}
	}
	return s.Store.Take(ctx, charges, states)
}

// explained returns what came out at a place.
func (here *dryPlace) explained() explain.Limiter {
	l := here.Limiter
	if event := here.event; event != nil && event.Err != nil && l.Err == "" && (len(event.Results) == 0 || !event.Allowed && len(event.Denied()) == 0) {
		l.Err = here.trace.Text(event.Err, maxExplained)
	}
	l.Policies = []explain.Policy{}
	for _, p := range here.policies {
		here.judge(p)
		l.Policies = append(l.Policies, p.Policy)
	}
	return l
}

// judge completes a policy from the decision.
func (here *dryPlace) judge(p *dryPolicy) {
	of := p.of
	p.Name, p.Shadow, p.Hidden, p.Optional, p.FailClosed = of.Name, of.Shadow, of.Hidden, of.Optional, of.FailClosed
	limit, from := of.Limit, cmp.Or(of.from, "Policy.Limit")
	switch malformed := of.LimitFunc != nil && p.chosen != nil && !valid(*p.chosen); {
	case of.LimitFunc == nil:
	case p.chosen == nil:
		limit, from = Limit{}, ""
	case *p.chosen == Limit{}:
		from += ": LimitFunc returned the zero Limit"
	case malformed:
		from += fmt.Sprintf(": LimitFunc returned %v, which is malformed", *p.chosen)
	default:
		limit, from = *p.chosen, "LimitFunc"
	}
	if limit != (Limit{}) {
		p.Limit, p.LimitWhy = limit.String(), from
	}
	if r := here.result(of.Name); r != nil {
		if p.Before != nil {
			p.After = &r.State
		}
		p.Outcome, p.Why = here.outcome(p, r)
		return
	}
	if here.Skipped {
		p.Outcome, p.Why = explain.LeftOut, "Config.Skip exempts the request"
		return
	}
	why := func() string {
		return strings.TrimPrefix(here.trace.Text(p.err, maxExplained), "policy "+of.Name+": ")
	}
	allowed := here.event != nil && here.event.Allowed
	switch {
	case p.err != nil && (allowed || of.Shadow):
		p.Outcome, p.Why = explain.LeftOut, why()
	case p.err != nil && keyerr.IsNoKey(p.err):
		p.Outcome, p.Why = explain.NoKey, why()
	case p.err != nil && isClients(p.err):
		p.Outcome, p.Why = explain.BadRequest, why()
	case p.err != nil && here.x != nil && !of.refuses(here.x, p.err):
		p.Outcome, p.Why = explain.LeftOut, why()
	case p.err != nil:
		p.Outcome, p.Why = explain.Failed, why()
	case !p.asked:
		p.Outcome, p.Why = explain.NotCharged, "the request is refused before this policy is asked"
	case limit == Unlimited:
		p.Outcome, p.Why = explain.Exempt, from+" is Unlimited"
		if from == "LimitFunc" {
			p.Why = "LimitFunc returned Unlimited"
		}
	case p.Key == "": // Optional
		p.Outcome, p.Why = explain.LeftOut, "the request has no key, and the policy is Optional"
	case here.event == nil:
		p.Outcome, p.Why = explain.Failed, here.Err
	case len(here.event.Results) > 0 || here.event.Err == nil:
		p.Outcome, p.Why = explain.NotCharged, here.refusers()
	case isClients(here.event.Err):
		p.Outcome, p.Why = explain.NotCharged, here.trace.Text(here.event.Err, maxExplained)
	case allowed:
		p.Outcome, p.Why = explain.LeftOut, here.trace.Text(here.event.Err, maxExplained)
	default:
		p.Outcome, p.Why = explain.Failed, here.trace.Text(here.event.Err, maxExplained)
	}
}

func valid(l Limit) bool {
	_, err := l.compile()
	return err == nil || l.isZero() || l == Unlimited
}

// result returns the result of a policy, nil if there is none.
func (here *dryPlace) result(policy string) *Result {
	if here.event == nil {
		return nil
	}
	for i := range here.event.Results {
		if r := &here.event.Results[i]; r.Policy == policy {
			return r
		}
	}
	return nil
}

// refusers says which policies deny the request.
func (here *dryPlace) refusers() string {
	if names := here.event.Denied(); len(names) > 0 {
		return "denied by " + strings.Join(names, ", ")
	}
	if here.event.Err != nil {
		return here.trace.Text(here.event.Err, maxExplained)
	}
	return "the request is refused"
}

// outcome returns what r says, and why.
func (here *dryPlace) outcome(p *dryPolicy, r *Result) (outcome, why string) {
	switch {
	case r.Allowed && !here.event.Allowed:
		return explain.NotCharged, here.refusers()
	case r.Allowed && r.Cost == 0:
		return explain.Allowed, "the request takes no tokens"
	case r.Allowed && !r.Known():
		return explain.Allowed, "a stand-in for the store decides, and does not know the tokens"
	case r.Allowed && r.Wait > 0:
		return explain.Allowed, fmt.Sprintf("the request waits %v for its tokens", r.Wait)
	case r.Allowed && p.Before != nil:
		return explain.Allowed, fmt.Sprintf("the request takes %d of %d tokens", r.Cost, p.Before.Remaining)
	case r.Allowed:
		return explain.Allowed, fmt.Sprintf("the request takes %d, and %d tokens are left", r.Cost, r.Remaining)
	}
	outcome = explain.Denied
	if r.Shadow {
		outcome = explain.WouldDeny
	}
	switch maxWait := p.of.MaxWait; {
	case r.Limit.isZero():
		why = "the rate is 0"
	case r.Blocked:
		why = fmt.Sprintf("the bucket is blocked for %v", r.RetryAfter)
	case r.RetryAfter == Never:
		why = fmt.Sprintf("the cost is negative or above the burst of %d", r.Limit.burst())
	case maxWait > 0 && r.RetryAfter <= maxWait:
		why = fmt.Sprintf("the request would have to wait %v, and there is no place to wait (Config.MaxWaiting), or its deadline is earlier", r.RetryAfter)
	case maxWait > 0:
		why = fmt.Sprintf("the tokens come %v after MaxWait, which is %v", r.RetryAfter, maxWait)
	default:
		why = fmt.Sprintf("the request takes %d of %d tokens: enough in %v", r.Cost, r.Remaining, r.RetryAfter)
	}
	return outcome, why
}
