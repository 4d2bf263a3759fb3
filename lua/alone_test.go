package lua_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit/internal/bucket"
	"github.com/go-tokenbucket/ratelimit/internal/test/testsize"
	"github.com/go-tokenbucket/ratelimit/lua"
)

// The scripts that a server of these tests is started with, by number.
const (
	useTake = iota
	useOne
	useQuota
	useFew
	useBlock
	useSlot
)

func movableAll(t *testing.T) []string {
	return []string{movable(t, lua.Take), movable(t, lua.TakeOne), movable(t, lua.TakeQuota), movable(t, lua.TakeFew), movable(t, lua.Block), movable(t, lua.TakeSlot)}
}

// isPlain reports whether ch is for the scripts of one call.
func isPlain(ch charge) bool {
	return !ch.shadow && ch.debt != bucket.NoDebt && ch.need != bucket.Reset && ch.lock == 0 && ch.limit.Capacity < bucket.MaxCredits
}

func isQuota(ch charge) bool { return ch.limit.IsQuota() }

// aloneArguments returns the script of a call by itself, and its KEYS and ARGV. The clock is "" for the server's.
func aloneArguments(clock any, c call) (script int, keys []string, args []any) {
	for _, ch := range c.charges {
		if c.count != 1 || clock != "" || !isPlain(ch) {
			keys, args = arguments(clock, []call{c})
			return useTake, keys, args
		}
	}
	script = useFew
	if first := c.charges[0]; slices.ContainsFunc(c.charges, isQuota) {
		if len(c.charges) > 1 || first.need < 0 || first.debt != 0 {
			keys, args = arguments(clock, []call{c})
			return useTake, keys, args
		}
		args = []any{first.limit.Capacity, fmt.Sprint(first.limit.Capacity, " ", first.limit.Period), first.from, first.until}
		if first.need != 1 {
			args = append(args, first.need)
		}
		return useQuota, []string{first.key}, args
	}
	if len(c.charges) == 1 {
		script = useOne
	}
	for _, ch := range c.charges {
		keys = append(keys, ch.key)
		switch {
		case script == useFew:
			args = append(args, ch.limit.Unit, ch.limit.Refill, ch.limit.Capacity, ch.need, ch.debt)
		case ch.limit.Refill != 1 || ch.debt != 0:
			args = append(args, ch.limit.Unit, ch.limit.Capacity, ch.need, ch.limit.Refill, ch.debt)
		case ch.need != ch.limit.Unit:
			args = append(args, ch.limit.Unit, ch.limit.Capacity, ch.need)
		default:
			args = append(args, ch.limit.Unit, ch.limit.Capacity)
		}
	}
	return script, keys, args
}

// askAlone has a server answer a call by the script for it, and returns the answer as from take.lua.
func askAlone(s server, clock any, c call) ([]int64, error) {
	script, keys, args := aloneArguments(clock, c)
	s.use(script)
	defer s.use(useTake)
	reply, err := s.run(keys, args)
	return answered(s, clock, c, script, reply, err)
}

// answered returns the reply of a script as from take.lua, which is asked if the script has not answered.
func answered(s server, clock any, c call, script int, reply []int64, err error) ([]int64, error) {
	switch {
	case errors.Is(err, redis.Nil):
		return askTake(s, clock, c)
	case err == nil && script == useOne:
		return []int64{reply[0] & 1, reply[0] >> 1}, nil
	case err == nil && script == useQuota:
		return []int64{reply[0] & 1, reply[0] >> 1, -1, reply[1]}, nil
	}
	return reply, err
}

// askTake has a server answer a call by take.lua.
func askTake(s server, clock any, c call) ([]int64, error) {
	s.use(useTake)
	keys, args := arguments(clock, []call{c})
	return s.run(keys, args)
}

// Calls that are sent each by itself are answered by the scripts for that as by take.lua, and leave the same in Redis,
// whichever of the scripts has charged a bucket before.
func TestCallsByThemselvesAreAnsweredAsInABatch(t *testing.T) {
	testAlone(t, startServer(t, movableAll(t)...), uint64(testsize.Of(2, 8)))
}

// testAlone compares what a server answers and keeps with a model. The server runs the movable scripts.
func testAlone(t *testing.T, s server, seeds uint64) {
	var asked, nothing [4]int // how often each script was asked, and has not answered
	testRandom(t, s, seeds, func(r random, clock any, calls []call, want func([]call, []int64)) error {
		for _, c := range calls {
			if c.count > 1 && r.IntN(4) > 0 {
				c.count = 1
			}
			if r.IntN(4) > 0 {
				for i := range c.charges { // which the calls share
					ch := &c.charges[i]
					ch.shadow, ch.lock, ch.debt = false, 0, max(ch.debt, bucket.AnyDebt)
				}
			}
			script, keys, args := aloneArguments(clock, c)
			s.use(script)
			reply, err := s.run(keys, args)
			s.use(useTake)
			asked[script]++
			if errors.Is(err, redis.Nil) {
				nothing[script]++
			}
			if reply, err = answered(s, clock, c, script, reply, err); err != nil {
				return err
			}
			want([]call{c}, reply)
		}
		return nil
	})
	answered := min(asked[useOne]-nothing[useOne], 2*(asked[useQuota]-nothing[useQuota]), asked[useFew]-nothing[useFew])
	if min(answered, nothing[useOne], 2*nothing[useQuota], nothing[useFew]) < 15*int(seeds) || nothing[useTake] > 0 {
		t.Errorf("the scripts were asked %v times, and have not answered %v times", asked, nothing)
	}
}
