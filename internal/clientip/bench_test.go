package clientip

import (
	"net/netip"
	"strings"
	"testing"
)

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
