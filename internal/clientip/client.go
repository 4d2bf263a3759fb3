package clientip

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
)

// ErrAbsent and ErrInvalid are the reasons for a missing client address. With ErrAbsent, the request has no address.
// With ErrInvalid, the entry in the place of the client's address is not an address. Do not confuse them: a client
// behind a proxy can make a header invalid, but cannot remove the proxy's entry.
var (
	ErrAbsent  = errors.New("clientip: no address")
	ErrInvalid = errors.New("clientip: not an address")
)

// FromTrusted returns the address of a client behind proxies with known addresses. A peer outside trusted is itself
// the client, regardless of its headers. Otherwise chain, from [XForwardedFor] or [Forwarded], is read from the
// right. The first entry outside trusted is the client. If all entries are within trusted, the client is the leftmost
// one, or the peer if there are none. read is how many entries were read.
//
// The error is ErrAbsent if the peer is not an address, and ErrInvalid if the entry that decides is not one. List
// IPv4 networks in trusted as IPv4: prefixes of IPv4-mapped IPv6 addresses match nothing.
func FromTrusted(peer netip.Addr, trusted []netip.Prefix, chain Chain) (client netip.Addr, read int, err error) {
	peer, ok := Normalize(peer)
	if !ok {
		return netip.Addr{}, 0, ErrAbsent
	}
	if !within(trusted, peer) {
		return peer, 0, nil
	}
	client, read, err = FromChain(trusted, chain)
	if err == ErrAbsent {
		return peer, 0, nil
	}
	return client, read, err
}

// FromChain returns the address of a client behind a trusted TCP peer without an address that counts, such as a proxy
// on a Unix socket. The results are the same as from FromTrusted, but ErrAbsent if chain has no entries.
func FromChain(trusted []netip.Prefix, chain Chain) (client netip.Addr, read int, err error) {
	err = ErrAbsent
	for addr, ok := range chain.all {
		read++
		if !ok {
			return netip.Addr{}, read, ErrInvalid
		}
		client, err = addr, nil
		if !within(trusted, client) {
			break
		}
	}
	return client, read, err
}

func within(prefixes []netip.Prefix, addr netip.Addr) bool {
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// FromCount returns the address of a client behind exactly n proxies that append the address of their peer to the
// header. It is the n-th entry from the right of chain, from [XForwardedFor] or [Forwarded]. With n = 1 it is the
// last entry, which our TCP peer wrote. read is how many entries were read.
//
// The error is ErrInvalid if one of the last n entries is not an address. Otherwise it is ErrAbsent if there are
// fewer than n entries, or n < 1. Clients that can reach the server without a proxy can choose their address.
func FromCount(n int, chain Chain) (client netip.Addr, read int, err error) {
	if n < 1 {
		return netip.Addr{}, 0, ErrAbsent
	}
	for addr, ok := range chain.all {
		read++
		if !ok {
			return netip.Addr{}, read, ErrInvalid
		}
		if read == n {
			return addr, read, nil
		}
	}
	return netip.Addr{}, read, ErrAbsent
}

// FromEdge returns the address in a header that a trusted edge sets, such as CF-Connecting-IP or X-Real-IP. [Parse]
// reads it. If there are several lines, the last one counts.
//
// The error is ErrAbsent if there is no line. It is ErrInvalid if the last line is anything but one address, such as
// a list. Clients can choose their address if they can reach the server without the edge, or if the edge passes on a
// header that they sent.
func FromEdge(lines []string) (netip.Addr, error) {
	if len(lines) == 0 {
		return netip.Addr{}, ErrAbsent
	}
	line := lines[len(lines)-1]
	// A zone may contain anything, so Parse alone would read "fe80::1%a, 192.0.2.1" as one address.
	if strings.Contains(line, ",") {
		return netip.Addr{}, ErrInvalid
	}
	addr, ok := Parse(line)
	if !ok {
		return netip.Addr{}, ErrInvalid
	}
	return addr, nil
}
