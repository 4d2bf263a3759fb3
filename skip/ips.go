package skip

import (
	"net/http"
	"net/netip"
	"slices"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/clientip"
	"github.com/go-tokenbucket/ratelimit/internal/requestheader"
	"github.com/go-tokenbucket/ratelimit/internal/trust"
)

// IPs exempts, as [ratelimit.Config.Skip], requests whose TCP peer is in one of prefixes, such as those of your
// monitoring:
//
//	Skip: skip.All(skip.Paths("GET /healthz"), skip.IPs(ratelimit.PrivateNetworks...))
//
// Behind a proxy the peer is the proxy, whose address tends to be private, and all the world comes from it.
// So a request with a header that proxies add (X-Forwarded-For, Forwarded, X-Real-IP, Via and the like) is
// never skipped; one who forges such a header is limited, and no more. But not every proxy adds one: nginx
// does only if told, and a load balancer that passes TCP on cannot. Behind such a proxy leave its network
// out of prefixes, or have it add the header; ClientIPs uses the client's address then.
//
// A peer without an address is not skipped. It panics without prefixes, and on one that is invalid or that
// of IPv4-mapped addresses.
func IPs(prefixes ...netip.Prefix) func(*http.Request) bool {
	return byAddress("IPs", trust.Model{}, prefixes)
}

// ClientIPs exempts, as [ratelimit.Config.Skip], requests of clients in prefixes. It finds a client as
// [ratelimit.ClientIP] does with cfg. What cfg believes must be true: with ProxyCount, or with an EdgeHeader from
// anybody, a client that reaches the server around the proxies names its own address, and so exempts itself. And a
// trusted proxy that adds no header is itself the client, so leave its network out of prefixes.
//
// A client that is the TCP peer is not exempt if its request has a header that proxies add, because cfg does not know
// that proxy. A request without an address, or with a malformed one, is not exempt. It panics as IPs does, and on a
// contradictory cfg.
func ClientIPs(cfg ratelimit.IPConfig, prefixes ...netip.Prefix) func(*http.Request) bool {
	return byAddress("ClientIPs", trust.Model(cfg), prefixes)
}

func byAddress(name string, model trust.Model, prefixes []netip.Prefix) func(*http.Request) bool {
	faults := append(model.Faults(), trust.PrefixFaults("prefixes", prefixes)...)
	if len(prefixes) == 0 {
		faults = append(faults, "prefixes: must have at least one, such as ratelimit.PrivateNetworks")
	}
	mustBeFaultless(name, faults)
	prefixes, find := slices.Clone(prefixes), model.Finder()
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

func cameThroughProxy(r *http.Request) bool { return requestheader.HasAny(r, proxyHeaders) }
