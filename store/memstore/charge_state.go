package memstore

import (
	"github.com/go-tokenbucket/ratelimit/internal/bucket"
	"github.com/go-tokenbucket/ratelimit/store"
)

// A chargeState is a charge during Take. Its shard is locked. It is store.Decide on an entry, which is smaller than a Kept.
type chargeState struct {
	shard      *shard
	key        string // a short one
	hash       uint64
	entry      *entry        // nil: no bucket is kept, so it is full
	bucket     bucket.Bucket // as it stands now
	need, debt int64         // in credits
	block      bucket.Block  // that is in force
	left       int64         // microseconds until its end
	spared     bool          // see bucket.Limit.Spares
	loses      bool          // see bucket.Limit.Loses
	fits       bool
}

// look finds what the bucket holds now, and whether it can pay.
func (cs *chargeState) look(c *store.Charge, now int64) {
	was, kept := &store.Limit{}, bucket.Bucket{}
	if cs.entry = cs.shard.find(cs.hash, c.Policy, cs.key); cs.entry != nil {
		was, kept = &cs.entry.class.limit, cs.entry.bucket()
		if cs.entry.class.blocked {
			if b := cs.shard.blocks[cs.hash].Block; b.Left(now) > 0 {
				cs.block, cs.left = b, b.Left(now)
			}
		}
	}
	cs.bucket = c.Limit.Advance(was, kept, now)
	cs.need, cs.debt = c.Limit.Ask(c.Cost, c.MaxWait.Microseconds(), c.Owed, c.Settles)
	cs.spared = (cs.need < 0 || cs.debt < 0) && c.Limit.Spares(was, cs.need, cs.debt) // in this order, because most take
	cs.loses = c.Limit.Loses(cs.bucket.Tokens, cs.need)
	cs.fits = c.Limit.Grants(cs.bucket.Tokens, cs.need, cs.debt, 1) == 1 && (cs.left == 0 || bucket.Passes(cs.need, cs.debt))
}

// charge charges the bucket. It may move and forget other entries of the shard.
func (cs *chargeState) charge(c *store.Charge, now int64) {
	if cs.spared {
		return
	}
	before, block := cs.bucket.Tokens, cs.block
	stays := cs.need == bucket.Reset && cs.entry != nil && cs.entry.held() > 0
	if !stays {
		cs.bucket.Tokens = c.Limit.Charge(before, cs.need, cs.debt, 1)
	}
	if c.Lock > 0 || cs.left > 0 {
		cs.block = c.Limit.After(block, cs.need, bucket.Microseconds(c.Lock), cs.bucket.Tokens, now)
		cs.left = cs.block.Left(now)
	}
	switch {
	case stays:
	case cs.need == bucket.Reset:
		if cs.entry != nil {
			cs.shard.remove(cs.shard.index[cs.hash])
		}
		cs.bucket = c.Limit.Advance(&store.Limit{}, bucket.Bucket{}, now)
		return
	case cs.bucket.Tokens == before && cs.block == block:
		cs.refuse(c)
		return
	case cs.entry != nil:
		cs.shard.update(cs.entry, c.Limit, cs.bucket)
	default:
		cs.entry = cs.shard.insert(cs.hash, cs.key, kind{policy: c.Policy, limit: c.Limit}, cs.bucket, now)
	}
	if cs.block != block {
		cs.shard.setBlock(cs.hash, cs.entry, keptBlock{Block: cs.block, since: now})
	}
}

// fill fills the state of the charge. The shard is not locked any more.
func (cs *chargeState) fill(c *store.Charge, s *store.State, now int64) {
	c.Fill(s, cs.bucket.Tokens, duration(c.Limit.Rest(cs.bucket, now)), duration(cs.left), cs.fits)
	if cs.fits && c.Limit.IsConcurrency() {
		s.Lost = cs.loses
		cs.shard.counts.slots(c, s)
	}
}

// refuse handles a charge that changes nothing. It only puts a bucket that was charged before under its limit.
func (cs *chargeState) refuse(c *store.Charge) {
	if cs.spared || cs.entry == nil || cs.entry.class.limit == c.Limit || !bucket.Relimits(cs.need) {
		return
	}
	if cs.entry.class.limit != (store.Limit{}) {
		cs.shard.update(cs.entry, c.Limit, cs.bucket)
	}
}
