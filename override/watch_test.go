package override_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/override"
	"github.com/go-tokenbucket/ratelimit/store"
)

// A look is at most 1.1 s after the one before, and takes at most half a second.
const look = 1200 * time.Millisecond

func TestAChangeReachesEachReplicaWithinTwoSecondsAndOutlastsARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper(t)
		a, b := start(t, k), start(t, k)
		set(t, a, change("120/1m burst 20", "60/1m burst 10"))
		if a.api() != "120/1m burst 20" || b.api() != "60/1m burst 10" {
			t.Errorf("at once: %s and %s", a.api(), b.api())
		}
		time.Sleep(look)
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
		if e := c.entry("login"); e != (override.Entry{Policy: "login", Program: "5/1h", InForce: "5/1h"}) {
			t.Errorf("%+v", e)
		}
		if err := c.End(t.Context(), override.Change{Policy: "api", By: "bob"}); err != nil || c.api() != "60/1m burst 10" {
			t.Errorf("%s, %v", c.api(), err)
		}
		time.Sleep(look)
		if a.api() != "60/1m burst 10" {
			t.Errorf("ended: %s", a.api())
		}
		if err := a.End(t.Context(), override.Change{Policy: "api", By: "bob"}); !errors.Is(err, override.ErrRefused) || !strings.Contains(err.Error(), "nothing to end") {
			t.Errorf("ended twice: %v", err)
		}
		if log := a.log.String(); !strings.Contains(log, "limit changed") || !strings.Contains(log, "by=alice") || !strings.Contains(log, "ended") {
			t.Error(log)
		}
	})
}

// limitOf returns the burst that a client of api has.
func limitOf(t *testing.T, r replica, addr string) string {
	t.Helper()
	request := httptest.NewRequest("GET", "/", nil)
	request.RemoteAddr = addr + ":1"
	d, err := r.Decide(request)
	if err != nil || len(d.Results) != 1 {
		t.Fatalf("%+v, %v", d, err)
	}
	return d.Results[0].Limit.String()
}

// A key has its own limit, else that of its policy, until the end by the time of the store.
func TestTheLimitOfOneKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper(t)
		k.ahead = 5 * time.Hour
		a, b := start(t, k), start(t, k)
		friday := time.Now().Add(k.ahead + time.Hour).Truncate(time.Microsecond)
		set(t, a, ofKey("ip:192.0.2.1", "600/1m burst 100", friday))
		set(t, a, change("30/1m", ""))
		time.Sleep(look)
		limits := func(r replica, one, others string) {
			t.Helper()
			if got := limitOf(t, r, "192.0.2.1"); got != one {
				t.Errorf("the key has %s, want %s", got, one)
			}
			if got := limitOf(t, r, "192.0.2.2"); got != others {
				t.Errorf("others have %s, want %s", got, others)
			}
		}
		for _, r := range []replica{a, b, start(t, k)} {
			limits(r, "600/1m burst 100", "30/1m")
			e := r.entry("api ip:192.0.2.1")
			if e.Program != "60/1m burst 10" || e.InForce != "600/1m burst 100" || !e.Until.Equal(friday) || e.Why != "launch" {
				t.Errorf("%+v", e)
			}
			if of := r.List(func(_, key string) bool { return key == "ip:192.0.2.1" }); len(of) != 1 || of[0] != e {
				t.Errorf("%+v", of)
			}
		}
		set(t, b, ofKey("ip:192.0.2.1", "300/1m burst 50", friday))
		if err := b.End(t.Context(), override.Change{Policy: "api", By: "bob"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour - 5*time.Second)
		limits(a, "300/1m burst 50", "60/1m burst 10")
		k.edit(func() { k.err = io.ErrUnexpectedEOF }) // the end comes in an outage
		time.Sleep(7 * time.Second)
		limits(a, "60/1m burst 10", "60/1m burst 10")
		k.edit(func() { k.err = nil })
		time.Sleep(look)
		limits(b, "60/1m burst 10", "60/1m burst 10")
		if e := a.entry("api ip:192.0.2.1"); e.Policy != "" {
			t.Errorf("still listed: %+v", e)
		}
		if log := a.log.String(); !strings.Contains(log, `of="api ip:192.0.2.1"`) || strings.Count(log, "override ended") != 2 {
			t.Error(log)
		}
		if err := a.End(t.Context(), ofKey("ip:192.0.2.1", "", time.Time{})); !errors.Is(err, override.ErrRefused) {
			t.Errorf("ended after its end: %v", err)
		}
		set(t, a, ofKey("ip:192.0.2.1", "120/1m burst 20", time.Time{}))
		limits(a, "120/1m burst 20", "60/1m burst 10")
	})
}

// An end is judged by the clock of the Store, also when that was wrong for a while, and also of an override that is refused.
func TestAnEndComesAndGoesWithTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper(t)
		r := start(t, k)
		set(t, r, ofKey("ip:192.0.2.1", "300/1m burst 50", time.Now().Add(time.Hour)))
		k.put("api ip:192.0.2.2", `{"limit":"6000000/1m","until":"`+time.Now().Add(time.Hour).Format(time.RFC3339)+`"}`)
		for _, step := range []struct {
			ahead time.Duration
			limit string
			keys  int
		}{{0, "300/1m burst 50", 2}, {2 * time.Hour, "60/1m burst 10", 0}, {0, "300/1m burst 50", 2}} {
			k.edit(func() { k.ahead = step.ahead })
			time.Sleep(look)
			if got, keys := limitOf(t, r, "192.0.2.1"), len(r.List(func(_, key string) bool { return key != "" })); got != step.limit || keys != step.keys {
				t.Errorf("%v ahead: %s, %d keys", step.ahead, got, keys)
			}
		}
	})
}

// The last change of each policy and key is shown for 30 days after its end.
func TestHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper(t)
		r := start(t, k)
		set(t, r, change("120/1m burst 20", ""))
		if err := r.End(t.Context(), override.Change{Policy: "api", By: "bob", Why: "over"}); err != nil {
			t.Fatal(err)
		}
		until := time.Now().Add(time.Hour)
		set(t, r, ofKey("ip:192.0.2.1", "90/1m", until))
		time.Sleep(2 * time.Hour)
		h := r.History()
		if len(h) != 2 || h[0].Key != "ip:192.0.2.1" || h[0].Limit != "90/1m" || !h[0].Until.Equal(until) || h[0].Was != "60/1m burst 10" ||
			h[1].By != "bob" || h[1].Why != "over" || h[1].Limit != "" || h[1].Was != "120/1m burst 20" || h[1].Policy != "api" {
			t.Errorf("%+v", h)
		}
		k.edit(func() { k.ahead = 30 * 24 * time.Hour })
		time.Sleep(look)
		if h := r.History(); len(h) != 0 {
			t.Errorf("after 30 days: %+v", h)
		}
		for i := range 60 {
			set(t, r, ofKey(fmt.Sprint("ip:", i), "90/1m", time.Time{}))
		}
		if h := r.History(); len(h) != 50 || h[0].Key != "ip:59" {
			t.Errorf("%d, the first is %+v", len(h), h[0])
		}
	})
}

// A replica that was away while a limit without an end was replaced by one whose end has come does not keep the first.
func TestAReplicaThatWasAwayLearnsOfAnEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper(t)
		cut := &keeper{t: t, values: k.values} // the same values by another way
		a, b := start(t, k), start(t, cut)
		set(t, a, ofKey("ip:192.0.2.1", "300/1m burst 50", time.Time{}))
		time.Sleep(look)
		cut.edit(func() { cut.err = io.ErrUnexpectedEOF })
		set(t, a, ofKey("ip:192.0.2.1", "120/1m burst 20", time.Now().Add(time.Minute)))
		time.Sleep(time.Hour)
		if got := limitOf(t, b, "192.0.2.1"); got != "300/1m burst 50" {
			t.Errorf("away: %s", got)
		}
		cut.edit(func() { cut.err = nil })
		time.Sleep(look)
		if got := limitOf(t, b, "192.0.2.1"); got != "60/1m burst 10" {
			t.Errorf("back: %s", got)
		}
	})
}

// A replica reads all values once, and then only changes.
func TestOnlyChangesAreRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper(t)
		a := start(t, k)
		for i := range 20 {
			set(t, a, ofKey(fmt.Sprint("ip:", i), "90/1m", time.Time{}))
		}
		k.edit(func() { k.read = 0 })
		start(t, k)
		time.Sleep(time.Minute)
		if read, _ := k.counts(); read != 20 {
			t.Errorf("%d values were read, want 20", read)
		}
		set(t, a, ofKey("ip:3", "91/1m", time.Time{}))
		time.Sleep(time.Minute)
		if read, _ := k.counts(); read != 22 {
			t.Errorf("%d values were read, want 22", read)
		}
	})
}

// A policy follows a change from when it is known and within the bound of what the program then sets.
func TestTheProgramMayChangeItsPolicies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper(t)
		r := start(t, k)
		set(t, r, change("120/1m burst 12", ""))
		if err := r.Reload(policy("api", ratelimit.PerMinute(2))); err != nil {
			t.Fatal(err)
		}
		time.Sleep(look)
		if e := r.entry("api"); r.api() != "2/1m" || e.Program != "2/1m" || !strings.Contains(e.Refused, "60 times") {
			t.Errorf("%s, %+v", r.api(), e)
		}
		if n := strings.Count(r.log.String(), "override refused"); n != 1 {
			t.Errorf("the refusal is logged %d times:\n%s", n, r.log)
		}
		k.edit(func() { k.err = errors.New("down") }) // also in an outage
		if err := r.Reload(policy("api", ratelimit.PerMinute(50))); err != nil {
			t.Fatal(err)
		}
		time.Sleep(look)
		if e := r.entry("api"); r.api() != "120/1m burst 12" || e.Program != "50/1m" || e.Refused != "" {
			t.Errorf("%s, %+v", r.api(), e)
		}
		k.edit(func() { k.err = nil })

		k.put("search", `{"limit":"7/1m","by":"x"}`)
		time.Sleep(look)
		if e := r.entry("search"); !strings.Contains(e.Refused, "no policy") {
			t.Errorf("%+v", e)
		}
		kept := r.Limit(policy("search", ratelimit.PerMinute(5)))
		time.Sleep(look)
		if e := r.entry("search"); e.InForce != "7/1m" || e.Refused != "" {
			t.Errorf("%+v", e)
		}
		runtime.KeepAlive(kept)
	})
}

func TestWhileTheStoreIsUnavailableTheLimitsInForceStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper(t)
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
		if err := a.Set(t.Context(), change("90/1m", "")); !errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, override.ErrRefused) {
			t.Error(err)
		}
		k.edit(func() { k.err = nil })
		time.Sleep(251 * time.Millisecond)
		if b.api() != "120/1m burst 12" || a.Problem() != "" {
			t.Errorf("%s, %q", b.api(), a.Problem())
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
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper(t)
		log := &hungLog{make(chan struct{}), make(chan string, 100)}
		a, b := start(t, k), startWith(t, k, override.Config{Logger: slog.New(slog.NewTextHandler(log, nil))})
		set(t, b, change("120/1m burst 12", ""))
		set(t, a, change("90/1m burst 9", ""))
		time.Sleep(look)
		if b.api() != "90/1m burst 9" {
			t.Errorf("in force is %s", b.api())
		}
		k.edit(func() { k.err = io.ErrUnexpectedEOF })
		time.Sleep(look)
		if b.Problem() == "" {
			t.Error("no problem is shown")
		}
		k.edit(func() { k.err = nil })
		time.Sleep(look)
		if err := b.End(t.Context(), override.Change{Policy: "api", By: "bob"}); err != nil || b.entry("api").InForce != "60/1m burst 10" || b.Problem() != "" {
			t.Errorf("%+v, %v, %q", b.List(nil), err, b.Problem())
		}
		close(log.released)
		for _, event := range []string{`limit="120/1m`, `limit="90/1m`, "cannot be read", "ended"} {
			if line := <-log.lines; !strings.Contains(line, event) {
				t.Errorf("%s, want %s", line, event)
			}
		}
	})
}

func FuzzKeptValue(f *testing.F) {
	f.Add("api", `{"limit":"120/1m burst 20","was":"60/1m","by":"alice","why":"sale"}`)
	f.Add("api ip:192.0.2.1", `{"limit":"120000/1m","forced":true,"until":"2099-01-01T00:00:00Z"}`)
	f.Add("api  ", "\x00")
	f.Fuzz(func(t *testing.T, name, raw string) {
		if name == "" || len(name) > store.MaxValueName || len(raw) > store.MaxValueText {
			return
		}
		k := newKeeper(t)
		k.put(name, raw)
		l := ratelimit.Must(ratelimit.New(ratelimit.Config{Policies: []ratelimit.Policy{policy("api", ratelimit.PerMinute(60))}}))
		defer l.Close()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		s, err := override.Watch(ctx, l, k, override.Config{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		now := l.Policies()[0].Limit
		e := s.List(nil)[0]
		if e.Policy == "api" && e.Key == "" && (e.InForce != now.String() || e.Refused != "" && now != ratelimit.PerMinute(60)) {
			t.Errorf("%q: %q: %+v, in force is %v", name, raw, e, now)
		}
		if !e.Forced && now != ratelimit.Unlimited && (now.Rate*int64(time.Minute) > 10*60*int64(now.Per) || now.Rate < 1) || now == ratelimit.Unlimited && !e.Forced {
			t.Errorf("%q: %q: %v", name, raw, now)
		}
	})
}
