package clientip

import (
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// addressTest expects the address want, or none if want is "".
type addressTest struct {
	name, in, want string
}

func (tt addressTest) check(t *testing.T, got netip.Addr, ok bool) {
	t.Helper()
	want, _ := netip.ParseAddr(tt.want)
	if got != want || ok != (tt.want != "") {
		t.Errorf("%.80q: got %v, %t; want %v, %t", tt.in, got, ok, want, tt.want != "")
	}
}

func TestPeer(t *testing.T) {
	for _, tt := range []addressTest{
		{"An IPv4 peer has a port", "192.0.2.1:1234", "192.0.2.1"},
		{"An IPv6 peer has brackets and a port", "[2001:db8::1]:1234", "2001:db8::1"},
		{"A zone is dropped", "[fe80::1%eth0]:1234", "fe80::1"},
		{"A mapped peer of a dual-stack listener is IPv4", "[::ffff:192.0.2.1]:1234", "192.0.2.1"},
		{"A bare IPv4 address is accepted", "192.0.2.1", "192.0.2.1"},
		{"A bare IPv6 address is accepted", "2001:db8::1", "2001:db8::1"},
	} {
		got, ok := Peer(tt.in)
		tt.check(t, got, ok)
	}
	for _, in := range []string{
		"", "localhost:1234", ":1234", " 192.0.2.1:1234",
		"@", "/run/app.sock", // a Unix socket
		"0.0.0.0:1234", "[::]:1234", "[::ffff:0.0.0.0]:1234", // the unspecified address
	} {
		if got, ok := Peer(in); ok {
			t.Errorf("%q: got %v, want none", in, got)
		}
	}
}

func TestParse(t *testing.T) {
	for _, tt := range []addressTest{
		{"IPv4 is accepted", "192.0.2.1", "192.0.2.1"},
		{"IPv4 with a port is accepted", "192.0.2.1:1234", "192.0.2.1"},
		{"IPv6 is accepted", "2001:db8::1", "2001:db8::1"},
		{"IPv6 in brackets is accepted", "[2001:db8::1]", "2001:db8::1"},
		{"IPv6 in brackets with a port is accepted", "[2001:db8::1]:4711", "2001:db8::1"},
		{"Upper case makes the same address", "2001:DB8::A", "2001:db8::a"},
		{"Leading zeros of a group make the same address", "2001:0db8:0000::0001", "2001:db8::1"},
		{"Mapped IPv4 is unmapped", "::ffff:192.0.2.1", "192.0.2.1"},
		{"Mapped IPv4 in hexadecimal is unmapped", "::ffff:c000:201", "192.0.2.1"},
		{"Mapped IPv4 in brackets with a port is unmapped", "[::ffff:192.0.2.1]:80", "192.0.2.1"},
		{"Mapped IPv4 with a zone is unmapped", "::ffff:192.0.2.1%eth0", "192.0.2.1"},
		{"IPv6 with embedded IPv4 stays IPv6", "64:ff9b::192.0.2.1", "64:ff9b::c000:201"},
		{"A zone is dropped", "fe80::1%eth0", "fe80::1"},
		{"A zone with a comma is dropped", "fe80::1%a,b", "fe80::1"},
		{"A zone with a percent sign is dropped", "fe80::1%25eth0%x", "fe80::1"},
		{"A zone with colons is dropped", "fe80::1%a:b:c", "fe80::1"},
		{"A zone of control bytes is dropped", "fe80::1%\x00\x01", "fe80::1"},
		{"A zone of 200 bytes is dropped", "fe80::1%" + strings.Repeat("z", 200), "fe80::1"},
		{"Spaces and tabs around are ignored", " \t192.0.2.1\t ", "192.0.2.1"},
		{"Port 0 is a port", "192.0.2.1:0", "192.0.2.1"},
		{"Port 65535 is a port", "192.0.2.1:65535", "192.0.2.1"},
		{"A port may have leading zeros", "192.0.2.1:00080", "192.0.2.1"},
		{"An entry of 256 bytes is read", strings.Repeat(" ", 247) + "192.0.2.1", "192.0.2.1"},
	} {
		got, ok := Parse(tt.in)
		tt.check(t, got, ok)
	}
	for _, in := range []string{
		// too long: 257 bytes, 64 KiB and 1 MiB
		strings.Repeat(" ", 248) + "192.0.2.1", strings.Repeat("1", 64<<10), "fe80::1%" + strings.Repeat("z", 1<<20),
		// no ports
		"192.0.2.1:65536", "192.0.2.1:000080", "192.0.2.1:", "[2001:db8::1]:", "192.0.2.1:+80", "192.0.2.1:http", "192.0.2.1:_gazonk",
		"192.0.2.1:\u0668\u0660", "[2001:db8::1]80", "[2001:db8::1]:80:80",
		// the unspecified address
		"0.0.0.0", "::", "::%eth0", "[0:0:0:0:0:0:0:0]:80", "::ffff:0:0",
		// brackets and zones
		"[2001:db8::1", "2001:db8::1]", "[[2001:db8::1]]", "[]", "[", "[192.0.2.1]", "192.0.2.1%eth0", "192.0.2.1%a:b:c", "fe80::1%",
		// numbers: octal, hexadecimal, of too few or too many parts, and in other digits
		"0300.0.02.01", "192.0.2.01", "::ffff:192.0.2.01", "0xc0.0.2.1", "127.1", "3221225985", "192.0.2.1.1", "192.0.2.256", "192.0..1",
		"\u0661\u0669\u0662.0.2.1", "\uff11\uff19\uff12.0.2.1", "192\u30020\u30022\u30021", "2001:db8::00001", "2001::db8::1", "1:2:3:4:5:6:7:8:9",
		// no addresses
		"", " \t ", "localhost", "unknown", "_hidden", "192.0.2.1, 192.0.2.2", `"192.0.2.1"`, "192.0.2.0/24",
		"192.0.2.1\x00", "192.0.2.1\n", "\u00a0192.0.2.1", "\xff192.0.2.1\xfe",
	} {
		if got, ok := Parse(in); ok {
			t.Errorf("%.80q: got %v, want none", in, got)
		}
	}
}

func TestThatZonesCostNothing(t *testing.T) {
	const s = "[fe80::1%a zone that nothing else has]:80"
	if n := testing.AllocsPerRun(100, func() { Parse(s) }); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

func FuzzParse(f *testing.F) {
	f.Fuzz(func(t *testing.T, s string) {
		got, ok := Parse(s)
		if want, wantOK := slowParse(s); got != want || ok != wantOK {
			t.Fatalf("Parse(%q) = %v, %t; want %v, %t", s, got, ok, want, wantOK)
		}
		if !ok {
			return
		}
		if !got.IsValid() || got.IsUnspecified() || got.Is4In6() || got.Zone() != "" {
			t.Errorf("Parse(%q) = %v", s, got)
		}
		if again, ok := Parse(got.String()); again != got || !ok {
			t.Errorf("Parse(%q) = %v, but of that it is %v", s, got, again)
		}
		if peer, ok := Peer(strings.Trim(s, " \t")); peer != got || !ok {
			t.Errorf("Parse(%q) = %v, but Peer is %v", s, got, peer)
		}
	})
}

var (
	slowNodeRE = regexp.MustCompile(`^(?:([0-9.]+)|\[([^]]*)\])(?::([0-9]{1,5}))?$`)
)

// slowParse is Parse by way of regular expressions and all of netip.
func slowParse(s string) (netip.Addr, bool) {
	if len(s) > 256 {
		return netip.Addr{}, false
	}
	s = strings.Trim(s, " \t")
	if s == "" || s[0] == '[' || strings.Count(s, ":") < 2 {
		return slowParseNode(s)
	}
	return slowParseAddr(s)
}

func slowParseNode(s string) (netip.Addr, bool) {
	m := slowNodeRE.FindStringSubmatch(s)
	if m == nil {
		return netip.Addr{}, false
	}
	if port, err := strconv.Atoi("0" + m[3]); err != nil || port > 65535 {
		return netip.Addr{}, false
	}
	if m[2] != "" && !strings.Contains(m[2], ":") {
		return netip.Addr{}, false
	}
	return slowParseAddr(m[1] + m[2])
}

func slowParseAddr(s string) (netip.Addr, bool) {
	addr, err := netip.ParseAddr(s)
	addr = addr.WithZone("").Unmap()
	if err != nil || addr == netip.IPv4Unspecified() || addr == netip.IPv6Unspecified() {
		return netip.Addr{}, false
	}
	return addr, true
}
