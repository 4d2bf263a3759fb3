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
	reads   = "HMGET tokens last_refill limit"
	readsIt = "HMGET unit"
	charges = "HSET tokens last_refill"
	lasts   = "HSET tokens last_refill, PEXPIRE"
	writes  = "HSET tokens last_refill limit unit, PEXPIRE"
	marks   = "HSET limit"
)

func list(commands ...string) string { return strings.Join(commands, ", ") }

// A bucket that is not blocked costs no command that it would not cost without blocks, and a blocked one that refuses a
// charge costs one.
func TestCommandsOfACharge(t *testing.T) {
	l := newLimit(t, 1, time.Second, 10) // whose periods begin at full 10 s
	other := newLimit(t, 1, time.Second, 8)
	slow := newLimit(t, 1, 100*time.Second, 20)
	finer := newLimit(t, 3, time.Second, 5)
	take := func(l bucket.Limit, cost int64) term { return term{limit: l, need: l.Need(cost)} }
	block := func(l bucket.Limit, need, block int64) term { return term{limit: l, need: need, block: block} }
	owed := take(l, 3)
	owed.debt = bucket.AnyDebt
	steps := []struct {
		name string
		at   float64 // seconds
		term
		want string
	}{
		{"a new bucket", 0, take(l, 1), list(reads, writes)},
		{"in the same period", 1, take(l, 2), list(reads, charges)},
		{"a look", 1, take(l, 0), reads},
		{"denied", 1, take(l, 10), reads},
		{"never", 1, take(l, 11), reads},
		{"in another period", 12, take(l, 9), list(reads, lasts)},
		{"a refund", 12, take(l, -1), list(reads, charges)},
		{"owed, into debt", 12, owed, list(reads, lasts)},
		{"out of debt, in the same period", 19, take(l, 1), list(reads, charges)},
		{"denied under another limit", 19, take(other, 6), list(reads, readsIt, writes)},
		{"denied once more", 19, take(other, 6), reads},
		{"a look under a limit of another unit", 19, take(finer, 0), list(reads, readsIt)},
		{"denied under a limit of another unit", 19, take(finer, 5), list(reads, readsIt, writes)},
		{"a look at a full bucket", 100, take(finer, 0), reads},
		{"a clock that was set back", 1, take(finer, 1), list(reads, writes)},
		{"removed", 1, take(l, -1<<63), list(reads, readsIt, "PEXPIRE")},

		{"blocked when new", 30, block(l, 0, 5_000_000), list(reads, reads, writes)},
		{"denied by a block", 30, take(l, 1), reads},
		{"denied by a block under another limit, when full", 30, take(finer, 1), list(reads, readsIt)},
		{"a look at a blocked bucket", 30, take(l, 0), reads},
		{"owed by a blocked bucket", 30, owed, list(reads, lasts)},
		{"denied by a block under another limit", 30, take(other, 1), list(reads, readsIt, writes)},
		{"denied by a block once more", 30, take(other, 1), reads},
		{"denied by a block that has ended, when full", 37, take(other, 9), reads},
		{"allowed by a block that has ended", 37, take(other, 7), list(reads, writes)},
		{"in the same period again", 38, take(other, 1), list(reads, charges)},
		{"locked", 38, block(other, other.Need(1), 60_000_000), list(reads, writes)},
		{"denied by a lock", 39, take(other, 1), reads},
		{"the end of a lock", 39, take(other, -1), list(reads, writes)},
		{"after a lock", 39, take(other, 1), list(reads, charges)},
		{"locked once more", 39, block(other, other.Need(1), 2_000_000), list(reads, writes)},
		{"denied by a lock that has ended", 42, take(other, 5), reads},
		{"allowed by a lock that has ended", 42, take(other, 1), list(reads, writes)},
		{"blocked in use", 43, block(finer, 0, 5_000_000), list(reads, readsIt, reads, writes)},
		{"a clock that was set back under a block", 31, take(other, 1), list(reads, marks, writes)},
		{"unblocked", 31, block(other, 0, -1), list(reads, reads, writes)},
		{"after a block", 31, take(other, 1), list(reads, charges)},
		{"an unknown bucket is unblocked", 31, block(other, 0, -1), list(reads, reads, writes)},

		{"removed once more", 50, take(other, -1<<63), list(reads, "PEXPIRE")},
		{"new, under a slow limit", 50, take(slow, 1), list(reads, writes)},
		{"held until 150", 51, take(l, 3), list(reads, readsIt, writes)},
		{"denied when held", 51, take(l, 8), reads},
		{"a look when held", 51, take(l, 0), reads},
		{"in the same period when held", 52, take(l, 1), list(reads, writes)},
		{"held for less than its TTL", 141, take(l, 5), list(reads, writes)},
		{"in the same period when held for less than its TTL", 142, take(l, 5), list(reads, writes)},
		{"a hold that has ended", 151, take(l, 5), list(reads, writes)},
		{"in the same period after a hold", 152, take(l, 5), list(reads, charges)},
	}
	for name, ask := range map[string]func(server, any, call) ([]int64, error){"take.lua": askTake, "alone": askAlone} {
		s := startInterpreter(t, lua.Take, lua.TakeOne, lua.TakeFew)
		for _, step := range steps {
			seconds := 1_780_000_000 + int64(step.at)
			s.ask("time", seconds, int64(step.at*1e6)%1e6)
			got, err := ask(s, "", call{1, []charge{{"k", step.term}}})
			if err != nil {
				t.Fatalf("%s: %s: %v", name, step.name, err)
			}
			commands := strings.Join(s.ask("commands"), ", ")
			commands = strings.ReplaceAll(strings.ReplaceAll(commands, "TIME, ", ""), "TIME", "")
			want := step.want
			if name == "alone" && len(got) > 2 && step.block == 0 || name == "alone" && step.name == "the end of a lock" {
				want = list(reads, want) // it was asked twice
			}
			if commands != want {
				t.Errorf("%s: %s: commands %s\nwant %s\n%v", name, step.name, commands, want, fmt.Sprint(got, s.hash("k")))
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
