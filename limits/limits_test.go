package limits_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
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
