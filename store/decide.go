package store

import "github.com/go-tokenbucket/ratelimit/internal/bucket"

// Kept is what a Store keeps of a bucket, if it decides with [Decide]. Keep all fields, and change none. All times are in
// microseconds of Unix time, on the clock of the Store. The zero Kept is a bucket that was never charged, or that was forgotten.
type Kept struct {
	Limit   Limit // of the last charge
	Credits int64 // after the last charge, in credits of Limit
	At      int64 // the time of the last charge or, under a quota, the end of the period
	FullAt  int64 // the latest time at which it has refilled, under all its limits; the latest of all while a slot is held

	BlockedSince, BlockedUntil int64 // 0 without a block
	Locked                     bool
	Reason                     string
}

// Decide carries out a call at the time now. kept are the buckets of the charges. Decide fills states and reports whether
// the call was allowed, as Take does. The Store must write the buckets that Decide has changed, and remove those that are
// the zero Kept afterwards.
func Decide(charges []Charge, kept []Kept, states []State, now int64) (ok bool) {
	ok = true
	for i := range charges {
		states[i].Allowed = kept[i].fits(&charges[i], now)
		ok = ok && (states[i].Allowed || charges[i].Shadow)
	}
	for i := range charges {
		kept[i].charge(&charges[i], &states[i], ok && states[i].Allowed, now)
	}
	return ok
}

// SetBlock blocks the bucket at the time now, or unblocks it.
func (k *Kept) SetBlock(b Block, now int64) {
	until := int64(0)
	if b.For > 0 {
		until = now + bucket.Microseconds(b.For)
	}
	k.setBlock(bucket.Block{Until: until}, b.Reason, now)
}

// Bucket returns what Inspect reports at the time now.
func (k Kept) Bucket(now int64) Bucket {
	b := Bucket{Limit: k.Limit, Credits: k.Credits}
	switch {
	case k.Limit.IsQuota():
		b.Rest = duration(k.At - now)
	case k.Limit.Refill > 0:
		b.Age = bucket.Age(k.At, now)
	}
	if left := k.block(now).Left(now); left > 0 {
		b.Blocked, b.BlockedSince = duration(left), duration(max(0, now-k.BlockedSince))
		b.Locked, b.Reason = k.Locked, k.Reason
	}
	return b
}

// Expires returns when the Store may forget the bucket.
func (k Kept) Expires() int64 { return max(k.FullAt, k.BlockedUntil) }

// fits reports whether the bucket can pay c.
func (k Kept) fits(c *Charge, now int64) bool {
	need, debt := c.ask()
	tokens := c.Limit.Advance(&k.Limit, k.bucket(), now).Tokens
	return c.Limit.Grants(tokens, need, debt, 1) == 1 && (k.block(now).Left(now) == 0 || bucket.Passes(need, debt))
}

// charge fills s, and takes c's tokens if charged is true.
func (k *Kept) charge(c *Charge, s *State, charged bool, now int64) {
	l, block := c.Limit, k.block(now)
	need, debt := c.ask()
	b := l.Advance(&k.Limit, k.bucket(), now)
	lost := charged && l.Loses(b.Tokens, need)
	if l.Spares(&k.Limit, need, debt) {
		c.Fill(s, b.Tokens, duration(l.Rest(b, now)), duration(block.Left(now)), charged)
		s.Lost = lost
		return
	}
	changes := k.Limit != (Limit{}) && k.Limit != l && bucket.Relimits(need)
	stays := need == bucket.Reset && k.Limit.Held(k.Credits) > 0
	if charged {
		before, blockBefore := b.Tokens, block
		if !stays {
			b.Tokens = l.Charge(before, need, debt, 1)
		}
		block = l.After(block, need, bucket.Microseconds(c.Lock), b.Tokens, now)
		if block != blockBefore {
			k.setBlock(block, "", now)
			changes = true
		}
		changes = changes || b.Tokens != before
	}
	switch {
	case stays:
	case charged && need == bucket.Reset:
		*k, b = Kept{}, l.Advance(&Limit{}, bucket.Bucket{}, now)
	case changes:
		k.FullAt = l.KeepUntil(&k.Limit, k.FullAt, b)
		k.Limit, k.Credits, k.At = l, b.Tokens, b.At
	}
	c.Fill(s, b.Tokens, duration(l.Rest(b, now)), duration(block.Left(now)), charged)
	s.Lost = lost
}

func (k Kept) bucket() bucket.Bucket { return bucket.Bucket{Tokens: k.Credits, At: k.At} }

// block returns the block that is in force.
func (k Kept) block(now int64) bucket.Block {
	b := bucket.Block{Until: k.BlockedUntil, Lock: k.Locked}
	if b.Left(now) == 0 {
		return bucket.Block{}
	}
	return b
}

func (k *Kept) setBlock(b bucket.Block, reason string, now int64) {
	k.BlockedSince, k.BlockedUntil, k.Locked, k.Reason = now, b.Until, b.Lock, reason
	if b == (bucket.Block{}) {
		k.BlockedSince, k.Reason = 0, ""
	}
}

func (c *Charge) ask() (need, debt int64) {
	return c.Limit.Ask(c.Cost, c.MaxWait.Microseconds(), c.Owed, c.Settles)
}
