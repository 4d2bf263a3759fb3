package ratelimit

import "github.com/go-tokenbucket/ratelimit/store"

// inForce returns the limit for a charge or refund that is made some time after p was charged under charged: after a
// wait, or when the request is settled. A Reload meanwhile may have put another policy of that name in place of p. The
// old limit would refill the bucket at the old rate, or cut it to the old burst.
//
// A tier, which LimitFunc chose, keeps its limit as long as there is a LimitFunc.
func (p *policy) inForce(charged store.Limit) store.Limit {
	now := p.successor()
	tier := charged != p.limit && now.LimitFunc != nil
	if now == p || tier || now.limit == (store.Limit{}) {
		return charged
	}
	return now.limit
}

// successor returns the policy of p's name that is in force, and p if Reload has taken it out or does not replace it.
func (p *policy) successor() *policy {
	if p.replaceable == nil {
		return p
	}
	for _, now := range *p.replaceable.Load() {
		if now.Name == p.Name {
			return now
		}
	}
	return p
}
