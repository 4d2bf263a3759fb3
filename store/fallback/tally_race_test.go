package fallback

import "testing"

// A caller that found the primary present comes to count its failure when others have had it given up.
func TestNoFailureCountsFromWhenThePrimaryIsGivenUpUntilItIsBack(t *testing.T) {
	c := tally{most: 5}
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
