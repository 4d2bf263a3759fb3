package observe_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/keyname"
	"github.com/go-tokenbucket/ratelimit/internal/test/ratetest"
	"github.com/go-tokenbucket/ratelimit/internal/test/testsize"
	"github.com/go-tokenbucket/ratelimit/observe"
	"github.com/go-tokenbucket/ratelimit/store"
)

// asked is an event of a request under one policy.
func asked(policy, key string, allowed bool) *ratelimit.Event {
	return &ratelimit.Event{Op: "request", Allowed: allowed, Results: []ratelimit.Result{{Policy: policy, Key: key, Cost: 1, State: store.State{Allowed: allowed}}}}
}

// A counted is a Top with a clock, and what it must know, counted exactly.
type counted struct {
	*observe.Top
	clock *ratetest.Clock
	event *ratelimit.Event
	parts []map[string]truth // of steps, newest last
}

type truth struct{ requests, denied int64 }

func newCounted() *counted {
	clock := ratetest.NewClock()
	return &counted{
		Top:   ratelimit.Must(observe.NewTop(observe.TopConfig{Clock: clock.Now, Window: 30 * time.Second})),
		clock: clock,
		event: asked("api", "", true),
		parts: []map[string]truth{{}},
	}
}

func (c *counted) ask(key string, allowed bool) {
	c.event.Results[0].Key, c.event.Results[0].Allowed = key, allowed
	c.Observe(context.Background(), c.event)
	n := c.parts[len(c.parts)-1][key]
	n.requests++
	if !allowed {
		n.denied++
	}
	c.parts[len(c.parts)-1][key] = n
}

func (c *counted) advance(parts int) {
	c.clock.Advance(time.Duration(parts) * time.Second)
	for range parts {
		c.parts = append(c.parts, map[string]truth{})
	}
}

// window returns the parts of the window.
func (c *counted) window() []map[string]truth {
	return c.parts[max(0, (len(c.parts)-1)/6-5)*6:]
}

// checkSteps compares the counts of a key by time with the truth: they may be too low, but have at least that many in all.
func (c *counted) checkSteps(t *testing.T, k observe.TopKey, least truth) {
	t.Helper()
	window, now, sum := c.window(), c.clock.Now(), truth{}
	if len(k.Steps) != len(window) {
		t.Fatalf("%s has %d steps, want %d", k.Key, len(k.Steps), len(window))
	}
	for i, got := range k.Steps {
		want := window[i][k.Key]
		if got.Requests > want.requests || got.Denied > want.denied || got.Denied > got.Requests {
			t.Fatalf("%s, step %d: got %+v, want %v", k.Key, i, got, want)
		}
		sum = truth{sum.requests + got.Requests, sum.denied + got.Denied}
		if after := now.Sub(got.Start); after != time.Duration(len(window)-1-i)*time.Second {
			t.Fatalf("%s, step %d began %v ago", k.Key, i, after)
		}
	}
	if sum.requests < least.requests || sum.denied < least.denied {
		t.Fatalf("%s: the steps have %v, want at least %v: %+v", k.Key, sum, least, k.Steps)
	}
}

// check compares both lists with the truth: all that they say, and that each key of 1 % is in them.
func (c *counted) check(t *testing.T, n int) {
	t.Helper()
	exact, total := map[string]truth{}, truth{}
	for _, part := range c.window() {
		for key, n := range part {
			exact[key] = truth{exact[key].requests + n.requests, exact[key].denied + n.denied}
			total = truth{total.requests + n.requests, total.denied + n.denied}
		}
	}
	for kind, list := range map[string]observe.TopList{"heaviest": c.Heaviest("api", n), "denied": c.Denied("api", n)} {
		if list.Requests != total.requests || list.Denied != total.denied {
			t.Errorf("%s: %d requests and %d denied, want %v", kind, list.Requests, list.Denied, total)
		}
		listed, last := map[string]bool{}, observe.TopKey{}
		for i, k := range list.Keys {
			is := exact[k.Key]
			of, count, others, otherCount := total.requests, is.requests, is.denied, k.Denied
			high, lastHigh := k.Requests, last.Requests
			if kind == "denied" {
				of, count, others, otherCount = total.denied, is.denied, is.requests, k.Requests
				high, lastHigh = k.Denied, last.Denied
			}
			switch {
			case count > high || count < high-k.Error:
				t.Fatalf("%s: %+v, but it made %v", kind, k, is)
			case k.Error < 0 || k.Error*128 > of:
				t.Fatalf("%s: %+v: the error is above 0.8 %% of %d", kind, k, of)
			case otherCount > others || kind == "heaviest" && otherCount < others-k.Error:
				t.Fatalf("%s: %+v, but it made %v", kind, k, is)
			case k.Share != float64(high)/float64(of):
				t.Fatalf("%s: %+v: the share is of %d", kind, k, of)
			case listed[k.Key]:
				t.Fatalf("%s: %s is listed twice", kind, k.Key)
			case i > 0 && high-k.Error > lastHigh-last.Error:
				t.Fatalf("%s: %+v is behind %+v", kind, k, last)
			}
			if kind == "heaviest" {
				c.checkSteps(t, k, truth{k.Requests - k.Error, k.Denied})
				if one, ok := c.Key("api", k.Key); !ok || !reflect.DeepEqual(one, k) {
					t.Fatalf("%+v is %+v alone", k, one)
				}
			} else {
				c.checkSteps(t, k, truth{k.Requests, k.Denied - k.Error})
			}
			listed[k.Key], last = true, k
		}
		for key, n := range exact {
			count, of := n.requests, total.requests
			if kind == "denied" {
				count, of = n.denied, total.denied
			}
			if !listed[key] && (count > list.Others || count > 0 && count*100 >= of) {
				t.Fatalf("%s: %s is not listed, with %d of %d; others have at most %d", kind, key, count, of, list.Others)
			}
		}
		if list.Others*128 > max(total.requests, 1) && list.Others*128 > max(total.denied, 1) && len(list.Keys) >= 700 {
			t.Errorf("%s: others have up to %d of %v", kind, list.Others, total)
		}
	}
}

// A key of exactly 1 % of the requests is found among a million others, and first, whatever the order. The others are new
// in each request, so each of them takes the place of the key with the lowest count.
func TestAKeyOfOnePercentIsFoundAmongAMillion(t *testing.T) {
	total := testsize.Of(20_000, 1_000_000)
	heavy := total / 100
	others := make([]string, total)
	for i := range others {
		others[i] = "ip:" + strconv.Itoa(i)
	}
	for name, isHeavy := range map[string]func(i int) bool{
		"spread":                     func(i int) bool { return i%100 == 0 },
		"in front":                   func(i int) bool { return i < heavy },
		"at the end":                 func(i int) bool { return i >= total-heavy },
		"half in front, half behind": func(i int) bool { return i < heavy/2 || i >= total-heavy/2 },
		"in the middle":              func(i int) bool { return i >= total/2 && i < total/2+heavy },
		"in bursts":                  func(i int) bool { return i%(total/10) < heavy/10 },
	} {
		for _, steps := range []int{1, 6} {
			if steps > 1 && name != "spread" && name != "in the middle" {
				continue
			}
			t.Run(fmt.Sprintf("%s/%d steps", name, steps), func(t *testing.T) {
				t.Parallel()
				clock := ratetest.NewClock()
				top := ratelimit.Must(observe.NewTop(observe.TopConfig{Clock: clock.Now}))
				e := asked("api", "", false)
				for i := range total {
					if i > 0 && i%(total/steps+1) == 0 {
						clock.Advance(time.Minute)
					}
					e.Results[0].Key = "heavy"
					if !isHeavy(i) {
						e.Results[0].Key = others[i]
					}
					top.Observe(context.Background(), e)
				}
				for kind, list := range map[string]observe.TopList{"heaviest": top.Heaviest("api", 0), "denied": top.Denied("api", 0)} {
					if len(list.Keys) != 1 || list.Requests != int64(total) || list.Denied != int64(total) {
						t.Fatalf("%s: got %+v", kind, list)
					}
					k := list.Keys[0]
					if high := max(k.Requests, k.Denied); k.Key != "heavy" || high-k.Error > int64(heavy) || high < int64(heavy) || k.Error > int64(total)/128 {
						t.Errorf("%s: got %+v", kind, k)
					}
				}
			})
		}
	}
}

// An adversary who knows all counts, but not the hash, sends what is worst for one key: others just below it.
func TestAKeyOfOnePercentIsFoundAmongOthersThatAreAlmostAsHeavy(t *testing.T) {
	c := newCounted()
	for i := range 100_000 {
		switch {
		case i%100 == 50:
			c.ask("heavy", true)
		case i < 60_000:
			c.ask(fmt.Sprint("before ", i%120), true) // each has half a percent, in all places
		default:
			c.ask(fmt.Sprint("new ", i), i%2 == 0)
		}
	}
	c.check(t, 0)
	c.check(t, 1000)
}

func TestListsAgreeWithExactCounts(t *testing.T) {
	for seed := range uint64(testsize.Of(4, 200)) {
		random := rand.New(rand.NewPCG(seed, 17))
		c := newCounted()
		keys := 1 + random.IntN(2000)
		zipf := rand.NewZipf(random, 1.01+random.Float64(), 1+10*random.Float64(), uint64(keys))
		for range 1 + random.IntN(12) {
			burst := fmt.Sprint("burst ", random.IntN(3))
			for i := range random.IntN(4000) {
				key := fmt.Sprint(zipf.Uint64())
				switch random.IntN(8) {
				case 0:
					key = burst
				case 1:
					key = fmt.Sprint("new ", seed, i, random.Uint32())
				case 2, 3:
					key = fmt.Sprint(random.IntN(keys))
				}
				c.ask(key, random.IntN(len(key)+1) > 0)
			}
			c.check(t, random.IntN(30))
			c.advance(random.IntN(15))
			if random.IntN(10) == 0 {
				c.advance(42)
			}
			c.check(t, random.IntN(30))
		}
	}
}

func names(l observe.TopList) (names []string) {
	for _, k := range l.Keys {
		names = append(names, k.Key)
	}
	return names
}

func TestTheWindowSlides(t *testing.T) {
	begin := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		after time.Duration
		want  []string
		since time.Duration
	}{
		"within a step":              {after: 59 * time.Second, want: []string{"b", "a"}},
		"the last moment":            {after: 5*time.Minute + 59999*time.Millisecond, want: []string{"b", "a"}},
		"after a window and a step":  {after: 6 * time.Minute, want: []string{"b"}, since: time.Minute},
		"when the second has passed": {after: 7 * time.Minute, since: 2 * time.Minute},
		"much later":                 {after: 100 * time.Hour, since: 100*time.Hour - 5*time.Minute},
		"set back a little":          {after: -3 * time.Minute, want: []string{"b", "a"}},
	} {
		t.Run(name, func(t *testing.T) {
			now := begin
			top := ratelimit.Must(observe.NewTop(observe.TopConfig{Clock: func() time.Time { return now }}))
			top.Observe(t.Context(), asked("api", "a", true))
			now = begin.Add(time.Minute)
			top.Observe(t.Context(), asked("api", "b", true))
			top.Observe(t.Context(), asked("api", "b", true))
			now = begin.Add(c.after)
			list := top.Heaviest("api", 10)
			if got := names(list); !slices.Equal(got, c.want) || !list.Since.Equal(begin.Add(c.since)) {
				t.Errorf("got %v since %v", got, list.Since)
			}
		})
	}
}

func TestTheListsBeginAnewWhenTheClockIsSetBackByMoreThanTheWindow(t *testing.T) {
	begin := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	now := begin
	top := ratelimit.Must(observe.NewTop(observe.TopConfig{Clock: func() time.Time { return now }}))
	for _, c := range []struct {
		at   time.Duration
		key  string
		want []string
	}{
		{0, "old", []string{"old"}},
		{time.Hour, "a", []string{"a"}},
		{time.Hour - 5*time.Minute, "b", []string{"a", "b"}},
		{time.Hour - 6*time.Minute, "c", []string{"c"}},
		{time.Hour - 5*time.Minute, "d", []string{"c", "d"}},
		{-time.Hour, "e", []string{"e"}},
	} {
		now = begin.Add(c.at)
		top.Observe(t.Context(), asked("api", c.key, true))
		if got := names(top.Heaviest("api", 10)); !slices.Equal(got, c.want) {
			t.Errorf("%s at %v: got %v, want %v", c.key, c.at, got, c.want)
		}
	}
}

// Without a clock, the time is read once a step.
func TestTheWindowSlidesByTheSystemsClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		top := ratelimit.Must(observe.NewTop(observe.TopConfig{Window: 10 * time.Second}))
		begin := time.Now()
		for i := range 30 {
			top.Observe(t.Context(), asked("api", fmt.Sprint(i), true))
			list := top.Heaviest("api", 100)
			first := max(0, i/2-5) * 2
			if len(list.Keys) != i-first+1 || !list.Since.Equal(begin.Add(time.Duration(first)*time.Second)) {
				t.Fatalf("after %d s: got %v since %v", i, names(list), list.Since.Sub(begin))
			}
			time.Sleep(time.Second)
			synctest.Wait()
		}
		time.Sleep(time.Hour)
		if list := top.Heaviest("api", 100); len(list.Keys) != 0 || list.Requests != 0 {
			t.Errorf("an hour later: got %+v", list)
		}
	})
}

// A Top counts requests: not operations on buckets, and no request twice.
func TestWhatATopCounts(t *testing.T) {
	for op, want := range map[string]int64{
		"request": 1, "decide": 1, "admit": 1, "take": 1, "take_all": 1, "wait": 1, "wait_all": 1, "acquire": 1,
		"peek": 0, "refund": 0, "reset": 0, "block": 0, "unblock": 0, "settle": 0, "expired": 0,
	} {
		top := ratelimit.Must(observe.NewTop(observe.TopConfig{Clock: time.Now}))
		e := asked("api", "k", false)
		e.Op = op
		top.Observe(t.Context(), e)
		if list := top.Heaviest("api", 1); list.Requests != want || list.Denied != want || int64(len(list.Keys)) != want {
			t.Errorf("%s: got %+v", op, list)
		}
	}

	top := ratelimit.Must(observe.NewTop(observe.TopConfig{Clock: time.Now}))
	top.Observe(t.Context(), &ratelimit.Event{Op: "request", Err: ratelimit.ErrNoKey})
	top.Observe(t.Context(), &ratelimit.Event{Op: "request", Results: []ratelimit.Result{
		{Policy: "deny", Key: "a"},
		{Policy: "shadow", Key: "b", Shadow: true},
		{Policy: "not charged", Key: "c", State: store.State{Allowed: true}},
		{Policy: "not charged", Key: "d", State: store.State{Allowed: true}},
	}})
	for policy, want := range map[string]truth{"deny": {1, 1}, "shadow": {1, 1}, "not charged": {2, 0}, "unknown": {0, 0}} {
		if list := top.Heaviest(policy, 5); list.Requests != want.requests || list.Denied != want.denied {
			t.Errorf("%s: got %+v", policy, list)
		}
	}
}

func TestTopTakesAnyKey(t *testing.T) {
	longest, longer := strings.Repeat("k", keyname.MaxShort), strings.Repeat("k", 10<<10)
	hash := "sha256:" + hex.EncodeToString([]byte(keyname.Short(longer)[1:]))
	for _, key := range []string{"", "\x00", "a\r\nb", "<script>alert(1)</script>", "\u202eevil", "\xff\xfe", "\xff", "a\xff", "hmac:0123456789abcdef", hash, longest, longer} {
		top := ratelimit.Must(observe.NewTop(observe.TopConfig{Clock: time.Now}))
		top.Observe(t.Context(), asked("api", strings.Repeat("x", 300), false))
		for range 2 {
			top.Observe(t.Context(), asked("api", key, false))
		}
		shown, found := key, true
		if len(key) > keyname.MaxShort {
			shown, found = "sha256:"+hex.EncodeToString([]byte(keyname.Short(key)[1:])), false
		}
		for _, list := range []observe.TopList{top.Heaviest("api", 5), top.Denied("api", 5)} {
			if got := names(list); len(got) != 2 || got[0] != shown {
				t.Errorf("%.20q: got %q", key, got)
			}
		}
		if got, ok := top.Find("api", shown); ok != found || found && got != key {
			t.Errorf("Find %.20q: got %q, %t", shown, got, ok)
		}
	}
	top := ratelimit.Must(observe.NewTop(observe.TopConfig{Clock: time.Now}))
	if key, ok := top.Find("api", ""); ok {
		t.Errorf("found %q in nothing", key)
	}
}

// With a secret, no list holds a key, and an operator finds the keys of a log.
func TestTopNamesKeysLikeTheLog(t *testing.T) {
	secret := []byte("a secret of 26 random byte")
	for _, key := range []string{"ip:192.0.2.1", "", "\xff", strings.Repeat("k", 10<<10)} {
		var lines bytes.Buffer
		top := ratelimit.Must(observe.NewTop(observe.TopConfig{KeySecret: secret, Clock: time.Now}))
		log := observe.LogDenials(observe.LogConfig{KeySecret: secret, Logger: slog.New(slog.NewTextHandler(&lines, nil))})
		observe.Join(log, top.Observe)(t.Context(), asked("api", key, false))
		got := top.Denied("api", 5).Keys
		if len(got) != 1 || !strings.HasPrefix(got[0].Key, "hmac:") || !strings.Contains(lines.String(), " key="+got[0].Key+" ") {
			t.Fatalf("%.20q: got %+v, the log has %s", key, got, lines.String())
		}
		found, ok := top.Find("api", got[0].Key)
		if ok != (len(key) <= keyname.MaxShort) || ok && found != key {
			t.Errorf("%.20q: Find: got %q, %t", key, found, ok)
		}
		if found, ok := top.Find("api", key); ok {
			t.Errorf("Find returns %q for the key", found)
		}
	}
}

func TestATopHasABoundOfPolicies(t *testing.T) {
	top := ratelimit.Must(observe.NewTop(observe.TopConfig{Policies: 2, Clock: time.Now}))
	for _, policy := range []string{"a", "b", "c", "a", "b"} {
		top.Observe(t.Context(), asked(policy, "k", false))
	}
	for policy, want := range map[string]int64{"a": 2, "b": 2, "c": 0} {
		if got := top.Heaviest(policy, 1).Requests; got != want {
			t.Errorf("%s: %d requests, want %d", policy, got, want)
		}
	}
}

func TestNewTopChecksItsConfig(t *testing.T) {
	for want, cfg := range map[string]observe.TopConfig{
		"TopConfig.Window":    {Window: time.Second - 1},
		"from 1s to 1h":       {Window: time.Hour + 1},
		"TopConfig.Policies":  {Policies: -1},
		"TopConfig.KeySecret": {KeySecret: make([]byte, 15)},
	} {
		ratetest.CheckText(t, fmt.Sprint(ratetest.Err(observe.NewTop(cfg))), "observe: NewTop: ", want)
	}
}

func TestATopIsSafeForConcurrentUse(t *testing.T) {
	clock := ratetest.NewClock()
	top := ratelimit.Must(observe.NewTop(observe.TopConfig{Clock: clock.Now}))
	const callers, each = 8, 2000
	var done sync.WaitGroup
	for caller := range callers {
		done.Go(func() {
			for i := range each {
				top.Observe(t.Context(), asked(fmt.Sprint("policy ", i%2), fmt.Sprint(caller%2, i%300), i%3 == 0))
				switch {
				case i%100 == 0:
					top.Heaviest("policy 0", 10)
					top.Denied("policy 1", 10)
				case i == each/2:
					clock.Advance(30 * time.Second)
				}
			}
		})
	}
	done.Wait()
	for i := range 2 {
		if got := top.Heaviest(fmt.Sprint("policy ", i), 10).Requests; got != callers*each/2 {
			t.Errorf("policy %d: %d requests, want %d", i, got, callers*each/2)
		}
	}
}

// docs/bounds.md states these figures. A Top without a clock is kept by its timer: one of another test would be measured here.
func TestTheMemoryOfATop(t *testing.T) {
	for _, c := range []struct {
		key  string // of a format
		most int64
	}{
		{"ip:192.0.%d", 175_000},
		{"ip:2001:db8:1234:%d/64", 190_000},
		{strings.Repeat("k", keyname.MaxShort-8) + "%08d", 550_000},
		{strings.Repeat("k", 1<<10) + "%d", 275_000},
	} {
		got := ratetest.HeapOf(func() any {
			clock := ratetest.NewClock()
			top := ratelimit.Must(observe.NewTop(observe.TopConfig{Clock: clock.Now}))
			for range 7 { // more than the window has
				for i := range 2000 {
					top.Observe(t.Context(), asked("api", fmt.Sprintf(c.key, i), false))
				}
				clock.Advance(time.Minute)
			}
			return top
		})
		if got > c.most || got < c.most*7/10 {
			t.Errorf("%.30s: %d bytes, docs/bounds.md says %d", c.key, got, c.most)
		} else {
			t.Logf("%.30s: %d bytes", c.key, got)
		}
	}
}

func TestATopDoesNotAllocate(t *testing.T) {
	clock := ratetest.NewClock()
	for name, cfg := range map[string]observe.TopConfig{"clock": {Clock: clock.Now}, "no clock": {}} {
		top, e, i := ratelimit.Must(observe.NewTop(cfg)), asked("api", "", false), 0
		keys := make([]string, 20_000)
		for i := range keys {
			keys[i] = fmt.Sprintf("ip:192.0.2.%05d", i)
		}
		ask := func() {
			for range 200 {
				e.Results[0].Key = keys[i%len(keys)]
				top.Observe(context.Background(), e)
				i++
			}
			clock.Advance(10 * time.Second)
		}
		for range 40 {
			ask()
		}
		if n := testing.AllocsPerRun(100, ask); n > 0 {
			t.Errorf("%s: %v allocations for 200 requests of new keys", name, n)
		}
	}
}
