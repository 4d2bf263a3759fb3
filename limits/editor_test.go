package limits_test

import (
	"errors"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/limits"
)

func TestTheBoundsOfAChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper()
		r := start(t, k)
		for _, tt := range []struct {
			limit  string
			factor float64 // 0: allowed
		}{
			{"600/1m burst 100", 0}, {"601/1m burst 100", 10}, {"600/1m burst 101", 10.1}, {"6/1m burst 1", 0}, {"5/1m burst 1", 0.0833},
			{"10/1s burst 10", 0}, {"11/1s burst 10", 11}, {"360/1h burst 10", 0}, {"359/1h burst 10", 0.0997}, {"60/1m burst 1000000", 100000}, {"60/1m", 0},
		} {
			err := r.Set(t.Context(), change(tt.limit, ""))
			var factor *limits.FactorError
			switch {
			case tt.factor == 0 && err != nil:
				t.Errorf("%s: %v", tt.limit, err)
			case tt.factor == 0 && r.api() != tt.limit:
				t.Errorf("%s: in force is %s", tt.limit, r.api())
			case tt.factor != 0 && (!errors.As(err, &factor) || factor.Factor/tt.factor < 0.99 || factor.Factor/tt.factor > 1.01):
				t.Errorf("%s: %v", tt.limit, err)
			}
		}

		for limit, text := range map[string]string{ // of 60/1m burst 10
			"60/1m burst 15001": "is 1500 times that", "60/1m burst 99999999": "is 10000000 times that", "60/1m burst 123": "is 12.3 times that",
			"601/1m burst 10": "is 10.02 times that", "359/1h burst 10": "is 0.0997 times that", "35999/100h burst 10": "is 0.099997 times that", "1/30d burst 10": "is 0.000000386 times that",
		} {
			if err := r.Set(t.Context(), change(limit, "")); err == nil || !strings.Contains(err.Error(), text) {
				t.Errorf("%s: %v, want %s", limit, err, text)
			}
		}
		if err := r.Set(t.Context(), change("120/1m", "")); err == nil || !strings.Contains(err.Error(), "the burst of 120/1m, which is that of its rate, is 12 times that") {
			t.Errorf("%v", err)
		}

		// Not in steps, because the program's limit counts.
		set(t, r, change("540/1m burst 90", ""))
		var factor *limits.FactorError
		if err := r.Set(t.Context(), change("4860/1m burst 810", "540/1m burst 90")); !errors.As(err, &factor) || r.api() != "540/1m burst 90" {
			t.Errorf("%v, in force is %s", err, r.api())
		}
		forced := change("4860/1m burst 810", "540/1m burst 90")
		forced.Force = true
		set(t, r, forced)
		if e := r.entry("api"); r.api() != "4860/1m burst 810" || !e.Forced {
			t.Errorf("%+v", e)
		}
		forced.Was, forced.Limit = "", "61/1m burst 10" // is not forced, as it need not be
		set(t, r, forced)
		if e := r.entry("api"); e.Forced {
			t.Errorf("%+v", e)
		}
	})
}

func TestAChangeIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper()
		r := start(t, k)
		tiers := policy("tiers", ratelimit.Limit{})
		tiers.LimitFunc = func(*http.Request) ratelimit.Limit { return ratelimit.PerHour(1) }
		defer runtime.KeepAlive(r.Limit(tiers))
		for name, tt := range map[string]struct {
			change func(*limits.Change)
			want   string
		}{
			"unknown policy":  {func(c *limits.Change) { c.Policy = "apy" }, `no policy of this name: it has "api", "login"`},
			"no policy":       {func(c *limits.Change) { c.Policy = "" }, "Policy: must be"},
			"of the log":      {func(c *limits.Change) { c.Policy = "#n" }, "Policy: must be"},
			"no limit":        {func(c *limits.Change) { c.Limit = "" }, `must be like "60/1m"`},
			"malformed limit": {func(c *limits.Change) { c.Limit = "60 per minute" }, `must be like "60/1m"`},
			"rate of 0":       {func(c *limits.Change) { c.Limit = "0/1m" }, `rate "0"`},
			"unlimited":       {func(c *limits.Change) { c.Limit, c.Force = "unlimited", true }, "unlimited"},
			"long limit":      {func(c *limits.Change) { c.Limit = strings.Repeat("6", 2000) }, `must be like "60/1m"`},
			"malformed was":   {func(c *limits.Change) { c.Was = "x" }, "limit before"},
			"nobody":          {func(c *limits.Change) { c.By = "" }, "By: must say"},
			"long reason":     {func(c *limits.Change) { c.Why = strings.Repeat("w", 257) }, "Why: must be at most 256"},
			"not UTF-8":       {func(c *limits.Change) { c.By = "\xff" }, "By: must be"},
			"only tiers":      {func(c *limits.Change) { c.Policy = "tiers" }, "no Policy.Limit"},
		} {
			c := change("61/1m burst 10", "")
			tt.change(&c)
			if err := r.Set(t.Context(), c); !errors.Is(err, limits.ErrRefused) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s: %v, want %q", name, err, tt.want)
			}
		}
		if len(k.held) > 0 {
			t.Errorf("%v was kept", k.held)
		}
		for name, of := range map[string]struct {
			l   *ratelimit.Limiter
			k   limits.Keeper
			cfg limits.Config
		}{
			"l: must":          {nil, k, limits.Config{}},
			"k: must":          {r.Limiter, nil, limits.Config{}},
			"Config.Every 2s":  {r.Limiter, k, limits.Config{Every: 2 * time.Second}},
			"Config.MaxFactor": {r.Limiter, k, limits.Config{MaxFactor: -1}},
		} {
			if _, err := limits.Watch(t.Context(), of.l, of.k, of.cfg); err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

func TestOfTwoOperatorsOneIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper()
		a, b := start(t, k), start(t, k)
		set(t, a, change("120/1m burst 12", "60/1m burst 10"))
		err := b.Set(t.Context(), change("100/1m", "60/1m burst 10"))
		if !errors.Is(err, limits.ErrConflict) || !strings.Contains(err.Error(), "it is 120/1m burst 12, not 60/1m burst 10") {
			t.Errorf("%v", err)
		}
		set(t, b, change("100/1m", "120/1m burst 12"))
		set(t, b, change("90/1m", "100/1m burst 100")) // the same as 100/1m
		set(t, b, change("100/1m", "90/1m"))

		// One is faster between the look and the swap of the other.
		slow := &racing{keeper: k, before: func() { set(t, a, change("90/1m", "")) }}
		c := start(t, slow)
		if err := c.Set(t.Context(), change("80/1m", "100/1m")); !errors.Is(err, limits.ErrConflict) || !strings.Contains(err.Error(), "90/1m, by alice") {
			t.Errorf("%v", err)
		}
		if a.api() != "90/1m" {
			t.Error(a.api())
		}
	})
}

// The command knows policies from a file, or only the limit that is in force.
func TestAnEditorWithoutALimiter(t *testing.T) {
	k := newKeeper()
	ctx := t.Context()
	e := limits.Editor{Keeper: k}
	if err := e.Set(ctx, change("120/1m burst 12", "")); !errors.Is(err, limits.ErrRefused) || !errors.Is(err, limits.ErrNotKnown) {
		t.Error(err)
	}
	for _, name := range []string{"a b", "äpi", "a\x00", "a@"} { // no program can have it
		c := change("120/1m burst 12", "60/1m burst 10")
		c.Policy = name
		if err := e.Set(ctx, c); !errors.Is(err, limits.ErrRefused) || !strings.Contains(err.Error(), "Policy: must be the name") || len(k.held) > 0 {
			t.Errorf("%q: %v, kept %v", name, err, k.held)
		}
	}
	var factor *limits.FactorError
	if err := e.Set(ctx, change("601/1m burst 10", "60/1m burst 10")); !errors.As(err, &factor) {
		t.Error(err)
	}
	if err := e.Set(ctx, change("120/1m burst 10", "60/1m burst 10")); err != nil {
		t.Error(err)
	}
	// The program's limit was noted with the first change.
	if err := e.Set(ctx, change("900/1m burst 10", "120/1m burst 10")); !errors.As(err, &factor) || factor.Program.String() != "60/1m burst 10" {
		t.Error(err)
	}
	if err := e.Set(ctx, change("70/1m burst 10", "60/1m burst 10")); !errors.Is(err, limits.ErrConflict) {
		t.Error(err)
	}
	list, err := e.List(ctx)
	if err != nil || len(list) != 1 || list[0].InForce != "120/1m burst 10" || list[0].Program != "60/1m burst 10" || list[0].By != "alice" {
		t.Errorf("%+v, %v", list, err)
	}
	e.Program = map[string]ratelimit.Limit{"api": ratelimit.PerMinute(60), "login": ratelimit.PerHour(5)}
	if list, err = e.List(ctx); err != nil || len(list) != 2 || list[1].InForce != "5/1h" {
		t.Errorf("%+v, %v", list, err)
	}
	if err := e.Set(ctx, limits.Change{Policy: "x", Limit: "1/1m", By: "a"}); !errors.Is(err, limits.ErrRefused) || !strings.Contains(err.Error(), `it has "api", "login"`) {
		t.Error(err)
	}
	if err := e.End(ctx, limits.Change{Policy: "api", By: "alice", Why: "over"}); err != nil {
		t.Error(err)
	}
	if h, err := e.History(ctx); err != nil || len(h) != 2 || h[0].Why != "over" {
		t.Errorf("%+v, %v", h, err)
	}
}

// A policy may be mounted with different limits. A change is for all of them, so each bounds it.
func TestAChangeIsBoundedByEachLimitOfAPolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper()
		r := start(t, k)
		mounted := r.Limit(policy("api", ratelimit.PerHour(60).WithBurst(1)))
		var factor *limits.FactorError
		if err := r.Set(t.Context(), change("600/1m burst 100", "60/1m burst 10")); !errors.As(err, &factor) || factor.Program != ratelimit.PerHour(60).WithBurst(1) {
			t.Errorf("%v", err)
		}
		k.edit(func() { k.held["api"] = `1 {"limit":"600/1m burst 100","by":"eve"}` })
		time.Sleep(2 * time.Second)
		if e := r.entry("api"); e.Refused == "" || e.InForce != "60/1m burst 10" || r.api() != "60/1m burst 10" {
			t.Errorf("written by hand: %+v, %s", e, r.api())
		}
		set(t, r, change("10/1m burst 5", ""))
		if r.api() != "10/1m burst 5" {
			t.Errorf("within the bounds of both: %s", r.api())
		}
		runtime.KeepAlive(mounted)
	})
}

// A policy whose LimitFunc chooses all limits on one route, and not on another, stops no change: neither its own nor others,
// and no end.
func TestAPlaceWithoutALimitStopsNoChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, newKeeper())
		set(t, r, change("120/1m burst 20", ""))
		only := policy("api", ratelimit.Limit{})
		only.LimitFunc = func(*http.Request) ratelimit.Limit { return ratelimit.PerMinute(5) }
		mounted := r.Limit(only)
		set(t, r, limits.Change{Policy: "login", Limit: "10/1h", By: "alice"})
		if e := r.entry("login"); e.InForce != "10/1h" || r.Policies()[1].Limit != ratelimit.PerHour(10) {
			t.Errorf("login: %+v, %v", e, r.Policies()[1].Limit)
		}
		if err := r.End(t.Context(), limits.Change{Policy: "api", By: "alice"}); err != nil || r.api() != "60/1m burst 10" {
			t.Errorf("ended: %s, %v", r.api(), err)
		}
		runtime.KeepAlive(mounted)
	})
}

// Without the program's limits, Change.Was stands in also above a value that does not say what the program's limit was.
func TestTheCommandReplacesAValueThatItCannotRead(t *testing.T) {
	for raw, was := range map[string]string{"junk": "60/1m", `1 {"limit":"120/1m","by":"eve"}`: "120/1m", `1 {"limit":"120/1m","by":"eve","program":"?"}`: "120/1m"} {
		k := newKeeper()
		k.held["api"] = raw
		e := limits.Editor{Keeper: k}
		if list, err := e.List(t.Context()); err != nil || strings.Contains(list[0].Refused, "no policy") {
			t.Errorf("%s: %+v, %v", raw, list, err)
		}
		if err := e.Set(t.Context(), change("100/1m", "")); !errors.Is(err, limits.ErrRefused) || !strings.Contains(err.Error(), "or the limit that is in force") {
			t.Errorf("%s, without Was: %v", raw, err)
		}
		if err := e.Set(t.Context(), change("100/1m", was)); err != nil {
			t.Errorf("%s: %v", raw, err)
		}
	}
}

// Without the program's limits, a forced change is noted as one: a replica may have a limit that is far from Was.
func TestAForcedChangeOfAnUnknownProgram(t *testing.T) {
	for _, force := range []bool{true, false} {
		e := limits.Editor{Keeper: newKeeper()}
		c := change("70/1m burst 10", "60/1m burst 10")
		c.Force = force
		if err := e.Set(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		if list, err := e.List(t.Context()); err != nil || len(list) != 1 || list[0].Forced != force {
			t.Errorf("force %t: %+v, %v", force, list, err)
		}
	}
}
