package distinct_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/go-tokenbucket/ratelimit/internal/distinct"
)

func sketch(name string, keys int) *distinct.Sketch {
	s := new(distinct.Sketch)
	for i := range keys {
		s.Add(distinct.Hash(fmt.Sprintf("%s:%d", name, i)))
	}
	return s
}

func TestTheCountIsWithinTheStatedError(t *testing.T) {
	for keys, most := range map[int]float64{0: 0, 1: 0, 10: 0.1, 1000: 0.065, 100_000: 0.065} {
		const sketches = 40
		square := 0.0
		for i := range sketches {
			s := sketch(fmt.Sprint("ip ", i), keys)
			off := float64(s.Count()-keys) / max(1, float64(keys))
			if math.Abs(off) > 4*most {
				t.Errorf("%d keys: the count is %d", keys, s.Count())
			}
			square += off * off
		}
		// 1.3: of 40 samples, the error itself is known to a ninth
		if got := math.Sqrt(square / sketches); got > 1.3*most {
			t.Errorf("%d keys: a standard error of %.3f, want %.3f", keys, got, most)
		} else {
			t.Logf("%d keys: a standard error of %.3f", keys, got)
		}
	}
}

func TestAKeyCountsOnce(t *testing.T) {
	s := new(distinct.Sketch)
	for range 1000 {
		s.Add(distinct.Hash("ip:192.0.2.1"))
	}
	if got := s.Count(); got != 1 {
		t.Errorf("the count is %d", got)
	}
}

func TestMergedSketchesCountTheUnion(t *testing.T) {
	all, both, other := sketch("a", 3000), sketch("a", 2000), sketch("a", 3000)
	both.Merge(other)
	if *both != *all {
		t.Errorf("the count is %d, want %d", both.Count(), all.Count())
	}
	both.Merge(sketch("b", 3000))
	if got := both.Count(); got < 4500 || got > 7500 {
		t.Errorf("the count of 6000 is %d", got)
	}
	if both.Merge(new(distinct.Sketch)); both.Count() < 4500 {
		t.Errorf("an empty sketch takes keys away")
	}
}

// A replica of another version must be able to merge: the hash and the text do not change.
func TestTheTextDoesNotChange(t *testing.T) {
	if got, want := distinct.Hash("ip:192.0.2.1"), uint64(0x68916d30bf682853); got != want {
		t.Errorf("the hash is %#x, want %#x", got, want)
	}
	s := new(distinct.Sketch)
	for _, hash := range []uint64{0, 1<<56 | 1<<55, 2<<56 | 1, 255 << 56} {
		s.Add(hash)
	}
	want := "5B4" + strings.Repeat("A", 252) + "5"
	if got := s.String(); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestParseRefuses(t *testing.T) {
	of := strings.Repeat("A", 256)
	for name, text := range map[string]string{
		"nothing": "", "short": of[1:], "long": of + "A", "above the highest rank": "6" + of[1:], "no digit": "=" + of[1:],
		"base64 of files": "+" + of[1:], "not ASCII": "é" + of[2:], "a space": " " + of[1:],
	} {
		if s, err := distinct.Parse(text); err == nil || s != nil {
			t.Errorf("%s: got %v", name, s)
		}
	}
}

// No text makes a count that overflows: not that of the highest ranks either.
func TestACountIsBounded(t *testing.T) {
	s, err := distinct.Parse(strings.Repeat("5", 256))
	if err != nil || s.Count() != math.MaxInt32 {
		t.Errorf("got %v, %v", s, err)
	}
}

func FuzzParse(f *testing.F) {
	f.Fuzz(func(t *testing.T, text string) {
		s, err := distinct.Parse(text)
		if err != nil {
			return
		}
		if got := s.String(); got != text {
			t.Errorf("%q becomes %q", text, got)
		}
		count := s.Count()
		if count < 0 || count > math.MaxInt32 {
			t.Errorf("%q: the count is %d", text, count)
		}
		s.Merge(sketch("ip", 100))
		if merged := s.Count(); float64(merged) < 0.7*float64(count) { // estimates by two formulas
			t.Errorf("%q: the count is %d, and %d with more keys", text, count, merged)
		}
	})
}
