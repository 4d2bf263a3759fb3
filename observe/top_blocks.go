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

// maxBlocks is the number of blocks that a Top remembers. A flood of locks must not push out an operator's block, which is
// long, so the one that ends first goes.
const maxBlocks = 1000

// A BlockedKey is a key whose bucket is blocked by [ratelimit.Limiter.Block], or locked by [ratelimit.Policy.LockFor].
type BlockedKey struct {
	// Policy is the policy's name. Key is the key as in [TopKey].
	Policy, Key string

	// Until is when the block ends, at the latest. It may end earlier if the bucket has had no tokens for longer.
	Until time.Time
}

// Blocked returns the blocks and locks in force that this process has met, the last to end first: those that have denied a
// request or that a Peek has found, and those that its own calls of Block have made. A block goes when it ends, after an
// Unblock or a Reset by this process, and when a request of the key is allowed again. At most 1,000 are remembered: the
// one that ends first is forgotten.
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
		if len(of.byEnd) >= maxBlocks {
			if !of.byEnd[0].until.Before(until) {
				return
			}
			of.remove(of.byEnd[0])
		}
		b = of.add(t, id, r.Key)
	}
	b.met, b.until = part, until
	if set {
		b.set = part
	}
	heap.Fix(&of.byEnd, b.place)
}

func (of *blocks) add(t *Top, id bucketID, key string) *block {
	kept, whole := t.keep(key)
	b := &block{bucketID: id, kept: strings.Clone(kept), whole: whole, set: notSet} // a key may be a part of long headers
	if of.of == nil {
		of.of = make(map[bucketID]*block)
	}
	of.of[id] = b
	heap.Push(&of.byEnd, b)
	of.some.Store(true)
	return b
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
