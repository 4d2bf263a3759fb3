package fallback_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/ratetest"
	"github.com/go-tokenbucket/ratelimit/internal/test/teststore"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/fallback"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
)

func TestFallbackRefusesNonsense(t *testing.T) {
	memory := ratelimit.Must(memstore.New(memstore.Config{}))
	for want, err := range map[string]error{
		"primary is nil":     ratetest.Err(fallback.New(nil, memory, fallback.Config{})),
		"Config.Replicas -1": ratetest.Err(fallback.New(memory, memory, fallback.Config{Replicas: -1})),
		"Config.Replicas 2 and Config.ReplicasFunc: must not both be set": ratetest.Err(fallback.New(memory, memory, fallback.Config{Replicas: 2, ReplicasFunc: func() int { return 2 }})),
		"Config.Slow -1":    ratetest.Err(fallback.New(memory, memory, fallback.Config{Slow: -1})),
		"Config.Failures":   ratetest.Err(fallback.New(memory, memory, fallback.Config{Failures: -1})),
		"Config.ProbeEvery": ratetest.Err(fallback.New(memory, memory, fallback.Config{ProbeEvery: -1})),
		"Config.MaxKeys":    ratetest.Err(fallback.New(memory, memory, fallback.Config{MaxKeys: -1})),
	} {
		ratetest.CheckText(t, fmt.Sprint(err), want)
	}
}

func TestPanicsBehindAFallbackDoNotEndTheProcess(t *testing.T) {
	inBubble(t, fallback.Config{}, func(t *testing.T, r *fallbackRig) {
		r.fail(teststore.Broken)
		r.primary.Have(func(context.Context, func() error) error { panic("in a probe") })
		time.Sleep(time.Second)
		r.comeBack()
	})
	inBubble(t, fallback.Config{Failures: 1, OnChange: func(bool, error) { panic("in OnChange") }}, func(t *testing.T, r *fallbackRig) {
		for range 2 {
			r.primary.Have(teststore.Broken)
			r.take(hourly(t, 1))
			r.wantAway(true)
			asked := r.primary.Calls.Load()
			time.Sleep(10 * time.Second)
			if probes := r.primary.Calls.Load() - asked; probes > 60 {
				t.Errorf("%d probes in 10 s", probes)
			}
			r.comeBack()
		}
		if len(r.changes) != 4 {
			t.Errorf("changes %q of two outages", r.changes)
		}
	})
}

func TestCloseWaitsForTheProbe(t *testing.T) {
	inBubble(t, fallback.Config{}, func(t *testing.T, r *fallbackRig) {
		r.fail(teststore.Broken)
		var asking atomic.Bool
		r.primary.Have(func(ctx context.Context, _ func() error) error {
			asking.Store(true)
			defer asking.Store(false)
			<-ctx.Done()
			time.Sleep(time.Millisecond)
			return ctx.Err()
		})
		for !asking.Load() {
			time.Sleep(time.Millisecond)
		}
		begin := time.Now()
		r.Close()
		if asking.Load() || time.Since(begin) != time.Millisecond {
			t.Errorf("under way: %t after %v", asking.Load(), time.Since(begin))
		}
	})
}

func TestTheLogSaysWhatHappened(t *testing.T) {
	var text strings.Builder
	inBubble(t, fallback.Config{Logger: slog.New(slog.NewTextHandler(&text, nil))}, func(t *testing.T, r *fallbackRig) {
		r.primary.Have(teststore.Broken)
		r.wantCount(hourly(t, 100), 100)
		r.comeBack()
		for _, want := range []string{
			`level=ERROR msg="fallback: the primary failed or was slow" error=broken`,
			`level=WARN msg="fallback: the primary is unavailable, and the secondary answers" error=broken`,
			`level=INFO msg="fallback: the primary is back" after=12.5ms`,
		} {
			if strings.Count(text.String(), want) != 1 {
				t.Errorf("want once %q in\n%s", want, text.String())
			}
		}
	})
}

func TestAPrimaryThatStaysAwayIsLogged(t *testing.T) {
	for name, f := range map[string]teststore.Fault{"broken": teststore.Broken, "slow": after(60 * time.Millisecond)} {
		var text strings.Builder
		inBubble(t, fallback.Config{Logger: slog.New(slog.NewTextHandler(&text, nil))}, func(t *testing.T, r *fallbackRig) {
			r.primary.Have(f)
			for begin := time.Now(); time.Since(begin) < 4*time.Minute; time.Sleep(100 * time.Millisecond) {
				if ok, _, err := r.takeWithin(100*time.Millisecond, hourly(t, 500_000)); !ok || err != nil {
					t.Fatal(ok, err)
				}
			}
		})
		if got := strings.Count(text.String(), "the primary is still unavailable"); got < 3 || got > 4 {
			t.Errorf("%s: %d lines in four minutes, want about one a minute", name, got)
		}
	}
}

func TestALoggerThatIsSetLaterIsTold(t *testing.T) {
	before := slog.Default()
	defer slog.SetDefault(before)
	slog.SetDefault(quiet)
	synctest.Test(t, func(t *testing.T) {
		primary := &teststore.Faulty{Store: ratelimit.Must(memstore.New(memstore.Config{}))}
		primary.Have(teststore.Broken)
		f := ratelimit.Must(fallback.New(primary, nil, fallback.Config{Failures: 1}))
		defer f.Close()
		var text strings.Builder
		slog.SetDefault(slog.New(slog.NewTextHandler(&text, nil)))
		if _, err := f.Take(t.Context(), []store.Charge{{Policy: "p", Key: "k", Limit: teststore.Limit(t, 1, time.Hour, 1)}}, make([]store.State, 1)); err != nil {
			t.Error(err)
		}
		if !strings.Contains(text.String(), "the primary is unavailable") {
			t.Errorf("log %q", text.String())
		}
	})
}

func TestLongKeysAreKeptByTheirHash(t *testing.T) {
	inBubble(t, fallback.Config{}, func(t *testing.T, r *fallbackRig) {
		r.fail(teststore.Broken)
		if kept := teststore.LeftOnHeap(func() { teststore.LongKeys(t, func(c store.Charge) { r.take(c) }) }); kept > teststore.MostOfLongKeys {
			t.Errorf("300 keys of 90 KB keep %d bytes", kept)
		}
		r.comeBack()
		teststore.LongKeys(t, func(c store.Charge) {
			if strings.HasSuffix(c.Key, "77") {
				if _, state := r.take(c); state.Degraded || state.Remaining != 98 {
					t.Errorf("%+v, want 98 left", state)
				}
			}
		})
	})
}

// An outage is probed with the keys of the call that failed.
func TestProbesHaveShortKeys(t *testing.T) {
	inBubble(t, fallback.Config{Failures: 1}, func(t *testing.T, r *fallbackRig) {
		longest, behind := 0, &teststore.Intercepted{Store: r.primary.Store}
		behind.Intercept(func(c store.Charge) error {
			longest = max(longest, len(c.Key))
			return nil
		})
		r.primary.Store = behind
		r.primary.Have(teststore.Broken)
		c := hourly(t, 1)
		c.Key = strings.Repeat("k", 1<<20)
		r.take(c)
		r.comeBack()
		if longest < 32 || longest > 256 { // a hash
			t.Errorf("probed with a key of %d bytes", longest)
		}
	})
}
