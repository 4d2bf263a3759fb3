package skip

import (
	"net/http"
	"net/netip"
	"slices"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/clientip"
)

// IPs exempts requests whose TCP peer is in one of prefixes, such as the network of your monitoring:
//
//	Skip: skip.All(skip.Paths("GET /healthz"), skip.IPs(ratelimit.PrivateNetworks...))
//
// A request with a header that proxies add is not exempt, nor is a peer without an address. Do not pass the network
// of a proxy that adds no header: then everybody behind it is exempt. "Health checks and monitoring" in the package
// comment says more. IPs panics if prefixes is empty, or has one that is invalid or that is of IPv4-mapped
// addresses.
func IPs(prefixes ...netip.Prefix) func(*http.Request) bool {
	return byAddress("IPs", clientip.Model{}, prefixes)
}

// ClientIPs exempts requests of clients in prefixes. It finds the client's address as [ratelimit.ClientIP] does
// with cfg. If cfg trusts too much, a client can exempt itself. With ProxyCount, or with an EdgeHeader from any
// peer, a client that reaches the server without the proxies chooses its own address.
//
// A request is not exempt if its client has no address or a malformed one. It is not exempt if the client is the
// TCP peer and a header shows an unknown proxy. A trusted proxy that adds no header counts as the client: leave its
// network out of prefixes. ClientIPs panics as [IPs] does, and if cfg is contradictory.
func ClientIPs(cfg ratelimit.IPConfig, prefixes ...netip.Prefix) func(*http.Request) bool {
	return byAddress("ClientIPs", clientip.Model(cfg), prefixes)
}

func byAddress(name string, model clientip.Model, prefixes []netip.Prefix) func(*http.Request) bool {
	faults := append(model.Faults(), clientip.PrefixFaults("prefixes", prefixes)...).Texts()
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
		return addr != peer || !clientip.CameThroughProxy(r)
	}
}
