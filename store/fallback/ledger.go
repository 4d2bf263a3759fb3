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

// A ledger records what the secondary has allowed while the primary was unavailable.
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

// A size is a number of replicas, and the time from which it was in force.
type size struct {
	number   int // of the size, in the order in which they came
	replicas int64
	at       int64
}

// maxSizes bounds how many sizes are kept of one outage.
const maxSizes = 64

// A spending is what was allowed of one bucket. It is the difference between two buckets under this replica's
// share. One is as if nobody had charged it since the outage began. The other has the secondary's charges. Both
// begin with what is known, and refill at the rate of the share, as the primary's bucket does for all replicas
// together.
//
// If other replicas still reach the primary, its bucket does not refill for this replica, because they spend the
// refill. So the primary is charged for all that was taken. The part that has refilled here is paid by the refill
// that the primary's bucket missed because it was full.
type spending struct {
	account
	lowering sync.Mutex
	lowered  atomic.Int64 // the last version for which the secondary's bucket was lowered
	sheet
}

// A sheet is the part of a spending that the ledger's lock guards.
type sheet struct {
	listed        bool        // in the ledger
	reset         bool        // in the outage, so that the primary's bucket is to be reset before it is charged
	block         dueBlock    // so that the primary's bucket is to be blocked or unblocked after it is charged
	outage        *outage     // of which idle and charged are
	version       int64       // counts how often the secondary's bucket had to be lowered
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

// open returns the spending of c's bucket in o, the share to charge c under, and the version for which the
// secondary's bucket must have been lowered. Before o, the bucket held what known says. If the ledger has no room,
// the spending enters it only when there is something to charge.
func (l *ledger) open(c *store.Charge, o *outage, known *known) (_ *spending, share store.Limit, version int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	size := l.resize()
	s := l.accounts[account{c.Policy, c.Key}]
	if s == nil {
		s = newSpending(c, size)
		if len(l.accounts) < l.most || l.makeRoom(c.Policy, false) {
			l.list(s)
		}
	}
	share = l.bring(s, c, o, known, size)
	return s, share, s.version
}

func newSpending(c *store.Charge, of size) *spending {
	s := &spending{account: account{strings.Clone(c.Policy), strings.Clone(c.Key)}}
	s.room, s.size, s.limit = roomOf(c), of, c.Limit
	s.share = shareOf(c.Limit, of.replicas, s.room)
	return s
}

// bring brings s to o, to the room for c and to the size in force, and returns the share to charge c under.
func (l *ledger) bring(s *spending, c *store.Charge, o *outage, known *known, size size) (share store.Limit) {
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
	return shareOf(c.Limit, size.replicas, s.room)
}

// enter makes s begin with what was known at that time, under its share of a size.
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

// begin records the start of o. Earlier sizes do not matter any more.
func (l *ledger) begin(o *outage) {
	l.mu.Lock()
	defer l.mu.Unlock()
	last := l.resize()
	l.sizes = []size{{last.number + 1, last.replicas, l.since(o)}}
}

// resize returns the size in force. The ledger must be locked.
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

// begin makes s begin with credits. Anything spent in an earlier outage that was not charged after it must still be
// charged.
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

// owe sets what s is charged to some credits more than idle, or to some less after refunds.
func (s *spending) owe(credits, now int64) {
	by := bucket.Limit(s.share)
	s.charged = by.Advance(s.idle, now)
	s.charged.Tokens = by.Charge(s.charged.Tokens, credits, 1)
}

// goBy switches s to another share. The number of tokens that were spent does not change, although the share has
// more or less room.
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

// resize switches s to its share of another size, from the time of that size on. It reports whether the share
// changed. A share that grows keeps its tokens, because the replicas that left may have spent theirs. A share that
// shrinks misses as many tokens as before, because the new replicas have full shares. That may be a debt, of a
// burst at most. Otherwise a number that goes up and down without any change of replicas would lock clients out for
// ever.
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

// spent returns how many credits of the share were spent and have not refilled since. It is not negative after
// refunds.
func (s *spending) spent(now int64) int64 {
	by := bucket.Limit(s.share)
	return max(0, by.Advance(s.idle, now).Tokens-by.Advance(s.charged, now).Tokens)
}

// ordered reports whether the primary's bucket is to be reset, blocked or unblocked. A lock, which clients can make, is only
// a part of a charge.
func (s *spending) ordered() bool { return s.reset || s.block.due && !s.block.lock }

// lookedAt is how many spendings makeRoom compares. Comparing all would take too long.
const lookedAt = 8

// makeRoom removes a spending to make room for one of policy, and reports whether it did. It removes one that has
// nothing left to charge. If there is none and it must, it removes the one with the smallest part of its bucket
// left to charge.
//
// It compares a few. It prefers policies that have more than an equal share of the ledger. Otherwise a client that
// makes up keys could make the ledger forget what other policies have spent.
func (l *ledger) makeRoom(policy string, must bool) bool {
	now, some := l.now(), lookedAt
	var least *spending
	var leastPart float64
	leastIsOver := false
	for _, s := range l.accounts {
		spent := s.spent(now)
		if spent == 0 && !s.ordered() {
			l.unlist(s)
			return true
		}
		part, over := float64(spent)/float64(s.share.Capacity), l.isOver(s.policy, policy)
		if s.ordered() {
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

// isOver reports whether a policy would have more than an equal share of the ledger after one more bucket of policy
// next.
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

// held returns the most that the secondary's bucket can hold.
func (l *ledger) held(s *spending, share store.Limit) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bucket.Limit(share).Advance(s.charged, l.now()).Tokens
}

// add adds what c took or gave back.
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

// inForce returns s, or the spending that has replaced it in the ledger. It lists s if there was no room before, or
// if s was removed since. The ledger must be locked.
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

// A due is what the primary must be charged for a spending.
type due struct {
	spending *spending
	charge   store.Charge // in whole tokens, rounded up: of what is missing here, and of what has Refilled
	spent    int64        // of that, credits of the share that are missing
	taken    int64        // and all that were taken
	since    int64
	share    store.Limit
	reset    bool // before it is charged
	block    dueBlock
}

// all returns what is in the ledger, beginning with the buckets that are to be reset, blocked or unblocked.
func (l *ledger) all() []*spending {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := slices.Collect(maps.Values(l.accounts))
	slices.SortFunc(all, func(a, b *spending) int {
		switch {
		case a.ordered() == b.ordered():
			return 0
		case a.ordered():
			return -1
		default:
			return 1
		}
	})
	return all
}

// empty reports whether nothing is in the ledger.
func (l *ledger) empty() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.accounts) == 0
}

// take removes s from the ledger and returns what is due. Call settled afterwards. It returns false if s is no
// longer in the ledger, or if the primary is being charged for its bucket.
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
		block:    s.block,
	}
	d.charge.Cost = tokens(d.spent, s.share)
	if d.charge.Refilled = max(0, tokens(d.taken, s.share)-d.charge.Cost); d.charge.Refilled > 0 {
		d.charge.Outage = time.Duration(max(0, l.now()-s.since)) * time.Microsecond
	}
	s.idle, s.taken, s.reset, s.block = s.charged, 0, false, dueBlock{}
	return d, true
}

// settled records that the primary has been charged for d, or has failed to.
func (l *ledger) settled(d due) {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.charging[d.spending.account])
	delete(l.charging, d.spending.account)
}

// again puts d back into the ledger, after a primary that has carried out none of it.
func (l *ledger) again(d due) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.inForce(d.spending)
	if s.reset {
		return // the bucket was reset since d was taken
	}
	s.reset = d.reset
	if !s.block.due {
		s.block = d.block
	}
	if d.taken == 0 && d.spent == 0 {
		return
	}
	by, now := bucket.Limit(s.share), l.now()
	s.charged = by.Advance(s.charged, now)
	s.charged.Tokens = by.Charge(s.charged.Tokens, credits(d.spent, d.share, s.share, now), 1)
	s.taken += credits(d.taken, d.share, s.share, now)
	s.since = min(s.since, d.since)
}

// tokens returns credits in whole tokens, rounded up, and 0 if credits is negative.
func tokens(credits int64, of store.Limit) int64 { return max(0, credits+of.Unit-1) / of.Unit }

// credits converts credits of one share to credits of another.
func credits(n int64, of, to store.Limit, now int64) int64 {
	debt := bucket.Bucket{Tokens: -n, Unit: of.Unit, LastRefill: now}
	return -bucket.Limit(to).Advance(debt, now).Tokens
}
