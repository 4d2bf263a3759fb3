package ratelimit

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/go-tokenbucket/ratelimit/internal/clientip"
	"github.com/go-tokenbucket/ratelimit/internal/dryrun"
)

// RemoteIP uses the address of the TCP peer. The key is "ip:192.0.2.1", or "ip:2001:db8::/64" for all IPv6 addresses of a
// /64. Behind a proxy the peer is the proxy, so all clients share one bucket: use [ClientIP] there.
//
// Clients cannot forge the address, unless a middleware before the limiter copies a header into Request.RemoteAddr, as
// chi's RealIP does. A peer without an IP address, such as one on a Unix socket, has no key ([ErrNoKey]).
func RemoteIP() KeyFunc { return byAddress("RemoteIP", IPConfig{}) }

// IPConfig defines which proxies and headers [ClientIP] trusts. The zero value trusts none and uses the TCP peer. Set
// at most one of TrustedProxies, ProxyCount and Context. For a table of common proxies, see
// https://github.com/go-tokenbucket/ratelimit/blob/main/docs/client-ip.md.
//
// If the header of a trusted source is absent, the request has no key ([ErrNoKey]), unless a field says otherwise. If
// it has no valid address where the client's belongs, the error is [ErrBadRequest], because clients can send such
// headers.
type IPConfig struct {
	// TrustedProxies are the networks of your proxies, as [ParseNetworks] reads them. If the TCP peer is
	// in one of them, the client is the last address in Header that is in none. Any other peer is the
	// client, and its headers are ignored. A trusted peer that sends no address is the client, as in a
	// proxy's own health checks.
	TrustedProxies []netip.Prefix

	// TrustUnix trusts peers on a Unix socket: their RemoteAddr is "", or starts with "@" or "/". Set it
	// only if no other program can open the socket. It works alone, with Header or EdgeHeader, and
	// beside TrustedProxies. Peers that are not trusted are the client. A peer on the socket that sends
	// no address has no key.
	TrustUnix bool

	// ProxyCount is the number of proxies in front, each of which adds its peer's address to Header. The
	// client is the entry of that number from the right. Use it where the addresses of the proxies are
	// not known, and only if nobody can reach the server around them: such a client chooses its address.
	// A request with fewer entries has no key.
	ProxyCount int

	// Header is the forwarding header that the proxies write: "X-Forwarded-For" or "Forwarded" (RFC
	// 7239). The other one is ignored. Default "X-Forwarded-For".
	Header string

	// EdgeHeader is a header with the client's address alone, such as "CF-Connecting-IP" or "X-Real-IP".
	// Your edge must replace the value that a client sends. Of several lines the last one counts.
	// With TrustedProxies or TrustUnix it is read only from those peers. Without them, set it only if
	// nobody can reach the server around the edge. Do not combine it with ProxyCount or Header.
	EdgeHeader string

	// Context, if set, returns the address that a middleware before the limiter has verified. Nothing
	// else of the request is read. If it returns an invalid or unspecified address, the request has no
	// key. Set no other field with it, except IPv6Bits. For chi's ClientIPFrom… use
	// middleware.GetClientIPAddr.
	Context func(context.Context) netip.Addr

	// IPv6Bits is the length of the prefix that identifies an IPv6 client, from 32 to 128. Default 64,
	// because a client can use any address of its /64.
	IPv6Bits int
}

// ClientIP uses the address of the client behind proxies, in the form of [RemoteIP]. cfg defines which proxies to
// trust.
//
// It reads forwarding headers from the right, up to the client's entry. An entry on the way that is not an address is
// [ErrBadRequest], so a malformed header never leads to the address of another client. ClientIP panics if fields of cfg
// are wrong or contradict each other, and names them.
func ClientIP(cfg IPConfig) KeyFunc { return byAddress("ClientIP", cfg) }

// byAddress is the ClientIP of that name.
func byAddress(name string, cfg IPConfig) KeyFunc {
	model := clientip.Model(cfg)
	if faults := model.Faults(); len(faults) > 0 {
		panic("ratelimit: ClientIP: " + strings.Join(faults.Texts(), "; "))
	}
	bits, find := cmp.Or(cfg.IPv6Bits, 64), model.Finder()
	return func(r *http.Request) (string, error) {
		run := dryrun.OfRequest(r)
		run.Name(name)
		addr, err := find(r)
		if err != nil {
			return "", err
		}
		if run != nil && addr.Is6() && bits < 128 {
			run.Note("the client %v shares the key of its /%d", addr, bits)
		}
		return ipKey(addr, bits), nil
	}
}

// ipKey returns the key for an address. Of IPv6 it keeps bits.
func ipKey(addr netip.Addr, bits int) string {
	key := append(make([]byte, 0, len("ip:")+43), "ip:"...)
	if addr.Is4() || bits == 128 {
		return string(addr.AppendTo(key))
	}
	prefix, _ := addr.Prefix(bits) // clientip.Model.Faults has checked bits
	return string(prefix.AppendTo(key))
}

// maxProxied is the number of charges by address of requests with a forwarding header that are looked at.
const maxProxied = 1000

// proxyDetected is the number that stands for a proxy that was found. The search counts no further than to maxProxied and
// the charges that are looked at by then.
const proxyDetected = 1 << 30

// detectProxy warns, once, that requests come through a proxy and are limited by the proxy's address. All clients then
// share one bucket. It is the most common mistake in the wiring of a limiter. It does not warn of a client that has the
// proxy's own address, such as one on the same machine: ClientIP finds that address in the header.
func (l *Limiter) detectProxy(r *http.Request, c *call) {
	for i := range c.charges {
		address, ok := strings.CutPrefix(c.charges[i].Key, "ip:")
		if !ok || l.proxied.Load() >= maxProxied || !isForwarded(r) {
			continue
		}
		l.proxied.Add(1)
		peer, ok := clientip.Peer(r.RemoteAddr)
		if !ok || !slices.ContainsFunc(PrivateNetworks, func(p netip.Prefix) bool { return p.Contains(peer) }) {
			return // a client that forges the header
		}
		if isOf(address, peer) && !forwardedFrom(r, address) && l.proxied.Swap(proxyDetected) < proxyDetected {
			l.refusals.Warn("ratelimit: all clients of a proxy share one bucket: requests with forwarding headers are limited by the address of their TCP peer; use ClientIP instead of RemoteIP, with the proxy in IPConfig.TrustedProxies and its header in IPConfig.Header",
				slog.String("policy", c.charges[i].Policy),
				slog.String("peer", peer.String()),
			)
		}
	}
}

// isForwarded reports whether r has a forwarding header that is not empty.
func isForwarded(r *http.Request) bool {
	return r.Header.Get("X-Forwarded-For") != "" || r.Header.Get("Forwarded") != ""
}

// everywhere are all networks.
var everywhere = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}

// forwardedFrom reports whether a forwarding header of r begins with an address for which ipKey returns "ip:" and address.
// A header that begins with another one has passed several proxies.
func forwardedFrom(r *http.Request, address string) bool {
	for _, chain := range []clientip.Chain{clientip.XForwardedFor(r.Header["X-Forwarded-For"]), clientip.Forwarded(r.Header["Forwarded"])} {
		if first, _, err := clientip.FromChain(everywhere, chain); err == nil && isOf(address, first) {
			return true
		}
	}
	return false
}

// isOf reports whether ipKey returns "ip:" and address for addr.
func isOf(address string, addr netip.Addr) bool {
	if prefix, err := netip.ParsePrefix(address); err == nil {
		return prefix.Contains(addr)
	}
	return address == addr.String()
}
