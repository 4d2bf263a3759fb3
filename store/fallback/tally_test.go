package fallback

import (
	"testing"
	"testing/synctest"
	"time"
)

// A caller that found the primary present comes to count its failure when others have had it given up.
func TestNoFailureCountsFromWhenThePrimaryIsGivenUpUntilItIsBack(t *testing.T) {
	c := tally{maxFailures: 5}
	for range 4 {
		c.failed(1)
	}
	if _, tooMany := c.failed(1); !tooMany {
		t.Fatal("five failures are not too many")
	}
	for range 10 {
		if counts, tooMany := c.failed(1); counts || tooMany {
			t.Fatal("a failure counts although the primary is given up")
		}
	}
	c.reopen(100)
	if counts, _ := c.failed(99); counts {
		t.Error("a call counts that was sent before the return")
	}
	for n := range 5 {
		if counts, tooMany := c.failed(100); !counts || tooMany != (n == 4) {
			t.Errorf("failure %d after the return: counts %t, too many %t", n+1, counts, tooMany)
		}
	}
}

// A fifth of the calls that took the time of a server is too many, and a little less is not.
func TestAFifthOfTheCallsIsTooMany(t *testing.T) {
	for well, want := range map[int]bool{20: true, 21: false} {
		for took, counts := range map[int64]bool{instant: true, instant - 1: false} {
			c := tally{maxFailures: 5}
			c.failed(1)
			for range well {
				c.succeeded(took)
			}
			tooMany := false
			for range 4 {
				_, tooMany = c.failed(1)
			}
			if tooMany != (want || !counts) {
				t.Errorf("5 failures of %d, the others in %d µs: too many %t", 5+well, took, tooMany)
			}
		}
	}
}

func TestSilenceOfATenthOfASecondIsTooLong(t *testing.T) {
	for silent, want := range map[time.Duration]bool{silence: true, silence - 1: false} {
		synctest.Test(t, func(t *testing.T) {
			c := tally{maxFailures: 5}
			c.failed(1)
			time.Sleep(silence) // the next success ends the row
			for range 100 {
				c.succeeded(instant)
			}
			for range 4 {
				c.failed(1)
			}
			time.Sleep(silent)
			if _, tooMany := c.failed(1); tooMany != want {
				t.Errorf("5 failures in a row for %v: too many %t", silent, tooMany)
			}
		})
	}
}
