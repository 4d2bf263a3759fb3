package fallback

import (
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/bucket"
	"github.com/go-tokenbucket/ratelimit/store"
)

// A ledger keeps what the secondary has allowed while the primary was away.
type ledger struct {
	most     int
	replicas *replicas
	start    time.Time

	mu       sync.Mutex
	sizes    []size // that replicas had in the last outage; never empty
	accounts map[account]*spending
	counts   map[string]int            // of them, by policy
	charging map[account]chan struct{} // what the primary is being charged for; closed afterwards
}

type account struct{ policy, key string }

// A size is a number of replicas, and from when on it was in force.
type size struct {
	number   int // of the size, in the order in which they came
	replicas int64
	at       int64
}

// maxSizes bounds how many sizes are kept of one outage.
const maxSizes = 64

// A spending is what was allowed of one bucket: the difference between what this replica's share of it would
// hold if nobody had charged it since the primary went away, and what it holds after the secondary's charges.
// Both begin with what is known and refill with the rate of the share, as the primary's bucket does meanwhile
// for all replicas together.
//
// Where others still reach the primary, its bucket does not refill for this replica: they spend that. So the primary is
// charged for all that was taken, and what has refilled here is paid by what its bucket could not refill because it
// was full.
type spending struct {
	account
	lowering sync.Mutex
	lowered  atomic.Int64 // the last version that the secondary's bucket was brought down for

	// Guarded by the ledger's lock.
	listed        bool        // in the ledger
	reset         bool        // in the outage, so that the primary's bucket is to be reset before it is charged
	outage        *outage     // of which idle and charged are
	version       int64       // counts how often the secondary's bucket has had to be brought down
	size          size        // that share is of
	room          int64       // whole tokens of the largest cost; the share has room for them
	limit, share  store.Limit // last charged under
	idle, charged bucket.Bucket
	taken         int64 // credits of the share, in all; below 0 after refunds of what was taken before
	since         int64 // the primary's bucket may have been full, in the outage in which that was
}

func newLedger(most int, replicas *replicas) ledger {
	return ledger{
		most:     most,
		replicas: replicas,
		start:    time.Now(),
		accounts: make(map[account]*spending),
		counts:   make(map[string]int),
		charging: make(map[account]chan struct{}),
		sizes:    []size{{replicas: replicas.inForce.Load()}},
	}
}

// since returns when o began.
func (l *ledger) since(o *outage) int64 {
	if o.brief() {
		return l.now()
	}
	return o.since.Sub(l.start).Microseconds()
}

func (l *ledger) now() int64 { return time.Since(l.start).Microseconds() }

// open returns the spending of c's bucket in o, before which it held what known tells, the share that c is to be charged
// under, and the version for which the secondary's bucket must have been brought down. Where there is no room for the
// spending, it is not in the ledger before there is something to charge.
func (l *ledger) open(c *store.Charge, o *outage, known *known) (_ *spending, share store.Limit, version int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	size := l.resize()
	s := l.accounts[account{c.Policy, c.Key}]
	if s == nil {
		s = &spending{account: account{strings.Clone(c.Policy), strings.Clone(c.Key)}, room: roomOf(c), size: size}
		s.limit, s.share = c.Limit, shareOf(c.Limit, size.replicas, s.room)
		if len(l.accounts) < l.most || l.makeRoom(c.Policy, false) {
			l.list(s)
		}
	}
	// The room only grows: with less, the bucket would be cut to that, or full with that and forgotten, and then
	// found full with more.
	s.room = max(s.room, roomOf(c))
	changed := s.size.replicas != size.replicas
	switch first := l.sizes[0]; {
	case o.brief() && (s.outage != o || changed), s.outage != o && first == size:
		l.enter(s, c, o, known, size, l.now())
	case s.outage != o:
		// As if it had begun with the outage: a share that is larger by now may have been spent by other replicas.
		l.enter(s, c, o, known, first, first.at)
		fallthrough
	case s.size != size:
		for _, next := range l.sizes {
			if next.number > s.size.number && s.resize(next) {
				s.version++
			}
		}
	}
	return s, shareOf(c.Limit, size.replicas, s.room), s.version
}

// enter has s begin with what was known at some time, by its share of a size.
func (l *ledger) enter(s *spending, c *store.Charge, o *outage, known *known, of size, at int64) {
	s.outage, s.size = o, of
	s.version++
	full := known.full(c, l.now()-at)
	if s.taken == 0 {
		s.since = max(l.since(o), at+full)
	}
	s.goBy(c.Limit, shareOf(c.Limit, of.replicas, s.room), at)
	s.begin(creditsOf(c.Limit, full), at)
}

// begin notes that o begins, before which sizes do not matter.
func (l *ledger) begin(o *outage) {
	l.mu.Lock()
	defer l.mu.Unlock()
	last := l.resize()
	l.sizes = []size{{last.number + 1, last.replicas, l.since(o)}}
}

// resize returns the size that is in force. The ledger is locked.
func (l *ledger) resize() size {
	last, replicas := l.sizes[len(l.sizes)-1], l.replicas.inForce.Load()
	if last.replicas == replicas {
		return last
	}
	last = size{last.number + 1, replicas, l.now()}
	if l.sizes = append(l.sizes, last); len(l.sizes) > maxSizes {
		first, second := l.sizes[0], &l.sizes[1]
		second.replicas, second.at = max(first.replicas, second.replicas), first.at
		l.sizes = slices.Delete(l.sizes, 0, 1)
	}
	return last
}

func (l *ledger) list(s *spending) {
	l.accounts[s.account], s.listed = s, true
	l.counts[s.policy]++
}

func (l *ledger) unlist(s *spending) {
	delete(l.accounts, s.account)
	s.listed = false
	if l.counts[s.policy]--; l.counts[s.policy] == 0 {
		delete(l.counts, s.policy)
	}
}

// begin has s begin with credits. What was spent in an earlier outage, and could not be charged after it, is
// still to be charged.
func (s *spending) begin(credits, now int64) {
	spent := s.spent(now)
	s.idle = bucket.Bucket{}
	if credits < s.limit.Capacity {
		s.idle = bucket.Bucket{Tokens: credits, Unit: s.share.Unit, LastRefill: now}
	}
	s.charged = s.idle
	if spent > 0 {
		s.owe(spent, now)
	}
}

// owe has s be charged some credits more than idle, or after refunds some less.
func (s *spending) owe(credits, now int64) {
	by := bucket.Limit(s.share)
	s.charged = by.Advance(s.idle, now)
	s.charged.Tokens = by.Charge(s.charged.Tokens, credits, 1)
}

// goBy has s go by another share from now on. What was spent remains as many tokens: in a bucket with more or less
// room it must not become more or less.
func (s *spending) goBy(limit, share store.Limit, now int64) {
	s.limit = limit
	if s.share == share {
		return
	}
	by, old := bucket.Limit(s.share), s.share
	s.taken = credits(s.taken, old, share, now)
	spent := by.Advance(s.idle, now).Tokens - by.Advance(s.charged, now).Tokens
	s.share = share
	s.owe(credits(spent, old, share, now), now)
}

// resize has s go by its share of another size from that on, and reports whether that is another share. A share that grows
// holds what it held: the replicas that left may have spent theirs. Of a share that shrinks as much is missing as before:
// the replicas that came have full ones. That may be a debt, of a burst at most: a number that goes up and down while no
// replica does must not keep clients out for ever.
func (s *spending) resize(to size) bool {
	s.size = to
	old, share := s.share, shareOf(s.limit, to.replicas, s.room)
	if share == old {
		return false
	}
	by := bucket.Limit(old)
	s.idle, s.charged = by.Advance(s.idle, to.at), by.Advance(s.charged, to.at)
	spent := credits(s.idle.Tokens-s.charged.Tokens, old, share, to.at)
	left := share.Capacity - credits(old.Capacity-s.idle.Tokens, old, share, to.at)
	s.taken = credits(s.taken, old, share, to.at)
	s.share = share
	s.idle = bucket.Limit(share).Advance(s.idle, to.at)
	s.idle.Tokens = min(s.idle.Tokens, max(left, -credits(s.limit.Capacity, s.limit, share, to.at)))
	s.owe(spent, to.at)
	return true
}

// spent returns how many credits of the share were spent and have not refilled since, none after refunds.
func (s *spending) spent(now int64) int64 {
	by := bucket.Limit(s.share)
	return max(0, by.Advance(s.idle, now).Tokens-by.Advance(s.charged, now).Tokens)
}

// lookedAt is among how many spendings makeRoom chooses: to look at all would take too long.
const lookedAt = 8

// makeRoom takes off a spending, for one of policy, and reports whether it did: one of which nothing is left to be
// charged, or if it must, that which has the least part of its bucket left to be charged. It chooses among some, and
// among those first of which the policies have more than an equal share of the ledger: a client who makes up keys
// must not have what was spent of other policies forgotten.
func (l *ledger) makeRoom(policy string, must bool) bool {
	now, some := l.now(), lookedAt
	var least *spending
	var leastPart float64
	leastIsOver := false
	for _, s := range l.accounts {
		spent := s.spent(now)
		if spent == 0 && !s.reset {
			l.unlist(s)
			return true
		}
		part, over := float64(spent)/float64(s.share.Capacity), l.isOver(s.policy, policy)
		if s.reset {
			part = math.Inf(1)
		}
		if least == nil || over && !leastIsOver || over == leastIsOver && part < leastPart {
			least, leastPart, leastIsOver = s, part, over
		}
		if some--; some == 0 {
			break
		}
	}
	if must && least != nil {
		l.unlist(least)
	}
	return must
}

// isOver reports whether a policy would have more than an equal share of the ledger after one more of policy next.
func (l *ledger) isOver(policy, next string) bool {
	n, policies := l.counts[policy], len(l.counts)
	if policy == next {
		n++
	}
	if l.counts[next] == 0 {
		policies++
	}
	return n*policies > l.most
}

// held returns what the secondary's bucket holds at most.
func (l *ledger) held(s *spending, share store.Limit) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bucket.Limit(share).Advance(s.charged, l.now()).Tokens
}

// add adds what c took, or gave back.
func (l *ledger) add(s *spending, c *store.Charge) {
	now := l.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	s = l.inForce(s)
	s.goBy(c.Limit, shareOf(c.Limit, s.size.replicas, s.room), now)
	by := bucket.Limit(s.share)
	need, _ := by.Ask(c.Cost, 0, c.Owed)
	s.charged = by.Advance(s.charged, now)
	before := s.charged.Tokens
	s.charged.Tokens = by.Charge(before, need, 1)
	s.taken = max(-bucket.MaxCredits, min(s.taken+before-s.charged.Tokens, bucket.MaxCredits))
	if lost := s.charged.Tokens - before + need; lost < 0 && s.taken > 0 {
		s.taken = max(0, s.taken+lost) // what a full bucket could not be given back may have been taken before
	}
}

// inForce returns s, or what is in the ledger in its place. It lists s if there was no room for it before, or if it
// was taken off meanwhile. The ledger is locked.
func (l *ledger) inForce(s *spending) *spending {
	if s.listed {
		return s
	}
	if next := l.accounts[s.account]; next != nil {
		return next
	}
	if len(l.accounts) >= l.most {
		l.makeRoom(s.policy, true)
	}
	l.list(s)
	return s
}

// A due is what the primary is to be charged for a spending.
type due struct {
	spending *spending
	charge   store.Charge // in whole tokens, rounded up: of what is missing here, and of what has Refilled
	spent    int64        // of that, credits of the share that are missing
	taken    int64        // and all that were taken
	since    int64
	share    store.Limit
	reset    bool // before it is charged
}

// all returns what is in the ledger.
func (l *ledger) all() []*spending {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Values(l.accounts))
}

// empty reports whether nothing is in the ledger.
func (l *ledger) empty() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.accounts) == 0
}

// take takes s off the ledger, and returns what is due of it, until settled is called. It returns false if s is not
// there any more, or if the primary is being charged for its bucket.
func (l *ledger) take(s *spending) (d due, found bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !s.listed || l.charging[s.account] != nil {
		return due{}, false
	}
	l.unlist(s)
	l.charging[s.account] = make(chan struct{})
	d = due{
		spending: s,
		charge:   store.Charge{Policy: s.policy, Key: s.key, Limit: s.limit, Owed: true},
		spent:    s.spent(l.now()),
		taken:    s.taken,
		since:    s.since,
		share:    s.share,
		reset:    s.reset,
	}
	d.charge.Cost = tokens(d.spent, s.share)
	if d.charge.Refilled = max(0, tokens(d.taken, s.share)-d.charge.Cost); d.charge.Refilled > 0 {
		d.charge.Outage = time.Duration(max(0, l.now()-s.since)) * time.Microsecond
	}
	s.idle, s.taken, s.reset = s.charged, 0, false
	return d, true
}

// settled says that the primary has been charged for d, or that it failed.
func (l *ledger) settled(d due) {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.charging[d.spending.account])
	delete(l.charging, d.spending.account)
}

// again puts back on the ledger what was due, none of which the primary has carried out.
func (l *ledger) again(d due) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.inForce(d.spending)
	if s.reset {
		return // the bucket was reset since d was taken
	}
	s.reset = d.reset
	by, now := bucket.Limit(s.share), l.now()
	s.charged = by.Advance(s.charged, now)
	s.charged.Tokens = by.Charge(s.charged.Tokens, credits(d.spent, d.share, s.share, now), 1)
	s.taken += credits(d.taken, d.share, s.share, now)
	s.since = min(s.since, d.since)
}

// tokens returns credits in whole tokens, rounded up, none for what is below 0.
func tokens(credits int64, of store.Limit) int64 { return max(0, credits+of.Unit-1) / of.Unit }

// credits returns credits of one share as such of another.
func credits(n int64, of, to store.Limit, now int64) int64 {
	debt := bucket.Bucket{Tokens: -n, Unit: of.Unit, LastRefill: now}
	return -bucket.Limit(to).Advance(debt, now).Tokens
}
