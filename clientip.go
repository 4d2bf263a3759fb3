package ratelimit

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/go-tokenbucket/ratelimit/internal/clientip"

	"github.com/go-tokenbucket/ratelimit/internal/trust"
)

// RemoteIP is the address of the TCP peer, as "ip:192.0.2.1" or "ip:2001:db8::/64". It cannot be forged,
// unless a middleware before it overwrites Request.RemoteAddr by a header, as chi's RealIP does. Behind a
// proxy it is the proxy's: use ClientIP there. No key: the peer has no IP address, but a Unix socket for example.
func RemoteIP() KeyFunc { return ClientIP(IPConfig{}) }

// IPConfig says whom ClientIP believes about the client's address. Set at most one of TrustedProxies,
// ProxyCount and Context; the zero value believes nobody and takes the TCP peer.
//
// A header that is absent is no key (ErrNoKey). One that is there and holds no address where the client's should be
// is ErrBadRequest, which Policy.Optional and FirstOf do not pass over: clients can make a header malformed at will.
type IPConfig struct {
	// TrustedProxies are the networks of your proxies. If the TCP peer is one of them, the client is the
	// last address in Header that is not; a peer that is not is the client itself, whatever its
	// headers say. Without an address in Header a trusted peer is the client itself, as in a proxy's own
	// health checks.
	//
	//	TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	TrustedProxies []netip.Prefix

	// TrustUnix trusts peers on a Unix socket as well, whose RemoteAddr is "", or starts with "@" or "/". It may stand
	// alone, with Header or EdgeHeader, or beside TrustedProxies: peers that are neither are the client itself. No
	// key: such a peer sends no address in the header. Set it only if nobody but the proxy can open the socket. With
	// nginx in front:
	//
	//	location / {
	//		proxy_pass http://unix:/run/app.sock;
	//		proxy_set_header X-Forwarded-For $remote_addr;
	//	}
	TrustUnix bool

	// ProxyCount is how many proxies stand in front, each of which adds its peer's address to Header: the
	// client is the entry of that number from the right. Use it where the proxies' addresses are not
	// known, and only if nobody can reach the server around them. No key: there are fewer entries.
	ProxyCount int

	// Header is the forwarding header that the proxies write: "X-Forwarded-For", the default, or
	// "Forwarded" (RFC 7239). The other one is ignored.
	Header string

	// EdgeHeader, if set, is a header that your edge sets to the client's address alone, replacing what
	// the client sent, such as "CF-Connecting-IP" or "X-Real-IP"; of several lines the last counts. With
	// TrustedProxies or TrustUnix it is read only from those peers. Without, set it only if nobody can reach the
	// server around the edge. No key: it is absent. ErrBadRequest: it is not an address. Do not set it together with
	// ProxyCount or Header.
	EdgeHeader string

	// Context, if set, returns the address that a middleware before the limiter has verified, and the rest
	// of the request is not looked at. No key: it returns no valid address, or an unspecified one. Do not
	// set it together with TrustedProxies, TrustUnix, ProxyCount, Header or EdgeHeader. For chi's ClientIPFrom…:
	//
	//	Context: middleware.GetClientIPAddr
	//
	// Unlike TrustedProxies, chi's ClientIPFromXFF finds no address where all are those of trusted proxies, as
	// in their own health checks, and chi reads no header that gives a port with the address.
	Context func(context.Context) netip.Addr

	// IPv6Bits is the length of the prefix by which IPv6 clients are told apart, from 32 to 128; default
	// 64, the least that a client can pick its addresses from.
	IPv6Bits int
}

// PrivateNetworks are the networks whose addresses nobody has on the Internet: the private ones (RFC 1918,
// and RFC 4193 for IPv6), those shared behind a provider's NAT (RFC 6598), link-local ones and the loopback
// interface's. They are for skip.IPs, and for IPConfig.TrustedProxies where nobody but proxies comes from
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

// ClientIP is the address of the client behind proxies, as RemoteIP writes it. What follows from a malformed header
// is ErrBadRequest, never another client's address: the walk from the right ends at the first entry that is not an
// address. It panics on a contradictory cfg, naming each field at fault.
func ClientIP(cfg IPConfig) KeyFunc {
	model := trust.Model(cfg)
	if faults := model.Faults(); len(faults) > 0 {
		panic("ratelimit: ClientIP: " + strings.Join(faults, "; "))
	}
	bits, find := cmp.Or(cfg.IPv6Bits, 64), model.Finder()
	return func(r *http.Request) (string, error) {
		addr, err := find(r)
		if err != nil {
			return "", err
		}
		return ipKey(addr, bits), nil
	}
}

// ipKey writes an address as a key, with IPv6 cut to bits.
func ipKey(addr netip.Addr, bits int) string {
	key := append(make([]byte, 0, len("ip:")+43), "ip:"...)
	if addr.Is4() || bits == 128 {
		return string(addr.AppendTo(key))
	}
	prefix, _ := addr.Prefix(bits) // IPConfig.faults has checked bits
	return string(prefix.AppendTo(key))
}

// A proxyWatch notices, once, that requests come through a proxy and are limited by its address, so that all clients
// share one bucket: the most common mistake in the wiring of a limiter.
type proxyWatch struct {
	proxied atomic.Int32 // requests with a forwarding header
	warned  atomic.Bool
}

// maxProxied is after how many requests with a forwarding header nobody looks any more.
const maxProxied = 1000

// look returns the policy that counts all clients of a proxy as one, and the proxy's address, if that is noticed now.
func (w *proxyWatch) look(r *http.Request, c *call) (policy string, proxy netip.Addr, found bool) {
	if len(c.charges) == 0 || w.proxied.Load() >= maxProxied || !forwards(r, "X-Forwarded-For") && !forwards(r, "Forwarded") {
		return "", netip.Addr{}, false
	}
	w.proxied.Add(1)
	peer, ok := clientip.Peer(r.RemoteAddr)
	if !ok || !slices.ContainsFunc(PrivateNetworks, func(p netip.Prefix) bool { return p.Contains(peer) }) {
		return "", netip.Addr{}, false // a client that forges the header
	}
	for i := range c.charges {
		if isKeyOf(c.charges[i].Key, peer) && w.warned.CompareAndSwap(false, true) {
			w.proxied.Store(maxProxied)
			return c.charges[i].Policy, peer, true
		}
	}
	return "", netip.Addr{}, false
}

// forwards reports whether r has a header of that name, in canonical form, which is not empty.
func forwards(r *http.Request, name string) bool {
	values := r.Header[name]
	return len(values) > 0 && values[0] != ""
}

// isKeyOf reports whether key is one that ipKey writes for addr.
func isKeyOf(key string, addr netip.Addr) bool {
	text, ok := strings.CutPrefix(key, "ip:")
	if !ok {
		return false
	}
	if prefix, err := netip.ParsePrefix(text); err == nil {
		return prefix.Contains(addr)
	}
	return text == addr.String()
}

func (l *Limiter) warnOfProxy(policy string, proxy netip.Addr) {
	l.refusals.Warn("ratelimit: all clients of a proxy share one bucket: requests with forwarding headers are limited by the address of their TCP peer; use ClientIP instead of RemoteIP, with the proxy in IPConfig.TrustedProxies",
		slog.String("policy", policy),
		slog.String("peer", proxy.String()),
	)
}
