package observe_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/ratetest"
	"github.com/go-tokenbucket/ratelimit/internal/test/testsize"
	"github.com/go-tokenbucket/ratelimit/observe"
)

// With as many keys as have a place, the counts by time are exact, also while the clock is set back.
func TestTheStepsOfFewKeysAreExact(t *testing.T) {
	for seed := range uint64(testsize.Of(3, 60)) {
		random := rand.New(rand.NewPCG(seed, 30))
		keys := 1 + random.IntN(128)
		clock := ratetest.NewClock()
		began := clock.Now()
		top := ratelimit.Must(observe.NewTop(observe.TopConfig{Clock: clock.Now, Window: 30 * time.Second}))
		latest, exact := 0, map[int]map[string]truth{} // by second

		for range 300 {
			clock.Advance(time.Duration(random.Int64N(int64(2 * time.Second))))
			switch random.IntN(40) {
			case 0:
				clock.Advance(time.Duration(random.Int64N(int64(2 * time.Minute))))
			case 1: // by less than the window
				clock.Advance(-min(clock.Now().Sub(began), time.Duration(random.Int64N(int64(20*time.Second)))))
			case 2:
				clock.Advance(-min(clock.Now().Sub(began), time.Duration(random.Int64N(int64(2*time.Minute)))))
			}
			now := int(clock.Now().Sub(began) / time.Second)
			if back := latest - now; back > 30 {
				exact = map[int]map[string]truth{}
			}
			if back := latest - now; back <= 0 || back > 30 {
				latest = now
			}
			for range 1 + random.IntN(20) {
				key, allowed := fmt.Sprint("ip:", random.IntN(keys)), random.IntN(3) > 0
				top.Observe(t.Context(), asked("api", key, allowed))
				if exact[latest] == nil {
					exact[latest] = map[string]truth{}
				}
				n := exact[latest][key]
				n.requests++
				if !allowed {
					n.denied++
				}
				exact[latest][key] = n
			}

			for range 2 {
				key, total := fmt.Sprint("ip:", random.IntN(keys)), truth{}
				var want []observe.KeyStep
				for at := max(0, latest/6-5) * 6; at <= latest; at++ {
					n := exact[at][key]
					want = append(want, observe.KeyStep{Start: began.Add(time.Duration(at) * time.Second), Requests: n.requests, Denied: n.denied})
					total = truth{total.requests + n.requests, total.denied + n.denied}
				}
				got, ok := top.Key("api", key)
				if ok != (total.requests > 0) || ok && (!reflect.DeepEqual(got.Steps, want) || got.Requests != total.requests || got.Denied != total.denied || got.Error != 0) {
					t.Fatalf("seed %d, second %d, %s: got %t %+v\nwant %v %v", seed, latest, key, ok, got, total, want)
				}
			}
		}
	}
}

// The last minute of a key is the sum of its last steps.
func TestTheStepsByTheSystemsClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		top := ratelimit.Must(observe.NewTop(observe.TopConfig{}))
		for range 90 {
			top.Observe(t.Context(), asked("api", "k", true))
			time.Sleep(time.Second)
			synctest.Wait()
		}
		k, _ := top.Key("api", "k")
		if len(k.Steps) != 10 || k.Requests != 90 {
			t.Fatalf("got %+v", k)
		}
		for i, step := range k.Steps {
			if want := []int64{10, 0}[i/9]; step.Requests != want || time.Since(step.Start) != time.Duration(9-i)*10*time.Second {
				t.Errorf("step %d: got %+v", i, step)
			}
		}
	})
}

// The shortest windows have steps that are no whole nanoseconds.
func TestTheStepsOfAnyWindow(t *testing.T) {
	for _, window := range []time.Duration{time.Second, time.Second + 1, 7*time.Second - 1, time.Hour} {
		clock := ratetest.NewClock()
		began := clock.Now()
		top := ratelimit.Must(observe.NewTop(observe.TopConfig{Clock: clock.Now, Window: window}))
		for i := range 36 {
			top.Observe(t.Context(), asked("api", "k", true))
			k, _ := top.Key("api", "k")
			if len(k.Steps) != i+1 || k.Steps[i] != (observe.KeyStep{Start: clock.Now(), Requests: 1}) {
				t.Fatalf("%v: step %d: got %+v", window, i, k.Steps)
			}
			step := window / 5
			next := began.Add(step*time.Duration((i+1)/6) + (step*time.Duration((i+1)%6)+5)/6)
			clock.Advance(next.Sub(clock.Now()))
		}
	}
}

func TestKey(t *testing.T) {
	secret, long := []byte("a secret of 26 random byte"), strings.Repeat("k", 10<<10)
	for name, cfg := range map[string]observe.TopConfig{"shown": {Clock: time.Now}, "hidden": {KeySecret: secret, Clock: time.Now}} {
		top := ratelimit.Must(observe.NewTop(cfg))
		for _, key := range []string{"", "\xff", "ip:192.0.2.1", long} {
			top.Observe(t.Context(), asked("api", key, false))
			got, ok := top.Key("api", key)
			listed := func(k observe.TopKey) bool { return reflect.DeepEqual(k, got) }
			if list := top.Heaviest("api", 5).Keys; !ok || !slices.ContainsFunc(list, listed) {
				t.Errorf("%s: %.20q: got %t %+v, listed are %+v", name, key, ok, got, list)
			}
			if (got.Key == key) != (cfg.KeySecret == nil && len(key) <= 256) {
				t.Errorf("%s: %.20q is shown as %.20q", name, key, got.Key)
			}
		}
		for policy, key := range map[string]string{"api": "ip:192.0.2.2", "other": "ip:192.0.2.1"} {
			if got, ok := top.Key(policy, key); ok {
				t.Errorf("%s: %s %s: got %+v", name, policy, key, got)
			}
		}
	}
}

// A key that is denied often, but makes few of the requests, is found in the list of Denied.
func TestKeyIsFoundByItsDenials(t *testing.T) {
	c := newCounted()
	c.ask("denied", false)
	for i := range 1000 {
		c.ask(fmt.Sprint(i%300), true)
	}
	k, ok := c.Key("api", "denied")
	if !ok || k.Requests != 1 || k.Denied != 1 || k.Share != 1 {
		t.Errorf("got %t %+v", ok, k)
	}
	c.checkSteps(t, k, truth{1, 1})
}

func TestLimited(t *testing.T) {
	clock := ratetest.NewClock()
	top := ratelimit.Must(observe.NewTop(observe.TopConfig{Clock: clock.Now, Policies: 2}))
	deny := func(policy string, keys ...string) {
		for _, key := range keys {
			for range 3 {
				top.Observe(t.Context(), asked(policy, key, false))
			}
		}
	}
	want := func(want int, when string) {
		t.Helper()
		if got := top.Limited().Count(); got != want {
			t.Errorf("%s: %d keys, want %d", when, got, want)
		}
	}
	want(0, "before any request")
	top.Observe(t.Context(), asked("api", "allowed", true))
	shadow := asked("api", "shadow", false)
	shadow.Results[0].Shadow = true
	top.Observe(t.Context(), shadow)
	want(0, "allowed, and denied by a shadow")
	deny("api", "a", "b")
	deny("login", "b", strings.Repeat("k", 300))
	deny("a third policy", "d")
	want(3, "two policies")
	clock.Advance(19 * time.Second)
	want(3, "in the next step")
	deny("api", "e")
	want(4, "in both steps")
	clock.Advance(time.Second)
	want(1, "20 s later")
	clock.Advance(-15 * time.Second)
	deny("api", "f")
	want(5, "set back a little, into the first step")
	clock.Advance(time.Hour)
	want(0, "an hour later")
	deny("api", "g")
	clock.Advance(-30*time.Minute - 10*time.Second)
	want(0, "set back by half an hour")
	deny("api", "h")
	want(1, "after that")
	clock.Advance(30*time.Minute + 10*time.Second)
	want(0, "when the clock is there again")
}

// In a flood, most keys never have a place in the lists for long.
func TestLimitedInAFlood(t *testing.T) {
	top := ratelimit.Must(observe.NewTop(observe.TopConfig{Clock: time.Now}))
	for i := range 20_000 {
		top.Observe(t.Context(), asked("api", fmt.Sprint("ip:", i), false))
	}
	if got := top.Limited().Count(); got < 16_000 || got > 24_000 { // three times the standard error
		t.Errorf("%d keys of 20,000", got)
	}
}
