package ratelimit

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"net/textproto"
	"slices"
	"strings"

	"github.com/go-tokenbucket/ratelimit/internal/clientip"
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

// ClientIP is the address of the client behind proxies, as RemoteIP writes it. What follows from a malformed header
// is ErrBadRequest, never another client's address: the walk from the right ends at the first entry that is not an
// address. It panics on a contradictory cfg, naming each field at fault.
func ClientIP(cfg IPConfig) KeyFunc {
	mustBeFaultless("ClientIP", cfg.faults())
	bits, find := cmp.Or(cfg.IPv6Bits, 64), cfg.finder()
	return func(r *http.Request) (string, error) {
		addr, err := find(r)
		if err != nil {
			return "", err
		}
		return ipKey(addr, bits), nil
	}
}

func (cfg IPConfig) faults() (faults []string) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	faults = prefixFaults("TrustedProxies", cfg.TrustedProxies)
	if cfg.ProxyCount < 0 || cfg.ProxyCount > clientip.MaxElements {
		fault("ProxyCount %d: must be from 0 to %d", cfg.ProxyCount, clientip.MaxElements)
	}
	if len(cfg.TrustedProxies) > 0 && cfg.ProxyCount != 0 {
		fault("ProxyCount: must not be set together with TrustedProxies")
	}
	if cfg.TrustUnix && cfg.ProxyCount != 0 {
		fault("ProxyCount: must not be set together with TrustUnix: it believes every peer")
	}
	switch textproto.CanonicalMIMEHeaderKey(cfg.Header) {
	case "":
	case "X-Forwarded-For", "Forwarded":
		if len(cfg.TrustedProxies) == 0 && !cfg.TrustUnix && cfg.ProxyCount == 0 && cfg.EdgeHeader == "" && cfg.Context == nil {
			fault("Header %q: must come with TrustedProxies, TrustUnix or ProxyCount, or nobody is believed", cfg.Header)
		}
	default:
		fault(`Header %q: must be "X-Forwarded-For" or "Forwarded"; for a single address use EdgeHeader`, cfg.Header)
	}
	if cfg.EdgeHeader != "" && !isHeaderName(cfg.EdgeHeader) {
		fault("EdgeHeader %q: must be the name of a request header", cfg.EdgeHeader)
	}
	if cfg.EdgeHeader != "" && (cfg.ProxyCount != 0 || cfg.Header != "") {
		fault("EdgeHeader: must not be set together with ProxyCount or Header")
	}
	if cfg.Context != nil && (len(cfg.TrustedProxies) > 0 || cfg.TrustUnix || cfg.ProxyCount != 0 || cfg.Header != "" || cfg.EdgeHeader != "") {
		fault("Context: must not be set together with TrustedProxies, TrustUnix, ProxyCount, Header or EdgeHeader")
	}
	if cfg.IPv6Bits != 0 && (cfg.IPv6Bits < 32 || cfg.IPv6Bits > 128) {
		fault("IPv6Bits %d: must be from 32 to 128", cfg.IPv6Bits)
	}
	return faults
}

// mustBeFaultless panics if there are faults in the arguments of a function.
func mustBeFaultless(name string, faults []string) {
	if len(faults) > 0 {
		panic("ratelimit: " + name + ": " + strings.Join(faults, "; "))
	}
}

// prefixFaults returns what keeps prefixes from matching addresses, which are never IPv4-mapped here.
func prefixFaults(field string, prefixes []netip.Prefix) (faults []string) {
	for _, p := range prefixes {
		if !p.IsValid() {
			faults = append(faults, field+": holds an invalid prefix: must be like 10.0.0.0/8")
		} else if p.Addr().Is4In6() {
			faults = append(faults, fmt.Sprintf("%s: %v: must be written as IPv4", field, p))
		}
	}
	return faults
}

var (
	errNoPeer        = fixed(ErrNoKey, "the TCP peer has no IP address")
	errUnixPeer      = fixed(ErrNoKey, "the TCP peer is a unix socket: set IPConfig.TrustUnix")
	errNoneInContext = fixed(ErrNoKey, "IPConfig.Context returned no address")
)

// peerOf returns the address of r's TCP peer.
func peerOf(r *http.Request) (netip.Addr, error) {
	if peer, ok := clientip.Peer(r.RemoteAddr); ok {
		return peer, nil
	}
	if clientip.IsUnix(r.RemoteAddr) {
		return netip.Addr{}, errUnixPeer
	}
	return netip.Addr{}, errNoPeer
}

// A finder returns the address of a request's client. Its errors are those of a KeyFunc.
type finder func(*http.Request) (netip.Addr, error)

// finder returns how the client's address is found, under the trust model of cfg.
func (cfg IPConfig) finder() finder {
	trusted := append([]netip.Prefix(nil), cfg.TrustedProxies...)
	edge := textproto.CanonicalMIMEHeaderKey(cfg.EdgeHeader)
	chain := chainOf(cfg.Header)
	explain := explainer(cmp.Or(edge, textproto.CanonicalMIMEHeaderKey(cfg.Header), "X-Forwarded-For"))
	fromEdge := func(r *http.Request) (netip.Addr, error) { return explain(clientip.FromEdge(r.Header[edge])) }
	switch {
	case cfg.Context != nil:
		return func(r *http.Request) (netip.Addr, error) {
			if addr, ok := clientip.Normalize(cfg.Context(r.Context())); ok {
				return addr, nil
			}
			return netip.Addr{}, errNoneInContext
		}
	case cfg.ProxyCount > 0:
		return func(r *http.Request) (netip.Addr, error) {
			return explain(clientip.FromCount(cfg.ProxyCount, chain(r)))
		}
	case edge != "" && len(trusted) == 0 && !cfg.TrustUnix:
		return fromEdge
	case len(trusted) == 0 && !cfg.TrustUnix:
		return peerOf
	}
	return func(r *http.Request) (netip.Addr, error) {
		if cfg.TrustUnix && clientip.IsUnix(r.RemoteAddr) {
			if edge != "" {
				return fromEdge(r)
			}
			return explain(clientip.FromChain(trusted, chain(r)))
		}
		peer, err := peerOf(r)
		if err != nil || !slices.ContainsFunc(trusted, func(p netip.Prefix) bool { return p.Contains(peer) }) {
			return peer, err
		}
		if edge != "" {
			return fromEdge(r)
		}
		return explain(clientip.FromTrusted(peer, trusted, chain(r)))
	}
}

// explainer returns a function that says of which header an error of package clientip is.
func explainer(header string) func(netip.Addr, error) (netip.Addr, error) {
	absent := fixed(ErrNoKey, "no address of the client in %s", header)
	invalid := fixed(ErrBadRequest, "%s does not hold an address where the client's should be", header)
	return func(addr netip.Addr, err error) (netip.Addr, error) {
		switch err {
		case nil:
			return addr, nil
		case clientip.ErrAbsent:
			return netip.Addr{}, absent
		default:
			return netip.Addr{}, invalid
		}
	}
}

func chainOf(header string) func(*http.Request) clientip.Chain {
	if textproto.CanonicalMIMEHeaderKey(header) == "Forwarded" {
		return func(r *http.Request) clientip.Chain { return clientip.Forwarded(r.Header["Forwarded"]) }
	}
	return func(r *http.Request) clientip.Chain { return clientip.XForwardedFor(r.Header["X-Forwarded-For"]) }
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
