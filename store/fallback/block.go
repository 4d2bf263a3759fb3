package fallback

import (
	"context"
	"hash/maphash"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/bucket"
	"github.com/go-tokenbucket/ratelimit/store"
)

const (
	// maxBlocks is how many blocks are remembered.
	maxBlocks = 1 << 12

	// blockMarks is how many marks say which buckets may have a block.
	blockMarks = 1 << 13

	// sameBlock is by how many microseconds two reports of one block may differ: the replies took different times.
	sameBlock = 10_000
)

// blocks are the blocks of buckets that this replica has made or met. The secondary has them in an outage.
//
// Each answer of the primary is compared with them. A flood on a blocked key must not wait for a lock then, nor calls for
// other keys. So the marks are read first.
type blocks struct {
	seed  maphash.Seed
	start time.Time
	marks []mark // by hash

	number atomic.Int64 // of blocks

	mu    sync.Mutex
	of    map[account]block
	ended int64 // when a call last ended the block of a bucket, or would have

	applying sync.Mutex // held while blocks of the secondary change
}

// A mark is for the buckets of a hash.
type mark struct {
	number atomic.Int32 // of blocks
	last   atomic.Pointer[seen]
}

// A seen is the block that was stored last of those of a mark. It does not change.
type seen struct {
	account
	until int64
}

// isOf reports whether s is of c's bucket.
func (s *seen) isOf(c *store.Charge) bool { return s != nil && s.key == c.Key && s.policy == c.Policy }

// A block is in force until a time, in microseconds. A lock is one that clients can make.
type block struct {
	until     int64 // 0: it was ended
	since     int64 // when that was stored
	secondary int64 // until when the secondary has its bucket blocked, as far as known
	lock      bool
}

func newBlocks() blocks {
	return blocks{
		seed:  maphash.MakeSeed(),
		start: time.Now(),
		marks: make([]mark, blockMarks),
		of:    make(map[account]block),
	}
}

// some reports whether there may be blocks.
func (b *blocks) some() bool { return b.number.Load() > 0 }

func (b *blocks) now() int64 { return time.Since(b.start).Microseconds() }

func (b *blocks) mark(policy, key string) *mark {
	return &b.marks[(31*maphash.String(b.seed, policy)+maphash.String(b.seed, key))%blockMarks]
}

// learn records what the primary has answered to a call that was sent at that time: a bucket is blocked, or no longer. The
// answer says nothing of what has changed since then. The next one does.
func (b *blocks) learn(charges []store.Charge, states []store.State, sent int64) {
	for i := range charges {
		c, s := &charges[i], &states[i]
		switch {
		case s.Degraded:
		case !s.Blocked:
			if m := b.mark(c.Policy, c.Key); ends(c) || m.mayHave(c) {
				b.end(c, sent)
			}
		case s.RetryAfter != store.Never:
			// Of a denial, it may be the wait for the tokens, which is longer than the block.
			until := b.now() + s.RetryAfter.Microseconds()
			if last := b.mark(c.Policy, c.Key).last.Load(); !last.isOf(c) || max(last.until-until, until-last.until) > sameBlock {
				b.begin(c, until, sent)
			}
		}
	}
}

// mayHave reports whether one of the blocks of m may be that of c's bucket.
func (m *mark) mayHave(c *store.Charge) bool {
	n, last := m.number.Load(), m.last.Load()
	return n > 1 || n == 1 && (last == nil || last.isOf(c))
}

// begin records a block of c's bucket in the primary. A charge that locks has probably met a lock.
func (b *blocks) begin(c *store.Charge, until, sent int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended > sent {
		return
	}
	old := b.of[account{c.Policy, c.Key}]
	b.put(c, block{until: until, secondary: old.secondary, lock: !isBlock(c) && (old.lock || c.Block > 0)})
}

// end records that c's bucket is not blocked in the primary. If it is in the secondary, that is ended in the next outage.
func (b *blocks) end(c *store.Charge, sent int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	old := b.of[account{c.Policy, c.Key}]
	if old.since > sent {
		return
	}
	if ends(c) {
		b.ended = b.now()
	}
	b.put(c, block{secondary: old.secondary})
}

// enforced records that the secondary has the block of c's bucket until then.
func (b *blocks) enforced(c *store.Charge, until int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if one, found := b.of[account{c.Policy, c.Key}]; found {
		one.secondary = until
		b.put(c, one)
	}
}

// set records a block of c's bucket in the secondary, or with an until of 0 its end.
func (b *blocks) set(c *store.Charge, until int64, lock bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if until == 0 {
		b.ended = b.now()
	}
	b.put(c, block{until: until, secondary: until, lock: lock})
}

// put stores what is known of c's bucket. The blocks must be locked.
func (b *blocks) put(c *store.Charge, next block) {
	a, now := account{c.Policy, c.Key}, b.now()
	_, found := b.of[a]
	switch {
	case next.until <= now && next.secondary <= now:
		if found {
			b.drop(a)
		}
		return
	case !found:
		if len(b.of) >= maxBlocks && !b.makeRoom(next.lock, now) {
			return
		}
		a = account{strings.Clone(c.Policy), strings.Clone(c.Key)}
		b.mark(a.policy, a.key).number.Add(1)
		b.number.Add(1)
	}
	next.since = now
	b.of[a] = next
	b.mark(a.policy, a.key).last.Store(&seen{a, next.until})
}

func (b *blocks) drop(a account) {
	delete(b.of, a)
	b.number.Add(-1)
	m := b.mark(a.policy, a.key)
	m.last.Store(nil)
	m.number.Add(-1)
}

// makeRoom drops one of a few blocks, and reports whether it did: one that has ended, or the lock that ends first, or
// the block that ends first. A lock does not drop a block, because clients can make locks.
func (b *blocks) makeRoom(forLock bool, now int64) bool {
	some := lookedAt
	var first account
	var least block
	for a, one := range b.of {
		if one.until <= now {
			b.drop(a)
			return true
		}
		if some == lookedAt || one.lock && !least.lock || one.lock == least.lock && one.until < least.until {
			first, least = a, one
		}
		if some--; some == 0 {
			break
		}
	}
	if forLock && !least.lock {
		return false
	}
	b.drop(first)
	return true
}

// differs returns the block of a bucket if the secondary does not have it, or has one that was ended.
func (b *blocks) differs(policy, key string) (_ block, differs bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	one, found := b.of[account{policy, key}]
	return one, found && one.until != one.secondary
}

// enforce blocks or unblocks the secondary's bucket of c as the primary's. If that fails, the next call tries again.
func (f *Store) enforce(ctx context.Context, c *store.Charge) {
	b := &f.blocks
	if !b.some() || b.mark(c.Policy, c.Key).number.Load() == 0 {
		return
	}
	if _, differs := b.differs(c.Policy, c.Key); !differs {
		return
	}
	b.applying.Lock()
	defer b.applying.Unlock()
	one, differs := b.differs(c.Policy, c.Key)
	if !differs {
		return
	}
	change := store.Charge{Policy: c.Policy, Key: c.Key, Limit: anyLimit, Block: -1}
	if left := one.until - b.now(); left > 0 {
		change.Block = time.Duration(left) * time.Microsecond
	}
	if _, err := f.secondary.Take(ctx, []store.Charge{change}, make([]store.State, 1)); err == nil {
		b.enforced(c, one.until)
	}
}

// anyLimit is a limit under which a full bucket is full under any other.
var anyLimit = store.Limit{Unit: 1, Refill: 1 << 52, Capacity: 1 << 52}

// isBlock reports whether c does nothing but block or unblock its bucket.
func isBlock(c *store.Charge) bool { return c.Cost == 0 && c.Block != 0 }

// ends reports whether c ends the block of its bucket if it makes none.
func ends(c *store.Charge) bool { return isBlock(c) || c.Cost == store.Reset }

func hasBlock(charges []store.Charge) bool {
	for i := range charges {
		if isBlock(&charges[i]) {
			return true
		}
	}
	return false
}

// takeBlocks is take for a call that may block or unblock buckets. It forgets the blocks that an outage has left for
// them.
func (f *Store) takeBlocks(ctx context.Context, charges []store.Charge, states []store.State) (ok bool, err error) {
	dropped := make(map[*spending]dueBlock)
	defer func() {
		if !ok && len(dropped) > 0 {
			f.spent.putBlocksBack(dropped)
			f.settleLate()
		}
	}()
	for i := range charges {
		if isBlock(&charges[i]) {
			if err := f.spent.dropBlock(ctx, account{charges[i].Policy, charges[i].Key}, dropped); err != nil {
				return false, err
			}
		}
	}
	if ok, err = f.take(ctx, charges, states); ok {
		f.blocks.learn(charges, states, math.MaxInt64) // for all calls that were sent before this one was answered
	}
	return ok, err
}

// A dueBlock is what the primary is to be told of a block that was made or ended while the secondary answered. The zero
// value is none.
type dueBlock struct {
	until int64 // in microseconds of blocks.now; if it is past, the bucket is to be unblocked
	due   bool
	lock  bool // if the charge for the outage empties the bucket, and not otherwise
}

// dropBlock waits until a bucket is not being charged, and forgets the block that is due for it.
func (l *ledger) dropBlock(ctx context.Context, a account, dropped map[*spending]dueBlock) error {
	return l.whenSettled(ctx, a, func(s *spending) {
		if s != nil && s.block.due {
			dropped[s], s.block = s.block, dueBlock{}
		}
	})
}

// putBlocksBack restores the blocks of a call that has not replaced them.
func (l *ledger) putBlocksBack(dropped map[*spending]dueBlock) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for s, b := range dropped {
		if s = l.inForce(s); !s.block.due && !s.reset {
			s.block = b
		}
	}
}

// left returns the Block of a charge that tells the primary about b.
func (b dueBlock) left(now int64) time.Duration {
	if b.until <= now {
		return -1
	}
	return time.Duration(b.until-now) * time.Microsecond
}

// change records that c has blocked or unblocked its bucket in the secondary, and returns until when.
func (b *blocks) change(c *store.Charge) (until int64) {
	if left := bucket.Block(c.Block); left > 0 {
		until = b.now() + left
	}
	b.set(c, until, false)
	return until
}

// block records that the primary's bucket of c is to be blocked until then, or unblocked. It does not open a spending by
// the limit of c, which is any.
func (l *ledger) block(c *store.Charge, until int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.accounts[account{c.Policy, c.Key}]
	if s == nil {
		s = &spending{account: account{strings.Clone(c.Policy), strings.Clone(c.Key)}, sheet: sheet{limit: anyLimit, share: anyLimit, size: l.resize()}}
		s = l.inForce(s)
	}
	s.block = dueBlock{until: until, due: true}
}

// noteLock records that c, which the secondary allowed and answered with state, has locked its bucket or ended a lock.
func (f *Store) noteLock(s *spending, c *store.Charge, state *store.State) {
	switch {
	case c.Block > 0 && state.Blocked:
		until := f.blocks.now() + state.RetryAfter.Microseconds()
		f.blocks.lock(c, until)
		f.spent.lock(s, until)
	case c.Cost < 0 && !state.Blocked && f.blocks.some():
		f.blocks.set(c, 0, false)
		f.spent.unlock(s, f.blocks.now())
	}
}

// lock records that c has locked its bucket in the secondary, or that it was blocked already, for as long.
func (b *blocks) lock(c *store.Charge, until int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	old, found := b.of[account{c.Policy, c.Key}]
	b.put(c, block{until: until, secondary: until, lock: !found || old.lock || old.until <= b.now()})
}

// lock records that the primary's bucket is to be locked until then, if it is empty. After an operator has blocked or
// unblocked the bucket, that is to be done in any case.
func (l *ledger) lock(s *spending, until int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s = l.inForce(s)
	s.block = dueBlock{until: until, due: true, lock: !s.block.due || s.block.lock}
}

// unlock records that a refund has ended a lock.
func (l *ledger) unlock(s *spending, now int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch s = l.inForce(s); {
	case s.block.lock:
		s.block = dueBlock{}
	case s.block.until > now:
		s.block.until = 0
	}
}
