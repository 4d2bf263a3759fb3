package outbound

import (
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit"
)

// turn is a call that was charged and sent at a time, when the bucket of 10 a second held left.
func turn(at time.Time, left float64) *Turn {
	return &Turn{policy: ratelimit.Policy{Limit: ratelimit.PerSecond(10)}, charged: at, sent: at, left: left, known: true}
}

// The guard is half a token, and half of what the bucket gains while the call is under way.
func TestTheExcessOfABucket(t *testing.T) {
	at := time.Now()
	for _, tt := range []struct {
		latency      time.Duration
		left, excess float64
	}{
		{0, 100.25, 0}, {0, 100.5, 1}, {0, 110, 10.5}, {0, 90, 0},
		{time.Second, 100, 5.5}, {2 * time.Second, 100, 10.5}, {2 * time.Second, 94.5, 0}, {2 * time.Second, 95, 5.5},
	} {
		var v view
		stop, excess := v.learn(turn(at, tt.left), Report{Known: true, Remaining: 100}, at.Add(tt.latency), time.Hour)
		if stop != 0 || excess != tt.excess || (excess > 0) != v.corrected.Equal(at.Add(tt.latency)) {
			t.Errorf("%+v: stop %v, excess %v, corrected %v", tt, stop, excess, v.corrected)
		}
	}
}

// A call that was sent when a stop had ended, and not one before it, ends the doubling.
func TestACallAfterAStopEndsTheBackoff(t *testing.T) {
	end := time.Now()
	for before, want := range map[time.Duration]time.Duration{time.Nanosecond: 4 * time.Second, 0: 0, -time.Nanosecond: 0} {
		v := view{stop: end, backoff: 4 * time.Second}
		if v.learn(turn(end.Add(-before), 5), Report{}, end.Add(time.Second), time.Hour); v.backoff != want {
			t.Errorf("sent %v before the end: backoff %v, want %v", before, v.backoff, want)
		}
	}
}

// Of the ends within a second that answers say, the earliest one counts.
func TestTheEarliestEndOfAWindow(t *testing.T) {
	at := time.Now()
	var w window
	for _, step := range []struct{ reset, want time.Duration }{{10 * time.Second, 10 * time.Second}, {10500 * time.Millisecond, 10 * time.Second}, {9800 * time.Millisecond, 9800 * time.Millisecond}, {10 * time.Second, 9800 * time.Millisecond}} {
		if !w.see(turn(at, 5), Report{Known: true, Remaining: 5, Reset: step.reset}, at) || !w.end.Equal(at.Add(step.want)) {
			t.Errorf("an answer that says %v: the end is %v away, want %v", step.reset, w.end.Sub(at), step.want)
		}
	}
}

// A refusal that says when to call again is followed, also by a call that was under way when the last stop began.
func TestARefusalDuringAStop(t *testing.T) {
	at := time.Now()
	v := view{line: newLine(), stop: at.Add(time.Second)}
	stop, _ := v.learn(turn(at, 5), Report{Refused: true, RetryAfter: time.Minute}, at, time.Hour)
	if stop != time.Minute || !v.stop.Equal(at.Add(time.Minute)) {
		t.Errorf("stop %v, until %v later, want a minute", stop, v.stop.Sub(at))
	}
	if stop, _ := v.learn(turn(at, 5), Report{Refused: true}, at, time.Hour); stop != 0 || !v.stop.Equal(at.Add(time.Minute)) {
		t.Errorf("a refusal that does not say when: stop %v", stop)
	}
}

// A window that goes on longer than any before has no known end.
func TestAWindowThatEndsLaterThanBefore(t *testing.T) {
	at := time.Now()
	for over, want := range map[time.Duration]bool{100 * time.Millisecond: true, 101 * time.Millisecond: false} {
		w := window{end: at, from: 5, late: 100 * time.Millisecond, seen: true, fixed: true}
		if w.see(turn(at.Add(over), 5), Report{Known: true, Remaining: 5}, at.Add(over)); w.seen != want || !w.past {
			t.Errorf("%v past the end: seen %t, past %t", over, w.seen, w.past)
		}
	}
	w := window{end: at, from: 5, fixed: true}
	if w.see(turn(at.Add(time.Millisecond), 5), Report{Known: true, Remaining: 5}, at.Add(time.Millisecond)); w.seen {
		t.Error("the end of a first window is known before another one has begun")
	}
}
