package observe

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// A clock that was set back, where time has no monotonic reading, must not silence a key until it is there
// again.
func TestAClockThatGoesBackDoesNotSilenceForLong(t *testing.T) {
	var lines recentLines
	var standIn standInLines
	s := subject{policy: "api", key: 1}
	now := time.Unix(1_800_000_000, 0)
	lines.due(now, s)
	standIn.due(now, true)
	for _, back := range []time.Duration{30 * time.Second, time.Hour, 24 * 365 * time.Hour} {
		begin := now.Add(-back)
		silent := time.Duration(0)
		for ; silent <= 3*time.Minute; silent += time.Second {
			if _, _, due := lines.due(begin.Add(silent), s); due {
				break
			}
		}
		if silent > 2*time.Minute {
			t.Errorf("after the clock went back by %v, it is silent for %v", back, silent)
		}
		now = begin.Add(silent)
	}
	now = time.Unix(1_700_000_000, 0)
	if _, due := standIn.due(now, false); !due {
		t.Error("the end of a stand-in is silent")
	}
	if _, due := standIn.due(now.Add(-time.Hour), true); !due {
		t.Error("the begin of a stand-in is silent")
	}
}

// What has no line is counted by a line that comes, or by one that may.
func TestEveryDenialIsLoggedOrCountedOnceInBoundedSpace(t *testing.T) {
	var lines recentLines
	random := rand.New(rand.NewPCG(1, 2))
	now := time.Unix(1_800_000_000, 0)
	last := make(map[subject]time.Time)
	var told, counted int64
	for range 50_000 {
		now = now.Add(time.Duration(random.ExpFloat64() * float64(20*time.Millisecond)))
		s := subject{
			kind:   kindOfLine(random.IntN(2)),
			policy: fmt.Sprint(min(int(random.ExpFloat64()*9), 200)),
			key:    uint64(random.ExpFloat64()*2000) + 1,
		}
		told++
		as, since, due := lines.due(now, s)
		if due {
			counted += 1 + since
			if before, again := last[as]; again && now.Sub(before) < time.Minute {
				t.Fatalf("%+v has a second line after %v", as, now.Sub(before))
			}
			last[as] = now
			if as.kind != s.kind || as.policy != s.policy && as.policy != "" {
				t.Fatalf("%+v has a line as %+v", s, as)
			}
		}
		if len(lines.keys) > maxLoggedKeys || len(lines.others) > maxLoggedPolicies+3 {
			t.Fatalf("%d keys, %d others", len(lines.keys), len(lines.others))
		}
	}
	for _, known := range []map[subject]*lastLine{lines.keys, lines.others} {
		for _, l := range known {
			counted += l.since
		}
	}
	if counted != told {
		t.Errorf("%d denials are counted, of %d", counted, told)
	}
	if len(lines.others) < maxLoggedPolicies {
		t.Errorf("only %d policies share lines: the test asks too little", len(lines.others))
	}
}
