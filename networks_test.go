package ratelimit_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/go-tokenbucket/ratelimit"
)

func TestParseNetworks(t *testing.T) {
	for _, tt := range []struct {
		lists []string
		want  string
	}{
		{nil, "[]"},
		{[]string{" \n,, "}, "[]"},
		{[]string{"10.0.0.0/8"}, "[10.0.0.0/8]"},
		{[]string{"10.0.1.0/24, 10.0.2.7\n2001:db8::/32\t2001:db8:1::7"}, "[10.0.1.0/24 10.0.2.7/32 2001:db8::/32 2001:db8:1::7/128]"},
		{[]string{"loopback", "10.0.0.7"}, "[127.0.0.0/8 ::1/128 10.0.0.7/32]"},
	} {
		networks, err := ratelimit.ParseNetworks(tt.lists...)
		if got := fmt.Sprint(networks); got != tt.want || err != nil {
			t.Errorf("%q: got %s, error %v; want %s", tt.lists, got, err, tt.want)
		}
	}
	for _, wrong := range []string{
		"10.0.0.0/33", "10.0.0", "::ffff:10.0.0.0/104", "::ffff:10.0.0.7", "fe80::1%eth0", "fe80::%eth0/64", "Loopback", "10.0.0.1;10.0.0.2", "10.0.0.1:80",
	} {
		networks, err := ratelimit.ParseNetworks("10.0.0.7", "10.0.0.8 "+wrong)
		if networks != nil || err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%q: must be like", wrong)) {
			t.Errorf("%q: got %v, error %v", wrong, networks, err)
		}
	}
}
