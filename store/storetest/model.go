package storetest

import (
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/bucket"
	"github.com/go-tokenbucket/ratelimit/store"
)

type name struct{ policy, key string }

// integers is a Store made of internal/bucket and a map.
type integers map[name]kept

type kept struct {
	bucket.Bucket
	limit store.Limit
	shut  bucket.Shut
	hold  int64 // when it is full under each limit that it was under before
}

func (m integers) full(now int64) (names []name) {
	for n, k := range m {
		if l := bucket.Limit(k.limit); k.shut.Left(now) == 0 && k.hold <= now && l.Advance(k.Bucket, now).Tokens == l.Capacity {
			names = append(names, n)
		}
	}
	return names
}

func (m integers) forget(n name) { delete(m, n) }

func (m integers) take(charges []store.Charge, now int64) (bool, []store.State) {
	ok := true
	found := make([]bucket.Bucket, len(charges))
	fits := make([]bool, len(charges))
	for i, c := range charges {
		l := bucket.Limit(c.Limit)
		old := m[name{c.Policy, c.Key}]
		found[i] = l.Advance(old.Bucket, now)
		need, debt := l.Ask(c.Cost, c.MaxWait.Microseconds(), c.Owed)
		fits[i] = l.Grants(found[i].Tokens, need, debt, 1) == 1 && (old.shut.Left(now) == 0 || bucket.Passes(need, debt))
		ok = ok && (fits[i] || c.Shadow)
	}
	states := make([]store.State, len(charges))
	for i, c := range charges {
		n, l := name{c.Policy, c.Key}, bucket.Limit(c.Limit)
		need, debt := l.Ask(c.Cost, c.MaxWait.Microseconds(), c.Owed)
		old, known := m[n]
		shut := old.shut
		writes := known && old.limit != c.Limit && bucket.Relimits(need, debt) && found[i].Tokens < l.Capacity
		if ok && fits[i] {
			left := l.Charge(found[i].Tokens, need, 1)
			writes = writes || left != found[i].Tokens
			found[i].Tokens = left
			shut = l.Shut(shut, need, bucket.Block(c.Block), left, now)
		}
		switch {
		case ok && fits[i] && c.Cost == store.Reset:
			delete(m, n)
		case writes:
			if hold := bucket.Limit(old.limit).Full(old.Bucket); known && old.limit != c.Limit && hold > old.hold {
				old.hold = hold
			}
			m[n] = kept{found[i], c.Limit, shut, old.hold}
		case known:
			m[n] = kept{old.Bucket, old.limit, shut, old.hold}
		case shut != bucket.Shut{}:
			m[n] = kept{found[i], c.Limit, shut, old.hold}
		}
		states[i] = c.State(found[i].Tokens, ok && fits[i])
		c.Shut(&states[i], time.Duration(shut.Left(now))*time.Microsecond, ok && fits[i])
	}
	return ok, states
}

// rationals implements the same contract in exact fractions of a token. It follows the text of store.Store and not
// the code of internal/bucket.
type rationals map[name]exact

type exact struct {
	tokens *big.Rat
	last   int64
	limit  store.Limit
	until  int64 // blocked until then
	lock   bool  // by a lock
	hold   int64 // not forgotten before, since it was under other limits
}

// blocks returns the ends of the blocks of buckets, in force or not, by name.
func (m rationals) blocks() []end {
	var ends []end
	for n, e := range m {
		if e.until > 0 {
			ends = append(ends, end{n, e.until})
		}
	}
	slices.SortFunc(ends, func(a, b end) int { return strings.Compare(a.policy+a.key, b.policy+b.key) })
	return ends
}

type end struct {
	name
	until int64
}

func (m rationals) full(now int64) (names []name) {
	for n, e := range m {
		c := store.Charge{Policy: n.policy, Key: n.key, Limit: e.limit}
		if e.until <= now && e.hold <= now && m.at(c, now).tokens.Cmp(rat(burst(c))) == 0 {
			names = append(names, n)
		}
	}
	return names
}

func (m rationals) forget(n name) { delete(m, n) }

func (m rationals) take(charges []store.Charge, now int64) (bool, []store.State) {
	ok := true
	found := make([]exact, len(charges))
	fits := make([]bool, len(charges))
	for i, c := range charges {
		found[i] = m.at(c, now)
		blocked := found[i].until > now && c.Cost > 0
		fits[i] = c.Owed || retryAfter(c, found[i].tokens).Sign() <= 0 && c.Cost <= burst(c) && !blocked
		ok = ok && (fits[i] || c.Shadow)
	}
	states := make([]store.State, len(charges))
	for i, c := range charges {
		e, n := found[i], name{c.Policy, c.Key}
		charged := ok && fits[i]
		if old, known := m[n]; known && old.limit != c.Limit && c.Cost != 0 && c.Cost != store.Reset && e.tokens.Cmp(rat(burst(c))) < 0 {
			m[n] = e // under the new limit, also if the call is refused
		}
		if charged && c.Cost == store.Reset {
			e.tokens, e.until = rat(burst(c)), 0
			delete(m, n)
		} else if charged && c.Cost != 0 {
			left := new(big.Rat).Sub(e.tokens, rat(c.Cost))
			if full := rat(burst(c)); left.Cmp(full) > 0 {
				left = full
			}
			if debt := deepestDebt(c); left.Cmp(debt) < 0 {
				left = debt
			}
			if left.Cmp(e.tokens) != 0 {
				e.tokens = left
				m[n] = e
			}
		}
		if charged && e.block(c, now) {
			old, known := m[n]
			if !known {
				old = e
			}
			old.until, old.lock = e.until, e.lock
			m[n] = old
		}
		states[i] = state(c, e.tokens, charged, fits[i])
		if left := time.Duration(e.until-now) * time.Microsecond; left > 0 {
			s := &states[i]
			s.Blocked, s.Remaining = true, 0
			s.RetryAfter, s.ResetAfter = max(s.RetryAfter, left), max(s.ResetAfter, left)
		}
	}
	return ok, states
}

// at returns c's bucket at now.
func (m rationals) at(c store.Charge, now int64) exact {
	full := rat(burst(c))
	e, known := m[name{c.Policy, c.Key}]
	if !known {
		return exact{tokens: full, last: now, limit: c.Limit}
	}
	if e.limit != c.Limit {
		before := store.Charge{Limit: e.limit}
		missing := new(big.Rat).Sub(rat(burst(before)), e.tokens)
		e.hold = max(e.hold, e.last+microseconds(missing.Quo(missing, perMicrosecond(before))).Microseconds())
	}
	if e.limit.Unit != c.Limit.Unit {
		// What carries over is rounded down to a credit.
		credits := new(big.Rat).Mul(e.tokens, rat(c.Limit.Unit))
		e.tokens = new(big.Rat).Quo(new(big.Rat).SetInt(floor(credits)), rat(c.Limit.Unit))
		if debt := deepestDebt(c); e.tokens.Cmp(debt) < 0 {
			e.tokens = debt
		}
	}
	e.limit = c.Limit
	if e.tokens.Cmp(full) > 0 {
		e.tokens = full
	}
	if now > e.last {
		added := new(big.Rat).Mul(rat(now-e.last), perMicrosecond(c))
		if e.tokens = new(big.Rat).Add(e.tokens, added); e.tokens.Cmp(full) > 0 {
			e.tokens = full
		}
		e.last = now
	}
	return e
}

// block carries out c.Block, and what a refund does to a lock. It reports whether anything has changed.
func (e *exact) block(c store.Charge, now int64) bool {
	hasToken := e.tokens.Cmp(rat(1)) >= 0
	until := now + int64(min((c.Block+999)/1000, longest/1000))
	if c.Block > longest {
		until = now + int64(longest/1000)
	}
	was, wasUntil := e.until > now, e.until
	switch {
	case c.Cost == 0 && c.Block > 0:
		e.until, e.lock = until, false
	case c.Cost == 0 && c.Block < 0, c.Cost < 0 && hasToken && e.lock && was:
		e.until, e.lock = 0, false
	case c.Cost > 0 && c.Block > 0 && !hasToken && (!was || until > e.until):
		e.until, e.lock = until, !was || e.lock
	default:
		return false
	}
	return e.until != wasUntil || was
}

func state(c store.Charge, tokens *big.Rat, charged, fits bool) store.State {
	s := store.State{Allowed: fits}
	if tokens.Sign() > 0 {
		s.Remaining = floor(tokens).Int64()
	}
	missing := new(big.Rat).Sub(rat(burst(c)), tokens)
	s.ResetAfter = microseconds(missing.Quo(missing, perMicrosecond(c)))
	if charged && c.Cost > 0 && tokens.Sign() < 0 {
		debt := new(big.Rat).Neg(tokens)
		s.Wait = microseconds(debt.Quo(debt, perMicrosecond(c)))
	}
	if !fits {
		s.RetryAfter = store.Never
		if c.Cost <= burst(c) {
			s.RetryAfter = microseconds(retryAfter(c, tokens))
		}
	}
	return s
}

// retryAfter returns the microseconds until c is allowed, at most 0 if it is now.
func retryAfter(c store.Charge, tokens *big.Rat) *big.Rat {
	if c.Cost <= 0 {
		return new(big.Rat)
	}
	missing := new(big.Rat).Sub(rat(c.Cost), tokens)
	missing.Quo(missing, perMicrosecond(c))
	wait := min(c.MaxWait.Microseconds(), bucket.MaxWait)
	if longest := bucket.MaxCredits / c.Limit.Refill; wait > longest {
		return missing.Sub(missing, big.NewRat(bucket.MaxCredits, c.Limit.Refill))
	}
	return missing.Sub(missing, rat(wait))
}

func burst(c store.Charge) int64             { return c.Limit.Capacity / c.Limit.Unit }
func deepestDebt(c store.Charge) *big.Rat    { return big.NewRat(-deepest, c.Limit.Unit) }
func perMicrosecond(c store.Charge) *big.Rat { return big.NewRat(c.Limit.Refill, c.Limit.Unit) }
func rat(n int64) *big.Rat                   { return new(big.Rat).SetInt64(n) }
func floor(x *big.Rat) *big.Int              { return new(big.Int).Div(x.Num(), x.Denom()) }
func microseconds(x *big.Rat) time.Duration {
	up := new(big.Int).Neg(floor(new(big.Rat).Neg(x)))
	return time.Duration(up.Int64()) * time.Microsecond
}
