package memstore

import (
	"github.com/go-tokenbucket/ratelimit/internal/bucket"
	"github.com/go-tokenbucket/ratelimit/store"
)

// A visit is a charge during Take. Its shard is locked.
type visit struct {
	shard      *shard
	key        string // a short one
	hash       uint64
	entry      *entry        // nil: no bucket is kept, so it is full
	bucket     bucket.Bucket // as it stands now
	need, debt int64         // in credits
	left       int64         // microseconds until the end of its block
	fits       bool
}

// look finds what the bucket holds now, and whether it can pay.
func (v *visit) look(c *store.Charge, now int64) {
	var kept bucket.Bucket
	if v.entry = v.shard.find(v.hash, c.Policy, v.key); v.entry != nil {
		kept = v.entry.bucket()
		if v.entry.class.blocked {
			v.left = v.shard.blocks[v.hash].Left(now)
		}
	}
	v.bucket = c.Limit.Advance(kept, now)
	v.need, v.debt = c.Limit.Ask(c.Cost, c.MaxWait.Microseconds(), c.Owed, c.Settles)
	v.fits = c.Limit.Grants(v.bucket.Tokens, v.need, v.debt, 1) == 1 && (v.left == 0 || bucket.Passes(v.need, v.debt))
}

// charge charges the bucket. It may move and forget other entries of the shard.
func (v *visit) charge(c *store.Charge, now int64) {
	before := v.bucket.Tokens
	v.bucket.Tokens = c.Limit.Charge(before, v.need, v.debt, 1)
	switch {
	case v.need == bucket.Reset:
		v.left = 0
		if v.entry != nil {
			v.shard.remove(v.shard.index[v.hash])
		}
		return
	case v.bucket.Tokens == before:
		v.refuse(c)
	case v.entry != nil:
		v.shard.update(v.entry, c.Limit, v.bucket)
	default:
		v.entry = v.shard.insert(v.hash, v.key, kind{policy: c.Policy, limit: c.Limit}, v.bucket, now)
	}
	if v.entry != nil && (c.Lock > 0 || v.entry.class.blocked) {
		v.block(c, now)
	}
}

// refuse handles a charge that changes no tokens. It only puts a bucket that was charged before under its limit.
func (v *visit) refuse(c *store.Charge) {
	if v.entry == nil || v.entry.class.limit == c.Limit || !bucket.Relimits(v.need) {
		return
	}
	if v.entry.class.limit != (store.Limit{}) {
		v.shard.update(v.entry, c.Limit, v.bucket)
	}
}

// block does to the block of the bucket what its charge does.
func (v *visit) block(c *store.Charge, now int64) {
	before := v.shard.blocks[v.hash]
	after := c.Limit.After(before.Block, v.need, bucket.Microseconds(c.Lock), v.bucket.Tokens, now)
	v.left = after.Left(now)
	if after != before.Block {
		v.shard.setBlock(v.hash, v.entry, block{Block: after, since: now})
	}
}
