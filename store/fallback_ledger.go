package store

import (
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/bucket"
)

// A ledger keeps what the secondary has allowed while the primary was away.
type ledger struct {
	most  int
	start time.Time

	mu       sync.Mutex
	accounts map[account]*spending
}

type account struct{ policy, key string }

// A spending is what was allowed of one bucket: the difference between what this replica's share of it would
// hold if nobody had charged it since the primary went away, and what it holds after the secondary's charges.
// Both begin with what is known and refill with the rate of the share, as the primary's bucket does meanwhile
// for all replicas together.
type spending struct {
	account
	beginning sync.Mutex
	begun     atomic.Bool // the secondary's bucket was brought down to what is known

	// Guarded by the ledger's lock.
	listed        bool  // in the ledger
	limit, share  Limit // last charged under
	idle, charged bucket.Bucket
}

func newLedger(most int) ledger {
	return ledger{most: most, start: time.Now(), accounts: make(map[account]*spending)}
}

func (l *ledger) now() int64 { return time.Since(l.start).Microseconds() }

// open returns the spending of c's bucket, of which known tells what it held, nil if there is no room for one
// more.
func (l *ledger) open(c *Charge, share Limit, known *known) *spending {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.accounts[account{c.Policy, c.Key}]
	if s == nil && len(l.accounts) < l.most {
		s = &spending{account: account{strings.Clone(c.Policy), strings.Clone(c.Key)}, limit: c.Limit, share: share}
		if credits := known.credits(c); credits < c.Limit.Capacity {
			s.idle = bucket.Bucket{Tokens: credits, Unit: share.Unit, LastRefill: l.now()}
			s.charged = s.idle
		}
		l.list(s)
	}
	return s
}

func (l *ledger) list(s *spending) { l.accounts[s.account], s.listed = s, true }

// uncharged returns the credits of the bucket if nobody had charged it since the primary went away.
func (l *ledger) uncharged(s *spending, share Limit) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bucket.Limit(share).Advance(s.idle, l.now()).Tokens
}

// add adds what c took, or gave back, under share.
func (l *ledger) add(s *spending, c *Charge, share Limit) {
	l.mu.Lock()
	defer l.mu.Unlock()
	by := bucket.Limit(share)
	s.limit, s.share = c.Limit, share
	s.charged = by.Advance(s.charged, l.now())
	s.charged.Tokens = by.Charge(s.charged.Tokens, by.Need(c.Cost), 1)
	if !s.listed { // it was taken off to be charged
		l.list(s)
	}
}

// take takes some spending off the ledger, and returns how many tokens the primary is to be charged, rounded
// up: none if all has refilled since. It returns nil if there is nothing left.
func (l *ledger) take() (s *spending, tokens int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s = range l.accounts {
		delete(l.accounts, s.account)
		s.listed = false
		by, now := bucket.Limit(s.share), l.now()
		s.charged = by.Advance(s.charged, now)
		spent := by.Advance(s.idle, now).Tokens - s.charged.Tokens
		s.idle = s.charged
		return s, (max(0, spent) + by.Unit - 1) / by.Unit
	}
	return nil, 0
}
