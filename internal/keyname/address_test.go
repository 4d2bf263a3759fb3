package keyname_test

import (
	"strings"
	"testing"

	"github.com/go-tokenbucket/ratelimit/internal/keyname"
)

func TestAddressFault(t *testing.T) {
	for key, want := range map[string]string{
		"ip:203.0.113.66": "", "ip:2001:db8::/64": "", "ip:2001:db8::/56": "", "member:5": "", "203.0.113.66": "",
		"ip:203.0.113.66 ":           "no valid address",
		"ip:203.0.113.66:1234":       "no valid address",
		"ip:203.0.113.066":           "no valid address",
		"ip:203.0.113.0/24":          "a network has none",
		"ip:::ffff:203.0.113.66":     "mean ip:203.0.113.66?",
		"ip:2001:db8::1":             "mean ip:2001:db8::/64?",
		"ip:fe80::1%eth0":            "mean ip:fe80::/64?",
		"ip:2001:DB8::/64":           "mean ip:2001:db8::/64?",
		"ip:2001:db8::1/64":          "mean ip:2001:db8::/64?",
		"ip:2001:db8:0:0:0:0:0:0/64": "mean ip:2001:db8::/64?",
	} {
		if got := keyname.AddressFault(key); got == "" != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%q: %q, want %q", key, got, want)
		}
	}
}
