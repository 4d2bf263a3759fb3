package clientip

import (
	"net/netip"
	"slices"
	"strings"
)

// FromTrusted returns the address of a client behind proxies with known
// addresses. A peer outside trusted is itself the client, whatever headers it
// sends. Otherwise chain, from [XForwardedFor] or [Forwarded], is followed past
// the entries within trusted; the first one outside is the client. If all are
// within, the last one is, which is the furthest from here, and the peer if
// there are none.
//
// It reports false if the peer or the entry that decides is not an address.
// List IPv4 networks in trusted as such: prefixes of IPv4-mapped IPv6 addresses
// match nothing.
func FromTrusted(peer netip.Addr, trusted []netip.Prefix, chain Chain) (netip.Addr, bool) {
	client, ok := Normalize(peer)
	if !ok || !within(trusted, client) {
		return client, ok
	}
	for addr, ok := range chain.all {
		if !ok {
			return netip.Addr{}, false
		}
		client = addr
		if !within(trusted, client) {
			break
		}
	}
	return client, true
}

func within(prefixes []netip.Prefix, addr netip.Addr) bool {
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// FromCount returns the address of a client behind exactly n proxies, each of
// which appends the address of its peer to the header: the n-th entry of chain,
// from [XForwardedFor] or [Forwarded]. With n = 1 that is the last entry of the
// header, written by the proxy that is our TCP peer.
//
// It reports false if there are fewer than n entries, if one of the n is not an
// address, and if n < 1. If clients can reach the server past a proxy, they
// choose their address.
func FromCount(n int, chain Chain) (netip.Addr, bool) {
	if n < 1 {
		return netip.Addr{}, false
	}
	for addr, ok := range chain.all {
		if n--; n == 0 || !ok {
			return addr, ok
		}
	}
	return netip.Addr{}, false
}

// FromEdge returns the address in a header that a trusted edge sets to the
// address of the client, such as CF-Connecting-IP or X-Real-IP, as [Parse]
// reads it. If there are several lines, the last one counts.
//
// It reports false if there is no line, or if the last one is anything but one
// address, such as a list. If clients can reach the server past the edge, or if
// the edge lets their header pass, they choose their address.
func FromEdge(lines []string) (netip.Addr, bool) {
	if len(lines) == 0 {
		return netip.Addr{}, false
	}
	line := lines[len(lines)-1]
	// A zone may contain anything, so that Parse alone would take
	// "fe80::1%a, 192.0.2.1" for one address.
	if strings.Contains(line, ",") {
		return netip.Addr{}, false
	}
	return Parse(line)
}
