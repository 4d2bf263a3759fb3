package override_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/override"
	"github.com/go-tokenbucket/ratelimit/store"
)

// Values that somebody has written by hand are bounded on each replica, and do not stop the others.
func TestValuesWrittenByHandAreRefused(t *testing.T) {
	for name, tt := range map[string]struct{ raw, want string }{
		"text":             {"120/1m burst 12", "malformed"},
		"empty":            {"", "malformed"},
		"cut":              {`{"limit":"120/1m burst 12"`, "malformed"},
		"a number":         {`120`, "malformed"},
		"an end":           {`{"limit":"120/1m burst 12","until":"Friday"}`, "malformed"},
		"garbage":          {"\x00\xff\x1b[2J", "malformed"},
		"a long limit":     {`{"limit":"` + strings.Repeat("6", 100) + `/1m"}`, "must be from 1 to"},
		"1000 times":       {`{"limit":"60000/1m burst 10","by":"x"}`, "the rate of 60000/1m burst 10 is 1000 times that"},
		"a thousandth":     {`{"limit":"60/1000m burst 10","by":"x"}`, "0.001 times"},
		"a quota":          {`{"limit":"60 per month","by":"x"}`, "cannot be compared"},
		"a rate of 0":      {`{"limit":"0/1m","forced":true}`, "block the key"},
		"slots":            {`{"limit":"3 at once","by":"x","forced":true}`, "3 at once is a concurrency limit, and that of the program"},
		"no slots":         {`{"limit":"0 at once","forced":true}`, "block the key"},
		"unlimited":        {`{"limit":"unlimited"}`, "cannot be compared"},
		"a long reason":    {`{"limit":"61/1m burst 10","why":"` + strings.Repeat("<", 3000) + `"}`, "malformed: must have at most 128 bytes of by, and 256 of why"},
		"of another field": {`{"limit":1,"by":"x"}`, "malformed"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := newKeeper(t)
				r := start(t, k)
				k.put("api", tt.raw)
				k.put("api ip:192.0.2.1", tt.raw)
				k.put("login", `{"limit":"6/1h","by":"eve\u001b[2J"}`)
				k.put("nobody's", tt.raw)
				time.Sleep(look)
				for _, of := range []string{"api", "api ip:192.0.2.1"} {
					if e := r.entry(of); e.InForce != "60/1m burst 10" || !strings.Contains(e.Refused, tt.want) {
						t.Errorf("%+v", e)
					}
				}
				if got := limitOf(t, r, "192.0.2.1"); got != "60/1m burst 10" {
					t.Errorf("in force is %s", got)
				}
				if e := r.entry("login"); e.InForce != "6/1h" || e.By != `eve\x1b[2J` {
					t.Errorf("%+v", e)
				}
				if e := r.entry("nobody's"); e.Program != "" || e.Refused == "" {
					t.Errorf("%+v", e)
				}
				if log := r.log.String(); strings.Contains(log, "\x1b") || strings.Count(log, "override refused") != 3 {
					t.Error(log)
				}
				time.Sleep(time.Minute)
				if strings.Count(r.log.String(), "override refused") != 3 {
					t.Error("it is logged at each look")
				}
				// It is replaced by a change, and ended.
				set(t, r, change("61/1m burst 10", "60/1m burst 10"))
				if r.api() != "61/1m burst 10" {
					t.Error(r.api())
				}
				for _, c := range []override.Change{{Policy: "api", Key: "ip:192.0.2.1", By: "bob"}, {Policy: "nobody's", By: "bob"}} {
					if err := r.End(t.Context(), c); err != nil {
						t.Error(err)
					}
				}
				if list := r.List(nil); len(list) != 2 {
					t.Errorf("%+v", list)
				}
			})
		})
	}
}

// The names of values that no request can have are refused, too.
func TestNamesWrittenByHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper(t)
		r := start(t, k)
		names := []string{"api ", " ", "api  ", "api ip:", "a\x1b b:c", "api \xff:a", "äpi ip:1", "api join:ip:1||"}
		for _, name := range names {
			k.put(name, `{"limit":"61/1m burst 10","by":"eve"}`)
		}
		set(t, r, ofKey("ip:192.0.2.1", "61/1m burst 10", time.Time{}))
		synctest.Wait() // for the log
		if list := r.List(nil); len(list) != len(names)+3 {
			t.Errorf("%+v", list)
		}
		if log := r.log.String(); strings.Count(log, "name of the value is malformed") != len(names) || strings.Contains(log, "\x1b") || strings.Contains(log, "\xff") || strings.Contains(log, "not applied") {
			t.Error(log)
		}
		if got := limitOf(t, r, "192.0.2.1"); got != "61/1m burst 10" {
			t.Error(got)
		}
		k.edit(func() { k.lose() }) // nobody writes these back, or shows them
		time.Sleep(look)
		if list := r.List(nil); len(list) != 3 {
			t.Errorf("after a loss: %+v", list)
		}
		for _, name := range names[4:] {
			k.put(name, `{"limit":"61/1m burst 10","by":"eve"}`)
			policy, key, _ := strings.Cut(name, " ")
			if err := r.End(t.Context(), override.Change{Policy: policy, Key: key, By: "bob"}); err != nil {
				t.Errorf("%q: %v", name, err)
			}
		}
	})
}

// Overrides that disappear stay in force, and replicas write them back. An end is written back, too.
func TestOverridesThatDisappearAreWrittenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper(t)
		a, b := start(t, k), start(t, k)
		c := change("120/1m burst 12", "")
		c.By, c.Why = `CORP\alice`, "sale\tof\u00a0shoes"
		set(t, a, c)
		set(t, a, override.Change{Policy: "login", Limit: "9/1h", By: "alice"})
		set(t, a, ofKey("ip:192.0.2.1", "300/1m burst 50", time.Now().Add(time.Hour)))
		if err := a.End(t.Context(), override.Change{Policy: "login", By: "bob"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(look)
		want := a.List(nil)
		for round := range 3 {
			k.edit(func() { k.lose() })
			time.Sleep(look)
			for i, r := range []replica{a, b, start(t, k)} {
				got := r.List(nil)
				if len(got) != len(want) || r.Problem() != "" || len(r.History()) != 3 {
					t.Fatalf("round %d: replica %d: %+v, %q", round, i, got, r.Problem())
				}
				for j, e := range got {
					if e.At = want[j].At; e != want[j] {
						t.Errorf("round %d: replica %d: %+v, want %+v", round, i, e, want[j])
					}
				}
			}
		}
		if n := strings.Count(a.log.String()+b.log.String(), "have disappeared"); n == 0 || n > 2 {
			t.Errorf("logged %d times in a few seconds", n)
		}
		if n := strings.Count(b.log.String(), "limit changed"); n != 2 {
			t.Errorf("what is written back is logged as changed: %s", b.log)
		}
		k.edit(func() { k.writes = 0 })
		time.Sleep(time.Minute)
		if _, writes := k.counts(); writes != 0 {
			t.Errorf("%d writes in a quiet minute", writes)
		}
	})
}

// A replica does not see that values are lost if somebody writes the last one that it knows again before it looks. It finds
// that when it reads all, and says nothing about what it has already.
func TestALossBeforeAChangeIsFoundWithinTenMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper(t)
		r := start(t, k)
		set(t, r, ofKey("ip:192.0.2.1", "300/1m burst 50", time.Time{}))
		set(t, r, change("120/1m burst 12", ""))
		time.Sleep(look)
		k.edit(func() { k.lose() })
		other := edit(t, k, map[string]ratelimit.Limit{"api": ratelimit.PerMinute(60)})
		if err := other.Set(t.Context(), change("90/1m", "")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(look)
		if r.api() != "90/1m" {
			t.Fatal(r.api())
		}
		time.Sleep(11 * time.Minute)
		fresh := start(t, k)
		if limitOf(t, fresh, "192.0.2.1") != "300/1m burst 50" || fresh.api() != "90/1m" {
			t.Errorf("%+v", fresh.List(nil))
		}
		k.edit(func() { k.writes = 0 })
		logged := r.log.String()
		time.Sleep(30 * time.Minute)
		if _, writes := k.counts(); writes != 0 || r.log.String() != logged {
			t.Errorf("%d writes in a quiet half hour, and logged %s", writes, strings.TrimPrefix(r.log.String(), logged))
		}
	})
}

// A change of an override that is lost is a conflict. The replica then writes it back, so that the next one succeeds.
func TestAnOverrideThatIsLostCanBeEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper(t)
		r := start(t, k)
		set(t, r, ofKey("ip:192.0.2.1", "300/1m burst 50", time.Time{}))
		set(t, r, change("120/1m burst 12", ""))
		time.Sleep(look)
		k.edit(func() { k.lose() })
		k.put("api", `{"limit":"90/1m","by":"bob"}`)
		if err := r.End(t.Context(), ofKey("ip:192.0.2.1", "", time.Time{})); !errors.Is(err, override.ErrConflict) {
			t.Errorf("the first time: %v", err)
		}
		if err := r.End(t.Context(), ofKey("ip:192.0.2.1", "", time.Time{})); err != nil || limitOf(t, r, "192.0.2.1") != "90/1m" {
			t.Errorf("the second time: %v, %+v", err, r.List(nil))
		}
	})
}

// While values cannot be written back, they stay in force, and the page says so. What was written meanwhile is not lost.
func TestOverridesThatCannotBeWrittenBackYet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper(t)
		r := start(t, k)
		set(t, r, change("120/1m burst 12", ""))
		set(t, r, ofKey("ip:192.0.2.1", "300/1m burst 50", time.Time{}))
		k.edit(func() { k.lose(); k.readOnly = errors.New("READONLY") })
		time.Sleep(150 * time.Second)
		if r.api() != "120/1m burst 12" || limitOf(t, r, "192.0.2.1") != "300/1m burst 50" || !strings.Contains(r.Problem(), "2 overrides have disappeared and are not written back yet: READONLY") {
			t.Errorf("%s, %q", r.api(), r.Problem())
		}
		if n := strings.Count(r.log.String(), "have disappeared"); n < 2 || n > 4 {
			t.Errorf("logged %d times in 150 s", n)
		}
		k.edit(func() { k.readOnly = nil })
		other := edit(t, k, map[string]ratelimit.Limit{"api": ratelimit.PerMinute(60)})
		if err := other.Set(t.Context(), change("90/1m", "")); err != nil { // somebody else is faster
			t.Fatal(err)
		}
		time.Sleep(look)
		if r.api() != "90/1m" || limitOf(t, r, "192.0.2.1") != "300/1m burst 50" || r.Problem() != "" {
			t.Errorf("%s, %q", r.api(), r.Problem())
		}
	})
}

// A failover to a server that lacks the last changes brings nothing back that was ended.
func TestAfterAFailoverTheNewestValueWins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper(t)
		a, b := start(t, k), start(t, k)
		set(t, a, change("120/1m burst 12", ""))
		set(t, a, ofKey("ip:192.0.2.1", "300/1m burst 50", time.Time{}))
		old, err := k.ReadValues(t.Context(), "overrides", store.Value{})
		if err != nil {
			t.Fatal(err)
		}
		if err := a.End(t.Context(), ofKey("ip:192.0.2.1", "", time.Time{})); err != nil {
			t.Fatal(err)
		}
		set(t, a, override.Change{Policy: "login", Limit: "9/1h", By: "alice"})
		time.Sleep(look)
		k.edit(func() { k.ahead = -time.Hour; k.lose() }) // with a clock that is behind
		for _, v := range old.Values {
			k.put(v.Name, v.Text)
		}
		time.Sleep(3 * time.Second)
		for i, r := range []replica{a, b, start(t, k)} {
			if r.api() != "120/1m burst 12" || limitOf(t, r, "192.0.2.1") != "120/1m burst 12" || r.entry("login").InForce != "9/1h" || r.Problem() != "" {
				t.Errorf("replica %d: %+v, %q", i, r.List(nil), r.Problem())
			}
		}
		k.edit(func() { k.writes = 0 })
		time.Sleep(time.Minute)
		if _, writes := k.counts(); writes != 0 {
			t.Errorf("%d writes in a quiet minute", writes)
		}
		set(t, b, change("90/1m", "120/1m burst 12"))
		time.Sleep(look)
		if a.api() != "90/1m" {
			t.Errorf("a change after it: %s", a.api())
		}
	})
}

// Each replica looks once a second. So some know a change that is lost a moment later, and others do not.
func TestAChangeThatOneReplicaKnowsIsNotUndoneByAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 30 { // the replicas look in another order each time
			k := newKeeper(t)
			a, b := start(t, k), start(t, k)
			set(t, a, ofKey("ip:192.0.2.1", "300/1m burst 50", time.Time{}))
			set(t, a, change("120/1m burst 12", ""))
			time.Sleep(look)
			set(t, a, ofKey("ip:192.0.2.2", "300/1m burst 50", time.Time{}))
			if err := a.End(t.Context(), ofKey("ip:192.0.2.1", "", time.Time{})); err != nil {
				t.Fatal(err)
			}
			set(t, a, change("90/1m", ""))
			k.edit(func() { k.lose() })
			// If b looks first, it writes back what it knows. Then a looks and writes the changes back, and b looks again.
			time.Sleep(2 * look)
			for i, r := range []replica{a, b, start(t, k)} {
				if r.api() != "90/1m" || limitOf(t, r, "192.0.2.1") != "90/1m" || limitOf(t, r, "192.0.2.2") != "300/1m burst 50" {
					t.Fatalf("replica %d: %+v", i, r.List(nil))
				}
			}
		}
	})
}

// The Store cannot report a loss if the last value that a replica has read was written again since.
func TestALossThatTheStoreDoesNotReportIsFoundLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper(t)
		a := start(t, k)
		set(t, a, ofKey("ip:192.0.2.1", "300/1m burst 50", time.Time{}))
		set(t, a, change("120/1m burst 12", ""))
		time.Sleep(time.Millisecond)
		k.edit(func() { k.lose() })
		if err := edit(t, k, map[string]ratelimit.Limit{"api": ratelimit.PerMinute(60)}).Set(t.Context(), change("90/1m", "")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10*time.Minute + look)
		for i, r := range []replica{a, start(t, k)} {
			if r.api() != "90/1m" || limitOf(t, r, "192.0.2.1") != "300/1m burst 50" {
				t.Errorf("replica %d: %+v", i, r.List(nil))
			}
		}
	})
}

// What is changed after a loss is newer than what was written back, whatever the clock of the Store is then.
func TestChangesAfterALossToAClockThatIsBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper(t)
		a := start(t, k)
		set(t, a, change("120/1m burst 12", ""))
		set(t, a, ofKey("ip:192.0.2.1", "300/1m burst 50", time.Time{}))
		k.edit(func() { k.ahead = -time.Hour; k.lose() })
		time.Sleep(look)
		set(t, a, change("90/1m", ""))
		if err := a.End(t.Context(), ofKey("ip:192.0.2.1", "", time.Time{})); err != nil {
			t.Fatal(err)
		}
		k.edit(func() { k.lose() }) // the changes are written back, too
		time.Sleep(20 * time.Minute)
		for i, r := range []replica{a, start(t, k)} {
			if r.api() != "90/1m" || limitOf(t, r, "192.0.2.1") != "90/1m" {
				t.Errorf("replica %d: %+v", i, r.List(nil))
			}
		}
	})
}

// A replica that could not read for 30 days cannot tell what has disappeared from what was ended.
func TestAReplicaThatWasCutOffFor30DaysBringsNothingBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper(t)
		r := start(t, k)
		set(t, r, ofKey("ip:192.0.2.1", "300/1m burst 50", time.Time{}))
		set(t, r, change("120/1m burst 12", ""))
		k.edit(func() { k.err = errors.New("cut off") })
		time.Sleep(look)
		other := edit(t, &keeper{t: t, values: k.values}, map[string]ratelimit.Limit{"api": ratelimit.PerMinute(60)})
		for _, key := range []string{"ip:192.0.2.1", ""} {
			if err := other.End(t.Context(), override.Change{Policy: "api", Key: key, By: "bob"}); err != nil {
				t.Fatal(err)
			}
		}
		if limitOf(t, r, "192.0.2.1") != "300/1m burst 50" {
			t.Error("in the outage the override is not in force")
		}
		k.edit(func() { k.ahead, k.err = 31*24*time.Hour, nil })
		time.Sleep(look)
		if limitOf(t, r, "192.0.2.1") != "60/1m burst 10" || len(r.List(nil)) != 2 || k.writes != 2 {
			t.Errorf("%+v, %d writes", r.List(nil), k.writes)
		}
	})
}

func TestMalformedValuesThatAreLostAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper(t)
		k.put("api", "120/1m")
		r := start(t, k)
		k.edit(func() { k.lose() })
		time.Sleep(look)
		if e := r.entry("api"); e.Refused != "" || e.InForce != "60/1m burst 10" {
			t.Errorf("%+v", e)
		}
		set(t, r, change("90/1m", ""))
	})
}

// distant takes two seconds to read all values.
type distant struct{ *keeper }

func (d distant) ReadValues(ctx context.Context, set string, after store.Value) (store.ValueChanges, error) {
	if after.Version == 0 {
		select {
		case <-ctx.Done():
			return store.ValueChanges{}, ctx.Err()
		case <-time.After(2 * time.Second):
		}
	}
	return d.keeper.ReadValues(ctx, set, after)
}

func TestValuesThatTakeLongToReadAreReadAtLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper(t)
		set(t, start(t, k), change("120/1m burst 12", ""))
		r := start(t, distant{k})
		time.Sleep(6 * time.Second)
		if r.api() != "120/1m burst 12" || r.Problem() != "" {
			t.Errorf("%s, %q", r.api(), r.Problem())
		}
	})
}
