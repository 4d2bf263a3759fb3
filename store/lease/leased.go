package lease

import (
	"github.com/go-tokenbucket/ratelimit/internal/infer"
	"github.com/go-tokenbucket/ratelimit/store"
)

// leased is the rest of the tokens that one call took from a bucket in the store.
//
// Its Line is what that bucket held after the call. With the leased tokens it would hold more, but never more
// than its capacity. So the tokens lose their worth while the bucket refills: at most what the bucket lacks is
// spent or given back. That holds for the leases of all replicas together. Each is taken from a bucket that lacks
// what the earlier ones hold. So the bucket lacks what all of them hold, and everything that it lacks shrinks
// alike.
type leased struct {
	infer.Line
	instant bool // the clock stood still during the call, so that all is known exactly
	tokens  int64
}

// newLeased returns what is left after c, which cost more than the call needed. The answer of the store was s.
// It returns nil if no bucket can have given this answer.
func newLeased(n name, c *store.Charge, s *store.State, sent, received int64) *leased {
	l := &leased{
		Line:    infer.Line{Policy: n.policy, Key: n.key, Limit: c.Limit, Sent: sent, Received: received},
		instant: sent == received,
	}
	if l.Least, l.Most = infer.Credits(c, s); l.Least > l.Most || received < sent {
		return nil
	}
	return l
}

// spend pays c from l and fills s. It reports whether l has the tokens and is certain of the state.
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

// usable returns how many of unspent tokens may be spent at now: those that the bucket certainly lacks. The bucket
// answered when the call was sent or later. Its clock may run faster by up to 0.1 %, and both clocks were rounded
// to a microsecond.
func (l *leased) usable(unspent, now int64) int64 {
	elapsed := max(0, now-l.Sent)
	lacks := l.Limit.Capacity - l.At(l.Most, elapsed+elapsed/1000+2)
	if unspent*l.Limit.Unit <= lacks {
		return unspent
	}
	return lacks / l.Limit.Unit
}

// certain fills s with the state for c if it leaves that many tokens unspent. It reports whether the state is as
// certain as possible. After a call that took time, times are uncertain by that anyway, and rounding does not
// matter.
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
	c.Fill(s, min(l.Limit.Capacity, credits+left*l.Limit.Unit), 0, true)
}

// refund returns the charge that gives tokens back at now. Only usable tokens are given back. Its Cost is 0 if there are
// none.
func (l *leased) refund(tokens, now int64) store.Charge {
	usable := l.usable(tokens, now)
	if l.instant && usable < tokens {
		// The last one may be worth a part of a token only, of which the store takes as much as it has room
		// for.
		lacks := l.Limit.Capacity - l.At(l.Least, now-l.Received)
		usable = min(tokens, (lacks+l.Limit.Unit-1)/l.Limit.Unit)
	}
	return store.Charge{Policy: l.Policy, Key: l.Key, Limit: l.Limit, Cost: -usable}
}
