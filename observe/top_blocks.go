package observe

import (
	"cmp"
	"container/heap"
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-tokenbucket/ratelimit"
)

// maxBlocks is the number of blocks that a Top remembers. If there are more, the one that ends first goes: a flood of locks
// must not push out an operator's long block.
const maxBlocks = 1000

// A BlockedKey is a key whose bucket is blocked by [ratelimit.Limiter.Block], or locked by [ratelimit.Policy.LockFor].
type BlockedKey struct {
	// Policy is the policy's name. Key is the key as in [TopKey].
	Policy, Key string

	// Until is when the block ends. It can be too late where the bucket has no tokens for longer than the block.
	Until time.Time
}

// Blocked returns the blocks and locks in force that this process has met. The last to end comes first. A process meets a
// block when it calls Block, when the block denies a request, and by a Peek. A block is listed until it ends, or this
// process calls Unblock or Reset, or a refund ends a lock, or a request of the key is allowed again.
//
// At most 1,000 blocks are remembered. If there are more, the one that ends first is forgotten.
func (t *Top) Blocked() []BlockedKey {
	var listed []BlockedKey
	for _, b := range t.blocks.inForce(t.now()) {
		listed = append(listed, BlockedKey{Policy: b.policy, Key: t.show(b.kept, b.whole), Until: b.until})
	}
	slices.SortFunc(listed, func(a, b BlockedKey) int {
		return cmp.Or(b.Until.Compare(a.Until), cmp.Compare(a.Policy, b.Policy), cmp.Compare(a.Key, b.Key))
	})
	return listed
}

// operated notes what a call that is no request says of blocks.
func (t *Top) operated(part int64, e *ratelimit.Event) {
	for i := range e.Results {
		r := &e.Results[i]
		switch {
		case e.Err != nil, i < len(e.Estimates) && r.Cost == e.Estimates[i]: // r is that of the decision
		case r.Blocked:
			t.blocks.meet(t, part, r, e.Op == "block")
		case e.Op == "unblock", e.Op == "reset":
			t.blocks.end(t, r)
		default:
			t.blocks.passed(t, part, r)
		}
	}
}

// blocks are the blocks and locks that a Top has met. The zero value is empty.
type blocks struct {
	some atomic.Bool // whether there are any

	mu    sync.Mutex
	of    map[bucketID]*block
	byEnd endingFirst
}

// A bucketID is the policy of a bucket and the hash of its key.
type bucketID struct {
	policy string
	key    uint64
}

type block struct {
	bucketID
	kept  string
	whole bool
	until time.Time
	place int // in byEnd

	met int64 // the part in which it was met
	set int64 // the part in which this process made it, or notSet
}

// notSet is not near to any part.
const notSet = -1 << 32

// meet notes that the bucket of r is blocked, and if set is true, that this process has blocked it.
func (of *blocks) meet(t *Top, part int64, r *ratelimit.Result, set bool) {
	id := bucketID{r.Policy, maphash.String(t.seed, r.Key)}
	of.mu.Lock()
	defer of.mu.Unlock()
	b := of.of[id]
	if b != nil && b.met == part && !set {
		return // it is the same
	}
	until := t.now().Add(min(r.RetryAfter, r.ResetAfter))
	if b == nil {
		if b = of.room(until); b == nil {
			return
		}
		kept, whole := t.keep(r.Key)
		*b = block{bucketID: id, kept: strings.Clone(kept), whole: whole, place: b.place, set: notSet} // r.Key may be a part of long headers
		of.of[id] = b
	}
	b.met, b.until = part, until
	if set {
		b.set = part
	}
	heap.Fix(&of.byEnd, b.place)
}

// room returns the place of a block that ends at a time: a new one, or that of the block that ends first. It returns nil if
// all others end later.
func (of *blocks) room(until time.Time) *block {
	if len(of.byEnd) < maxBlocks {
		if of.of == nil {
			of.of = make(map[bucketID]*block)
		}
		b := new(block)
		heap.Push(&of.byEnd, b)
		of.some.Store(true)
		return b
	}
	first := of.byEnd[0]
	if !first.until.Before(until) {
		return nil
	}
	delete(of.of, first.bucketID)
	return first
}

// passed notes that the store has not found the bucket of r blocked. The call may have been on its way when this process
// blocked the bucket.
func (of *blocks) passed(t *Top, part int64, r *ratelimit.Result) {
	if !of.some.Load() || r.Degraded {
		return
	}
	id := bucketID{r.Policy, maphash.String(t.seed, r.Key)}
	of.mu.Lock()
	defer of.mu.Unlock()
	if b := of.of[id]; b != nil && part != b.set && part != b.set+1 {
		of.remove(b)
	}
}

// end notes that this process has ended a block.
func (of *blocks) end(t *Top, r *ratelimit.Result) {
	of.mu.Lock()
	defer of.mu.Unlock()
	if b := of.of[bucketID{r.Policy, maphash.String(t.seed, r.Key)}]; b != nil {
		of.remove(b)
	}
}

func (of *blocks) remove(b *block) {
	heap.Remove(&of.byEnd, b.place)
	delete(of.of, b.bucketID)
	of.some.Store(len(of.byEnd) > 0)
}

// inForce forgets the blocks that have ended, and returns the others.
func (of *blocks) inForce(now time.Time) []block {
	of.mu.Lock()
	defer of.mu.Unlock()
	for len(of.byEnd) > 0 && !of.byEnd[0].until.After(now) {
		of.remove(of.byEnd[0])
	}
	all := make([]block, 0, len(of.byEnd))
	for _, b := range of.byEnd {
		all = append(all, *b)
	}
	return all
}

// find returns the key of a block that is shown as shown.
func (of *blocks) find(t *Top, policy, shown string) (key string, ok bool) {
	for _, b := range of.inForce(t.now()) {
		if b.policy == policy && b.whole && t.show(b.kept, true) == shown {
			return b.kept, true
		}
	}
	return "", false
}

// endingFirst is a heap of blocks by their ends.
type endingFirst []*block

func (h endingFirst) Len() int           { return len(h) }
func (h endingFirst) Less(i, j int) bool { return h[i].until.Before(h[j].until) }
func (h endingFirst) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}

func (h *endingFirst) Push(b any) {
	b.(*block).place = len(*h)
	*h = append(*h, b.(*block))
}

func (h *endingFirst) Pop() any {
	last := len(*h) - 1
	b := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return b
}
