package fallback_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/teststore"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/fallback"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
)

// lookup is a context that holds whoever looks for a value in it, as a fallback does that has found the primary
// away.
type lookup struct {
	context.Context
	hold func()
}

func (c lookup) Value(key any) any {
	c.hold()
	return c.Context.Value(key)
}

func TestEachOutageBeginsWithWhatIsKnownThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDuo(t, fallback.Config{})
		c := store.Charge{Policy: "p", Key: "k", Limit: teststore.Limit(t, 1, time.Second, 8), Cost: 9}
		d.fail(teststore.Broken)
		late := lookup{t.Context(), sync.OnceFunc(d.comeBack)}
		if ok, err := d.Take(late, []store.Charge{c}, make([]store.State, 1)); ok || err != nil {
			t.Fatal(ok, err)
		}
		time.Sleep(time.Minute)
		c.Cost = 8
		d.take(c)
		d.fail(teststore.Broken)
		c.Cost = 1
		if n := d.count(c); n != 0 {
			t.Errorf("%d of an empty bucket", n)
		}
	})
}

// What could not be charged after an outage is charged after the next.
func TestWhatIsLeftOfAnOutageIsChargedAfterTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDuo(t, fallback.Config{})
		c := store.Charge{Policy: "p", Key: "k", Limit: teststore.Limit(t, 1, 100*time.Hour, 8), Cost: 3}
		one := c
		one.Key, one.Cost = "broken", 1
		memory := d.primary.Store
		d.primary.Store = onBucket{memory, "broken", teststore.ErrBroken}
		d.fail(teststore.Broken)
		late := lookup{t.Context(), sync.OnceFunc(func() {
			d.comeBack()
			// The first charge fails, and the second is kept.
			d.primary.Store = onBucket{onBucket{memory, "broken", teststore.ErrBroken}, "k", teststore.ErrBroken}
		})}
		if ok, err := d.Take(late, []store.Charge{c, one}, make([]store.State, 2)); !ok || err != nil {
			t.Fatal(ok, err)
		}
		synctest.Wait()
		d.primary.Store = memory
		d.fail(teststore.Broken)
		d.take(c)
		d.take(one)
		d.comeBack()
		left := d.peekPrimary(c).Remaining + d.peekPrimary(one).Remaining
		if left != 8-6+8-1 && left != 8-3+8-2 {
			t.Errorf("%d left", left)
		}
	})
}

// What the primary is charged for an outage is known of its buckets from then on.
func TestOutagesInARowAllowNoMoreThanOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, wait := range []time.Duration{0, 30 * time.Second} {
			d := newDuo(t, fallback.Config{})
			c := store.Charge{Policy: "p", Key: "k", Limit: teststore.Limit(t, 1, time.Second, 10), Cost: 1, MaxWait: wait}
			begin, n := time.Now(), 0
			d.fail(teststore.Broken)
			n += d.count(c)
			d.comeBack()
			d.fail(teststore.Broken) // and nobody has asked the primary
			for range 40 {
				time.Sleep(time.Second)
				n += d.count(c)
			}
			d.comeBack()
			n += d.count(c)
			if most := 10 + int(time.Since(begin).Seconds()+wait.Seconds()); n > most || n < most-2 {
				t.Errorf("%d within %v, want about %d", n, time.Since(begin), most)
			}
		}
	})
}

// While the primary is charged for one bucket, callers go on to charge the others locally.
func TestCallersWhileTheOutageIsChargedAreChargedToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := memstore.New(memstore.Config{})
		defer memory.Close()
		early, settled := make(chan struct{}), make(chan struct{})
		d := newDuoWith(t, before{memory, "k", func(c store.Charge) {
			if c.Cost == 2 {
				<-early
			}
		}}, fallback.Config{})
		d.primary.Store = before{d.primary.Store, "another", func(store.Charge) { <-settled }}
		c := store.Charge{Policy: "p", Key: "k", Limit: teststore.Limit(t, 1, 100*time.Hour, 10), Cost: 1}
		another, slow := c, c
		another.Key, slow.Cost = "another", 2
		d.fail(teststore.Broken)
		d.take(another)
		go func() { _, _ = d.Take(t.Context(), []store.Charge{slow}, make([]store.State, 1)) }()
		synctest.Wait()
		d.primary.Mend()
		time.Sleep(220 * time.Millisecond) // now it is charged
		if d.Away() == nil {
			t.Fatal("not what this test is for")
		}
		d.take(c)
		close(early)
		synctest.Wait()
		close(settled)
		d.comeBack()
		if got := d.peekPrimary(c).Remaining; got != 7 {
			t.Errorf("%d of 10 left, want 7", got)
		}
	})
}

// Of a bucket whose burst is small, much may be reserved.
func TestADeepDebtIsChargedInOneCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDuo(t, fallback.Config{})
		c := store.Charge{Policy: "p", Key: "k", Limit: teststore.Limit(t, 1, time.Second, 1), Cost: 1, MaxWait: 1000 * time.Second}
		d.fail(teststore.Broken)
		if n := d.count(c); n != 1001 {
			t.Fatalf("%d, want a burst of 1, and 1000 to wait for", n)
		}
		charged := 0
		d.primary.Store = before{d.primary.Store, "k", func(store.Charge) { charged++ }}
		d.comeBack()
		if charged != 1 {
			t.Errorf("%d calls", charged)
		}
		c.MaxWait = 0
		for outage := range 2 {
			if ok, state := d.take(c); ok || state.RetryAfter.Round(time.Second) != 1001*time.Second {
				t.Errorf("%t, %+v, want a token after the 1000 that were reserved", ok, state)
			}
			if outage == 0 {
				d.fail(teststore.Broken)
			}
		}
	})
}

// While it is away, a replica knows what the primary last told it, and not what the others have taken since.
func TestReplicasThatKnewNothingOfEachOtherPayItBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := fallback.Config{Replicas: 4}
		one, other := newDuo(t, cfg), newDuo(t, cfg)
		other.primary.Store = one.primary.Store
		c := store.Charge{Policy: "p", Key: "k", Limit: teststore.Limit(t, 1, time.Hour, 40), Cost: 1}
		if n := one.count(c); n != 40 {
			t.Fatal(n)
		}
		one.fail(teststore.Broken)
		other.fail(teststore.Broken)
		if n, m := one.count(c), other.count(c); n != 0 || m != 10 {
			t.Errorf("%d and %d, want none where it is known to be empty, and a share of the burst", n, m)
		}
		one.comeBack()
		other.comeBack()
		if ok, state := one.take(c); ok || state.RetryAfter.Round(time.Minute) != 11*time.Hour {
			t.Errorf("%t, %+v, want a token after the 10", ok, state)
		}
	})
}

func TestACallerWhoIsLateIsChargedByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := memstore.New(memstore.Config{})
		defer memory.Close()
		d := newDuoWith(t, before{memory, "k", func(c store.Charge) {
			if c.Cost == 2 {
				time.Sleep(time.Second)
			}
		}}, fallback.Config{})
		c := store.Charge{Policy: "p", Key: "k", Limit: teststore.Limit(t, 1, 100*time.Hour, 10), Cost: 1}
		d.fail(teststore.Broken)
		d.take(c)
		c.Cost = 2
		go func() { _, _ = d.Take(t.Context(), []store.Charge{c}, make([]store.State, 1)) }()
		synctest.Wait()
		d.comeBack()
		if got := d.peekPrimary(c).Remaining; got != 9 {
			t.Errorf("%d of 10 left, want 9", got)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if got := d.peekPrimary(c).Remaining; got != 7 {
			t.Errorf("%d of 10 left, want 7", got)
		}
	})
}

func TestCallersWhileOthersAreToldOfTheReturnAreCharged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDuo(t, fallback.Config{})
		d.Close()
		c := store.Charge{Policy: "p", Key: "k", Limit: teststore.Limit(t, 1, 100*time.Hour, 10), Cost: 1}
		d.Store = fallback.New(d.primary, nil, fallback.Config{Logger: quiet, OnChange: func(away bool, _ error) {
			if !away {
				d.take(c)
			}
		}})
		d.fail(teststore.Broken)
		d.comeBack()
		if got := d.peekPrimary(c).Remaining; got != 9 {
			t.Errorf("%d of 10 left, want 9", got)
		}
	})
}

// Refunds beyond what was spent are lost, and say nothing of what the primary holds.
func TestRefundsOfAnOutageAreNotThereInTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDuo(t, fallback.Config{})
		c := store.Charge{Policy: "p", Key: "k", Limit: teststore.Limit(t, 1, 100*time.Hour, 10), Cost: 10}
		d.take(c)
		d.fail(teststore.Broken)
		c.Cost = -3
		d.take(c)
		d.comeBack()
		d.fail(teststore.Broken)
		c.Cost = 1
		if n := d.count(c); n != 0 {
			t.Errorf("%d of an empty bucket", n)
		}
	})
}

func TestAPrimaryThatCannotBeChargedStaysAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDuo(t, fallback.Config{})
		c := store.Charge{Policy: "p", Limit: teststore.Limit(t, 1, 100*time.Hour, 10), Cost: 1}
		d.fail(teststore.Broken)
		for i := range 500 {
			c.Key = fmt.Sprint(i)
			d.take(c)
		}
		d.primary.Store = probesOnly{d.primary.Store}
		d.primary.Mend()
		time.Sleep(30 * time.Millisecond) // with a probe
		if d.Away() == nil {
			t.Error("back, although it cannot be charged")
		}
	})
}

// probesOnly fails all calls but probes.
type probesOnly struct{ store.Store }

func (s probesOnly) Take(ctx context.Context, charges []store.Charge, states []store.State) (bool, error) {
	if charges[0].Policy == "p" {
		return false, teststore.ErrBroken
	}
	return s.Store.Take(ctx, charges, states)
}

func TestABucketThatHangsDoesNotDelayTheReturnForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDuo(t, fallback.Config{})
		d.primary.Store = hungBucket{d.primary.Store, "k"}
		d.fail(teststore.Broken)
		d.take(store.Charge{Policy: "p", Key: "k", Limit: teststore.Limit(t, 1, time.Hour, 10), Cost: 1})
		d.comeBack()
	})
}

// hungBucket does not answer calls of one key.
type hungBucket struct {
	store.Store
	key string
}

func (s hungBucket) Take(ctx context.Context, charges []store.Charge, states []store.State) (bool, error) {
	if charges[0].Key == s.key {
		<-ctx.Done()
		return false, ctx.Err()
	}
	return s.Store.Take(ctx, charges, states)
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
