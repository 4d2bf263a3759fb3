package override_test

import (
	"errors"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/override"
	"github.com/go-tokenbucket/ratelimit/store"
)

func TestTheBoundsOfAChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper(t)
		r := start(t, k)
		for _, tt := range []struct {
			limit  string
			factor float64 // 0: allowed
		}{
			{"600/1m burst 100", 0}, {"601/1m burst 100", 10}, {"600/1m burst 101", 10.1}, {"6/1m burst 1", 0}, {"5/1m burst 1", 0.0833},
			{"10/1s burst 10", 0}, {"11/1s burst 10", 11}, {"360/1h burst 10", 0}, {"359/1h burst 10", 0.0997}, {"60/1m burst 1000000", 100000}, {"60/1m", 0},
		} {
			err := r.Set(t.Context(), change(tt.limit, ""))
			var factor *override.FactorError
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
			"60/1m burst 15001": "is 1500.1 times that", "60/1m burst 99999999": "is 10000000 times that", "60/1m burst 123": "is 12.3 times that",
			"601/1m burst 10": "is 10.0167 times that", "359/1h burst 10": "is 0.0997222 times that", "35999/100h burst 10": "is 0.0999972 times that", "1/30d burst 10": "is 0.000000385802 times that",
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
		var factor *override.FactorError
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
		k := newKeeper(t)
		k.ahead = time.Hour // ends are by the time of the store
		r := start(t, k)
		now := time.Now().Add(k.ahead)
		for name, tt := range map[string]struct {
			change func(*override.Change)
			want   string
		}{
			"unknown policy":  {func(c *override.Change) { c.Policy = "apy" }, `Policy: the program has no policy of this name: it has ["api" "login"]`},
			"no policy":       {func(c *override.Change) { c.Policy = "" }, "Policy: must be"},
			"a space":         {func(c *override.Change) { c.Policy = "api ip:1" }, "Policy: must be"},
			"no limit":        {func(c *override.Change) { c.Limit = "" }, `must be like "60/1m"`},
			"malformed limit": {func(c *override.Change) { c.Limit = "60 per minute" }, `Limit: limit "60 per minute"`},
			"rate of 0":       {func(c *override.Change) { c.Limit, c.Force = "0/1m", true }, "must be above 0: to let no request of a key through, block the key"},
			"quota of 0":      {func(c *override.Change) { c.Limit, c.Force = "00 per month", true }, "block the key"},
			"long limit":      {func(c *override.Change) { c.Limit = strings.Repeat("6", 2000) }, "666…"},
			"no zone":         {func(c *override.Change) { c.Limit = "9 per day Atlantis/City" }, "Zone"},
			"malformed was":   {func(c *override.Change) { c.Was = "x" }, "Was: limit"},
			"nobody":          {func(c *override.Change) { c.By = "" }, "By: must say"},
			"long reason":     {func(c *override.Change) { c.Why = strings.Repeat("w", 257) }, "Why: must be at most 256"},
			"not UTF-8":       {func(c *override.Change) { c.By = "\xff" }, "By: must say"},
			"half a key":      {func(c *override.Change) { c.Key = "ip:" }, "Key: must be a kind, a colon and an identity"},
			"a blank key":     {func(c *override.Change) { c.Key = " " }, "Key: must be a kind"},
			"a long key":      {func(c *override.Change) { c.Key = "ip:" + strings.Repeat("k", 500) }, "Key: must be at most 448 bytes"},
			"key, not UTF-8":  {func(c *override.Change) { c.Key = "ip:\xff" }, "Key: must be"},
			"an end now":      {func(c *override.Change) { c.Until = now }, "Until " + now.Format(time.RFC3339) + ": must be after now"},
			"an end ago":      {func(c *override.Change) { c.Until = now.Add(-time.Minute) }, "must be after now"},
			"an end far":      {func(c *override.Change) { c.Until = now.AddDate(10, 0, 1) }, "at most 10 years ahead"},
		} {
			c := change("61/1m burst 10", "")
			tt.change(&c)
			if err := r.Set(t.Context(), c); !errors.Is(err, override.ErrRefused) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s: %v, want %q", name, err, tt.want)
			}
		}
		if _, writes := k.counts(); writes > 0 {
			t.Errorf("%d values were written", writes)
		}
		for name, of := range map[string]struct {
			l   *ratelimit.Limiter
			k   store.Values
			cfg override.Config
		}{
			"l: must":          {nil, k, override.Config{}},
			"values: must":     {r.Limiter, nil, override.Config{}},
			"Config.MaxFactor": {r.Limiter, k, override.Config{MaxFactor: -1}},
		} {
			if _, err := override.Watch(t.Context(), of.l, of.k, of.cfg); err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// What cannot be compared with the program's limit must be forced. Replicas then follow it.
func TestWhatMustBeForced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper(t)
		r := start(t, k)
		tiers := policy("tiers", ratelimit.Limit{})
		tiers.LimitFunc = func(*http.Request) ratelimit.Limit { return ratelimit.PerHour(1) }
		defer runtime.KeepAlive(r.Limit(tiers))
		defer runtime.KeepAlive(r.Limit(policy("free", ratelimit.Unlimited)))
		defer runtime.KeepAlive(r.Limit(policy("plan", ratelimit.Quota(1000, ratelimit.Month))))
		defer runtime.KeepAlive(r.Limit(policy("exports", ratelimit.Concurrency(3))))
		for _, tt := range []struct{ policy, key, limit, want string }{
			{"api", "", "unlimited", "override: api: unlimited cannot be compared with the program's limit (60/1m burst 10): it must be forced"},
			{"api", "ip:192.0.2.1", "unlimited", "override: api ip:192.0.2.1: unlimited cannot"},
			{"api", "ip:192.0.2.1", "601/1m burst 10", "10.0167 times"},
			{"api", "", "60 per hour", "60 per hour cannot be compared with the program's limit (60/1m burst 10), because that is a rate and this is a quota: it must be forced"},
			{"tiers", "", "2/1h", "cannot be compared with the program's limit (of LimitFunc)"},
			{"tiers", "ip:192.0.2.1", "2/1h", "cannot be compared with the program's limit (of LimitFunc)"},
			{"free", "", "60/1m", "cannot be compared with the program's limit (unlimited)"},
			{"plan", "", "10001 per month", "plan: 10001 per month is 10.001 times the program's 1000 per month"},
			{"plan", "", "99 per month", "plan: 99 per month is 0.099 times the program's"},
			{"plan", "", "1000 per month Europe/Berlin", "because its time zone is another one"},
			{"plan", "", "1000 per week", "because its period is another one"},
			{"plan", "", "1000/1h", "because that is a quota and this is a rate"},
			{"exports", "", "31 at once", "exports: 31 at once is 10.3333 times the program's 3 at once"},
			{"exports", "ip:192.0.2.1", "31 at once", "31 at once is 10.3333 times the program's 3 at once"},
			{"exports", "", "unlimited", "unlimited cannot be compared with the program's limit (3 at once)"},
		} {
			c := override.Change{Policy: tt.policy, Key: tt.key, Limit: tt.limit, By: "alice"}
			var factor *override.FactorError
			if err := r.Set(t.Context(), c); !errors.As(err, &factor) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%+v: %v", tt, err)
			}
			c.Force = true
			if err := r.Set(t.Context(), c); err != nil {
				t.Errorf("%+v: %v", tt, err)
			}
			name := strings.TrimSpace(tt.policy + " " + tt.key)
			if e := r.entry(name); e.InForce != tt.limit || !e.Forced || e.Refused != "" {
				t.Errorf("%+v: %+v", tt, e)
			}
			c.Was = tt.limit
			if err := r.End(t.Context(), c); err != nil {
				t.Errorf("%+v: %v", tt, err)
			}
		}
		set(t, r, override.Change{Policy: "plan", Limit: "10000 per month UTC", By: "alice"}) // within the factor
		set(t, r, override.Change{Policy: "exports", Limit: "30 at once", By: "alice"})
		for want, change := range map[string]override.Change{
			`3/1m is no concurrency limit, and that of the program (3 at once) is one`:                {Policy: "exports", Limit: "3/1m"},
			`5 per day is no concurrency limit, and that of the program (3 at once) is one`:           {Policy: "exports", Key: "ip:192.0.2.1", Limit: "5 per day"},
			`3 at once is a concurrency limit, and that of the program (60/1m burst 10) is none`:      {Policy: "api", Limit: "3 at once"},
			`3 at once is a concurrency limit, and that of the program (of LimitFunc) is none`:        {Policy: "tiers", Limit: "3 at once"},
			`3 at once is a concurrency limit, and that of the program (1000 per month) is none: use`: {Policy: "plan", Limit: "3 at once"},
		} {
			change.By, change.Force = "alice", true
			if err := r.Set(t.Context(), change); !errors.Is(err, override.ErrRefused) || !strings.Contains(err.Error(), want) {
				t.Errorf("%+v: %v", change, err)
			}
		}
		c := override.Change{Policy: "tiers", Limit: "2/1h", By: "alice", Was: "of LimitFunc", Force: true}
		if e := r.entry("tiers"); e.InForce != c.Was || e.Program != c.Was {
			t.Errorf("%+v", e)
		}
		set(t, r, c)
		if err := r.Set(t.Context(), c); !errors.Is(err, override.ErrConflict) || !strings.Contains(err.Error(), "it is 2/1h, not of LimitFunc") {
			t.Error(err)
		}
	})
}

func TestOfTwoOperatorsOneIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper(t)
		a, b := start(t, k), start(t, k)
		set(t, a, change("120/1m burst 12", "60/1m burst 10"))
		err := b.Set(t.Context(), change("100/1m", "60/1m burst 10"))
		if !errors.Is(err, override.ErrConflict) || !strings.Contains(err.Error(), "it is 120/1m burst 12, not 60/1m burst 10") {
			t.Errorf("%v", err)
		}
		set(t, b, change("100/1m", "120/1m burst 12"))
		set(t, b, change("90/1m", "100/1m burst 100")) // the same as 100/1m
		set(t, b, change("100/1m", "90/1m"))

		// A key without an override has the limit of its policy.
		if err := a.Set(t.Context(), override.Change{Policy: "api", Key: "ip:192.0.2.1", Limit: "70/1m", Was: "60/1m burst 10", By: "bob"}); !errors.Is(err, override.ErrConflict) {
			t.Error(err)
		}
		set(t, a, override.Change{Policy: "api", Key: "ip:192.0.2.1", Limit: "70/1m", Was: "100/1m", By: "bob"})

		// One is faster between the look and the write of the other.
		k.edit(func() { k.before = func() { set(t, a, change("90/1m", "")) } })
		if err := b.Set(t.Context(), change("80/1m", "100/1m")); !errors.Is(err, override.ErrConflict) || !strings.Contains(err.Error(), "90/1m, by alice") {
			t.Errorf("%v", err)
		}
		k.edit(func() { k.before = func() { a.End(t.Context(), override.Change{Policy: "api", By: "bob"}) } })
		if err := b.Set(t.Context(), change("80/1m", "")); !errors.Is(err, override.ErrConflict) || !strings.Contains(err.Error(), "that of the program") {
			t.Errorf("%v", err)
		}
		if a.api() != "60/1m burst 10" {
			t.Error(a.api())
		}
	})
}

// The command knows policies from a file, or only the limit that is in force.
func TestAnEditorWithoutALimiter(t *testing.T) {
	k := newKeeper(t)
	ctx := t.Context()
	e := edit(t, k, nil)
	if err := e.Set(ctx, change("120/1m burst 12", "")); !errors.Is(err, override.ErrRefused) || !strings.Contains(err.Error(), "not known") {
		t.Error(err)
	}
	var factor *override.FactorError
	if err := e.Set(ctx, change("601/1m burst 10", "60/1m burst 10")); !errors.As(err, &factor) {
		t.Error(err)
	}
	if err := e.Set(ctx, change("120/1m burst 10", "60/1m burst 10")); err != nil {
		t.Error(err)
	}
	if err := e.Set(ctx, change("70/1m burst 10", "60/1m burst 10")); !errors.Is(err, override.ErrConflict) {
		t.Error(err)
	}
	until := time.Now().Add(time.Hour).Truncate(time.Second)
	if err := e.Set(ctx, ofKey("ip:192.0.2.1", "240/1m burst 10", until)); err != nil { // the policy's limit is in force
		t.Error(err)
	}
	list := e.List(nil)
	if len(list) != 2 || list[0].InForce != "120/1m burst 10" || list[0].Program != "" || list[0].By != "alice" || list[1].Key != "ip:192.0.2.1" || !list[1].Until.Equal(until) {
		t.Errorf("%+v", list)
	}
	e = edit(t, k, map[string]ratelimit.Limit{"api": ratelimit.PerMinute(60), "login": ratelimit.PerHour(5)})
	if list = e.List(nil); len(list) != 3 || list[2].InForce != "5/1h" {
		t.Errorf("%+v", list)
	}
	if err := e.Set(ctx, override.Change{Policy: "x", Limit: "1/1m", By: "a"}); !errors.Is(err, override.ErrRefused) || !strings.Contains(err.Error(), `it has ["api" "login"]`) {
		t.Error(err)
	}
	if err := e.End(ctx, override.Change{Policy: "api", By: "alice", Why: "over"}); err != nil {
		t.Error(err)
	}
	if h := e.History(); len(h) != 2 || h[0].Why != "over" || h[1].Key != "ip:192.0.2.1" {
		t.Errorf("%+v", h)
	}
	k.err = errors.New("down")
	if _, err := override.Edit(ctx, k, nil); err == nil || !strings.Contains(err.Error(), "override: down") {
		t.Error(err)
	}
}

// A policy may be mounted with different limits. A change is for all of them, so each bounds it.
func TestAChangeIsBoundedByEachLimitOfAPolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper(t)
		r := start(t, k)
		mounted := r.Limit(policy("api", ratelimit.PerHour(60).WithBurst(1)))
		var factor *override.FactorError
		if err := r.Set(t.Context(), change("600/1m burst 100", "60/1m burst 10")); !errors.As(err, &factor) || factor.Program != ratelimit.PerHour(60).WithBurst(1) {
			t.Errorf("%v", err)
		}
		k.put("api", `{"limit":"600/1m burst 100","by":"eve"}`)
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
		r := start(t, newKeeper(t))
		set(t, r, change("120/1m burst 20", ""))
		only := policy("api", ratelimit.Limit{})
		only.LimitFunc = func(*http.Request) ratelimit.Limit { return ratelimit.PerMinute(5) }
		mounted := r.Limit(only)
		set(t, r, override.Change{Policy: "login", Limit: "10/1h", By: "alice"})
		if e := r.entry("login"); e.InForce != "10/1h" || r.Policies()[1].Limit != ratelimit.PerHour(10) {
			t.Errorf("login: %+v, %v", e, r.Policies()[1].Limit)
		}
		if err := r.End(t.Context(), override.Change{Policy: "api", By: "alice"}); err != nil || r.api() != "60/1m burst 10" {
			t.Errorf("ended: %s, %v", r.api(), err)
		}
		runtime.KeepAlive(mounted)
	})
}

// Without the program's limits, Change.Was stands in also above a value that does not say what the limit was.
func TestTheCommandReplacesAValueThatItCannotRead(t *testing.T) {
	for raw, was := range map[string]string{"junk": "60/1m", `{"limit":"120/1m","by":"eve"}`: "120/1m"} {
		k := newKeeper(t)
		k.put("api", raw)
		e := edit(t, k, nil)
		if err := e.Set(t.Context(), change("100/1m", was)); err != nil {
			t.Errorf("%s: %v", raw, err)
		}
		k.put("api", raw)
		if err := e.End(t.Context(), change("", "")); err != nil {
			t.Errorf("%s: %v", raw, err)
		}
		if list := e.List(nil); len(list) > 0 {
			t.Errorf("%s: %+v", raw, list)
		}
	}
}

// Without the program's limits, a forced change is noted as one: a replica may have a limit that is far from Was.
func TestAForcedChangeOfAnUnknownProgram(t *testing.T) {
	for _, force := range []bool{true, false} {
		e := edit(t, newKeeper(t), nil)
		c := change("70/1m burst 10", "60/1m burst 10")
		c.Force = force
		if err := e.Set(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		if list := e.List(nil); len(list) != 1 || list[0].Forced != force {
			t.Errorf("force %t: %+v", force, list)
		}
	}
}
