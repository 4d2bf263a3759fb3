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
	block      bucket.Block  // that is in force
	left       int64         // microseconds until its end
	fits       bool
}

// look finds what the bucket holds now, and whether it can pay.
func (v *visit) look(c *store.Charge, now int64) {
	var kept bucket.Bucket
	if v.entry = v.shard.find(v.hash, c.Policy, v.key); v.entry != nil {
		kept = v.entry.bucket()
		if v.entry.class.blocked {
			if b := v.shard.blocks[v.hash].Block; b.Left(now) > 0 {
				v.block, v.left = b, b.Left(now)
			}
		}
	}
	v.bucket = c.Limit.Advance(kept, now)
	v.need, v.debt = c.Limit.Ask(c.Cost, c.MaxWait.Microseconds(), c.Owed, c.Settles)
	v.fits = c.Limit.Grants(v.bucket.Tokens, v.need, v.debt, 1) == 1 && (v.left == 0 || bucket.Passes(v.need, v.debt))
}

// charge charges the bucket. It may move and forget other entries of the shard.
func (v *visit) charge(c *store.Charge, now int64) {
	before, block := v.bucket.Tokens, v.block
	v.bucket.Tokens = c.Limit.Charge(before, v.need, v.debt, 1)
	if c.Lock > 0 || v.left > 0 {
		v.block = c.Limit.After(block, v.need, bucket.Microseconds(c.Lock), v.bucket.Tokens, now)
		v.left = v.block.Left(now)
	}
	switch {
	case v.need == bucket.Reset:
		if v.entry != nil {
			v.shard.remove(v.shard.index[v.hash])
		}
		return
	case v.bucket.Tokens == before && v.block == block:
		v.refuse(c)
		return
	case v.entry != nil:
		v.shard.update(v.entry, c.Limit, v.bucket)
	default:
		v.entry = v.shard.insert(v.hash, v.key, kind{policy: c.Policy, limit: c.Limit}, v.bucket, now)
	}
	if v.block != block {
		v.shard.setBlock(v.hash, v.entry, keptBlock{Block: v.block, since: now})
	}
}

// refuse handles a charge that changes nothing. It only puts a bucket that was charged before under its limit.
func (v *visit) refuse(c *store.Charge) {
	if v.entry == nil || v.entry.class.limit == c.Limit || !bucket.Relimits(v.need) {
		return
	}
	if v.entry.class.limit != (store.Limit{}) {
		v.shard.update(v.entry, c.Limit, v.bucket)
	}
}
