package clientip

import (
	"net/netip"
	"strings"
	"testing"
)

// checkFound expects the address want, or if that is "absent" or "invalid" the
// error.
func checkFound(t *testing.T, got netip.Addr, err error, want string) {
	t.Helper()
	found := got.String()
	switch err {
	case nil:
	case ErrAbsent:
		found = "absent"
	case ErrInvalid:
		found = "invalid"
	default:
		found = err.Error()
	}
	if found != want || err != nil && got.IsValid() {
		t.Errorf("got %v, %v; want %s", got, err, want)
	}
}

func TestFromTrusted(t *testing.T) {
	const ours = "10.0.0.0/8 2001:db8:1::/48"
	for _, tt := range []struct {
		name, peer, trusted string
		lines               []string
		want                string
	}{
		{"An untrusted peer is the client", "192.0.2.1", ours, []string{"198.51.100.1"}, "192.0.2.1"},
		{"Nobody is trusted by default", "10.0.0.1", "", []string{"198.51.100.1"}, "10.0.0.1"},
		{"A peer without a header is the client", "10.0.0.1", ours, nil, "10.0.0.1"},
		{"A peer with an empty header is the client", "10.0.0.1", ours, []string{"", " ,"}, "10.0.0.1"},
		{"The first untrusted entry is the client", "10.0.0.1", ours, []string{"198.51.100.1, 192.0.2.1, 10.0.0.2"}, "192.0.2.1"},
		{"A forged trusted entry does not help", "10.0.0.1", ours, []string{"10.9.9.9, 192.0.2.1"}, "192.0.2.1"},
		{"A forged line does not help", "10.0.0.1", ours, []string{"198.51.100.1", "192.0.2.1"}, "192.0.2.1"},
		{"A forged garbage entry does not help", "10.0.0.1", ours, []string{"evil, 192.0.2.1"}, "192.0.2.1"},
		{"IPv6 proxies are skipped", "2001:db8:1::1", ours, []string{"192.0.2.1, 2001:db8:1::2"}, "192.0.2.1"},
		{"A client may have IPv6", "10.0.0.1", ours, []string{"2001:db8:2::1"}, "2001:db8:2::1"},
		{"The furthest of trusted entries is the client", "10.0.0.1", ours, []string{"10.0.0.3", "10.0.0.2"}, "10.0.0.3"},
		{"An invalid entry ends the walk", "10.0.0.1", ours, []string{"192.0.2.1, unknown, 10.0.0.2"}, "invalid"},
		{"An invalid entry ends the walk across lines", "10.0.0.1", ours, []string{"192.0.2.1", "unknown"}, "invalid"},
		{"A mapped peer matches IPv4 prefixes", "::ffff:10.0.0.1", ours, []string{"192.0.2.1"}, "192.0.2.1"},
		{"A mapped entry matches IPv4 prefixes", "10.0.0.1", ours, []string{"192.0.2.1, ::ffff:10.0.0.2"}, "192.0.2.1"},
		{"The zone of a peer does not matter", "fe80::1%eth0", "fe80::/10", []string{"192.0.2.1"}, "192.0.2.1"},
		{"The zone of an entry does not matter", "10.0.0.1", ours + " fe80::/10", []string{"192.0.2.1, fe80::1%eth0"}, "192.0.2.1"},
		{"A client keeps no zone", "fe80::1%eth0", ours, nil, "fe80::1"},
		{"A mapped prefix matches nothing", "10.0.0.1", "::ffff:0:0/96", []string{"192.0.2.1"}, "10.0.0.1"},
		{"All IPv6 does not include IPv4", "10.0.0.1", "::/0", []string{"192.0.2.1"}, "10.0.0.1"},
		{"An invalid prefix matches nothing", "10.0.0.1", "invalid", []string{"192.0.2.1"}, "10.0.0.1"},
		{"An invalid peer is no client", "", ours, []string{"192.0.2.1"}, "absent"},
		{"An unspecified peer is no client", "0.0.0.0", "0.0.0.0/0", []string{"192.0.2.1"}, "absent"},
		{"A mapped unspecified peer is no client", "::ffff:0.0.0.0", ours, []string{"192.0.2.1"}, "absent"},
		{"64 trusted entries are skipped", "10.0.0.1", ours, append([]string{"192.0.2.1"}, repeatLine("10.0.0.2", 63)...), "192.0.2.1"},
		{"65 trusted entries are too many", "10.0.0.1", ours, repeatLine("10.0.0.2", 65), "invalid"},
		{"1 MiB of trusted entries is too much", "10.0.0.1", ours, []string{strings.Repeat("10.0.0.2,", 1<<20/9)}, "invalid"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			peer, _ := netip.ParseAddr(tt.peer)
			var trusted []netip.Prefix
			for s := range strings.FieldsSeq(tt.trusted) {
				p, _ := netip.ParsePrefix(s)
				trusted = append(trusted, p)
			}
			got, _, err := FromTrusted(peer, trusted, XForwardedFor(tt.lines))
			checkFound(t, got, err, tt.want)
		})
	}
}

func TestFromTrustedWithForwarded(t *testing.T) {
	peer, trusted := netip.MustParseAddr("10.0.0.1"), []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	got, _, err := FromTrusted(peer, trusted, Forwarded([]string{`for="`, `for="[2001:db8::1]:80", for=10.0.0.2`}))
	checkFound(t, got, err, "2001:db8::1")
}

func TestFromChain(t *testing.T) {
	trusted := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	for _, tt := range []struct {
		name    string
		trusted []netip.Prefix
		lines   []string
		want    string
	}{
		{"The last entry is the client", nil, []string{"198.51.100.1, 192.0.2.1"}, "192.0.2.1"},
		{"The first untrusted entry is the client", trusted, []string{"198.51.100.1, 192.0.2.1, 10.0.0.2"}, "192.0.2.1"},
		{"The furthest of trusted entries is the client", trusted, []string{"10.0.0.3, 10.0.0.2"}, "10.0.0.3"},
		{"No line", trusted, nil, "absent"},
		{"No entries", trusted, []string{"", " ,"}, "absent"},
		{"An invalid entry", trusted, []string{"192.0.2.1, unknown"}, "invalid"},
		{"An invalid entry beyond a trusted one", trusted, []string{"unknown, 10.0.0.2"}, "invalid"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, _, err := FromChain(tt.trusted, XForwardedFor(tt.lines))
			checkFound(t, got, err, tt.want)
		})
	}
}

func TestFromCount(t *testing.T) {
	for _, tt := range []struct {
		name  string
		n     int
		lines []string
		want  string
	}{
		{"One proxy wrote the last entry", 1, []string{"198.51.100.1, 192.0.2.1"}, "192.0.2.1"},
		{"Two proxies wrote the last two entries", 2, []string{"198.51.100.1, 192.0.2.1, 10.0.0.1"}, "192.0.2.1"},
		{"Entries are counted across lines", 2, []string{"198.51.100.1", "192.0.2.1", "10.0.0.1"}, "192.0.2.1"},
		{"Empty elements do not count", 2, []string{"192.0.2.1,, ,10.0.0.1,"}, "192.0.2.1"},
		{"Fewer entries than proxies are refused", 3, []string{"192.0.2.1, 10.0.0.1"}, "absent"},
		{"No entries are refused", 1, nil, "absent"},
		{"An invalid entry is refused", 1, []string{"192.0.2.1, unknown"}, "invalid"},
		{"An invalid entry of a nearer proxy is refused", 2, []string{"192.0.2.1, unknown"}, "invalid"},
		{"An invalid entry is refused where others are missing", 3, []string{"192.0.2.1, unknown"}, "invalid"},
		{"An invalid entry beyond does not matter", 1, []string{"unknown, 192.0.2.1"}, "192.0.2.1"},
		{"No proxies are refused", 0, []string{"192.0.2.1"}, "absent"},
		{"A negative number is refused", -1, []string{"192.0.2.1"}, "absent"},
		{"64 proxies are possible", 64, repeatLine("192.0.2.1", 64), "192.0.2.1"},
		{"65 proxies are too many", 65, repeatLine("192.0.2.1", 65), "invalid"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, _, err := FromCount(tt.n, XForwardedFor(tt.lines))
			checkFound(t, got, err, tt.want)
		})
	}
}

func TestFromEdge(t *testing.T) {
	for _, tt := range []struct {
		name  string
		lines []string
		want  string
	}{
		{"One line is the address", []string{"192.0.2.1"}, "192.0.2.1"},
		{"IPv6 is accepted", []string{"2001:db8::1"}, "2001:db8::1"},
		{"A port is dropped", []string{"[2001:db8::1]:80"}, "2001:db8::1"},
		{"Mapped IPv4 is unmapped", []string{"::ffff:192.0.2.1"}, "192.0.2.1"},
		{"The last line counts", []string{"198.51.100.1", "192.0.2.1"}, "192.0.2.1"},
		{"No line is refused", nil, "absent"},
		{"An empty line is refused", []string{""}, "invalid"},
		{"An empty last line is refused", []string{"192.0.2.1", ""}, "invalid"},
		{"An invalid last line is refused", []string{"192.0.2.1", "unknown"}, "invalid"},
		{"A list is refused", []string{"192.0.2.1, 192.0.2.2"}, "invalid"},
		{"A list that starts with a zone is refused", []string{"fe80::1%a, 192.0.2.1"}, "invalid"},
		{"A list of one is refused", []string{"192.0.2.1,"}, "invalid"},
		{"The unspecified address is refused", []string{"::"}, "invalid"},
		{"A line of 1 MiB is refused", []string{strings.Repeat(" ", 1<<20) + "192.0.2.1"}, "invalid"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := FromEdge(tt.lines)
			checkFound(t, got, err, tt.want)
		})
	}
}

var sink netip.Addr

func BenchmarkPeer(b *testing.B) {
	for _, bm := range []struct{ name, remoteAddr string }{
		{"IPv4", "203.0.113.195:54321"},
		{"IPv6", "[2001:db8:85a3:8d3:1319:8a2e:370:7348]:54321"},
		{"Zone", "[fe80::1cc0:3e8c:119f:c2e1%eth0]:54321"},
	} {
		b.Run(bm.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				sink, _ = Peer(bm.remoteAddr)
			}
		})
		b.Run(bm.name+"ByParseAddrPort", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				addr, _ := netip.ParseAddrPort(bm.remoteAddr)
				sink = addr.Addr().Unmap().WithZone("")
			}
		})
	}
}

func BenchmarkFromTrusted(b *testing.B) {
	peer := netip.MustParseAddr("10.0.0.1")
	trusted := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	for _, bm := range []struct {
		name  string
		chain Chain
	}{
		{"XForwardedFor", XForwardedFor([]string{"192.0.2.1, 203.0.113.195, 10.0.0.7"})},
		{"Forwarded", Forwarded([]string{`for=192.0.2.1, for="203.0.113.195:80";proto=https, for=10.0.0.7`})},
		{"XForwardedFor1MiB", XForwardedFor([]string{strings.Repeat("10.0.0.2,", 1<<20/9)})},
		{"Forwarded8KiBOfCommas", Forwarded([]string{strings.Repeat(",", 8<<10)})},
		{"Forwarded8KiB", Forwarded([]string{strings.Repeat("for=10.0.0.2,", 8<<10/13)})},
	} {
		b.Run(bm.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				sink, _, _ = FromTrusted(peer, trusted, bm.chain)
			}
		})
	}
}
