package report

import "testing"

func TestShare(t *testing.T) {
	for got, want := range map[string]string{
		"none " + share(0, 7): "none 0 %", "of none " + share(0, 0): "of none 0 %", share(7, 7): "100 %",
		share(1, 1e6): "<0.01 %", share(2, 3): "67 %", share(999_999, 1e6): ">99.9 %",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
