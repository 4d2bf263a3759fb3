package storetest

import (
	"math/big"
	"time"

	"github.com/go-tokenbucket/ratelimit/store"
)

const (
	deepest = 1 << 52 // the deepest debt, in credits below zero
	longest = store.MaxBlock
)

type name struct{ policy, key string }

// rationals implements the same contract in exact fractions of a token. It follows the text of package store and not
// the code of internal/bucket.
type rationals map[name]exact

type exact struct {
	tokens *big.Rat
	last   int64
	limit  store.Limit
	ends   int64 // the period of a quota
	hold   int64 // not forgotten before, because of its other limits
	since  int64 // of the block
	until  int64 // blocked until then
	lock   bool  // by a lock
	reason string
}

// forgettable reports whether a Store may forget the bucket.
func (m rationals) forgettable(n name, now int64) bool {
	e := m[n]
	full := e.limit == store.Limit{} || m.at(store.Charge{Policy: n.policy, Key: n.key, Limit: e.limit}, now).tokens.Cmp(rat(burst(e.limit))) == 0
	return full && e.until <= now && e.hold <= now
}

func (m rationals) block(n name, b store.Block, now int64) {
	e := m[n]
	e.since, e.until, e.lock, e.reason = 0, 0, false, ""
	if b.For > 0 {
		e.since, e.until, e.reason = now, now+roundedUp(b.For), b.Reason
	}
	if m[n] = e; e == (exact{}) {
		delete(m, n)
	}
}

func (m rationals) take(charges []store.Charge, now int64) (bool, []store.State) {
	ok := true
	fits := make([]bool, len(charges))
	for i, c := range charges {
		e := m.at(c, now)
		pays := retryAfter(c, e.tokens).Sign() <= 0 && c.Cost <= burst(c.Limit) && (c.Cost <= 0 || e.until <= now)
		fits[i] = c.Owed || c.Settles || pays
		ok = ok && (fits[i] || c.Shadow)
	}
	states := make([]store.State, len(charges))
	for i, c := range charges {
		lost := ok && releases(c) && m.at(c, now).held() < -c.Cost
		e := m.charge(c, ok && fits[i], now)
		switch {
		case c.Limit.IsQuota():
			states[i] = e.state(c, now, ok && fits[i], fits[i])
		case c.Limit.IsConcurrency():
			states[i] = e.slotState(c, fits[i], lost)
		default:
			states[i] = state(c, e.tokens, ok && fits[i], fits[i])
		}
		if left := time.Duration(e.until-now) * micro; left > 0 {
			s := &states[i]
			s.Blocked, s.Remaining = true, 0
			s.RetryAfter, s.ResetAfter = max(s.RetryAfter, left), max(s.ResetAfter, left)
		}
	}
	return ok, states
}

// charge charges c if charged says so, and returns the bucket at now.
func (m rationals) charge(c store.Charge, charged bool, now int64) exact {
	n := name{c.Policy, c.Key}
	old := m[n]
	e := m.at(c, now)
	if old.limit != (store.Limit{}) && kind(old.limit) != kind(c.Limit) && c.Cost != store.Reset && (c.Cost < 0 || c.Cost > 0 && (c.Owed || c.Settles)) {
		return e // it was taken before the limit changed
	}
	changes := old.limit != (store.Limit{}) && old.limit != c.Limit && c.Cost != 0 && c.Cost != store.Reset
	switch {
	case charged && c.Cost == store.Reset && old.held() > 0:
		m.block(n, store.Block{}, now)
		return m.at(c, now)
	case charged && c.Cost == store.Reset:
		delete(m, n)
		return m.at(c, now)
	case charged && c.Cost != 0:
		least := deepestDebt(c.Limit)
		if c.Settles {
			least = clamp(e.tokens, least, rat(0))
		}
		left := clamp(new(big.Rat).Sub(e.tokens, rat(c.Cost)), least, rat(burst(c.Limit)))
		changes = changes || left.Cmp(e.tokens) != 0
		e.tokens = left
		e.lockOrUnlock(c, now)
		switch {
		case e.until == old.until || changes:
		case c.Limit.IsQuota():
			changes = true
		default:
			old.since, old.until, old.lock, old.reason = e.since, e.until, e.lock, e.reason
			m[n] = old
		}
	}
	if changes {
		m[n] = e
	}
	return e
}

// lockOrUnlock does what a charge that is carried out does to a lock.
func (e *exact) lockOrUnlock(c store.Charge, now int64) {
	hasToken, blocked := e.tokens.Cmp(rat(1)) >= 0, e.until > now
	switch {
	case blocked && e.lock && c.Cost < 0 && hasToken:
		e.since, e.until, e.lock = 0, 0, false
	case !blocked && c.Lock > 0 && !hasToken:
		e.since, e.until, e.lock, e.reason = now, now+roundedUp(c.Lock), true, ""
	}
}

// at returns c's bucket at now, under its limit.
func (m rationals) at(c store.Charge, now int64) exact {
	full := rat(burst(c.Limit))
	e := m[name{c.Policy, c.Key}]
	if e.limit == (store.Limit{}) {
		if e.tokens, e.last, e.limit = full, now, c.Limit; c.Limit.IsQuota() {
			e.ends = periodEnd(c.Limit.Period, now)
		}
		return e
	}
	if e.limit.IsConcurrency() || c.Limit.IsConcurrency() {
		return e.underSlots(c.Limit, now)
	}
	if e.limit.IsQuota() || c.Limit.IsQuota() {
		return e.underQuota(c.Limit, now)
	}
	if e.limit != c.Limit {
		e.hold = max(e.hold, e.last+after(e.limit, rat(burst(e.limit)), e.tokens).Microseconds())
	}
	if e.limit.Unit != c.Limit.Unit {
		// What carries over is rounded down to a credit.
		credits := new(big.Rat).Mul(e.tokens, rat(c.Limit.Unit))
		e.tokens = new(big.Rat).Quo(new(big.Rat).SetInt(floor(credits)), rat(c.Limit.Unit))
	}
	e.limit, e.tokens = c.Limit, clamp(e.tokens, deepestDebt(c.Limit), full)
	if now > e.last {
		added := new(big.Rat).Mul(rat(now-e.last), perMicrosecond(c.Limit))
		e.tokens, e.last = clamp(added.Add(e.tokens, added), e.tokens, full), now
	}
	return e
}

func state(c store.Charge, tokens *big.Rat, charged, fits bool) store.State {
	s := store.State{Allowed: fits}
	if tokens.Sign() > 0 {
		s.Remaining = floor(tokens).Int64()
	}
	s.ResetAfter = after(c.Limit, rat(burst(c.Limit)), tokens)
	if charged && c.Cost > 0 && !c.Settles {
		s.Wait = max(0, after(c.Limit, rat(0), tokens))
	}
	if !fits && c.Cost > burst(c.Limit) {
		s.RetryAfter = store.Never
	} else if !fits {
		s.RetryAfter = max(0, microseconds(retryAfter(c, tokens)))
	}
	return s
}

// retryAfter returns the microseconds until c is allowed, at most 0 if it is now.
func retryAfter(c store.Charge, tokens *big.Rat) *big.Rat {
	if c.Cost <= 0 {
		return rat(0)
	}
	missing := new(big.Rat).Sub(rat(c.Cost), tokens)
	if c.Limit.Refill == 0 {
		return missing // which says no more than whether it is allowed
	}
	missing.Quo(missing, perMicrosecond(c.Limit))
	return missing.Sub(missing, clamp(rat(min(c.MaxWait, longest).Microseconds()), rat(0), big.NewRat(deepest, c.Limit.Refill)))
}

// fill returns about the time to full of a limit, and that of a month for all quotas.
func fill(l store.Limit) time.Duration {
	if l.IsQuota() {
		return 31 * day
	}
	return time.Duration(l.Capacity/l.Refill+1) * micro
}

// kind tells apart rates, quotas and concurrency limits.
func kind(l store.Limit) [2]bool { return [2]bool{l.IsQuota(), l.IsConcurrency()} }

func burst(l store.Limit) int64             { return l.Capacity / l.Unit }
func deepestDebt(l store.Limit) *big.Rat    { return big.NewRat(-deepest, l.Unit) }
func perMicrosecond(l store.Limit) *big.Rat { return big.NewRat(l.Refill, l.Unit) }
func rat(n int64) *big.Rat                  { return new(big.Rat).SetInt64(n) }
func floor(x *big.Rat) *big.Int             { return new(big.Int).Div(x.Num(), x.Denom()) }
func microseconds(x *big.Rat) time.Duration {
	return time.Duration(-floor(new(big.Rat).Neg(x)).Int64()) * micro
}

// after returns how long a bucket of some tokens takes to hold others.
func after(l store.Limit, want, tokens *big.Rat) time.Duration {
	missing := new(big.Rat).Sub(want, tokens)
	return microseconds(missing.Quo(missing, perMicrosecond(l)))
}

// roundedUp returns the microseconds of a block or lock.
func roundedUp(d time.Duration) int64 { return (min(d, longest) - 1).Microseconds() + 1 }

func clamp(x, least, most *big.Rat) *big.Rat {
	switch {
	case x.Cmp(least) < 0:
		return least
	case x.Cmp(most) > 0:
		return most
	}
	return x
}
