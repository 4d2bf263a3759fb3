package lua_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/go-tokenbucket/ratelimit/internal/bucket"
	"github.com/go-tokenbucket/ratelimit/internal/testsize"
	"github.com/go-tokenbucket/ratelimit/lua"
)

// The scripts that a server of these tests is started with, by number.
const (
	useTake = iota
	useOne
	useFew
)

func movableAll(t *testing.T) []string {
	return []string{movable(t, lua.Take), movable(t, lua.TakeOne), movable(t, lua.TakeFew)}
}

// isPlain reports whether ch is for the scripts of one call.
func isPlain(ch charge) bool {
	return !ch.shadow && ch.debt != pastDebt && ch.need != bucket.Reset && ch.block == 0 && ch.limit.Capacity < bucket.MaxCredits
}

// aloneArguments returns the script of a call by itself, and its KEYS and ARGV. The clock is "" for the server's.
func aloneArguments(clock any, c call) (script int, keys []string, args []any) {
	for _, ch := range c.charges {
		if c.count != 1 || !isPlain(ch) {
			keys, args = arguments(clock, []call{c})
			return useTake, keys, args
		}
	}
	script = useFew
	if len(c.charges) == 1 {
		script = useOne
	}
	for _, ch := range c.charges {
		keys = append(keys, ch.key)
		switch {
		case script == useFew:
			args = append(args, ch.limit.Unit, ch.limit.Refill, ch.limit.Capacity, ch.need, ch.debt)
		case ch.limit.Refill != 1 || ch.debt != 0 || clock != "":
			args = append(args, ch.limit.Unit, ch.limit.Capacity, ch.need, ch.limit.Refill, ch.debt)
		case ch.need != ch.limit.Unit:
			args = append(args, ch.limit.Unit, ch.limit.Capacity, ch.need)
		default:
			args = append(args, ch.limit.Unit, ch.limit.Capacity)
		}
	}
	if clock != "" {
		args = append(args, clock)
	}
	return script, keys, args
}

// askAlone has a server answer a call by the script for it, and returns the answer as from take.lua, which is asked if a
// bucket is blocked.
func askAlone(s server, clock any, c call) ([]int64, error) {
	script, keys, args := aloneArguments(clock, c)
	s.use(script)
	defer s.use(useTake)
	reply, err := s.run(keys, args)
	if err != nil && lua.IsBlocked(err.Error()) {
		s.use(useTake)
		return askTake(s, clock, c)
	}
	if err == nil && script == useOne {
		reply = []int64{reply[0] & 1, reply[0] >> 1}
	}
	return reply, err
}

// askTake has a server answer a call by take.lua.
func askTake(s server, clock any, c call) ([]int64, error) {
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
	for _, serverClock := range []bool{false, true} {
		name := "callers' clock"
		if serverClock {
			name = "server's clock"
		}
		t.Run(name, func(t *testing.T) {
			var asked [3]int // of each script
			anchored, refused := 0, 0
			var shut shutCounts
			for seed := range seeds {
				s.flush()
				m := newModel(serverClock)
				r := random{rand.New(rand.NewPCG(seed, 10))}
				limits := r.limits()
				now := int64(1_780_000_000_000_000)
				for step := range 100 {
					now = r.move(now, limits[r.IntN(len(limits))])
					var clock any = now
					if serverClock {
						clock = ""
						s.set("seconds", now/1_000_000)
						s.set("microseconds", fmt.Sprint(now%1_000_000))
					}
					for _, c := range r.calls(limits) {
						if c.count > 1 && r.IntN(4) > 0 {
							c.count = 1
						}
						for i := range c.charges {
							if ch := &c.charges[i]; ch.need == 0 && ch.debt >= 0 && ch.block == 0 && r.IntN(2) == 0 {
								ch.debt = bucket.AnyDebt // a look that puts the bucket under its limit
							}
						}
						got, err := askAlone(s, clock, c)
						if err != nil {
							t.Fatalf("seed %d, step %d: %+v at %d: %v", seed, step, c, now, err)
						}
						want := m.run([]call{c}, now)
						if fmt.Sprint(got) != fmt.Sprint(want) {
							t.Fatalf("seed %d, step %d: %+v at %d\ngot  %v\nwant %v", seed, step, c, now, got, want)
						}
						m.compare(t, s, now)
						script, _, _ := aloneArguments(clock, c)
						asked[script]++
						if script != useTake && want[0] == 0 {
							refused++
						}
					}
				}
				anchored += m.anchored
				shut.add(m.shut)
			}
			if min(asked[useTake], asked[useOne], asked[useFew], refused) < 40*int(seeds) {
				t.Errorf("the scripts were asked %v times, and refused %d", asked, refused)
			}
			if serverClock && anchored < 5*int(seeds) {
				t.Errorf("only %d buckets were anchored anew", anchored)
			}
			shut.check(t, serverClock, seeds)
		})
	}
}
