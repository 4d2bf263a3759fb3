package deadline_test

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/deadline"
)

func within(parent context.Context, timeout time.Duration) *deadline.Context {
	return &deadline.Context{Parent: parent, Terms: &deadline.Terms{Timeout: timeout}}
}

func TestTheTimeCountsFromWhenSomebodyAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		parent, cancel := context.WithCancel(t.Context())
		defer cancel()
		d := within(parent, time.Second)

		time.Sleep(time.Hour) // nobody asked yet, so nothing runs
		if err := d.Err(); err != nil {
			t.Errorf("Err before anybody asked: %v", err)
		}
		if at, ok := d.Deadline(); !ok || time.Until(at) != time.Second {
			t.Errorf("Deadline %v, %t", at, ok)
		}
		before := runtime.NumGoroutine()
		child, stop := context.WithCancel(d)
		defer stop()
		if n := runtime.NumGoroutine(); n != before {
			t.Errorf("a child costs %d goroutines", n-before)
		}
		<-child.Done()
		if !errors.Is(d.Err(), context.DeadlineExceeded) || parent.Err() != nil {
			t.Errorf("Err %v, the parent's %v", d.Err(), parent.Err())
		}
		d.End()

		// Without anybody asking there is nothing to end.
		within(parent, time.Second).End()

		// It also ends with the parent, asked or not, and by End.
		silent, asked, ended := within(parent, time.Hour), within(parent, time.Hour), within(t.Context(), time.Hour)
		asked.Done()
		ended.Done()
		cancel()
		ended.End()
		for name, d := range map[string]*deadline.Context{"silent": silent, "asked": asked, "ended": ended} {
			if !errors.Is(d.Err(), context.Canceled) {
				t.Errorf("%s: Err %v", name, d.Err())
			}
			<-d.Done()
		}
	})
}

func TestItIsThatOfTheParentIfThatIsSooner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		parent, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		d := within(parent, time.Second)
		defer d.End()
		if at, _ := d.Deadline(); time.Until(at) != time.Millisecond {
			t.Errorf("%v away", time.Until(at))
		}
	})
}

func TestItsDeadlineCostsNoTimer(t *testing.T) {
	parent, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	terms := &deadline.Terms{Timeout: time.Minute}
	if n := testing.AllocsPerRun(100, func() {
		d := &deadline.Context{Parent: parent, Terms: terms}
		if at, _ := d.Deadline(); time.Until(at) > time.Minute || d.Err() != nil {
			t.Errorf("Deadline %v, error %v", at, d.Err())
		}
		d.End()
	}); n > 1 {
		t.Errorf("%v allocations, want that of the Context", n)
	}
}

func TestItEndsByItsDeadlineIfNobodyWaits(t *testing.T) {
	for _, detached := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			parent, cancel := context.WithCancel(t.Context())
			defer cancel()
			d := &deadline.Context{Parent: parent, Terms: &deadline.Terms{Timeout: time.Second, Detached: detached}}
			at, _ := d.Deadline()
			time.Sleep(time.Second - 1)
			if err := d.Err(); err != nil {
				t.Errorf("before its deadline: %v", err)
			}
			time.Sleep(time.Nanosecond)
			if err := d.Err(); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("at its deadline: %v", err)
			}
			<-d.Done()
			if again, _ := d.Deadline(); !again.Equal(at) || !errors.Is(d.Err(), context.DeadlineExceeded) {
				t.Errorf("after its end: deadline %v and then %v, error %v", at, again, d.Err())
			}
		})
	}
}

// A meeting is a parent that has somebody else ask while it is asked itself, and counts its children.
type meeting struct {
	context.Context
	done     chan struct{}
	other    func()
	children int
}

func (m *meeting) Deadline() (time.Time, bool) {
	if other := m.other; other != nil {
		m.other = nil
		other()
	}
	return time.Time{}, false
}

func (m *meeting) Done() <-chan struct{} { return m.done }

// AfterFunc is how package context has a child end with a parent of another type.
func (m *meeting) AfterFunc(func()) func() bool {
	m.children++
	return func() bool { m.children--; return true }
}

func TestTwoWhoAskFirstHaveOneTimer(t *testing.T) {
	m := &meeting{Context: context.Background(), done: make(chan struct{})}
	d := within(m, time.Hour)
	var others <-chan struct{}
	m.other = func() { others = d.Done() }
	if own := d.Done(); own != others {
		t.Error("they wait for two timers")
	}
	if m.children != 1 {
		t.Errorf("%d timers run, want 1", m.children)
	}
	d.End()
	select {
	case <-others:
	default:
		t.Error("it does not end for the other")
	}
	if m.children != 0 {
		t.Errorf("%d timers run after the end", m.children)
	}
}

func TestUntimedUntilSomebodyAsksForDone(t *testing.T) {
	d := within(t.Context(), time.Hour)
	defer d.End()
	child := context.WithoutCancel(d)
	d.Deadline()
	if !deadline.Untimed(d) || !deadline.Untimed(child) {
		t.Error("it has a timer, though nobody has asked for Done")
	}
	d.Done()
	if deadline.Untimed(d) || deadline.Untimed(child) {
		t.Error("it has no timer, though somebody has asked for Done")
	}
	if deadline.Untimed(t.Context()) {
		t.Error("another context is one of these")
	}
}

// A client may ask for Done when the call has ended. Then nobody would stop a timer, and the parent may be in use for
// another request.
func TestNothingStartsAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		parent := &foreign{Context: context.WithValue(t.Context(), key{}, "value"), done: make(chan struct{})}
		d := within(parent, time.Hour)
		d.Deadline()
		d.End()
		before := runtime.NumGoroutine()
		child, stop := context.WithCancel(d)
		defer stop()
		<-d.Done()
		<-child.Done()
		synctest.Wait()
		if n := runtime.NumGoroutine(); n != before || parent.asked.Load() != 0 {
			t.Errorf("%d goroutines more, and the parent was asked for Done %d times", n-before, parent.asked.Load())
		}
		if err := d.Err(); err != context.Canceled || deadline.Untimed(d) {
			t.Errorf("Err %v, Untimed %t", err, deadline.Untimed(d))
		}
		if v := d.Value(key{}); v != "value" {
			t.Errorf("the value of the parent is %v", v)
		}
	})
}

type key struct{}

// A foreign is a context that is not of package context.
type foreign struct {
	context.Context
	done  chan struct{}
	asked atomic.Int64
}

func (f *foreign) Done() <-chan struct{} {
	f.asked.Add(1)
	return f.done
}
