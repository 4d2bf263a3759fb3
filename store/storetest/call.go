package storetest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"
	"time"

	"github.com/go-tokenbucket/ratelimit/store"
)

var callRules = []rule{
	{"no two pairs of policy and key share a bucket, whatever bytes they hold", func(r *rig) {
		limit := r.limit(1, time.Hour, 1)
		long := strings.Repeat("x", 300)
		pairs := [][2]string{
			{"a", "b"}, {"b", "a"}, {"a", "b:c"}, {"a:b", "c"}, {"b:c", "a"}, {"c", "a:b"},
			{"a", "{b}"}, {"a", "b}"}, {"a", "{b"}, {"a}", "b"}, {"a", "}:a{b"}, {"a", "b}:a"},
			{"a", " b"}, {"a", "b "}, {"a", "B"}, {"a", "b\x00"}, {"a", "\x00b"}, {"a\x00", "b"}, {"a", "b\n"},
			{"a", "bé"}, {"a", "be\u0301"}, {"a", "\xff"}, {"a", "\xfe"},
			{"a", long}, {"a", long + "x"}, {long, "a"}, {long + "x", "a"},
			// A name is not mistaken for the hash of another.
			{"a", sha256Hex(long)}, {"a", sha256Hex("b ")}, {sha256Hex(long), "a"},
		}
		for _, p := range pairs {
			r.allow(store.Charge{Policy: p[0], Key: p[1], Limit: limit, Cost: 1})
		}
		for _, p := range pairs {
			r.deny(store.Charge{Policy: p[0], Key: p[1], Limit: limit, Cost: 1})
		}
	}},
	{"what was given to a call is not kept", func(r *rig) {
		c := store.Charge{Policy: "p", Key: "k1", Limit: r.limit(1, time.Hour, 1), Cost: 1}
		charges := []store.Charge{c}
		states := make([]store.State, 1)
		if ok, err := r.store.Take(context.Background(), charges, states); !ok || err != nil {
			r.Fatal(ok, err)
		}
		charges[0].Key = "k2"
		r.deny(c)
	}},
	{"a call whose context has ended charges nothing, and says so", func(r *rig) {
		c := store.Charge{Policy: "p", Key: "k", Limit: r.limit(1, time.Hour, 1), Cost: 1}
		canceled, cancel := context.WithCancel(context.Background())
		cancel()
		expired, cancel := context.WithDeadline(context.Background(), time.Unix(0, 0))
		defer cancel()
		for _, ctx := range []context.Context{canceled, expired} {
			ok, err := r.store.Take(ctx, []store.Charge{c}, make([]store.State, 1))
			if ok || !errors.Is(err, ctx.Err()) {
				r.Fatalf("ok %t, error %v, want false and %v", ok, err, ctx.Err())
			}
		}
		r.want(r.peek(c), store.State{Allowed: true, Remaining: 1})
	}},
	{"a malformed call is an error that wraps ErrInvalidCall, and charges nothing", func(r *rig) {
		good := store.Charge{Policy: "p", Key: "k", Limit: r.limit(1, time.Hour, 1), Cost: 1}
		noPolicy, noKey, noLimit, badLimit := good, good, good, good
		noPolicy.Policy, noKey.Key, noLimit.Limit = "", "", store.Limit{}
		badLimit.Limit.Capacity = 1 << 60
		thin, fast := good, good
		thin.Limit.Capacity = thin.Limit.Unit - 1
		fast.Limit.Refill = fast.Limit.Capacity + 1
		unowed, negative, backwards := good, past(good, 1, -1, time.Hour), past(good, 1, 1, -time.Hour)
		unowed.Refilled = 1
		refunds, owes, unlocks, waits := good, owed(good, 0), good, good
		refunds.Cost, refunds.Block = -1, time.Hour
		owes.Block = time.Hour
		unlocks.Block = -1
		waits.MaxWait, waits.Block = time.Hour, time.Hour
		for name, call := range map[string]struct {
			charges []store.Charge
			states  int
		}{
			"no charges":        {nil, 1},
			"too few states":    {[]store.Charge{good, {Policy: "q", Key: "k", Limit: good.Limit}}, 1},
			"an empty policy":   {[]store.Charge{good, noPolicy}, 2},
			"an empty key":      {[]store.Charge{good, noKey}, 2},
			"no limit":          {[]store.Charge{noLimit}, 1},
			"an invalid limit":  {[]store.Charge{badLimit}, 1},
			"less than a token": {[]store.Charge{thin}, 1},
			"fuller than full":  {[]store.Charge{fast}, 1},
			"one bucket twice":  {[]store.Charge{good, good}, 2},
			"a past not owed":   {[]store.Charge{unowed}, 1},
			"a negative past":   {[]store.Charge{negative}, 1},
			"a past refund":     {[]store.Charge{past(good, -1, 1, time.Hour)}, 1},
			"one to come":       {[]store.Charge{backwards}, 1},
			"one that is owed":  {[]store.Charge{good, owed(good, 1)}, 2},
			"a refund blocks":   {[]store.Charge{refunds}, 1},
			"an owed block":     {[]store.Charge{owes}, 1},
			"a negative lock":   {[]store.Charge{unlocks}, 1},
			"a lock that waits": {[]store.Charge{waits}, 1},
		} {
			ok, err := r.store.Take(context.Background(), call.charges, make([]store.State, call.states))
			if ok || !errors.Is(err, store.ErrInvalidCall) {
				r.Errorf("%s: ok %t, error %v, want false and ErrInvalidCall", name, ok, err)
			}
		}
		r.want(r.peek(good), store.State{Allowed: true, Remaining: 1})
	}},
	{"every state is written anew", func(r *rig) {
		c := store.Charge{Policy: "p", Key: "k", Limit: r.limit(1, time.Second, 5), Cost: 1}
		stale := []store.State{{RetryAfter: 1, ResetAfter: 2, Wait: 3, Degraded: true, Blocked: true, Remaining: 4}}
		if ok, err := r.store.Take(context.Background(), []store.Charge{c}, stale); !ok || err != nil {
			r.Fatal(ok, err)
		}
		r.want(stale[0], store.State{Allowed: true, Remaining: 4, ResetAfter: time.Second})
	}},
}

func sha256Hex(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}
