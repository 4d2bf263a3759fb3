package clientip

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"net/textproto"
	"slices"
	"strconv"

	"github.com/go-tokenbucket/ratelimit/internal/dryrun"
	"github.com/go-tokenbucket/ratelimit/internal/failure"
	"github.com/go-tokenbucket/ratelimit/internal/fault"
	"github.com/go-tokenbucket/ratelimit/internal/requestheader"
)

// A Model says which information about the client's address is trusted. It is IPConfig of package ratelimit, which
// documents it.
type Model struct {
	TrustedProxies []netip.Prefix
	TrustUnix      bool
	ProxyCount     int
	Header         string
	EdgeHeader     string
	Context        func(context.Context) netip.Addr
	IPv6Bits       int
}

// Faults returns the contradictions in m.
func (m Model) Faults() fault.Faults {
	faults := PrefixFaults("TrustedProxies", m.TrustedProxies)
	wrong := func(field, value, text string) {
		faults = append(faults, fault.Fault{Field: field, Value: value, Text: text})
	}
	if m.ProxyCount < 0 || m.ProxyCount > MaxElements {
		wrong("ProxyCount", strconv.Itoa(m.ProxyCount), fmt.Sprintf("must be from 0 to %d", MaxElements))
	}
	if len(m.TrustedProxies) > 0 && m.ProxyCount != 0 {
		wrong("ProxyCount", "", "must not be set together with TrustedProxies")
	}
	if m.TrustUnix && m.ProxyCount != 0 {
		wrong("ProxyCount", "", "must not be set together with TrustUnix: it believes every peer")
	}
	switch textproto.CanonicalMIMEHeaderKey(m.Header) {
	case "":
	case "X-Forwarded-For", "Forwarded":
		if len(m.TrustedProxies) == 0 && !m.TrustUnix && m.ProxyCount == 0 && m.EdgeHeader == "" && m.Context == nil {
			wrong("Header", strconv.Quote(m.Header), "must come with TrustedProxies, TrustUnix or ProxyCount, or nobody is believed")
		}
	default:
		wrong("Header", strconv.Quote(m.Header), `must be "X-Forwarded-For" or "Forwarded"; for a single address use EdgeHeader`)
	}
	if m.EdgeHeader != "" && !requestheader.IsName(m.EdgeHeader) {
		wrong("EdgeHeader", strconv.Quote(m.EdgeHeader), "must be the name of a request header")
	}
	if m.EdgeHeader != "" && (m.ProxyCount != 0 || m.Header != "") {
		wrong("EdgeHeader", "", "must not be set together with ProxyCount or Header")
	}
	if m.Context != nil && (len(m.TrustedProxies) > 0 || m.TrustUnix || m.ProxyCount != 0 || m.Header != "" || m.EdgeHeader != "") {
		wrong("Context", "", "must not be set together with TrustedProxies, TrustUnix, ProxyCount, Header or EdgeHeader")
	}
	if m.IPv6Bits != 0 && (m.IPv6Bits < 32 || m.IPv6Bits > 128) {
		wrong("IPv6Bits", strconv.Itoa(m.IPv6Bits), "must be from 32 to 128")
	}
	return faults
}

// PrefixFaults returns the prefixes that match no address, because addresses are never IPv4-mapped here.
func PrefixFaults(field string, prefixes []netip.Prefix) (faults fault.Faults) {
	for _, p := range prefixes {
		if !p.IsValid() {
			faults = append(faults, fault.Fault{Field: field, Text: "holds an invalid prefix: must be like 10.0.0.0/8"})
		} else if p.Addr().Is4In6() {
			faults = append(faults, fault.Fault{Field: field, Text: fmt.Sprintf("%v: must be written as IPv4", p)})
		}
	}
	return faults
}

var (
	errNoPeer        = failure.New(failure.ErrNoKey, "the TCP peer has no IP address")
	errUnixPeer      = failure.New(failure.ErrNoKey, "the TCP peer is a unix socket: set IPConfig.TrustUnix")
	errNoneInContext = failure.New(failure.ErrNoKey, "IPConfig.Context returned no address")
)

// peerOf returns the address of r's TCP peer.
func peerOf(r *http.Request) (netip.Addr, error) {
	if peer, ok := Peer(r.RemoteAddr); ok {
		return peer, nil
	}
	if IsUnix(r.RemoteAddr) {
		return netip.Addr{}, errUnixPeer
	}
	return netip.Addr{}, errNoPeer
}

// A Finder returns the address of a request's client. Its errors are those of a KeyFunc.
type Finder func(*http.Request) (netip.Addr, error)

// Finder returns the function that finds the client's address under m.
func (m Model) Finder() Finder {
	trusted := append([]netip.Prefix(nil), m.TrustedProxies...)
	edge := textproto.CanonicalMIMEHeaderKey(m.EdgeHeader)
	chain := chainOf(m.Header)
	header := cmp.Or(edge, textproto.CanonicalMIMEHeaderKey(m.Header), "X-Forwarded-For")
	explain := explainer(header)
	notes := notes{trusted: trusted, count: m.ProxyCount, header: header, unix: m.TrustUnix}
	fromEdge := func(r *http.Request) (netip.Addr, error) {
		addr, err := FromEdge(r.Header[edge])
		if run := dryrun.OfRequest(r); run != nil {
			notes.ofEdge(run, r, err)
		}
		return explain(addr, err)
	}
	switch {
	case m.Context != nil:
		return func(r *http.Request) (netip.Addr, error) {
			found := m.Context(r.Context())
			addr, ok := Normalize(found)
			if run := dryrun.OfRequest(r); run != nil {
				noteContext(run, r, found, ok)
			}
			if ok {
				return addr, nil
			}
			return netip.Addr{}, errNoneInContext
		}
	case m.ProxyCount > 0:
		return func(r *http.Request) (netip.Addr, error) {
			addr, read, err := FromCount(m.ProxyCount, chain(r))
			if run := dryrun.OfRequest(r); run != nil {
				notes.ofChain(run, r, chain(r), addr, read, err)
			}
			return explain(addr, err)
		}
	case edge != "" && len(trusted) == 0 && !m.TrustUnix:
		return fromEdge
	case len(trusted) == 0 && !m.TrustUnix:
		return func(r *http.Request) (netip.Addr, error) {
			peer, err := peerOf(r)
			if run := dryrun.OfRequest(r); run != nil {
				notes.ofPeer(run, r, peer, err)
			}
			return peer, err
		}
	}
	return func(r *http.Request) (netip.Addr, error) {
		run := dryrun.OfRequest(r)
		if m.TrustUnix && IsUnix(r.RemoteAddr) {
			if run != nil {
				run.Note("the TCP peer is a Unix socket, which TrustUnix trusts")
			}
			if edge != "" {
				return fromEdge(r)
			}
			addr, read, err := FromChain(trusted, chain(r))
			if run != nil {
				notes.ofChain(run, r, chain(r), addr, read, err)
			}
			return explain(addr, err)
		}
		peer, err := peerOf(r)
		if err != nil || !slices.ContainsFunc(trusted, func(p netip.Prefix) bool { return p.Contains(peer) }) {
			if run != nil {
				notes.ofPeer(run, r, peer, err)
			}
			return peer, err
		}
		if run != nil {
			run.Note("the TCP peer %v is in %v of TrustedProxies", peer, notes.networkOf(peer))
		}
		if edge != "" {
			return fromEdge(r)
		}
		addr, read, err := FromTrusted(peer, trusted, chain(r))
		if run != nil {
			notes.ofChain(run, r, chain(r), addr, read, err)
		}
		return explain(addr, err)
	}
}

// explainer returns a function that adds the name of header to an error of package clientip.
func explainer(header string) func(netip.Addr, error) (netip.Addr, error) {
	absent := failure.New(failure.ErrNoKey, "no address of the client in %s", header)
	invalid := failure.New(failure.ErrBadRequest, "%s does not hold an address where the client's should be", header)
	return func(addr netip.Addr, err error) (netip.Addr, error) {
		switch err {
		case nil:
			return addr, nil
		case ErrAbsent:
			return netip.Addr{}, absent
		default:
			return netip.Addr{}, invalid
		}
	}
}

func chainOf(header string) func(*http.Request) Chain {
	if textproto.CanonicalMIMEHeaderKey(header) == "Forwarded" {
		return func(r *http.Request) Chain { return Forwarded(r.Header["Forwarded"]) }
	}
	return func(r *http.Request) Chain { return XForwardedFor(r.Header["X-Forwarded-For"]) }
}
