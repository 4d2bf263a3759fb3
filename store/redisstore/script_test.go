package redisstore_test

import (
	"context"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit/internal/test/redistest"
	"github.com/go-tokenbucket/ratelimit/lua"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

// scriptsSeen is a hook that notes the scripts that are called, by their SHA-1 or as a whole.
type scriptsSeen struct {
	hook
	scripts []string
}

func (s *scriptsSeen) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if name := cmd.Name(); name == "evalsha" || name == "eval" {
			s.scripts = append(s.scripts, cmd.Args()[1].(string))
		}
		return next(ctx, cmd)
	}
}

// A call by itself is sent by the script for it, also to a server that has forgotten it. It is charged once. By a clock of
// the caller, take.lua decides.
func TestACallByItselfIsSentByTheScriptForIt(t *testing.T) {
	c := func(policy string, change ...func(*store.Charge)) store.Charge {
		charge := store.Charge{Policy: policy, Key: "k", Limit: limit(t, 1, month, 100), Cost: 1}
		for _, f := range change {
			f(&charge)
		}
		return charge
	}
	shadow := func(c *store.Charge) { c.Shadow = true }
	wait := func(c *store.Charge) { c.MaxWait = month }
	owed := func(c *store.Charge) { c.Owed = true }
	settles := func(c *store.Charge) { c.Settles = true }
	lock := func(c *store.Charge) { c.Lock = time.Second }
	removal := func(c *store.Charge) { c.Cost = math.MinInt64 }
	refund := func(c *store.Charge) { c.Cost = -1 }
	largest := func(c *store.Charge) { c.Limit = limit(t, 3, 1<<40*time.Microsecond, 1<<12) }

	client := redistest.Start(t).ClientOptions(func(o *redis.Options) { o.ContextTimeoutEnabled = true })
	var seen scriptsSeen
	client.AddHook(&seen)
	one, few, many := []string{lua.TakeOneSHA1, lua.TakeOne}, []string{lua.TakeFewSHA1, lua.TakeFew}, []string{lua.TakeSHA1, lua.Take}
	for _, clock := range []func() time.Time{nil, time.Now} {
		for name, tt := range map[string]struct {
			charges []store.Charge
			want    []string
		}{
			"one":                       {[]store.Charge{c("a")}, one},
			"one that waits":            {[]store.Charge{c("a", wait)}, one},
			"one that is owed":          {[]store.Charge{c("a", owed)}, one},
			"two":                       {[]store.Charge{c("a"), c("b")}, few},
			"three":                     {[]store.Charge{c("a"), c("b", wait), c("c", owed)}, few},
			"four":                      {[]store.Charge{c("a"), c("b"), c("c"), c("d")}, many},
			"a shadow":                  {[]store.Charge{c("a", shadow)}, many},
			"a shadow beside another":   {[]store.Charge{c("a"), c("b", shadow)}, many},
			"a settlement":              {[]store.Charge{c("a", settles)}, many},
			"one that may lock":         {[]store.Charge{c("a", lock)}, many},
			"a removal":                 {[]store.Charge{c("a", removal)}, many},
			"a removal beside a refund": {[]store.Charge{c("a", refund), c("b", removal)}, many},
			"the largest bucket":        {[]store.Charge{c("a", largest)}, many},
		} {
			client.FlushAll(t.Context())
			client.ScriptFlush(t.Context())
			s := redisstore.New(client, redisstore.Config{Clock: clock})
			seen.scripts = nil
			states := make([]store.State, len(tt.charges))
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			ok, err := s.Take(ctx, tt.charges, states)
			cancel()
			if !ok || err != nil {
				t.Errorf("%s: ok %t, error %v", name, ok, err)
			}
			if clock != nil {
				tt.want = many
			}
			if !slices.Equal(seen.scripts, tt.want) {
				t.Errorf("%s: scripts %.60q, want %.60q", name, seen.scripts, tt.want)
			}
			for i, c := range tt.charges {
				peek := store.Charge{Policy: c.Policy, Key: c.Key, Limit: c.Limit}
				if got := take(t, s, peek).Remaining; got != states[i].Remaining {
					t.Errorf("%s: charge %d left %d, and was told %d", name, i, got, states[i].Remaining)
				}
			}
		}
	}
}

// All that a bucket can hold comes through the reply of take_one.lua: debts, and nearly the largest capacity.
func TestTheReplyOfOneChargeHasRoomForAllCredits(t *testing.T) {
	client := redistest.Start(t).Client()
	s := redisstore.New(client, redisstore.Config{Clock: func() time.Time { return time.Unix(1_780_000_000, 0) }})
	const burst int64 = 1<<52 - 1
	c := store.Charge{Policy: "p", Key: "k", Limit: limit(t, 2_000_000, time.Second, burst), Cost: 1}
	if got := take(t, s, c).Remaining; got != burst-1 {
		t.Errorf("a full bucket has %d left, want %d", got, burst-1)
	}
	c.Cost = burst
	if ok, err := try(s, c); ok || err != nil {
		t.Errorf("one token short: ok %t, error %v", ok, err)
	}
	c.Cost = 0
	if got := take(t, s, c).Remaining; got != burst-1 {
		t.Errorf("a refused call left %d, want %d", got, burst-1)
	}
	c.Cost = -1
	if got := take(t, s, c).Remaining; got != burst {
		t.Errorf("a refund left %d, want %d", got, burst)
	}
	c.Cost, c.Owed = math.MaxInt64, true
	deepest := take(t, s, c)
	if !deepest.Allowed || deepest.Remaining != 0 {
		t.Errorf("owed without bound: %+v", deepest)
	}
	b, err := s.Inspect(t.Context(), "p", "k")
	if err != nil {
		t.Fatal(err)
	}
	c.Cost, c.Owed = 0, false
	if got := take(t, s, c); got.ResetAfter != deepest.ResetAfter {
		t.Errorf("after the deepest debt: %+v of %+v, want what was told: %+v", got, b, deepest)
	}
}
