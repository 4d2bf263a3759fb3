package lua_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/bucket"
	"github.com/go-tokenbucket/ratelimit/lua"
)

// The commands that scripts run, as the interpreter of the tests lists them.
const (
	reads    = "HMGET tokens last_refill limit"
	readsIt  = "HMGET blocked_limit blocked_until"
	charges  = "HSET tokens last_refill"
	news     = "HSET tokens last_refill limit, PEXPIRE"
	lasts    = "PTTL, HSET tokens last_refill limit, PEXPIRE"
	shorter  = "PTTL, HSET tokens last_refill limit" // than the TTL is
	beneath  = "PTTL, HSET tokens last_refill blocked_limit"
	relocks  = "PTTL, HSET tokens last_refill blocked_limit, HSET limit blocked_until blocked_since blocked_reason" // for less than the TTL
	locks    = relocks + ", PEXPIRE"
	unlocks  = "PTTL, HSET tokens last_refill limit, HSET blocked_until"
	forblock = "HMGET limit blocked_limit tokens used"
)

func list(commands ...string) string { return strings.Join(commands, ", ") }

// A bucket that is not blocked costs no command that it would not cost without blocks, and a blocked one that refuses a
// charge costs one more read.
func TestCommandsOfACharge(t *testing.T) {
	l := newLimit(t, 1, time.Second, 10) // whose periods begin at full 10 s
	other := newLimit(t, 1, time.Second, 8)
	finer := newLimit(t, 3, time.Second, 5)
	take := func(l bucket.Limit, cost int64) term { return term{limit: l, need: l.Need(cost)} }
	lock := func(l bucket.Limit, seconds int64) term {
		return term{limit: l, need: l.Need(1), lock: seconds * 1_000_000}
	}
	owed := take(l, 3)
	owed.debt = bucket.AnyDebt
	block := func(seconds int64) term { return term{lock: seconds * 1_000_000} } // by block.lua
	steps := []struct {
		name string
		at   float64 // seconds
		term
		want string
	}{
		{"a new bucket", 0, take(l, 1), list(reads, news)},
		{"in the same period", 1, take(l, 2), list(reads, charges)},
		{"a look", 1, take(l, 0), reads},
		{"denied", 1, take(l, 10), reads},
		{"never", 1, take(l, 11), reads},
		{"in another period", 12, take(l, 9), list(reads, lasts)},
		{"a refund", 12, take(l, -1), list(reads, charges)},
		{"owed, into debt", 12, owed, list(reads, lasts)},
		{"out of debt, in the same period", 19, take(l, 1), list(reads, charges)},
		{"denied under another limit", 19, take(other, 6), list(reads, lasts)},
		{"denied once more", 19, take(other, 6), reads},
		{"a look under a limit of another unit", 19, take(finer, 0), reads},
		{"denied under a limit of another unit", 19, take(finer, 5), list(reads, shorter)},
		{"a look at a full bucket", 100, take(finer, 0), reads},
		{"a clock that was set back", 1, take(finer, 1), list(reads, shorter)},
		{"removed", 1, take(l, -1<<63), list(reads, "PEXPIRE")},

		{"blocked when new", 30, block(5), list(forblock, "PTTL, HSET limit blocked_until blocked_since blocked_reason, PEXPIRE")},
		{"denied by a block", 30, take(l, 1), list(reads, readsIt)},
		{"denied by a block under another limit, when full", 30, take(finer, 1), list(reads, readsIt)},
		{"a look at a blocked bucket", 30, take(l, 0), list(reads, readsIt)},
		{"owed by a blocked bucket", 30, owed, list(reads, readsIt, beneath)},
		{"denied by a block under another limit", 30, take(other, 1), list(reads, readsIt, beneath)},
		{"denied by a block once more", 30, take(other, 1), list(reads, readsIt)},
		{"denied by a block that has ended, when full", 37, take(other, 9), list(reads, readsIt)},
		{"allowed by a block that has ended", 37, take(other, 7), list(reads, readsIt, shorter)},
		{"in the same period again", 38, take(other, 1), list(reads, charges)},
		{"locked", 38, lock(other, 60), list(reads, locks)},
		{"denied by a lock", 39, take(other, 1), list(reads, readsIt)},
		{"the end of a lock", 39, take(other, -1), list(reads, readsIt, unlocks)},
		{"after a lock", 39, take(other, 1), list(reads, charges)},
		{"locked once more", 39, lock(other, 2), list(reads, relocks)},
		{"denied by a lock that has ended", 42, take(other, 5), list(reads, readsIt)},
		{"allowed by a lock that has ended", 42, take(other, 1), list(reads, readsIt, shorter)},
		{"blocked in use", 43, block(5), list(forblock, "PTTL, HSET limit blocked_until blocked_since blocked_reason, HSET blocked_limit, PEXPIRE")},
		{"unblocked", 44, block(0), list(forblock, "HSET limit blocked_until")},
		{"after a block", 44, take(other, 1), list(reads, charges)},
		{"unblocked again", 44, block(0), forblock},
	}
	for name, ask := range ways {
		s := startInterpreter(t, lua.Take, lua.TakeOne, lua.TakeQuota, lua.TakeFew, lua.Block)
		for _, step := range steps {
			seconds := 1_780_000_000 + int64(step.at)
			s.ask("time", seconds, int64(step.at*1e6)%1e6)
			var got []int64
			var err error
			if step.limit == (bucket.Limit{}) {
				s.use(useBlock)
				got, err = s.run([]string{"k"}, []any{"", step.lock, ""})
				s.use(useTake)
			} else {
				got, err = ask(s, "", call{1, []charge{{"k", step.term}}})
			}
			if err != nil {
				t.Fatalf("%s: %s: %v", name, step.name, err)
			}
			commands := strings.ReplaceAll(strings.Join(s.ask("commands"), ", "), "TIME, ", "")
			twice := list(reads, step.want) // of a script that has not answered, and of take.lua
			if commands != step.want && (name != "alone" || commands != twice) {
				t.Errorf("%s: %s: commands %s\nwant %s\n%v", name, step.name, commands, step.want, fmt.Sprint(got, s.hash("k")))
			}
		}
	}
}

func newLimit(t *testing.T, rate int64, per time.Duration, burst int64) bucket.Limit {
	t.Helper()
	l, err := bucket.NewLimit(rate, per, burst)
	if err != nil {
		t.Fatal(err)
	}
	return l
}
