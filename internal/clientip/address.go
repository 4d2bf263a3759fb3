package clientip

import (
	"net/netip"
	"strings"
)

// maxEntry is the maximum length of an entry in bytes, with whitespace. The longest address with brackets and a port
// has 53 bytes. The rest leaves room for a zone.
const maxEntry = 256

// Peer returns the address of the TCP peer from [net/http.Request.RemoteAddr]:
// "192.0.2.1:1234", "[2001:db8::1]:1234", or either without a port.
//
// It reports false for anything else, such as the "" and "@" of Unix sockets,
// and for the unspecified addresses.
func Peer(remoteAddr string) (netip.Addr, bool) {
	return parse(remoteAddr)
}

// IsUnix reports whether remoteAddr, of [net/http.Request.RemoteAddr], is from a Unix socket: "", "@", "@name" or a
// path.
func IsUnix(remoteAddr string) bool {
	return remoteAddr == "" || remoteAddr[0] == '@' || remoteAddr[0] == '/'
}

// Parse returns the address in one entry of a forwarding header. The entry is an IPv4 address, with or without a
// port, or an IPv6 address. An IPv6 address may have brackets, and then also a port. Spaces and tabs around the entry
// are ignored.
//
// It reports false for anything else:
//   - host names
//   - the identifiers "unknown" and "_hidden" of RFC 7239 section 6
//   - IPv4 addresses with fewer than four numbers or with leading zeros
//   - ports that are not one to five digits up to 65535
//   - the unspecified addresses
//   - entries of more than 256 bytes
func Parse(s string) (netip.Addr, bool) {
	if len(s) > maxEntry {
		return netip.Addr{}, false
	}
	return parse(trimOWS(s))
}

func parse(s string) (netip.Addr, bool) {
	if strings.HasPrefix(s, "[") {
		return parseBracketed(s)
	}
	i := strings.LastIndexByte(s, ':')
	if i < 0 {
		return parseIPv4(s)
	}
	// Two colons or more mean an IPv6 address. Without brackets it cannot have a port.
	if strings.IndexByte(s[:i], ':') >= 0 {
		return parseIPv6(s)
	}
	if !isPort(s[i+1:]) {
		return netip.Addr{}, false
	}
	return parseIPv4(s[:i])
}

func parseBracketed(s string) (netip.Addr, bool) {
	host, port, ok := strings.Cut(s[1:], "]")
	if !ok || port != "" && (port[0] != ':' || !isPort(port[1:])) {
		return netip.Addr{}, false
	}
	return parseIPv6(host)
}

// parseIPv4 parses s, which has no colon and thus cannot be IPv6.
func parseIPv4(s string) (netip.Addr, bool) {
	addr, err := netip.ParseAddr(s)
	if err != nil || addr.IsUnspecified() {
		return netip.Addr{}, false
	}
	return addr, true
}

func parseIPv6(s string) (netip.Addr, bool) {
	// The zone is removed first, because netip would intern it. That is an allocation for every zone that a client
	// makes up.
	s, zone, zoned := strings.Cut(s, "%")
	if zoned && zone == "" {
		return netip.Addr{}, false
	}
	addr, err := netip.ParseAddr(s)
	if err != nil || !addr.Is6() {
		return netip.Addr{}, false
	}
	return Normalize(addr)
}

// Normalize returns the one form of addr for keys: IPv4 if it is mapped, and without a zone.
//
// It reports false for the zero Addr and for the unspecified addresses.
func Normalize(addr netip.Addr) (netip.Addr, bool) {
	addr = addr.Unmap().WithZone("")
	if !addr.IsValid() || addr.IsUnspecified() {
		return netip.Addr{}, false
	}
	return addr, true
}

func isPort(s string) bool {
	if s == "" || len(s) > 5 {
		return false
	}
	n := 0
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
		n = 10*n + int(s[i]-'0')
	}
	return n <= 65535
}
