package fallback

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit/store"
)

// Buckets that share a mark are told apart.
func TestBlocksOfOneMark(t *testing.T) {
	b := newBlocks()
	c := func(i int) []store.Charge {
		return []store.Charge{{Policy: "p", Key: fmt.Sprint(i), Limit: anyLimit, Cost: 1}}
	}
	first, others := c(0), [][]store.Charge(nil)
	for i := 1; len(others) < 2; i++ {
		if b.mark("p", fmt.Sprint(i)) == b.mark("p", "0") {
			others = append(others, c(i))
		}
	}
	blocked, not := []store.State{{Blocked: true, RetryAfter: time.Hour}}, []store.State{{Allowed: true}}
	isBlocked := func(c []store.Charge) bool {
		_, differs := b.differs(c[0].Policy, c[0].Key)
		return differs
	}
	b.learn(first, blocked, math.MaxInt64)
	b.learn(others[0], not, math.MaxInt64)
	b.learn(others[1], blocked, math.MaxInt64)
	b.learn(others[0], not, math.MaxInt64)
	if !isBlocked(first) || isBlocked(others[0]) || !isBlocked(others[1]) {
		t.Error("an answer for one ends the block of another")
	}
	b.learn(others[1], not, math.MaxInt64)
	b.learn(others[0], not, math.MaxInt64)
	if !isBlocked(first) || isBlocked(others[1]) {
		t.Error("an answer for one ends the block of another, or not its own")
	}
	b.learn(first, not, math.MaxInt64)
	if isBlocked(first) || b.some() || len(b.of) != 0 {
		t.Errorf("%d blocks are left", len(b.of))
	}
}
