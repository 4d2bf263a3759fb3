package limits_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/testprogram"
	"github.com/go-tokenbucket/ratelimit/limits"
)

// A keeper is a Keeper in memory.
type keeper struct {
	mu    sync.Mutex
	held  map[string]string
	err   error
	loads int
}

func newKeeper() *keeper { return &keeper{held: make(map[string]string)} }

func (k *keeper) LoadLimits(context.Context) (map[string]string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.loads++
	return maps.Clone(k.held), k.err
}

func (k *keeper) SwapLimit(_ context.Context, policy, was, now, entry string) (string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.err != nil || k.held[policy] != was {
		return k.held[policy], k.err
	}
	at := strconv.FormatInt(time.Now().UnixMicro(), 10)
	n, _ := strconv.Atoi(k.held["#n"])
	if n == 0 {
		k.held["#since"] = at
	}
	k.held["#n"], k.held["#"+strconv.Itoa(n%50)] = strconv.Itoa(n+1), at+" "+entry
	if delete(k.held, policy); now != "" {
		k.held[policy] = at + " " + now
	}
	return k.held[policy], nil
}

func (k *keeper) edit(f func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	f()
}

func policy(name string, l ratelimit.Limit) ratelimit.Policy {
	return ratelimit.Policy{Name: name, Key: ratelimit.RemoteIP(), Limit: l}
}

// A replica is one replica of a program with the policies api and login.
type replica struct {
	*ratelimit.Limiter
	*limits.Limits
	log *strings.Builder
}

func start(t *testing.T, k limits.Keeper) replica {
	t.Helper()
	var log strings.Builder
	r := startWith(t, k, limits.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	r.log = &log
	return r
}

func startWith(t *testing.T, k limits.Keeper, cfg limits.Config) replica {
	t.Helper()
	l, err := ratelimit.New(ratelimit.Config{Policies: []ratelimit.Policy{policy("api", ratelimit.PerMinute(60).WithBurst(10))}})
	if err != nil {
		t.Fatal(err)
	}
	login := l.Limit(policy("login", ratelimit.PerHour(5)))
	t.Cleanup(func() { runtime.KeepAlive(login); l.Close() })
	s, err := limits.Watch(t.Context(), l, k, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return replica{Limiter: l, Limits: s}
}

func (r replica) api() string { return r.Policies()[0].Limit.String() }

func (r replica) entry(name string) limits.Entry {
	list := r.List()
	i := slices.IndexFunc(list, func(e limits.Entry) bool { return e.Policy == name })
	if i < 0 {
		return limits.Entry{}
	}
	return list[i]
}

func change(limit, was string) limits.Change {
	return limits.Change{Policy: "api", Limit: limit, Was: was, By: "alice", Why: "sale"}
}

func set(t *testing.T, r replica, c limits.Change) {
	t.Helper()
	if err := r.Set(t.Context(), c); err != nil {
		t.Fatal(err)
	}
}

func TestAChangeReachesEachReplicaWithinTwoSecondsAndOutlastsARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper()
		a, b := start(t, k), start(t, k)
		set(t, a, change("120/1m burst 20", "60/1m burst 10"))
		if a.api() != "120/1m burst 20" || b.api() != "60/1m burst 10" {
			t.Errorf("at once: %s and %s", a.api(), b.api())
		}
		time.Sleep(1200 * time.Millisecond) // and 0.5 s of a read
		if b.api() != "120/1m burst 20" {
			t.Errorf("later: %s", b.api())
		}
		c := start(t, k)
		if c.api() != "120/1m burst 20" {
			t.Errorf("restarted: %s", c.api())
		}
		e := c.entry("api")
		if e.Program != "60/1m burst 10" || e.InForce != "120/1m burst 20" || e.By != "alice" || e.Why != "sale" || e.Forced || e.Refused != "" || time.Since(e.At) > time.Minute {
			t.Errorf("%+v", e)
		}
		if e := c.entry("login"); e != (limits.Entry{Policy: "login", Program: "5/1h", InForce: "5/1h"}) {
			t.Errorf("%+v", e)
		}
		if err := c.End(t.Context(), limits.Change{Policy: "api", By: "bob"}); err != nil || c.api() != "60/1m burst 10" {
			t.Errorf("%s, %v", c.api(), err)
		}
		time.Sleep(1200 * time.Millisecond)
		if a.api() != "60/1m burst 10" {
			t.Errorf("ended: %s", a.api())
		}
		h := a.History()
		if len(h) != 2 || h[0].By != "bob" || h[0].Limit != "" || h[0].Was != "120/1m burst 20" || h[1].By != "alice" || h[1].Limit != "120/1m burst 20" || h[1].Policy != "api" {
			t.Errorf("%+v", h)
		}
		if err := a.End(t.Context(), limits.Change{Policy: "api", By: "bob"}); !errors.Is(err, limits.ErrRefused) {
			t.Errorf("ended twice: %v", err)
		}
		if log := a.log.String(); !strings.Contains(log, "limit changed") || !strings.Contains(log, "by=alice") || !strings.Contains(log, "ended") {
			t.Error(log)
		}
	})
}

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

type racing struct {
	*keeper
	before func()
}

func (r *racing) SwapLimit(ctx context.Context, policy, was, now, entry string) (string, error) {
	if f := r.before; f != nil {
		r.before = nil
		f()
	}
	return r.keeper.SwapLimit(ctx, policy, was, now, entry)
}

// Values that somebody has written by hand are bounded on each replica, and do not stop the others.
func TestKeptValuesAreRefused(t *testing.T) {
	for name, tt := range map[string]struct{ raw, want string }{
		"text":               {"120/1m burst 12", "malformed"},
		"no time":            {`{"limit":"120/1m burst 12"}`, "malformed"},
		"a time of no year":  {`253402300800000000 {"limit":"120/1m burst 12"}`, "malformed"},
		"a time before 1970": {`-1 {"limit":"120/1m burst 12"}`, "malformed"},
		"cut":                {`1795367301123456 {"limit":"120/1m burst 12"`, "malformed"},
		"a number":           {`1795367301123456 120`, "malformed"},
		"no limit":           {`1795367301123456 {}`, `must be like "60/1m"`},
		"garbage":            {"\x00\xff\x1b[2J", "malformed"},
		"2 KiB":              {`1795367301123456 {"limit":"120/1m burst 12","why":"` + strings.Repeat("w", 2048) + `"}`, "at most 1024"},
		"1000 times":         {`1795367301123456 {"limit":"60000/1m burst 10","by":"x"}`, "the rate of 60000/1m burst 10 is 1000 times that"},
		"a thousandth":       {`1795367301123456 {"limit":"60/1000m burst 10","by":"x"}`, "0.001 times"},
		"a rate of 0":        {`1795367301123456 {"limit":"0/1m","forced":true}`, `rate "0"`},
		"forced unlimited":   {`1795367301123456 {"limit":"unlimited","forced":true}`, "unlimited"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := newKeeper()
				r := start(t, k)
				k.edit(func() {
					k.held["api"] = tt.raw
					k.held["login"] = `1795367301123456 {"limit":"6/1h","by":"eve\u001b[2J"}`
					k.held["nobody's"] = tt.raw
				})
				time.Sleep(1200 * time.Millisecond)
				if e := r.entry("api"); r.api() != "60/1m burst 10" || e.InForce != "60/1m burst 10" || !strings.Contains(e.Refused, tt.want) {
					t.Errorf("%+v", e)
				}
				if e := r.entry("login"); e.InForce != "6/1h" || e.By != `eve\x1b[2J` {
					t.Errorf("%+v", e)
				}
				if e := r.entry("nobody's"); e.Program != "" || !strings.Contains(e.Refused, tt.want) && !strings.Contains(e.Refused, "no policy of this name: end the change") {
					t.Errorf("%+v", e)
				}
				if log := r.log.String(); strings.Contains(log, "\x1b") || strings.Count(log, "kept limit refused") != 2 {
					t.Error(log)
				}
				time.Sleep(time.Minute)
				if strings.Count(r.log.String(), "kept limit refused") != 2 {
					t.Error("it is logged at each look")
				}
				// It is replaced by a change, and ended.
				set(t, r, change("61/1m burst 10", "60/1m burst 10"))
				if r.api() != "61/1m burst 10" {
					t.Error(r.api())
				}
			})
		})
	}
}

func TestAHashOfTooManyFieldsIsRefusedAsAWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper()
		r := start(t, k)
		set(t, r, change("120/1m burst 12", ""))
		k.edit(func() {
			for i := range 1001 {
				k.held[fmt.Sprint("p", i)] = "x"
			}
			delete(k.held, "api")
		})
		time.Sleep(3 * time.Second)
		if r.api() != "120/1m burst 12" || !strings.Contains(r.Problem(), "at most 1000") {
			t.Errorf("%s, %q", r.api(), r.Problem())
		}
	})
}

// A policy follows a change from when it is known and within the bound of what the program then sets.
func TestTheProgramMayChangeItsPolicies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper()
		r := start(t, k)
		set(t, r, change("120/1m burst 12", ""))
		if err := r.Reload(policy("api", ratelimit.PerMinute(2))); err != nil {
			t.Fatal(err)
		}
		time.Sleep(1200 * time.Millisecond)
		if e := r.entry("api"); r.api() != "2/1m" || e.Program != "2/1m" || !strings.Contains(e.Refused, "60 times") {
			t.Errorf("%s, %+v", r.api(), e)
		}
		if n := strings.Count(r.log.String(), "kept limit refused"); n != 1 {
			t.Errorf("the refusal is logged %d times:\n%s", n, r.log)
		}
		if err := r.Reload(policy("api", ratelimit.PerMinute(50))); err != nil {
			t.Fatal(err)
		}
		time.Sleep(1200 * time.Millisecond)
		if e := r.entry("api"); r.api() != "120/1m burst 12" || e.Program != "50/1m" || e.Refused != "" {
			t.Errorf("%s, %+v", r.api(), e)
		}
		if n := strings.Count(r.log.String(), "limit changed"); n != 2 {
			t.Errorf("the limit that is followed again is logged %d times:\n%s", n, r.log)
		}

		k.edit(func() { k.held["search"] = `1795367301123456 {"limit":"7/1m","by":"x"}` })
		time.Sleep(1200 * time.Millisecond)
		if e := r.entry("search"); !strings.Contains(e.Refused, "no policy") {
			t.Errorf("%+v", e)
		}
		kept := r.Limit(policy("search", ratelimit.PerMinute(5)))
		time.Sleep(1200 * time.Millisecond)
		if e := r.entry("search"); e.InForce != "7/1m" || e.Refused != "" {
			t.Errorf("%+v", e)
		}
		runtime.KeepAlive(kept)
	})
}

func TestWhileRedisIsUnavailableTheLimitsInForceStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper()
		a := start(t, k)
		set(t, a, change("120/1m burst 12", ""))
		k.edit(func() { k.err = io.ErrUnexpectedEOF })
		b := start(t, k)
		time.Sleep(3 * time.Minute)
		if a.api() != "120/1m burst 12" || b.api() != "60/1m burst 10" || !strings.Contains(a.Problem(), "unexpected EOF") {
			t.Errorf("%s and %s, %q", a.api(), b.api(), a.Problem())
		}
		if n := strings.Count(a.log.String(), "cannot be read"); n < 3 || n > 4 {
			t.Errorf("logged %d times in 3 minutes", n)
		}
		if err := a.Set(t.Context(), change("90/1m", "")); !errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, limits.ErrRefused) {
			t.Error(err)
		}
		k.edit(func() { k.err = nil })
		time.Sleep(251 * time.Millisecond)
		if b.api() != "120/1m burst 12" || a.Problem() != "" {
			t.Errorf("%s, %q", b.api(), a.Problem())
		}
		k.edit(func() { k.err = errors.New("NOPERM this user has no permissions to run the 'hlen' command") })
		if err := a.Set(t.Context(), change("90/1m", "")); err == nil || !strings.Contains(err.Error(), "+hlen, +hkeys, +hstrlen and +hdel") {
			t.Error(err)
		}
		k.edit(func() { k.err = errors.New("WRONGTYPE Operation against a key holding the wrong kind of value") })
		if err := a.Set(t.Context(), change("90/1m", "")); err == nil || !strings.Contains(err.Error(), "delete or rename it") {
			t.Error(err)
		}
	})
}

// Limits that disappear with the hash stay in force, until somebody sets or ends them.
func TestLimitsThatDisappearStayInForce(t *testing.T) {
	for _, action := range []string{"set", "end", "set other", "the command", "restart"} {
		t.Run(action, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := newKeeper()
				a, b := start(t, k), start(t, k)
				set(t, a, change("120/1m burst 12", ""))
				login := limits.Change{Policy: "login", Limit: "9/1h", By: "alice"}
				set(t, a, login)
				time.Sleep(2 * time.Second)
				k.edit(func() { clear(k.held) }) // FLUSHALL
				time.Sleep(2 * time.Minute)
				want := map[string]string{"api": "120/1m burst 12", "login": "9/1h"}
				check := func(when string, want map[string]string) {
					t.Helper()
					for i, r := range []replica{a, b} {
						for name, limit := range want {
							if e := r.entry(name); e.InForce != limit {
								t.Errorf("%s: replica %d: %+v, want %s", when, i, e, limit)
							}
						}
					}
				}
				check("flushed", want)
				if !strings.Contains(a.Problem(), "have disappeared") || strings.Count(a.log.String(), "have disappeared") != 2 {
					t.Errorf("%q, %s", a.Problem(), a.log.String())
				}
				problem := false
				switch action {
				case "set":
					set(t, a, change("130/1m burst 13", "120/1m burst 12"))
					want["api"] = "130/1m burst 13"
				case "end":
					if err := a.End(t.Context(), limits.Change{Policy: "api", By: "bob"}); err != nil {
						t.Fatal(err)
					}
					want["api"] = "60/1m burst 10"
				case "set other":
					login.Limit = "8/1h"
					set(t, b, login)
					want["login"] = "8/1h"
				case "the command": // which does not know what was lost
					e := limits.Editor{Keeper: k, Program: map[string]ratelimit.Limit{"login": ratelimit.PerHour(5)}}
					login.Limit = "8/1h"
					if err := e.Set(t.Context(), login); err != nil {
						t.Fatal(err)
					}
					want["login"], problem = "8/1h", true
				case "restart":
					a = start(t, k)
					if a.api() != "60/1m burst 10" {
						t.Error(a.api())
					}
					return
				}
				time.Sleep(2 * time.Second)
				check("afterwards", want)
				if (a.Problem() != "") != problem {
					t.Errorf("%q", a.Problem())
				}
				if !problem {
					a = start(t, k)
					check("after a restart", want)
				}
			})
		})
	}
}

// A behind is a Keeper whose clock is behind, such as a server that was a replica until a failover.
type behind struct{ *keeper }

func (b behind) SwapLimit(ctx context.Context, policy, was, now, entry string) (string, error) {
	held, err := b.keeper.SwapLimit(ctx, policy, was, now, entry)
	b.edit(func() {
		n, _ := strconv.Atoi(b.held["#n"])
		b.held["#"+strconv.Itoa((n-1)%50)] = strconv.FormatInt(time.Now().Add(-time.Hour).UnixMicro(), 10) + " " + entry
	})
	return held, err
}

// Limits that have disappeared are ended for all replicas, also by a clock that is behind.
func TestLimitsThatDisappearAreEndedByAClockThatIsBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper()
		a, b := start(t, k), start(t, behind{k})
		set(t, a, change("120/1m burst 12", ""))
		time.Sleep(2 * time.Second)
		k.edit(func() { clear(k.held) })
		time.Sleep(2 * time.Second)
		if err := b.End(t.Context(), limits.Change{Policy: "api", By: "bob"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		for i, r := range []replica{a, b} {
			if r.api() != "60/1m burst 10" || r.Problem() != "" {
				t.Errorf("replica %d: %s, %q", i, r.api(), r.Problem())
			}
		}
	})
}

// What is kept again after it has disappeared is what the operator wrote, however often that happens.
func TestLimitsThatAreKeptAgainKeepTheirReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper()
		r := start(t, k)
		c := change("120/1m burst 12", "")
		c.By, c.Why = `CORP\alice`, "sale\tof\u00a0shoes"
		set(t, r, c)
		want := r.entry("api")
		for _, limit := range []string{"6/1h", "7/1h", "8/1h"} {
			k.edit(func() { clear(k.held) }) // FLUSHALL
			time.Sleep(2 * time.Second)
			set(t, r, limits.Change{Policy: "login", Limit: limit, By: "bob"})
			if e := r.entry("api"); e.By != want.By || e.Why != want.Why || r.Problem() != "" {
				t.Errorf("%s: by %s, why %s, want by %s, why %s; %s", limit, e.By, e.Why, want.By, want.Why, r.Problem())
			}
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

func FuzzKeptValue(f *testing.F) {
	f.Add(`1795367301123456 {"limit":"120/1m burst 20","was":"60/1m","by":"alice","why":"sale","forced":false}`)
	f.Add(`1795367301123456 {"limit":"120000/1m","forced":true}`)
	f.Add("\x00")
	f.Fuzz(func(t *testing.T, raw string) {
		k := newKeeper()
		k.held["api"], k.held["#0"] = raw, raw
		l := ratelimit.Must(ratelimit.New(ratelimit.Config{Policies: []ratelimit.Policy{policy("api", ratelimit.PerMinute(60))}}))
		defer l.Close()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		s, err := limits.Watch(ctx, l, k, limits.Config{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		e := s.List()[0]
		now := l.Policies()[0].Limit
		if e.InForce != now.String() || e.Refused != "" && now != ratelimit.PerMinute(60) {
			t.Errorf("%q: %+v, in force is %v", raw, e, now)
		}
		if !e.Forced && (now.Rate*int64(time.Minute) > 10*60*int64(now.Per) || now.Rate < 1 || now == ratelimit.Unlimited) {
			t.Errorf("%q: %v", raw, now)
		}
	})
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

// The program may set another limit while Redis is unavailable. It bounds what is in force at once.
func TestAReloadBoundsAChangeDuringAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper()
		r := start(t, k)
		set(t, r, change("600/1m burst 100", ""))
		k.edit(func() { k.err = errors.New("down") })
		time.Sleep(2 * time.Second)
		if r.api() != "600/1m burst 100" {
			t.Errorf("in an outage: %s", r.api())
		}
		for limit, want := range map[ratelimit.Limit]string{ratelimit.PerMinute(1): "1/1m", ratelimit.PerMinute(70).WithBurst(10): "600/1m burst 100"} {
			if err := r.Reload(policy("api", limit), policy("login", ratelimit.PerHour(5))); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Second)
			if r.api() != want {
				t.Errorf("after a Reload with %v: %s, want %s", limit, r.api(), want)
			}
		}
		if strings.Contains(r.Problem(), "disappeared") {
			t.Error(r.Problem())
		}
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

// A failover may lose the last change, and another change may be made before a replica reads again. The hash then counts as
// many changes as before.
func TestAChangeThatAFailoverHasLostStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper()
		r, other := start(t, k), limits.Editor{Keeper: k, Program: map[string]ratelimit.Limit{"login": ratelimit.PerHour(5)}}
		set(t, r, limits.Change{Policy: "login", Limit: "6/1h", By: "bob"})
		copied, _ := k.LoadLimits(t.Context())
		set(t, r, change("20/1m burst 5", ""))
		k.edit(func() { k.held = copied })
		if err := other.Set(t.Context(), limits.Change{Policy: "login", Limit: "7/1h", By: "bob"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		if r.api() != "20/1m burst 5" || !strings.Contains(r.Problem(), "of api have disappeared") || r.entry("login").InForce != "7/1h" {
			t.Errorf("%s, %q, %+v", r.api(), r.Problem(), r.entry("login"))
		}
		if err := r.End(t.Context(), limits.Change{Policy: "api", By: "alice"}); err != nil || r.api() != "60/1m burst 10" || r.Problem() != "" {
			t.Errorf("ended: %s, %q, %v", r.api(), r.Problem(), err)
		}
		for range 120 { // the log turns round
			if err := other.Set(t.Context(), limits.Change{Policy: "login", Limit: "8/1h", By: "bob"}); err != nil {
				t.Fatal(err)
			}
		}
		set(t, r, change("20/1m burst 5", ""))
		if err := other.End(t.Context(), limits.Change{Policy: "login", By: "bob"}); err != nil {
			t.Fatal(err)
		}
		k.edit(func() { delete(k.held, "api") })
		time.Sleep(2 * time.Second)
		if r.api() != "60/1m burst 10" || r.entry("login").InForce != "5/1h" || r.Problem() != "" {
			t.Errorf("removed by hand: %s, %+v, %q", r.api(), r.entry("login"), r.Problem())
		}
	})
}

// An entry of the log that later changes have overwritten does not say that the hash is another one.
func TestALogThatHasTurnedRoundLosesNothing(t *testing.T) {
	for _, changes := range []int{49, 50, 51} {
		synctest.Test(t, func(t *testing.T) {
			k := newKeeper()
			r, other := start(t, k), limits.Editor{Keeper: k, Program: map[string]ratelimit.Limit{"login": ratelimit.PerHour(5)}}
			set(t, r, change("20/1m burst 5", ""))
			for range changes {
				if err := other.Set(t.Context(), limits.Change{Policy: "login", Limit: "6/1h", By: "bob"}); err != nil {
					t.Fatal(err)
				}
			}
			k.edit(func() { delete(k.held, "api") })
			time.Sleep(2 * time.Second)
			if r.api() != "60/1m burst 10" || r.Problem() != "" {
				t.Errorf("after %d changes: %s, %q", changes, r.api(), r.Problem())
			}
		})
	}
}

// A value that was not followed is not lost when it disappears.
func TestAMalformedValueIsNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper()
		r := start(t, k)
		set(t, r, change("20/1m burst 5", ""))
		k.edit(func() { k.held["login"] = "junk" })
		time.Sleep(2 * time.Second)
		k.edit(func() { clear(k.held) })
		time.Sleep(2 * time.Second)
		if !strings.Contains(r.Problem(), "changed limits of api have disappeared") || r.entry("login").Refused != "" || r.entry("login").InForce != "5/1h" {
			t.Errorf("%q, %+v", r.Problem(), r.entry("login"))
		}
	})
}

// An empty value is malformed, too, and can be replaced and ended.
func TestAnEmptyValueWrittenByHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper()
		r, command := start(t, k), limits.Editor{Keeper: k}
		k.held["api"] = ""
		time.Sleep(2 * time.Second)
		if e := r.entry("api"); !strings.Contains(e.Refused, "is malformed") || e.InForce != "60/1m burst 10" {
			t.Errorf("%+v", e)
		}
		if list, err := command.List(t.Context()); err != nil || len(list) != 1 || !strings.Contains(list[0].Refused, "is malformed") {
			t.Errorf("%+v, %v", list, err)
		}
		if err := r.End(t.Context(), limits.Change{Policy: "api", By: "bob", Was: "60/1m burst 10"}); err != nil {
			t.Error(err)
		}
		if _, has := k.held["api"]; has || r.entry("api").Refused != "" {
			t.Errorf("ended: %v, %+v", k.held, r.entry("api"))
		}
		k.held["api"] = ""
		if err := command.End(t.Context(), limits.Change{Policy: "api", By: "bob"}); err != nil {
			t.Error(err)
		}
		if err := command.End(t.Context(), limits.Change{Policy: "api", By: "bob"}); !errors.Is(err, limits.ErrRefused) {
			t.Errorf("ended twice: %v", err)
		}
		k.held["api"] = ""
		set(t, r, change("120/1m burst 20", "60/1m burst 10"))
		if r.api() != "120/1m burst 20" {
			t.Error(r.api())
		}
	})
}

// A hungLog does not write before it is released.
type hungLog struct {
	released chan struct{}
	lines    chan string
}

func (l *hungLog) Write(line []byte) (int, error) {
	<-l.released
	l.lines <- string(line)
	return len(line), nil
}

func TestAHungLogStopsNothing(t *testing.T) {
	k := newKeeper()
	log := &hungLog{make(chan struct{}), make(chan string, 100)}
	stopped := time.AfterFunc(20*time.Second, func() { close(log.released) })
	cfg := limits.Config{Every: 10 * time.Millisecond, Logger: slog.New(slog.NewTextHandler(log, nil))}
	a, b := start(t, k), startWith(t, k, cfg)
	set(t, b, change("120/1m burst 12", ""))
	set(t, b, limits.Change{Policy: "login", Limit: "9/1h", By: "alice"})
	set(t, a, change("90/1m burst 9", ""))
	testprogram.Until(t, "a change of another replica", func() bool { return b.api() == "90/1m burst 9" })
	k.edit(func() { k.err = io.ErrUnexpectedEOF })
	testprogram.Until(t, "the problem is shown", func() bool { return b.Problem() != "" })
	k.edit(func() { k.err = nil })
	testprogram.Until(t, "the problem is over", func() bool { return b.Problem() == "" })
	if err := b.End(t.Context(), limits.Change{Policy: "api", By: "bob"}); err != nil || b.entry("api").InForce != "60/1m burst 10" || len(b.History()) != 4 {
		t.Errorf("%+v, %v", b.List(), err)
	}
	if !stopped.Stop() {
		t.Fatal("a call or a look has waited for the log")
	}
	close(log.released)
	for _, event := range []string{`limit="120/1m`, "limit=9/1h", `limit="90/1m`, "cannot be read", "read again", "ended"} {
		select {
		case line := <-log.lines:
			if !strings.Contains(line, event) {
				t.Errorf("%s, want %s", line, event)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("no line with %s", event)
		}
	}
}

// A value that is there again, which this replica has not read yet, is what a change meets, and not the lost one.
func TestALostLimitThatSomebodyHasSetAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper()
		r := start(t, k)
		set(t, r, change("120/1m burst 12", ""))
		time.Sleep(2 * time.Second)
		k.edit(func() { clear(k.held) })
		time.Sleep(2 * time.Second)
		other := limits.Editor{Keeper: k, Program: map[string]ratelimit.Limit{"api": ratelimit.PerMinute(60).WithBurst(10)}}
		if err := other.Set(t.Context(), change("130/1m burst 13", "")); err != nil {
			t.Fatal(err)
		}
		if err := r.Set(t.Context(), change("140/1m burst 14", "120/1m burst 12")); !errors.Is(err, limits.ErrConflict) || !strings.Contains(err.Error(), "it is 130/1m burst 13") {
			t.Error(err)
		}
	})
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
