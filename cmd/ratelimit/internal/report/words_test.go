package report

import (
	"strings"
	"testing"
)

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

// A key that is cut shows its end, however long it is.
func TestKeysAreCutInTheMiddle(t *testing.T) {
	for got, want := range map[string]string{
		key("ip:192.0.2.1", 12):                                    "ip:192.0.2.1",
		key("ip:2001:db8:7:1::/64", 12):                            "ip:200…::/64",
		key(strings.Repeat("x", 9000)+":member:4711", 20):          "xxxxxxxxxx…mber:4711",
		key(strings.Repeat("日本", 9000)+"\x1bé", 11):                "日本…\\x1bé",
		strings.Join(Wrap("deny "+"1234567890123456, x", 11), "|"): "deny|12345…3456,|x",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
