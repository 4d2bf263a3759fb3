package lease

import (
	"github.com/go-tokenbucket/ratelimit/internal/infer"
	"github.com/go-tokenbucket/ratelimit/store"
)

// leased is the rest of the tokens that one call took from a bucket in the store.
//
// Its Content is what the bucket held after the call. The lease may spend or give back only as many tokens as the bucket lacks,
// because a bucket never holds more than its capacity. So tokens of a lease are lost while the bucket refills. For example, a
// bucket of 10 tokens, and 1 more each second, holds 8, and the lease has 2. A second later the bucket holds 9, and 1 token of
// the lease is lost.
//
// This is right for the leases of all replicas together. Each lease is taken from a bucket that lacks the tokens of the earlier
// leases. So the bucket lacks the tokens of all leases, and a refill takes the same part of each.
type leased struct {
	infer.Content
	instant bool // the clock stood still during the call, so that the Content is exact
	tokens  int64
}

// newLeased returns a lease for the tokens that c took beyond the need of its call. The store has answered s. If no bucket can
// have given that answer, newLeased returns nil.
func newLeased(n name, c *store.Charge, s *store.State, sent, received int64) *leased {
	l := &leased{
		Content: infer.Content{Policy: n.policy, Key: n.key, Limit: c.Limit, Sent: sent, Received: received},
		instant: sent == received,
	}
	if l.Least, l.Most = infer.Credits(c, s); l.Least > l.Most || received < sent {
		return nil
	}
	return l
}

// spend pays c from l and fills s. It reports false, and pays nothing, if l has too few tokens or s would be uncertain.
func (l *leased) spend(of *Store, c *store.Charge, now int64, s *store.State) bool {
	if l == nil || l.tokens < c.Cost || now < l.Received || now-l.Sent > of.hold.Microseconds() {
		return false
	}
	usable := l.usable(l.tokens, now)
	if usable < c.Cost || l.instant && usable < l.tokens || !l.certain(c, usable-c.Cost, now, s) {
		return false
	}
	of.lost += l.tokens - usable
	l.tokens = usable - c.Cost
	return true
}

// usable returns how many of the unspent tokens may be spent at now: as many as the bucket certainly lacks. The bucket
// answered when the call was sent or later. Its clock may run faster by up to 0.1 %, and both clocks were rounded to a
// microsecond.
func (l *leased) usable(unspent, now int64) int64 {
	elapsed := max(0, now-l.Sent)
	lacks := l.Limit.Capacity - l.At(l.Most, elapsed+elapsed/1000+2)
	if unspent*l.Limit.Unit <= lacks {
		return unspent
	}
	return lacks / l.Limit.Unit
}

// certain fills s with the state for c if left tokens stay unspent. It reports whether s is certain. After a call that took
// time, the times in s are uncertain by as much, and certain reports true.
func (l *leased) certain(c *store.Charge, left, now int64, s *store.State) bool {
	elapsed := now - l.Received
	l.fill(s, c, l.At(l.Least, elapsed), left)
	if !l.instant || l.Least == l.Most {
		return true
	}
	var most store.State
	l.fill(&most, c, l.At(l.Most, elapsed), left)
	return *s == most
}

func (l *leased) fill(s *store.State, c *store.Charge, credits, left int64) {
	c.Fill(s, min(l.Limit.Capacity, credits+left*l.Limit.Unit), 0, 0, true)
}

// refund returns the charge that gives tokens back at now. It gives back only usable tokens. Its Cost is 0 if there are
// none.
func (l *leased) refund(tokens, now int64) store.Charge {
	usable := l.usable(tokens, now)
	if l.instant && usable < tokens {
		// The last token may be worth only a part. The store takes as much of it as the bucket has room for.
		lacks := l.Limit.Capacity - l.At(l.Least, now-l.Received)
		usable = min(tokens, (lacks+l.Limit.Unit-1)/l.Limit.Unit)
	}
	return store.Charge{Policy: l.Policy, Key: l.Key, Limit: l.Limit, Cost: -usable}
}
