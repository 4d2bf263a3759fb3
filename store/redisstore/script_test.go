package redisstore_test

import (
	"context"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/redistest"
	"github.com/go-tokenbucket/ratelimit/lua"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

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
	var seen []string // by their SHA-1, or as a whole
	client.AddHook(hook(func(ctx context.Context, cmd redis.Cmder, send redis.ProcessHook) error {
		if callsScript(cmd) {
			seen = append(seen, cmd.Args()[1].(string))
		}
		return send(ctx, cmd)
	}))
	one, few, many := []string{lua.TakeOneSHA1, lua.TakeOne}, []string{lua.TakeFewSHA1, lua.TakeFew}, []string{lua.TakeSHA1, lua.Take}
	ofQuota := []string{lua.TakeQuotaSHA1, lua.TakeQuota}
	monthly := func(c *store.Charge) { c.Limit = quota(t, 100, store.Month, "").Limit }
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
			"a quota":                   {[]store.Charge{c("a", monthly)}, ofQuota},
			"a quota that is owed":      {[]store.Charge{c("a", monthly, owed)}, many},
			"a refund to a quota":       {[]store.Charge{c("a", monthly, refund)}, many},
			"a quota beside a rate":     {[]store.Charge{c("a", monthly), c("b")}, many},
		} {
			client.FlushAll(t.Context())
			client.ScriptFlush(t.Context())
			s := ratelimit.Must(redisstore.New(client, redisstore.Config{Clock: clock}))
			seen = nil
			ctx, cancel := context.WithTimeout(t.Context(), patient) // with one, the caller sends its call itself
			states := make([]store.State, len(tt.charges))
			if ok, err := s.Take(ctx, tt.charges, states); !ok || err != nil {
				t.Errorf("%s: ok %t, error %v", name, ok, err)
			}
			cancel()
			if clock != nil {
				tt.want = many
			}
			if !slices.Equal(seen, tt.want) {
				t.Errorf("%s: scripts %.60q, want %.60q", name, seen, tt.want)
			}
			for i, c := range tt.charges {
				if got := look(t, s, c).Remaining; got != states[i].Remaining {
					t.Errorf("%s: charge %d left %d, and was told %d", name, i, got, states[i].Remaining)
				}
			}
		}
	}
}

// All that a bucket can hold comes through the reply of take_one.lua: debts, and nearly the largest capacity.
func TestTheReplyOfOneChargeHasRoomForAllCredits(t *testing.T) {
	client := redistest.Start(t).Client()
	s := ratelimit.Must(redisstore.New(client, redisstore.Config{Clock: func() time.Time { return time.Unix(1_780_000_000, 0) }}))
	const burst int64 = 1<<52 - 1
	c := store.Charge{Policy: "p", Key: "k", Limit: limit(t, 2_000_000, time.Second, burst), Cost: 1}
	for _, step := range []struct{ cost, left int64 }{{1, burst - 1}, {burst, burst - 1}, {0, burst - 1}, {-1, burst}} {
		if got := take(t, s, costs(c, step.cost)); got.Remaining != step.left || got.Allowed != (step.cost != burst) {
			t.Errorf("a cost of %d: %+v, want %d left", step.cost, got, step.left)
		}
	}
	c.Cost, c.Owed = math.MaxInt64, true
	deepest := take(t, s, c)
	if !deepest.Allowed || deepest.Remaining != 0 {
		t.Errorf("owed without bound: %+v", deepest)
	}
	if got := look(t, s, c); got.ResetAfter != deepest.ResetAfter {
		t.Errorf("after the deepest debt: %+v, want what was told: %+v", got, deepest)
	}
}
