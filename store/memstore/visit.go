package memstore

import (
	"github.com/go-tokenbucket/ratelimit/internal/bucket"
	"github.com/go-tokenbucket/ratelimit/store"
)

// A visit is a charge during Take. Its shard is locked.
type visit struct {
	shard   *shard
	key     string // a short one
	hash    uint32
	fits    bool
	resets  bool          // it is to be forgotten
	settles bool          // spare is to be kept with it
	isNew   bool          // it was full, and is to be kept from now on
	shut    bool          // entry has a block, which may have ended
	entry   *entry        // nil: no bucket is kept, so it is full
	bucket  bucket.Bucket // as it stands now
	need    int64         // in credits
	now     int64
	left    int64 // microseconds until the end of its block
	spare   bucket.Spare
}

// look finds what the bucket holds now, and whether it can pay.
func (v *visit) look(c *store.Charge, now int64) {
	l := bucket.Limit(c.Limit)
	var kept bucket.Bucket
	if v.entry = v.shard.find(v.hash, c.Policy, v.key); v.entry != nil {
		kept = v.entry.bucket()
	}
	v.bucket = l.Advance(kept, now)
	var debt int64
	v.now = now
	v.need, debt = l.Ask(c.Cost, c.MaxWait.Microseconds(), c.Owed)
	v.fits = l.Grants(v.bucket.Tokens, v.need, debt, 1) == 1
	if v.entry != nil && v.entry.class.shut {
		v.shut, v.left = true, v.shard.shuts[v.entry.name()].Left(now)
		v.fits = v.fits && (v.left == 0 || bucket.Passes(v.need, debt))
	}
}

// charge charges the bucket.
func (v *visit) charge(c *store.Charge) {
	if c.Refilled > 0 {
		v.settle(c)
	}
	left := bucket.Limit(c.Limit).Charge(v.bucket.Tokens, v.need, 1)
	if v.need == bucket.Reset {
		v.bucket.Tokens, v.resets, v.left = left, v.entry != nil, 0
		return
	}
	changes := left != v.bucket.Tokens || v.settles
	v.bucket.Tokens = left
	if v.shut || c.Block != 0 {
		v.block(c)
	}
	if !changes {
		v.refuse(c)
		return
	}
	if v.entry != nil {
		v.shard.update(v.entry, c, v.bucket)
	} else {
		v.isNew = true
	}
}

// refuse handles a charge that changes no tokens. As in Redis it writes nothing, with one exception. The first
// charge puts the bucket under the new limit. Otherwise it would be forgotten when it is full under the old one.
func (v *visit) refuse(c *store.Charge) {
	if v.entry != nil && v.entry.class.limit != c.Limit && v.bucket.Tokens < c.Limit.Capacity && (bucket.Relimits(v.need, 0) || c.Refilled > 0) {
		v.shard.update(v.entry, c, v.bucket)
	}
}

// keep adds a bucket that is no longer full, or forgets one that was reset.
func (v *visit) keep(c *store.Charge) {
	if v.isNew {
		e := v.shard.insert(v.hash, v.key, c, v.bucket)
		if v.left > 0 {
			v.shard.setShut(e, v.shutAfter(c, bucket.Shut{}))
		}
	}
	if v.settles && v.shard.find(v.hash, c.Policy, v.key) != nil { // or another charge of the call has removed it
		v.shard.setSpare(c.Policy, v.key, v.spare)
	}
	if v.resets {
		// Found again, because another charge of the call may have moved or removed it.
		if e := v.shard.find(v.hash, c.Policy, v.key); e != nil {
			v.shard.remove(e.class.queue.deadlines[e.deadline].entry)
		}
	}
}

// settle adds to the need of the bucket what must still be charged of c's past.
func (v *visit) settle(c *store.Charge) {
	var kept bucket.Bucket
	var spare bucket.Spare
	if v.entry != nil {
		kept, spare = v.entry.bucket(), v.shard.spare(c.Policy, v.key)
	}
	l := bucket.Limit(c.Limit)
	credits, rest := l.Settle(kept, spare, l.Past(c.Refilled, c.Outage.Microseconds()), v.now)
	v.need = min(v.need+credits, 2*bucket.MaxCredits)
	v.settles, v.spare = rest != spare, rest
}
