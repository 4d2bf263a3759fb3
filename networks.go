package ratelimit

import (
	"fmt"
	"net/netip"
	"strings"
	"unicode"
)

// PrivateNetworks are the networks that no host on the Internet has: private (RFC 1918, RFC 4193), shared behind a
// provider's NAT (RFC 6598), link-local and loopback. Use them with [github.com/go-tokenbucket/ratelimit/skip.IPs].
// Use them as [IPConfig.TrustedProxies] only if all clients in these networks are proxies. Any other client there
// could choose its address.
var PrivateNetworks = []netip.Prefix{
	netip.MustParsePrefix("10.0.0.0/8"),
	netip.MustParsePrefix("172.16.0.0/12"),
	netip.MustParsePrefix("192.168.0.0/16"),
	netip.MustParsePrefix("100.64.0.0/10"),
	netip.MustParsePrefix("169.254.0.0/16"),
	netip.MustParsePrefix("127.0.0.0/8"),
	netip.MustParsePrefix("fc00::/7"),
	netip.MustParsePrefix("fe80::/10"),
	netip.MustParsePrefix("::1/128"),
}

// ParseNetworks returns the networks in lists, for [IPConfig.TrustedProxies] and package skip. A list has networks, such as
// 10.0.0.0/8, and addresses, separated by commas or white space. The word loopback stands for 127.0.0.0/8 and ::1, the
// addresses of a proxy on the same machine. Without an entry, ParseNetworks returns none.
//
//	TrustedProxies: ratelimit.Must(ratelimit.ParseNetworks("10.0.1.0/24 10.0.2.7")),
func ParseNetworks(lists ...string) (networks []netip.Prefix, err error) {
	for _, list := range lists {
		for _, entry := range strings.FieldsFunc(list, func(c rune) bool { return c == ',' || unicode.IsSpace(c) }) {
			if entry == "loopback" {
				networks = append(networks, netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128"))
				continue
			}
			network, ok := parseNetwork(entry)
			if !ok {
				return nil, fmt.Errorf("ratelimit: ParseNetworks: %.64q: must be like 10.0.0.0/8, 192.0.2.7, 2001:db8::/32 or loopback", entry)
			}
			networks = append(networks, network)
		}
	}
	return networks, nil
}

// parseNetwork returns a network, or that of one address. Addresses of clients have no zone, and are never IPv4-mapped.
func parseNetwork(text string) (netip.Prefix, bool) {
	network, err := netip.ParsePrefix(text)
	if addr, noAddr := netip.ParseAddr(text); noAddr == nil && addr.Zone() == "" {
		network, err = netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	return network, err == nil && !network.Addr().Is4In6()
}
