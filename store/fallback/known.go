package fallback

import (
	"hash/maphash"
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/bucket"
	"github.com/go-tokenbucket/ratelimit/store"
)

// known is what the primary last reported of each bucket: a table with a few places for each hash. Storing a report
// must not cost a call more than some nanoseconds. So a place has neither lock nor name, only 64 bits that identify
// its bucket.
//
// A client can make up keys, and so buckets for all places. Therefore the policies share the places of a hash.
// Among the buckets of one policy, those stay that have spent the largest part of their tokens.
type known struct {
	seed   maphash.Seed
	start  time.Time
	places []place
}

// ways is the number of places for a hash. They fill a cache line.
const ways = 4

// A place holds when one bucket is full if nobody charges it. With the limit, that says what the bucket holds at
// any earlier time.
type place struct {
	whose atomic.Uint64 // a tag; 0: nobody's
	full  atomic.Int64  // in microseconds since start
}

// A tag identifies the bucket of a place. From the lowest bits up, it has hashes of the bucket, of its limit and of
// its policy, and the scale of the limit, which is never 0.
type tag uint64

const (
	bucketBits = 32
	limitBits  = 10
	policyBits = 14
)

func (t tag) bucket() uint64 { return uint64(t) & (1<<bucketBits - 1) }
func (t tag) policy() uint64 { return uint64(t) >> (bucketBits + limitBits) & (1<<policyBits - 1) }
func (t tag) spent(full int64) float64 {
	return bucket.Scale(t >> (bucketBits + limitBits + policyBits)).Spent(full)
}

func newKnown(places int) known {
	return known{
		seed:   maphash.MakeSeed(),
		start:  time.Now(),
		places: make([]place, max(ways, 1<<bits.Len(uint(places-1)))),
	}
}

// find returns the places where c's bucket may be, and its tag.
func (k *known) find(c *store.Charge) ([]place, tag) {
	policy, key := maphash.String(k.seed, c.Policy), maphash.String(k.seed, c.Key)
	hash := 31*policy + key
	first := hash & uint64(len(k.places)-1) &^ (ways - 1)
	// Under another limit, the same time to full is something else.
	limit := uint64(c.Limit.Unit)*0x9e3779b97f4a7c15 ^ uint64(c.Limit.Capacity)*0xbf58476d1ce4e5b9 ^ uint64(c.Limit.Refill)*0x94d049bb133111eb
	t := uint64(bucket.Limit(c.Limit).Scale())
	t = t<<policyBits | policy>>(64-policyBits)
	t = t<<limitBits | limit>>(64-limitBits)
	t = t<<bucketBits | hash>>(64-bucketBits)
	return k.places[first : first+ways], tag(t)
}

// now returns the time in microseconds.
func (k *known) now() int64 { return time.Since(k.start).Microseconds() }

// keep stores what the primary answered now, and reports whether a bucket is blocked. If two calls write a place at
// once, one bucket may get the time of the other. It then begins an outage too full or too empty.
func (k *known) keep(charges []store.Charge, states []store.State, now int64) (blocked bool) {
	for i := range charges {
		if states[i].Degraded {
			continue
		}
		if states[i].Blocked {
			if blocked = true; states[i].ResetAfter <= states[i].RetryAfter {
				continue // the block hides when the bucket is full
			}
		}
		places, t := k.find(&charges[i])
		full := now + states[i].ResetAfter.Microseconds()
		p := placeOf(places, t)
		if p == nil {
			if p = placeFor(places, t, full, now); p == nil {
				continue
			}
		} else if tag(p.whose.Load()) == t {
			p.full.Store(full)
			continue
		}
		p.whose.Store(0)
		p.full.Store(full)
		p.whose.Store(uint64(t))
	}
	return blocked
}

// placeOf returns the place of t's bucket, under any limit, or nil if it has none.
func placeOf(places []place, t tag) *place {
	for i := range places {
		if whose := tag(places[i].whose.Load()); whose != 0 && whose.bucket() == t.bucket() {
			return &places[i]
		}
	}
	return nil
}

// placeFor returns a place for t's bucket, which has none and is full at full. A place with a full bucket is free.
// Otherwise the policy with the most places gives up the place of its bucket that has spent least.
//
// It returns nil if that is t's policy and t's bucket has spent no more.
func placeFor(places []place, t tag, full, now int64) *place {
	if full <= now {
		return nil // a full bucket is one of which nothing is known
	}
	var whose [ways]tag
	var spent [ways]float64
	own := 1 // buckets of t's policy, with this one
	for i := range places {
		whose[i] = tag(places[i].whose.Load())
		left := places[i].full.Load() - now
		if whose[i] == 0 || left <= 0 {
			return &places[i]
		}
		spent[i] = whose[i].spent(left)
		if whose[i].policy() == t.policy() {
			own++
		}
	}
	victim, most := 0, 0
	for i := range whose {
		rank := 0 // twice how many its policy has, and one more for t's, which is before others that have as many
		for j := range whose {
			if whose[j].policy() == whose[i].policy() {
				rank += 2
			}
		}
		if whose[i].policy() == t.policy() {
			rank += 3
		}
		if rank > most || rank == most && spent[i] < spent[victim] {
			victim, most = i, rank
		}
	}
	if most <= 2*own+1 && t.spent(full-now) <= spent[victim] {
		return nil
	}
	return &places[victim]
}

// credits returns how many credits c's bucket holds now if nobody else has charged it. If nothing is known, it is
// full.
func (k *known) credits(c *store.Charge) int64 { return creditsOf(c.Limit, k.full(c, 0)) }

// full returns when c's bucket is full if nobody else charges it, in microseconds from a time that many
// microseconds ago. It is negative if the bucket was full before, and -bucket.MaxFill if nothing is known. For a
// bucket under another limit, the part that was spent is known to a quarter, and carries over.
func (k *known) full(c *store.Charge, ago int64) int64 {
	places, t := k.find(c)
	p := placeOf(places, t)
	if p == nil {
		return -bucket.MaxFill
	}
	left := p.full.Load() - (k.now() - ago)
	switch whose := tag(p.whose.Load()); {
	case whose == t || left <= 0:
		return left
	case whose.bucket() == t.bucket() && whose.policy() == t.policy():
		spent := max(0, whose.spent(left)) * float64(bucket.Limit(c.Limit).Fill())
		return int64(min(spent, bucket.MaxFill)) // under c's limit
	default:
		return -bucket.MaxFill
	}
}

// creditsOf returns how many credits a bucket of l holds that will be full after that many microseconds. It is
// negative in debt.
func creditsOf(l store.Limit, full int64) int64 {
	return bucket.Limit(l).Charge(l.Capacity, l.Refill, max(0, full))
}
