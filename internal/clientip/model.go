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

	"github.com/go-tokenbucket/ratelimit/internal/configfault"
	"github.com/go-tokenbucket/ratelimit/internal/dryrun"
	"github.com/go-tokenbucket/ratelimit/internal/failure"
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
func (m Model) Faults() configfault.Faults {
	faults := PrefixFaults("TrustedProxies", m.TrustedProxies)
	wrong := func(field, value, text string) {
		faults = append(faults, configfault.Fault{Field: field, Value: value, Text: text})
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
func PrefixFaults(field string, prefixes []netip.Prefix) (faults configfault.Faults) {
	for _, p := range prefixes {
		if !p.IsValid() {
			faults = append(faults, configfault.Fault{Field: field, Text: "holds an invalid prefix: must be like 10.0.0.0/8"})
		} else if p.Addr().Is4In6() {
			faults = append(faults, configfault.Fault{Field: field, Text: fmt.Sprintf("%v: must be written as IPv4", p)})
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
	m.TrustedProxies = slices.Clone(m.TrustedProxies)
	edge := textproto.CanonicalMIMEHeaderKey(m.EdgeHeader)
	header := cmp.Or(edge, textproto.CanonicalMIMEHeaderKey(m.Header), "X-Forwarded-For")
	f := finder{
		Model:   m,
		edge:    edge,
		chain:   chainOf(m.Header),
		explain: explainer(header),
		notes:   notes{trusted: m.TrustedProxies, count: m.ProxyCount, header: header, unix: m.TrustUnix},
	}
	switch {
	case m.Context != nil:
		return f.fromContext
	case m.ProxyCount > 0:
		return f.fromCount
	case len(m.TrustedProxies) > 0 || m.TrustUnix:
		return f.fromTrusted
	case edge != "":
		return f.fromEdge
	default:
		return f.fromPeer
	}
}

// A finder finds addresses under a Model, in one of the ways below.
type finder struct {
	Model
	edge    string // EdgeHeader in its canonical form
	chain   func(*http.Request) Chain
	explain func(netip.Addr, error) (netip.Addr, error)
	notes   notes
}

func (f *finder) fromContext(r *http.Request) (netip.Addr, error) {
	found := f.Context(r.Context())
	addr, ok := Normalize(found)
	if run := dryrun.OfRequest(r); run != nil {
		noteContext(run, r, found, ok)
	}
	if ok {
		return addr, nil
	}
	return netip.Addr{}, errNoneInContext
}

func (f *finder) fromCount(r *http.Request) (netip.Addr, error) {
	addr, read, err := FromCount(f.ProxyCount, f.chain(r))
	return f.fromChain(r, addr, read, err)
}

// fromChain returns what was found in the chain of r.
func (f *finder) fromChain(r *http.Request, addr netip.Addr, read int, err error) (netip.Addr, error) {
	if run := dryrun.OfRequest(r); run != nil {
		f.notes.ofChain(run, r, f.chain(r), addr, read, err)
	}
	return f.explain(addr, err)
}

func (f *finder) fromEdge(r *http.Request) (netip.Addr, error) {
	addr, err := FromEdge(r.Header[f.edge])
	if run := dryrun.OfRequest(r); run != nil {
		f.notes.ofEdge(run, r, err)
	}
	return f.explain(addr, err)
}

func (f *finder) fromPeer(r *http.Request) (netip.Addr, error) {
	peer, err := peerOf(r)
	return f.isClient(r, peer, err)
}

// isClient returns the peer of r, which is the client.
func (f *finder) isClient(r *http.Request, peer netip.Addr, err error) (netip.Addr, error) {
	if run := dryrun.OfRequest(r); run != nil {
		f.notes.ofPeer(run, r, peer, err)
	}
	return peer, err
}

// fromTrusted reads the headers of trusted peers. Any other peer is the client.
func (f *finder) fromTrusted(r *http.Request) (netip.Addr, error) {
	run := dryrun.OfRequest(r)
	onSocket := f.TrustUnix && IsUnix(r.RemoteAddr)
	var peer netip.Addr
	if !onSocket {
		var err error
		if peer, err = peerOf(r); err != nil || !within(f.TrustedProxies, peer) {
			return f.isClient(r, peer, err)
		}
	}
	switch {
	case run != nil && onSocket:
		run.Note("the TCP peer is a Unix socket, which TrustUnix trusts")
	case run != nil:
		run.Note("the TCP peer %v is in %v of TrustedProxies", peer, f.notes.networkOf(peer))
	}
	if f.edge != "" {
		return f.fromEdge(r)
	}
	if onSocket {
		addr, read, err := FromChain(f.TrustedProxies, f.chain(r))
		return f.fromChain(r, addr, read, err)
	}
	addr, read, err := FromTrusted(peer, f.TrustedProxies, f.chain(r))
	return f.fromChain(r, addr, read, err)
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
