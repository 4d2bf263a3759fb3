package redisstore

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// A queued call is one of a bucket, whose caller has that long, or waits for ever if that is 0.
type queued struct {
	key  string
	has  time.Duration
	left bool // its caller has left
}

// A command goes on until its last caller has run out of time, whatever order they came in.
func TestABatchIsGivenTheTimeOfItsLastCaller(t *testing.T) {
	const second = time.Second
	for _, tt := range []struct {
		name  string
		calls []queued
		want  time.Duration // 0: without end
		sent  int64
	}{
		{"one", []queued{{"a", second, false}}, second, 1},
		{"short, long", []queued{{"a", second, false}, {"a", 9 * second, false}}, 9 * second, 2},
		{"long, short", []queued{{"a", 9 * second, false}, {"a", second, false}}, 9 * second, 2},
		{"short, long, short", []queued{{"a", second, false}, {"a", 9 * second, false}, {"a", second, false}}, 9 * second, 3},
		{"short, long of another bucket", []queued{{"a", second, false}, {"b", 9 * second, false}}, 9 * second, 2},
		{"long, short of another bucket", []queued{{"a", 9 * second, false}, {"b", second, false}}, 9 * second, 2},
		{"for ever, short", []queued{{"a", 0, false}, {"a", second, false}}, 0, 2},
		{"short, for ever of another bucket", []queued{{"a", second, false}, {"b", 0, false}}, 0, 2},
		{"short, for ever, long", []queued{{"a", second, false}, {"b", 0, false}, {"c", 9 * second, false}}, 0, 3},
		{"short, long that has left", []queued{{"a", second, false}, {"a", 9 * second, true}}, second, 1},
		{"for ever that has left, short", []queued{{"a", 0, true}, {"a", second, false}}, second, 1},
		{"long that has left, short of another bucket", []queued{{"a", 9 * second, true}, {"b", second, false}}, second, 1},
		{"all have left", []queued{{"a", second, true}, {"b", 0, true}}, 0, 0},
		// They are still there, because this process lacks processor time.
		{"past", []queued{{"a", -second, false}}, defaultGiven, 1},
		{"all past", []queued{{"a", -second, false}, {"b", -2 * second, false}}, defaultGiven, 2},
		{"now", []queued{{"a", -1, false}}, defaultGiven, 1},
		{"past, long", []queued{{"a", -second, false}, {"a", 9 * second, false}}, 9 * second, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &batch{byName: make(map[name]int)}
				var gone []*call
				for _, q := range tt.calls {
					c := &call{items: []item{{policy: "p", key: q.key}}, done: make(chan bool, 1)}
					if q.has != 0 {
						c.deadline, c.limited = time.Now().Add(q.has), true
					}
					if !b.add(c, 100) {
						t.Fatal("no room")
					}
					if q.left {
						c.stage.Store(left)
						gone = append(gone, c)
					}
				}
				until := b.claim()
				if endless := tt.want == 0; until.IsZero() != endless {
					t.Errorf("given until %v", until)
				} else if got := time.Until(until); !endless && got != tt.want {
					t.Errorf("given %v, want %v", got, tt.want)
				}
				var sent int64
				for _, e := range b.entries {
					sent += e.count
				}
				if sent != tt.sent {
					t.Errorf("%d calls are sent, want %d", sent, tt.sent)
				}
				for i, c := range gone {
					if len(c.done) != 1 || !errors.Is(c.err, errOver) {
						t.Errorf("call %d of those that were left: done %t, error %v", i, len(c.done) == 1, c.err)
					}
				}
			})
		})
	}
}
