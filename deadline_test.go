package ratelimit

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

func TestDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		parent, cancel := context.WithCancel(t.Context())
		defer cancel()
		d := (*deadline)(newExchange(parent, time.Second))

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
		d.end()

		// Without anybody asking there is nothing to end.
		(*deadline)(newExchange(parent, time.Second)).end()

		// It also ends with the parent, asked or not, and by end.
		silent, asked, ended := (*deadline)(newExchange(parent, time.Hour)), (*deadline)(newExchange(parent, time.Hour)), (*deadline)(newExchange(t.Context(), time.Hour))
		asked.Done()
		ended.Done()
		cancel()
		ended.end()
		for name, d := range map[string]*deadline{"silent": silent, "asked": asked, "ended": ended} {
			if !errors.Is(d.Err(), context.Canceled) {
				t.Errorf("%s: Err %v", name, d.Err())
			}
			<-d.Done()
		}
	})
}

func TestDeadlineIsThatOfTheParentIfItIsSooner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		parent, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		d := (*deadline)(newExchange(parent, time.Second))
		defer d.end()
		if at, _ := d.Deadline(); time.Until(at) != time.Millisecond {
			t.Errorf("%v away", time.Until(at))
		}
	})
}
