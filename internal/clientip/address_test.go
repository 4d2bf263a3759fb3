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
		{"An empty string is no address", "", ""},
		{"The name of a Unix socket peer is no address", "@", ""},
		{"The path of a Unix socket is no address", "/run/app.sock", ""},
		{"The unspecified IPv4 address is refused", "0.0.0.0:1234", ""},
		{"The unspecified IPv6 address is refused", "[::]:1234", ""},
		{"The mapped unspecified address is refused", "[::ffff:0.0.0.0]:1234", ""},
		{"A host name is no address", "localhost:1234", ""},
		{"A port alone is no address", ":1234", ""},
		{"Whitespace is not part of a peer", " 192.0.2.1:1234", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, ok := Peer(tt.in)
			tt.check(t, got, ok)
		})
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

		{"An entry of 257 bytes is refused", strings.Repeat(" ", 248) + "192.0.2.1", ""},
		{"An entry of 64 KiB is refused", strings.Repeat("1", 64<<10), ""},
		{"An entry of 1 MiB is refused", "fe80::1%" + strings.Repeat("z", 1<<20), ""},
		{"Port 65536 is none", "192.0.2.1:65536", ""},
		{"A port of six digits is none", "192.0.2.1:000080", ""},
		{"An empty port is none", "192.0.2.1:", ""},
		{"An empty port after brackets is none", "[2001:db8::1]:", ""},
		{"A signed port is none", "192.0.2.1:+80", ""},
		{"A named port is none", "192.0.2.1:http", ""},
		{"An obfuscated port is none", "192.0.2.1:_gazonk", ""},
		{"A port of Arabic digits is none", "192.0.2.1:\u0668\u0660", ""},
		{"A port must follow a colon", "[2001:db8::1]80", ""},
		{"The unspecified IPv4 address is refused", "0.0.0.0", ""},
		{"The unspecified IPv6 address is refused", "::", ""},
		{"The unspecified IPv6 address with a zone is refused", "::%eth0", ""},
		{"The unspecified IPv6 address in full is refused", "[0:0:0:0:0:0:0:0]:80", ""},
		{"The mapped unspecified address is refused", "::ffff:0:0", ""},
		{"Two ports are refused", "[2001:db8::1]:80:80", ""},
		{"Brackets must close", "[2001:db8::1", ""},
		{"Brackets must open", "2001:db8::1]", ""},
		{"Brackets do not nest", "[[2001:db8::1]]", ""},
		{"Empty brackets are refused", "[]", ""},
		{"An opening bracket alone is refused", "[", ""},
		{"IPv4 in brackets is refused", "[192.0.2.1]", ""},
		{"IPv4 with a zone is refused", "192.0.2.1%eth0", ""},
		{"IPv4 with a zone of colons is refused", "192.0.2.1%a:b:c", ""},
		{"An empty zone is refused", "fe80::1%", ""},
		{"An empty string is refused", "", ""},
		{"Whitespace alone is refused", " \t ", ""},
		{"Octal numbers are refused", "0300.0.02.01", ""},
		{"A leading zero is refused", "192.0.2.01", ""},
		{"A leading zero in embedded IPv4 is refused", "::ffff:192.0.2.01", ""},
		{"Hexadecimal IPv4 is refused", "0xc0.0.2.1", ""},
		{"Two-part IPv4 is refused", "127.1", ""},
		{"One-part IPv4 is refused", "3221225985", ""},
		{"Five-part IPv4 is refused", "192.0.2.1.1", ""},
		{"A number above 255 is refused", "192.0.2.256", ""},
		{"An empty part is refused", "192.0..1", ""},
		{"Arabic digits are refused", "\u0661\u0669\u0662.0.2.1", ""},
		{"Fullwidth digits are refused", "\uff11\uff19\uff12.0.2.1", ""},
		{"An ideographic full stop is refused", "192\u30020\u30022\u30021", ""},
		{"Five hexadecimal digits are refused", "2001:db8::00001", ""},
		{"Two double colons are refused", "2001::db8::1", ""},
		{"Nine groups are refused", "1:2:3:4:5:6:7:8:9", ""},
		{"A host name is refused", "localhost", ""},
		{"The unknown identifier is refused", "unknown", ""},
		{"An obfuscated identifier is refused", "_hidden", ""},
		{"A NUL byte is refused", "192.0.2.1\x00", ""},
		{"A line feed is refused", "192.0.2.1\n", ""},
		{"A no-break space is refused", "\u00a0192.0.2.1", ""},
		{"Bytes that are not UTF-8 are refused", "\xff192.0.2.1\xfe", ""},
		{"A list is refused", "192.0.2.1, 192.0.2.2", ""},
		{"Quotes are refused", `"192.0.2.1"`, ""},
		{"A prefix is refused", "192.0.2.0/24", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, ok := Parse(tt.in)
			tt.check(t, got, ok)
		})
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
