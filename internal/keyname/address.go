package keyname

import (
	"net/netip"
	"strings"
)

// AddressFault says why a key of the kind ip is none that requests have: one address of IPv4, or the network of a client with
// IPv6. It is "" for other keys. Where IPv6 counts by single addresses, which is rare, it is wrong about these.
func AddressFault(key string) string {
	text, ok := strings.CutPrefix(key, "ip:")
	if !ok {
		return ""
	}
	addr, err := netip.ParseAddr(text)
	network, notNetwork := netip.ParsePrefix(text)
	switch {
	case err == nil && addr.Is4():
		return ""
	case err == nil && addr.Is4In6():
		return "Did you mean ip:" + addr.Unmap().WithZone("").String() + "?"
	case err == nil:
		network, _ = addr.WithZone("").Prefix(64)
		return "Clients with IPv6 share the key of their network. Did you mean ip:" + network.String() + "?"
	case notNetwork != nil:
		return "It has no valid address."
	case network.Addr().Is4():
		return "Each address of IPv4 has a key of its own, and a network has none."
	case network.Masked().String() != text:
		return "Did you mean ip:" + network.Masked().String() + "?"
	}
	return ""
}
