package ratelimit

import (
	"net/http"
	"net/netip"
	"slices"

	"github.com/go-tokenbucket/ratelimit/internal/clientip"
)

// PrivateNetworks are the networks whose addresses nobody has on the Internet: the private ones (RFC 1918,
// and RFC 4193 for IPv6), those shared behind a provider's NAT (RFC 6598), link-local ones and the loopback
// interface's. They are for SkipIPs, and for IPConfig.TrustedProxies where nobody but proxies comes from
// them: whoever else does could then choose its address.
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

// SkipIPs exempts, as Config.Skip, requests whose TCP peer is in one of prefixes, such as those of your
// monitoring:
//
//	Skip: ratelimit.SkipAll(ratelimit.SkipPaths("GET /healthz"), ratelimit.SkipIPs(ratelimit.PrivateNetworks...))
//
// Behind a proxy the peer is the proxy, whose address tends to be private, and all the world comes from it.
// So a request with a header that proxies add (X-Forwarded-For, Forwarded, X-Real-IP, Via and the like) is
// never skipped; one who forges such a header is limited, and no more. But not every proxy adds one: nginx
// does only if told, and a load balancer that passes TCP on cannot. Behind such a proxy leave its network
// out of prefixes, or have it add the header; IPConfig.SkipIPs goes by the client's address then.
//
// A peer without an address is not skipped. It panics without prefixes, and on one that is invalid or that
// of IPv4-mapped addresses.
func SkipIPs(prefixes ...netip.Prefix) func(*http.Request) bool {
	return skipIPs("SkipIPs", IPConfig{}, prefixes)
}

// SkipIPs exempts, as Config.Skip, requests of clients in prefixes. It finds a client as ClientIP(cfg) does,
// from no header that a client can forge. What is said at the function SkipIPs holds here, too, for a
// client that is the TCP peer: with a header that proxies add, it is not skipped, since that proxy is none
// that cfg knows. A request without an address, or with a malformed one, is not skipped. It panics on a
// contradictory cfg, too.
func (cfg IPConfig) SkipIPs(prefixes ...netip.Prefix) func(*http.Request) bool {
	return skipIPs("IPConfig.SkipIPs", cfg, prefixes)
}

func skipIPs(name string, cfg IPConfig, prefixes []netip.Prefix) func(*http.Request) bool {
	faults := append(cfg.faults(), prefixFaults("prefixes", prefixes)...)
	if len(prefixes) == 0 {
		faults = append(faults, "prefixes: must have at least one, such as PrivateNetworks")
	}
	mustBeFaultless(name, faults)
	prefixes, find := slices.Clone(prefixes), cfg.finder()
	return func(r *http.Request) bool {
		addr, err := find(r)
		if err != nil || !slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(addr) }) {
			return false
		}
		peer, _ := clientip.Peer(r.RemoteAddr)
		return addr != peer || !cameThroughProxy(r)
	}
}

// proxyHeaders are what tells that a request came through a proxy.
var proxyHeaders = []string{
	"X-Forwarded-For", "Forwarded", "X-Real-Ip", "Via", "X-Forwarded-Proto", "X-Forwarded-Host",
	"Cf-Connecting-Ip", "True-Client-Ip", "X-Client-Ip", "X-Cluster-Client-Ip",
}

func cameThroughProxy(r *http.Request) bool { return hasAny(r, proxyHeaders) }
