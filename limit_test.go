package ratelimit_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/headers"
	"github.com/go-tokenbucket/ratelimit/store"
)

// noStore is a store for tests that only wire.
type noStore struct{}

func (noStore) Take(context.Context, []store.Charge, []store.State) (bool, error) {
	panic("a test that only wires has charged a bucket")
}

// newWith makes a limiter with a policy of a limit.
func newWith(l ratelimit.Limit) error {
	_, err := ratelimit.New(ratelimit.Config{
		Store:    noStore{},
		Policies: []ratelimit.Policy{{Name: "api", Key: ratelimit.RemoteIP(), Limit: l}},
	})
	return err
}

func TestConstructorsOfLimits(t *testing.T) {
	for _, tt := range []struct {
		name      string
		got, want ratelimit.Limit
	}{
		{"PerSecond", ratelimit.PerSecond(5), ratelimit.Limit{Rate: 5, Per: time.Second}},
		{"PerMinute", ratelimit.PerMinute(5), ratelimit.Limit{Rate: 5, Per: time.Minute}},
		{"PerHour", ratelimit.PerHour(5), ratelimit.Limit{Rate: 5, Per: time.Hour}},
		{"PerDay", ratelimit.PerDay(5), ratelimit.Limit{Rate: 5, Per: 24 * time.Hour}},
		{"Every", ratelimit.Every(1234567), ratelimit.Limit{Rate: 1, Per: 1234567}},
		{"WithBurst", ratelimit.PerMinute(5).WithBurst(2), ratelimit.Limit{Rate: 5, Per: time.Minute, Burst: 2}},
		{"The last WithBurst counts", ratelimit.PerMinute(5).WithBurst(2).WithBurst(3), ratelimit.Limit{Rate: 5, Per: time.Minute, Burst: 3}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.got != tt.want {
				t.Errorf("got %+v, want %+v", tt.got, tt.want)
			}
		})
	}

	t.Run("WithBurst leaves its limit as it was", func(t *testing.T) {
		l := ratelimit.PerMinute(5)
		_ = l.WithBurst(2)
		if l.Burst != 0 {
			t.Errorf("got %+v", l)
		}
	})
}

func TestTextOfLimits(t *testing.T) {
	const day = 24 * time.Hour
	for _, tt := range []struct {
		text  string
		limit ratelimit.Limit
	}{
		{"60/1m", ratelimit.PerMinute(60)},
		{"60/1m burst 10", ratelimit.PerMinute(60).WithBurst(10)},
		{"60/1m burst 60", ratelimit.PerMinute(60).WithBurst(60)},
		{"5/1s", ratelimit.PerSecond(5)},
		{"100/1h", ratelimit.PerHour(100)},
		{"1000/24h", ratelimit.PerDay(1000)},
		{"1000/168h", ratelimit.Limit{Rate: 1000, Per: 7 * day}},
		{"1/10m", ratelimit.Every(10 * time.Minute)},
		{"1/10h", ratelimit.Every(10 * time.Hour)},
		{"1/20h30m", ratelimit.Every(20*time.Hour + 30*time.Minute)},
		{"1/1h0m10s", ratelimit.Every(time.Hour + 10*time.Second)},
		{"1/1m0.5s", ratelimit.Every(time.Minute + time.Second/2)},
		{"1/1.5s", ratelimit.Every(1500 * time.Millisecond)},
		{"1/1.234567ms", ratelimit.Every(1234567)},
		{"1/1.001µs", ratelimit.Every(1001)},
		{"1000000/1s", ratelimit.PerSecond(1_000_000)},
		{"unlimited", ratelimit.Unlimited},
		{"100000 per month", ratelimit.Quota(100_000, ratelimit.Month)},
		{"100000 per month Europe/Berlin", ratelimit.Quota(100_000, ratelimit.Month).In("Europe/Berlin")},
		{"1 per hour Asia/Kolkata", ratelimit.Quota(1, ratelimit.Hour).In("Asia/Kolkata")},
		{"7 per day UTC", ratelimit.Quota(7, ratelimit.Day).In("UTC")},
		{"4503599627370496 per week", ratelimit.Quota(1<<52, ratelimit.Week)},
	} {
		t.Run(tt.text, func(t *testing.T) {
			if got := tt.limit.String(); got != tt.text {
				t.Errorf("got text %q", got)
			}
			if got, err := ratelimit.ParseLimit(tt.text); got != tt.limit || err != nil {
				t.Errorf("got limit %+v, error %v; want %+v", got, err, tt.limit)
			}
			if err := newWith(tt.limit); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestParseLimitReadsMoreThanStringWrites(t *testing.T) {
	const day = 24 * time.Hour
	for _, tt := range []struct {
		text string
		want ratelimit.Limit
	}{
		{"60/m", ratelimit.PerMinute(60)},
		{"5/s", ratelimit.PerSecond(5)},
		{"5/h burst 1", ratelimit.PerHour(5).WithBurst(1)},
		{"5/ms", ratelimit.Limit{Rate: 5, Per: time.Millisecond}},
		{"5/us burst 10", ratelimit.Limit{Rate: 5, Per: time.Microsecond, Burst: 10}},
		{"100/d", ratelimit.PerDay(100)},
		{"100/1d", ratelimit.PerDay(100)},
		{"1000/7d", ratelimit.Limit{Rate: 1000, Per: 7 * day}},
		{"100/d burst 10", ratelimit.PerDay(100).WithBurst(10)},
		{"60/60s", ratelimit.PerMinute(60)},
		{"60/1m0s", ratelimit.PerMinute(60)},
		{"60/0.5m", ratelimit.Limit{Rate: 60, Per: 30 * time.Second}},
		{"60/.5s", ratelimit.Limit{Rate: 60, Per: 500 * time.Millisecond}},
		{"060/1m", ratelimit.PerMinute(60)},
		{"100/sec", ratelimit.PerSecond(100)},
		{"100/second", ratelimit.PerSecond(100)},
		{"100/min", ratelimit.PerMinute(100)},
		{"100/minute", ratelimit.PerMinute(100)},
		{"100/hr", ratelimit.PerHour(100)},
		{"100/hour", ratelimit.PerHour(100)},
		{"100/day", ratelimit.PerDay(100)},
		{"100/minute burst 10", ratelimit.PerMinute(100).WithBurst(10)},
		{"100/1minute", ratelimit.PerMinute(100)},
		{"100/1 minute", ratelimit.PerMinute(100)},
		{"100/5min", ratelimit.Limit{Rate: 100, Per: 5 * time.Minute}},
		{"100/5 minutes burst 10", ratelimit.Limit{Rate: 100, Per: 5 * time.Minute, Burst: 10}},
		{"100/30secs", ratelimit.Limit{Rate: 100, Per: 30 * time.Second}},
		{"100/30 seconds", ratelimit.Limit{Rate: 100, Per: 30 * time.Second}},
		{"100/10 mins", ratelimit.Limit{Rate: 100, Per: 10 * time.Minute}},
		{"100/12hrs", ratelimit.Limit{Rate: 100, Per: 12 * time.Hour}},
		{"100/1.5 hours", ratelimit.Limit{Rate: 100, Per: 90 * time.Minute}},
		{"1000/7 days", ratelimit.Limit{Rate: 1000, Per: 7 * day}},
	} {
		t.Run(tt.text, func(t *testing.T) {
			if got, err := ratelimit.ParseLimit(tt.text); got != tt.want || err != nil {
				t.Errorf("got limit %+v, error %v; want %+v", got, err, tt.want)
			}
		})
	}
}

func TestParseLimitSaysWhatIsWrong(t *testing.T) {
	for _, tt := range []struct {
		text  string
		wants []string
	}{
		{"", []string{`"60/1m"`}},
		{"60", []string{`"60/1m"`}},
		{"Unlimited", []string{`"60/1m"`}},
		{"unlimited burst 5", []string{`"60/1m"`}},
		{"/1m", []string{`rate ""`}},
		{"0/1m", []string{`rate "0"`}},
		{"-60/1m", []string{`rate "-60"`}},
		{"+60/1m", []string{`rate "+60"`}},
		{" 60/1m", []string{`rate " 60"`}},
		{"60 /1m", []string{`rate "60 "`}},
		{"6e1/1m", []string{`rate "6e1"`}},
		{"1_000/1m", []string{`rate "1_000"`}},
		{"0x10/1m", []string{`rate "0x10"`}},
		{"٦/1m", []string{`rate "٦"`}},
		{"9223372036854775808/1m", []string{`rate "9223372036854775808": must be from 1 to 4503599627370496 tokens`}},
		{"60/1m burst 99999999999999999999", []string{`burst "99999999999999999999": must be from 1 to 4503599627370496 tokens`}},
		{"-99999999999999999999/1m", []string{`rate "-99999999999999999999": must be a whole number above 0`}},
		{"60/", []string{`duration ""`}},
		{"60/60", []string{`duration "60"`}},
		{"60/ 1m", []string{`duration " 1m"`}},
		{"60/1m ", []string{`duration "1m "`}},
		{"60/Minute", []string{`duration "Minute"`}},
		{"60/MIN", []string{`duration "MIN"`}},
		{"60/Day", []string{`duration "Day"`}},
		{"60/ minute", []string{`duration " minute"`}},
		{"60/minute ", []string{`duration "minute "`}},
		{"60/5  minutes", []string{`duration "5  minutes"`}},
		{"60/5\tminutes", []string{`duration "5\tminutes"`}},
		{"60/5 m", []string{`duration "5 m"`}},
		{"60/.min", []string{`duration ".min"`}},
		{"60/1h30min", []string{`duration "1h30min"`}},
		{"60/1min30s", []string{`duration "1min30s"`}},
		{"60/-1 minute", []string{`duration "-1 minute"`}},
		{"60/1.5 days", []string{`duration "1.5 days"`}},
		{"60/106752 days", []string{`duration "106752 days"`}},
		{"60/9999999999 minutes", []string{`duration "9999999999 minutes": must be at most 106751 days`}},
		{"60/9999999.5h", []string{`duration "9999999.5h": must be at most 106751 days`}},
		{"60/999999999999999999999999h", []string{`must be at most 106751 days`}},
		{"60/month", []string{`duration "month"`}},
		{"60/minuteburst 5", []string{`duration "minuteburst 5"`}},
		{"60/0 minutes", []string{"Per 0s: must"}},
		{"60/M", []string{`duration "M"`}},
		{"60/-1m", []string{`duration "-1m"`}},
		{"60/+1m", []string{`duration "+1m"`}},
		{"60/.s", []string{`duration ".s"`}},
		{"60/1.5d", []string{`duration "1.5d"`}},
		{"60/7d12h", []string{`duration "7d12h"`}},
		{"60/-1d", []string{`duration "-1d"`}},
		{"60/106752d", []string{`duration "106752d": must be at most 106751 days`}}, // one day more than a time.Duration holds
		{"60/1m/1m", []string{`duration "1m/1m"`}},
		{"60/1m burst", []string{`duration "1m burst"`}},
		{"60/1m burst ", []string{`burst ""`}},
		{"60/1m burst 0", []string{`burst "0"`}},
		{"60/1m burst -1", []string{`burst "-1"`}},
		{"60/1m burst  10", []string{`burst " 10"`}},
		{"60/1m burst 10 burst 10", []string{`burst "10 burst 10"`}},
		{"60/1m  burst 10", []string{`duration "1m "`}},
		{"60/1m Burst 10", []string{`duration "1m Burst 10"`}},
		{"60/1m\n", []string{`duration "1m\n"`}},
		{"60/0s", []string{"Per 0s: must"}},
		{"60/0d", []string{"Per 0s: must"}},
		{"5 per", []string{`"1000 per month"`}},
		{"5 per ", []string{`period "": must be hour, day, week or month`}},
		{"5 per minute", []string{`period "minute": must be hour, day, week or month; a rate is like "60/1m"`}},
		{"5 per months", []string{`period "months": must be hour`}},
		{"5 per Month", []string{`period "Month": must be hour`}},
		{"5 per 2 months", []string{`period "2": must be hour`}},
		{"5 per  month", []string{`period "": must be hour`}},
		{"5 per month ", []string{`Zone "": must be a time zone such as "Europe/Berlin"`}},
		{"5 per month Mars/Olympus", []string{`Zone "Mars/Olympus": must be a time zone that this host knows`, "import time/tzdata"}},
		{"5 per month  Europe/Berlin", []string{`Zone " Europe/Berlin": must`}},
		{"5 per month ../../etc/passwd", []string{`Zone "../../etc/passwd": must`}},
		{"5 per month a\nb", []string{`Zone "a\nb": must be a time zone that`}},
		{"5 per month Local", []string{`Zone "Local": must be a name such as "Europe/Berlin": Local is another zone on another host`}},
		{"5 per month burst 10", []string{`"burst 10": must be left out of a quota`}},
		{"100/month", []string{`duration "month"`, `a quota is like "1000 per month"`}},
		{"100,000 per month", []string{`rate "100,000": must be a whole number above 0, without separators`}},
		{"0 per month", []string{`rate "0": must be a whole number above 0`}},
		{"4503599627370497 per month", []string{"Rate 4503599627370497: must be from 1 to 4503599627370496 tokens"}},
		{"9223372036854775808 per month", []string{`rate "9223372036854775808": must be from 1 to 4503599627370496 tokens`}},
		{"1/720h burst 10000", []string{"Burst 10000: ", "must be at most"}},
		{"1/1ns", []string{"Burst 1: ", "must be at least"}},
		{"9223372036854775807/1s", []string{"Rate 9223372036854775807: must be", "; Burst 9223372036854775807: must be"}},
	} {
		t.Run(tt.text, func(t *testing.T) {
			got, err := ratelimit.ParseLimit(tt.text)
			if err == nil || got != (ratelimit.Limit{}) {
				t.Fatalf("got limit %+v, error %v; want an error about %q", got, err, tt.wants)
			}
			checkText(t, err.Error(), tt.wants...)
		})
	}
}

func FuzzParseLimit(f *testing.F) {
	f.Fuzz(func(t *testing.T, text string) {
		l, err := ratelimit.ParseLimit(text)
		if err != nil {
			return
		}
		if lower := strings.TrimSuffix(text, l.Zone()); strings.ToLower(lower) != lower {
			t.Errorf("%q is %+v, in spite of a capital letter", text, l)
		}
		if again, err := ratelimit.ParseLimit(l.String()); again != l || err != nil {
			t.Errorf("%q is %+v, whose text %q is %+v, error %v", text, l, l, again, err)
		}
		if err := newWith(l); err != nil {
			t.Errorf("%q: New refuses what ParseLimit accepted: %v", text, err)
		}
	})
}

func TestLimitsInJSON(t *testing.T) {
	type config struct {
		API, Login, Admin, Other ratelimit.Limit
		Tiers                    map[string]ratelimit.Limit
	}
	want := config{
		API:   ratelimit.PerMinute(60).WithBurst(10),
		Login: ratelimit.PerHour(5),
		Admin: ratelimit.Unlimited,
		Tiers: map[string]ratelimit.Limit{"gold": ratelimit.PerSecond(100)},
	}
	const text = `{"API":"60/1m burst 10","Login":"5/1h","Admin":"unlimited","Other":"","Tiers":{"gold":"100/1s"}}`
	written, err := json.Marshal(want)
	if err != nil || string(written) != text {
		t.Errorf("wrote %s, error %v; want %s", written, err, text)
	}

	var got config
	got.Other = ratelimit.PerDay(1) // an empty text replaces what was there
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		t.Fatal(err)
	}
	if got.API != want.API || got.Login != want.Login || got.Admin != want.Admin || got.Other != want.Other || got.Tiers["gold"] != want.Tiers["gold"] {
		t.Errorf("read %+v, want %+v", got, want)
	}
}

func TestMalformedLimitsInJSONAreRefused(t *testing.T) {
	for _, text := range []string{`"60"`, `"60/0s"`, `"1/720h burst 10000"`, `60`, `{"Rate": 60}`, `" "`} {
		t.Run(text, func(t *testing.T) {
			got := ratelimit.PerMinute(60)
			if err := json.Unmarshal([]byte(text), &got); err == nil || got != ratelimit.PerMinute(60) {
				t.Errorf("got limit %v, error %v; want an error, and the limit as it was", got, err)
			}
		})
	}
}

func TestStringOfLimitsThatNewRefuses(t *testing.T) {
	// It is what errors call them by.
	for _, tt := range []struct {
		limit ratelimit.Limit
		want  string
	}{
		{ratelimit.Limit{}, "0/0s"},
		{ratelimit.Limit{Rate: -1, Per: -time.Minute, Burst: -2}, "-1/-1m burst -2"},
		{ratelimit.Limit{Rate: math.MinInt64, Per: math.MinInt64}, "-9223372036854775808/-2562047h47m16.854775808s"},
		{ratelimit.Unlimited.WithBurst(1), "9223372036854775807/0s burst 1"},
	} {
		if got := tt.limit.String(); got != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
		if err := newWith(tt.limit); err == nil {
			t.Errorf("New accepts %v", tt.limit)
		}
	}
}

// chosen returns a policy whose LimitFunc returns limit.
func chosen(name string, limit ratelimit.Limit) ratelimit.Policy {
	p := perIP(name, ratelimit.PerHour(5))
	p.LimitFunc = func(*http.Request) ratelimit.Limit { return limit }
	return p
}

func TestARateOf0DeniesWithoutTheStore(t *testing.T) {
	for _, zero := range []ratelimit.Limit{
		ratelimit.PerDay(0), ratelimit.PerDay(0).WithBurst(5), {Burst: 5}, {Burst: -5}, {Per: -time.Second},
		ratelimit.Quota(0, ratelimit.Month), ratelimit.Quota(0, ratelimit.Day).In("Europe/Nowhere"),
	} {
		l := newLimiter(t, ratelimit.Config{Store: storeFunc(func([]store.Charge, []store.State) bool {
			t.Errorf("%v: the store was asked", zero)
			return true
		})})
		p := chosen("quota", zero)
		p.Cost = func(*http.Request) int64 { return 3 }
		p.Settle = ratelimit.FailedLogins
		d, err := l.Decide(requestWith(), perIP("first", ratelimit.PerHour(1)), p, perIP("last", ratelimit.PerHour(1)))
		if err != nil || d.Allowed || len(d.Results) != 1 || d.RetryAfter() != ratelimit.Never {
			t.Fatalf("%v: got %+v, error %v", zero, d, err)
		}
		want := ratelimit.Result{Policy: "quota", Key: "ip:192.0.2.1", Limit: zero, Cost: 3, State: store.State{RetryAfter: ratelimit.Never}}
		if d.Results[0] != want {
			t.Errorf("got %+v; want %+v", d.Results[0], want)
		}
		w := get(l.Limit(p)(okHandler))
		if w.Code != 429 || w.Header()["Retry-After"] != nil || w.Header().Get("X-Ratelimit-Limit") != "0" || w.Header().Get("X-Ratelimit-Remaining") != "0" {
			t.Errorf("%v: %d %v", zero, w.Code, w.Header())
		}
		checkText(t, w.Body.String(), `"violated-policies":["quota"]`)
	}
}

func TestHeadersOfARateOf0(t *testing.T) {
	for _, tt := range []struct {
		limit                     ratelimit.Limit
		quotaPolicy, serviceLimit string
	}{
		{ratelimit.PerMinute(0), `"q";q=0;w=60`, `"q";r=0`},
		{ratelimit.PerMinute(0).WithBurst(7), `"q";q=0;w=60`, `"q";r=0`},
		{ratelimit.Limit{Per: 1, Burst: 1}, `"q";q=0;w=1`, `"q";r=0`},
		{ratelimit.Limit{Burst: 1}, `"q";q=0;w=1`, `"q";r=0`},
		{ratelimit.Limit{Per: -time.Hour}, `"q";q=0;w=1`, `"q";r=0`},
		{ratelimit.Quota(0, ratelimit.Week), `"q";q=0;w=604800`, `"q";r=0`},
	} {
		l := newLimiter(t, ratelimit.Config{Headers: headers.Join(headers.DeltaSeconds, headers.IETF)})
		wantHeaders := func(w http.Header, want map[string]string) {
			t.Helper()
			for name, value := range want {
				if got := w.Values(name); len(got) != 1 || got[0] != value {
					t.Errorf("%v: %s is %q; want %q", tt.limit, name, got, value)
				}
			}
		}
		w := get(l.Limit(chosen("q", tt.limit))(okHandler))
		wantHeaders(w.Header(), map[string]string{
			"X-RateLimit-Limit": "0", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "0",
			"RateLimit-Policy": tt.quotaPolicy, "RateLimit": tt.serviceLimit,
		})

		l = newLimiter(t, ratelimit.Config{Headers: headers.Join(headers.Spring, headers.Shadows)})
		w = get(l.Limit(chosen("q", tt.limit))(okHandler))
		wantHeaders(w.Header(), map[string]string{
			"X-RateLimit-Remaining": "0", "X-RateLimit-Replenish-Rate": "0", "X-RateLimit-Burst-Capacity": "0", "X-RateLimit-Requested-Tokens": "1",
		})
		shadow := chosen("q", tt.limit)
		shadow.Shadow = true
		w = get(l.Limit(shadow)(okHandler))
		wantHeaders(w.Header(), map[string]string{"X-RateLimit-Shadow": tt.serviceLimit})
		if w.Code != 200 || w.Header()["X-Ratelimit-Remaining"] != nil {
			t.Errorf("in shadow: %d %v", w.Code, w.Header())
		}

		w = get(l.Limit(perIP("outer", ratelimit.PerHour(3)))(l.Limit(chosen("q", tt.limit))(okHandler)))
		if w.Code != 429 || w.Header()["Retry-After"] != nil {
			t.Errorf("inside of another: %d %v", w.Code, w.Header())
		}
	}
}

// The results of all policies stand in their order, wherever those in shadow have a rate of 0.
func TestARateOf0InShadowHasItsPlaceAmongTheOthers(t *testing.T) {
	for _, names := range []string{"z", "az", "za", "zab", "azb", "abz", "zazb", "zzazzbzz", "azzb"} {
		l := quiet(t)
		var policies []ratelimit.Policy
		for i, c := range names {
			p := perIP(string(c)+string(rune('0'+i)), ratelimit.PerHour(5))
			if c == 'z' {
				p = chosen(p.Name, ratelimit.PerDay(0))
				p.Shadow = true
			}
			policies = append(policies, p)
		}
		var inner *ratelimit.Decision
		h := l.Limit(perIP("outer", ratelimit.PerHour(9)))(l.Limit(policies...)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			inner, _ = ratelimit.FromContext(r.Context())
		})))
		if w := get(h); w.Code != 200 {
			t.Fatalf("%s: %d", names, w.Code)
		}
		if len(inner.Results) != 1+len(names) || inner.Results[0].Policy != "outer" {
			t.Fatalf("%s: %+v", names, inner.Results)
		}
		for i, r := range inner.Results[1:] {
			if r.Policy != policies[i].Name || r.Allowed == policies[i].Shadow || r.Shadow != policies[i].Shadow {
				t.Errorf("%s: result %d is %+v", names, i, r)
			}
		}
	}
}

func TestAMalformedTierFallsBackToTheLimitOfThePolicy(t *testing.T) {
	for _, tier := range []ratelimit.Limit{{Rate: -1}, ratelimit.Every(30 * 24 * time.Hour).WithBurst(10_000), ratelimit.PerSecond(-5), {Rate: 5}, ratelimit.Quota(-1, ratelimit.Day), ratelimit.Quota(5, ratelimit.Day).In("Europe/Nowhere")} {
		var text bytes.Buffer
		l := newLimiter(t, ratelimit.Config{Logger: slog.New(slog.NewTextHandler(&text, nil))})
		p := chosen("api", tier)
		p.Limit = ratelimit.PerHour(2)
		wantStatuses(t, l.Limit(p)(okHandler), []int{200, 200, 429, 429})
		checkText(t, text.String(), "LimitFunc returned", "Policy.Limit applies instead, 2/1h")
		if n := strings.Count(text.String(), "\n"); n != 1 {
			t.Errorf("%d lines:\n%s", n, &text)
		}
	}
}

func TestMalformedQuotasAreRefused(t *testing.T) {
	day, hourly := ratelimit.Quota(5, ratelimit.Day), ratelimit.Quota(5, ratelimit.Day)
	hourly.Per = time.Hour
	for _, tt := range []struct {
		limit ratelimit.Limit
		want  string
	}{
		{ratelimit.Quota(0, ratelimit.Month), "Rate 0: must be from 1 to 4503599627370496 tokens"},
		{ratelimit.Quota(-1, ratelimit.Month), "Rate -1: must be from 1 to 4503599627370496 tokens"},
		{ratelimit.Quota(1<<52+1, ratelimit.Month), "Rate 4503599627370497: must be from 1 to 4503599627370496 tokens"},
		{ratelimit.Quota(5, 0), "Per 0s: must be"},
		{ratelimit.Quota(5, 5), "Period 5: must be Hour, Day, Week or Month"},
		{hourly, "Per 1h0m0s: must be 0 with a Period: use two policies for a quota and a rate"},
		{day.WithBurst(2), "Burst 2: must be 0 with a Period: use two policies for a quota and a rate"},
		{ratelimit.PerHour(5).In("Europe/Berlin"), `Zone "Europe/Berlin": must be empty without a Period`},
		{ratelimit.Unlimited.In("Europe/Berlin"), `Zone "Europe/Berlin": must be empty without a Period`},
		{day.In("Europe/Nowhere"), `Zone "Europe/Nowhere": must be a time zone that this host knows, such as "Europe/Berlin"; import time/tzdata`},
		{day.In("Local"), `Zone "Local": must be`},
	} {
		err := newWith(tt.limit)
		if err == nil {
			t.Errorf("New accepts %+v", tt.limit)
			continue
		}
		checkText(t, err.Error(), `Policies[0] ("api"): Limit: `+tt.want)
	}
}

func TestAStaticLimitOf0IsRefused(t *testing.T) {
	if _, err := ratelimit.New(ratelimit.Config{Policies: []ratelimit.Policy{perIP("api", ratelimit.PerDay(0))}}); err == nil {
		t.Error("got no error")
	}
	if _, err := quiet(t).Take(t.Context(), ratelimit.Policy{Name: "api", Limit: ratelimit.PerDay(0)}, "member:5", 1); err == nil {
		t.Error("Take: got no error")
	}
}
