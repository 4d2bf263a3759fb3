package clientip

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
)

// ErrAbsent and ErrInvalid are why there is no address of a client. Either the
// request says nothing about it, or what it says where the client's address
// should be is not an address. They must not be confused: a client behind a
// proxy can make a header invalid, but cannot take the proxy's entry away.
var (
	ErrAbsent  = errors.New("clientip: no address")
	ErrInvalid = errors.New("clientip: not an address")
)

// FromTrusted returns the address of a client behind proxies with known
// addresses. A peer outside trusted is itself the client, whatever headers it
// sends. Otherwise chain, from [XForwardedFor] or [Forwarded], is followed past
// the entries within trusted; the first one outside is the client. If all are
// within, the last one is, which is the furthest from here, and the peer if
// there are none.
//
// The error is ErrAbsent if the peer is not an address, and ErrInvalid if the
// entry that decides is not one. List IPv4 networks in trusted as such:
// prefixes of IPv4-mapped IPv6 addresses match nothing.
func FromTrusted(peer netip.Addr, trusted []netip.Prefix, chain Chain) (netip.Addr, error) {
	peer, ok := Normalize(peer)
	if !ok {
		return netip.Addr{}, ErrAbsent
	}
	if !within(trusted, peer) {
		return peer, nil
	}
	client, err := FromChain(trusted, chain)
	if err == ErrAbsent {
		return peer, nil
	}
	return client, err
}

// FromChain returns the address of a client whose TCP peer is trusted and has
// no address that counts, such as a proxy on a Unix socket: what FromTrusted
// returns, but ErrAbsent if chain has no entries.
func FromChain(trusted []netip.Prefix, chain Chain) (client netip.Addr, err error) {
	err = ErrAbsent
	for addr, ok := range chain.all {
		if !ok {
			return netip.Addr{}, ErrInvalid
		}
		client, err = addr, nil
		if !within(trusted, client) {
			break
		}
	}
	return client, err
}

func within(prefixes []netip.Prefix, addr netip.Addr) bool {
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// FromCount returns the address of a client behind exactly n proxies, each of
// which appends the address of its peer to the header: the n-th entry of chain,
// from [XForwardedFor] or [Forwarded]. With n = 1 that is the last entry of the
// header, written by the proxy that is our TCP peer.
//
// The error is ErrInvalid if one of the last n entries is not an address, and
// else ErrAbsent if there are fewer than n, or n < 1. If clients can reach the
// server past a proxy, they choose their address.
func FromCount(n int, chain Chain) (netip.Addr, error) {
	if n < 1 {
		return netip.Addr{}, ErrAbsent
	}
	for addr, ok := range chain.all {
		if !ok {
			return netip.Addr{}, ErrInvalid
		}
		if n--; n == 0 {
			return addr, nil
		}
	}
	return netip.Addr{}, ErrAbsent
}

// FromEdge returns the address in a header that a trusted edge sets to the
// address of the client, such as CF-Connecting-IP or X-Real-IP, as [Parse]
// reads it. If there are several lines, the last one counts.
//
// The error is ErrAbsent if there is no line, and ErrInvalid if the last one is
// anything but one address, such as a list. If clients can reach the server past
// the edge, or if the edge lets their header pass, they choose their address.
func FromEdge(lines []string) (netip.Addr, error) {
	if len(lines) == 0 {
		return netip.Addr{}, ErrAbsent
	}
	line := lines[len(lines)-1]
	// A zone may contain anything, so that Parse alone would take
	// "fe80::1%a, 192.0.2.1" for one address.
	if strings.Contains(line, ",") {
		return netip.Addr{}, ErrInvalid
	}
	addr, ok := Parse(line)
	if !ok {
		return netip.Addr{}, ErrInvalid
	}
	return addr, nil
}
