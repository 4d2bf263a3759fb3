package fallback_test

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/test/ratetest"
	"github.com/go-tokenbucket/ratelimit/internal/test/teststore"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/fallback"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
)

func TestPanicsBehindAFallbackDoNotEndTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDuo(t, fallback.Config{})
		d.fail(teststore.Broken)
		d.primary.Have(func(context.Context, func() error) error { panic("in a probe") })
		time.Sleep(time.Second)
		d.comeBack()
	})
	synctest.Test(t, func(t *testing.T) {
		primary := &teststore.Faulty{Store: memstore.New(memstore.Config{})}
		primary.Have(teststore.Broken)
		f := fallback.New(primary, nil, fallback.Config{
			Failures: 1,
			OnChange: func(bool, error) { panic("in OnChange") },
			Logger:   slog.New(slog.DiscardHandler),
		})
		defer f.Close()
		func() {
			defer func() { _ = recover() }() // as net/http does
			_, _ = f.Take(t.Context(), []store.Charge{{Policy: "p", Key: "k", Limit: teststore.Limit(t, 1, time.Hour, 1)}}, make([]store.State, 1))
		}()
		if f.Away() == nil {
			t.Error("not given up")
		}
		primary.Mend()
		time.Sleep(time.Second)
		if f.Away() != nil {
			t.Error("not back")
		}
	})
}

func TestTheLogSaysWhatHappened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text strings.Builder
		primary := &teststore.Faulty{Store: memstore.New(memstore.Config{})}
		f := fallback.New(primary, nil, fallback.Config{Logger: slog.New(slog.NewTextHandler(&text, nil))})
		defer f.Close()
		primary.Have(teststore.Broken)
		charges := []store.Charge{{Policy: "p", Key: "k", Limit: teststore.Limit(t, 1, time.Hour, 100), Cost: 1}}
		for range 100 {
			if ok, err := f.Take(t.Context(), charges, make([]store.State, 1)); !ok || err != nil {
				t.Fatal(ok, err)
			}
		}
		primary.Mend()
		time.Sleep(time.Second)
		synctest.Wait()
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

func TestFallbackRefusesNonsense(t *testing.T) {
	memory := memstore.New(memstore.Config{})
	for want, open := range map[string]func(){
		"primary is nil":     func() { fallback.New(nil, memory, fallback.Config{}) },
		"Config.Replicas -1": func() { fallback.New(memory, memory, fallback.Config{Replicas: -1}) },
		"Config.Replicas 2 and Config.ReplicasFunc: must not both be set": func() {
			fallback.New(memory, memory, fallback.Config{Replicas: 2, ReplicasFunc: func() int { return 2 }})
		},
		"Config.Slow -1":    func() { fallback.New(memory, memory, fallback.Config{Slow: -1}) },
		"Config.Failures":   func() { fallback.New(memory, memory, fallback.Config{Failures: -1}) },
		"Config.ProbeEvery": func() { fallback.New(memory, memory, fallback.Config{ProbeEvery: -1}) },
		"Config.MaxKeys":    func() { fallback.New(memory, memory, fallback.Config{MaxKeys: -1}) },
	} {
		ratetest.CheckPanic(t, open, want)
	}
}

func TestCloseWaitsForTheProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDuo(t, fallback.Config{})
		d.fail(teststore.Broken)
		var asking atomic.Bool
		d.primary.Have(func(ctx context.Context, _ func() error) error {
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
		d.Close()
		if asking.Load() || time.Since(begin) != time.Millisecond {
			t.Errorf("under way: %t after %v", asking.Load(), time.Since(begin))
		}
	})
}

func TestAReturnThatPanicsIsOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDuoWith(t, nil, fallback.Config{})
		told := 0
		d.Store = fallback.New(d.primary, nil, fallback.Config{Logger: quiet, OnChange: func(away bool, _ error) {
			if !away {
				told++
				panic("in OnChange")
			}
		}})
		d.fail(teststore.Broken)
		d.comeBack()
		d.fail(teststore.Broken)
		asked := d.primary.Calls.Load()
		time.Sleep(10 * time.Second)
		if probes := d.primary.Calls.Load() - asked; probes > 60 {
			t.Errorf("%d probes in 10 s", probes)
		}
		d.comeBack()
		if told != 2 {
			t.Errorf("told %d times of two returns", told)
		}
	})
}

func TestALoggerThatIsSetLaterIsTold(t *testing.T) {
	before := slog.Default()
	defer slog.SetDefault(before)
	slog.SetDefault(quiet)
	synctest.Test(t, func(t *testing.T) {
		primary := &teststore.Faulty{Store: memstore.New(memstore.Config{})}
		primary.Have(teststore.Broken)
		f := fallback.New(primary, nil, fallback.Config{Failures: 1})
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
