package testbuild

import "testing"

func TestFlags(t *testing.T) {
	if got := len(Flags()) == 1; got != raceEnabled {
		t.Errorf("flags %q, and the race detector on: %t", Flags(), raceEnabled)
	}
}
