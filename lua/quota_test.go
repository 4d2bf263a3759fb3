package lua_test

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/bucket"
	"github.com/go-tokenbucket/ratelimit/lua"
)

// quotaCharge returns a charge of a quota of n tokens in the period that now is in.
func quotaCharge(t *testing.T, key string, n int64, unit bucket.PeriodUnit, need, now int64) charge {
	t.Helper()
	p, err := bucket.NewPeriod(unit, "")
	if err != nil {
		t.Fatal(err)
	}
	l, err := bucket.NewQuota(n, p)
	if err != nil {
		t.Fatal(err)
	}
	ch := charge{key, term{limit: l, need: need}}
	ch.from, ch.until = l.Period.Bounds(now)
	return ch
}

const noon int64 = 1_780_056_000_000_000 // on the 29th of May 2026

// A script charges nothing, and answers its time, if that is not in the period of one of its quotas.
func TestNothingIsChargedOutsideOfAPeriod(t *testing.T) {
	day := int64(24 * time.Hour / time.Microsecond)
	for _, now := range []int64{noon - day, noon - day/2 - 1, noon + day/2, noon + 40*day} {
		s := startInterpreter(t, lua.Take, lua.TakeOne, lua.TakeQuota)
		s.ask("time", now/1_000_000, now%1_000_000)
		daily, plain := quotaCharge(t, "q", 5, bucket.Day, 1, noon), charge{"p", term{limit: newLimit(t, 1, time.Hour, 5), need: 1}}
		want := []int64{now}
		script, keys, args := aloneArguments("", call{1, []charge{daily}})
		s.use(script)
		got, err := s.run(keys, args)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("at %d, alone: %v, %v, want %v", now, got, err, want)
		}
		for _, calls := range [][]call{
			{{1, []charge{daily}}},
			{{1, []charge{plain}}, {2, []charge{daily}}},
			{{1, []charge{plain, daily}}, {1, []charge{plain}}},
		} {
			s.use(useTake)
			if got, err := askCalls(s, "", calls); err != nil || !slices.Equal(got, want) {
				t.Errorf("at %d: %v, %v, want %v", now, got, err, want)
			}
		}
		if len(s.hash("q"))+len(s.hash("p")) > 0 {
			t.Errorf("at %d: %v and %v were written", now, s.hash("q"), s.hash("p"))
		}
		daily.from, daily.until = daily.limit.Period.Bounds(now)
		if got, err := askAlone(s, "", call{1, []charge{daily}}); err != nil || !slices.Equal(got, []int64{1, 4, -1, daily.until - now}) {
			t.Errorf("at %d, in its period: %v, %v", now, got, err)
		}
	}
}

// The key of a quota that holds fields which no script writes fails its calls, and is left as it is.
func TestAQuotaWhoseFieldsAreBrokenFailsItsCalls(t *testing.T) {
	s := startServer(t, lua.Take, lua.TakeOne, lua.TakeQuota, lua.TakeFew, lua.Block)
	client := s.client
	now := client.Time(t.Context()).Val().UnixMicro()
	daily, other := quotaCharge(t, "k", 5, bucket.Day, 1, now), quotaCharge(t, "other", 5, bucket.Day, 1, now)
	good := map[string]string{"used": "1", "until": strconv.FormatInt(daily.until, 10), "limit": "5 per day UTC"}
	none := []string{"", "x", "nan", "-nan", "inf", "-inf", "0.5", "1e400", "9007199254740994"}
	for field, values := range map[string][]string{
		"used":  append(none, "-1"),
		"until": append(none, "-99999999999999999999"),
		"limit": {"", "x", "5 per", "5 per ", "per day UTC", "-5 per day UTC", "x per day UTC"},
	} {
		for _, value := range append(values, "absent") {
			client.FlushDB(t.Context())
			for f, v := range good {
				if f == field && value == "absent" {
					continue
				} else if f == field {
					v = value
				}
				client.HSet(t.Context(), "k", f, v)
			}
			before := client.Dump(t.Context(), "k").Val()
			for name, ask := range ways {
				for _, need := range []int64{1, 0, -1, 6, bucket.Reset} {
					daily.need = need
					for _, call := range []call{{1, []charge{daily}}, {1, []charge{other, daily}}} {
						if got, err := ask(s, "", call); !isNoBucket(err) {
							t.Errorf("%s: %s %q: need %d is answered %v, error %v", name, field, value, need, got, err)
						}
					}
				}
			}
			daily.need = 1
			got, err := askCalls(s, "", []call{{1, []charge{daily}}, {1, []charge{other}}})
			if err != nil || got[0] != -1 || got[2] != 1 {
				t.Errorf("%s %q: in a batch: %v, %v", field, value, got, err)
			}
			if after := client.Dump(t.Context(), "k").Val(); after != before || client.TTL(t.Context(), "k").Val() != -1 {
				t.Errorf("%s %q: the key was written: %v", field, value, s.hash("k"))
			}
		}
	}
}

// The key of a quota lives until its period ends, and up to a minute and some seconds more. Other writes make that no shorter.
func TestTheKeyOfAQuotaLivesUntilItsPeriodEnds(t *testing.T) {
	s := startServer(t, lua.Take, lua.TakeOne, lua.TakeQuota, lua.TakeFew, lua.Block)
	client := s.client
	lives := func(until int64, what string) {
		t.Helper()
		ttl, now := client.PTTL(t.Context(), "k").Val(), client.Time(t.Context()).Val().UnixMicro()
		if least := time.Duration(until-now) * time.Microsecond; ttl < least || ttl > least+63*time.Second {
			t.Errorf("%s: a TTL of %v, want %v and up to a minute more", what, ttl, least)
		}
	}
	for name, ask := range ways {
		for unit := bucket.Hour; unit <= bucket.Month; unit++ {
			client.FlushDB(t.Context())
			now := client.Time(t.Context()).Val().UnixMicro()
			ch := quotaCharge(t, "k", 3, unit, 1, now)
			for _, need := range []int64{1, 1, -1, 1, 1, 1} {
				ch.need = need
				if _, err := ask(s, "", call{1, []charge{ch}}); err != nil {
					t.Fatal(err)
				}
				lives(ch.until, fmt.Sprint(name, ", ", unit))
			}
			if ch.until-now < 300_000_000 {
				continue // an hour that ends while the test runs
			}
			ch.need, ch.lock, ch.limit.Capacity = 1, ch.until-now+1_000_000_000, 4
			if _, err := ask(s, "", call{1, []charge{ch}}); err != nil {
				t.Fatal(err)
			}
			if ttl := client.PTTL(t.Context(), "k").Val(); ttl < time.Duration(ch.lock)*time.Microsecond-time.Minute {
				t.Errorf("%s, %s: locked for longer than its period, it has a TTL of %v", name, unit, ttl)
			}
		}
	}
}

// Keys that were charged within the same second do not expire within a second.
func TestKeysOfAQuotaExpireApart(t *testing.T) {
	for name, ask := range ways {
		s := startInterpreter(t, append(movableAll(t)[:3], movable(t, lua.TakeFew))...)
		var least, most float64
		for i := range 10 {
			s.set("seconds", noon/1_000_000)
			s.set("microseconds", 100_000*i)
			key := fmt.Sprint("k", i)
			if _, err := ask(s, "", call{1, []charge{quotaCharge(t, key, 3, bucket.Day, 1, noon)}}); err != nil {
				t.Fatal(err)
			}
			ends, err := strconv.ParseFloat(s.hash(key)["ends"], 64)
			if err != nil {
				t.Fatal(err)
			}
			if i == 0 {
				least = ends
			}
			most = max(most, ends)
		}
		if spread := time.Duration(most-least) * time.Microsecond; spread < 50*time.Second || spread > time.Minute {
			t.Errorf("%s: keys of one second expire within %v, want 54 s", name, spread)
		}
	}
}
