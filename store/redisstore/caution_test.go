package redisstore

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestCautionLastsLongAgainstWhatCallsHoldBack(t *testing.T) {
	items := func(policies ...string) (items []item) {
		for _, p := range policies {
			items = append(items, item{policy: p})
		}
		return items
	}
	for took, want := range map[time.Duration]time.Duration{
		time.Millisecond:       10 * time.Second,
		20 * time.Millisecond:  10 * time.Second,
		100 * time.Millisecond: 50 * time.Second,
	} {
		synctest.Test(t, func(t *testing.T) {
			var c caution
			c.init()
			if c.due(items("address", "all")) {
				t.Error("due before any refusal")
			}
			c.note(items("address", "all"), took)
			c.note(items("all"), 0) // does not make it shorter
			time.Sleep(want - time.Nanosecond)
			if !c.due(items("login", "all")) || !c.due(items("address")) {
				t.Errorf("not due %v after a refusal that took %v", want-time.Nanosecond, took)
			}
			time.Sleep(time.Nanosecond)
			if c.due(items("login", "address", "all")) {
				t.Errorf("due %v after a refusal that took %v", want, took)
			}
		})
	}
}

func TestCautionIsOfPolicies(t *testing.T) {
	var c caution
	c.init()
	c.note([]item{{policy: "all", key: "a"}}, 0)
	others := 0
	for p := range 100 {
		if c.due([]item{{policy: string(rune('A' + p))}}) {
			others++
		}
	}
	if others > 10 || !c.due([]item{{policy: "all", key: "b"}}) {
		t.Errorf("%d of 100 other policies are due, and all: %t", others, c.due([]item{{policy: "all", key: "b"}}))
	}
}
