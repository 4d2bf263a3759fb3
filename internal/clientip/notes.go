package clientip

import (
	"net/http"
	"net/netip"
	"slices"

	"github.com/go-tokenbucket/ratelimit/internal/dryrun"
)

// notes say how a Finder has found an address. They report what it has chosen, and choose nothing.
type notes struct {
	trusted []netip.Prefix
	count   int
	header  string // that is read, in canonical form
	unix    bool   // TrustUnix
}

// addressHeaders are the headers that may hold the address of a client.
var addressHeaders = []string{
	"X-Forwarded-For", "Forwarded", "X-Real-Ip", "Cf-Connecting-Ip", "True-Client-Ip", "X-Client-Ip", "X-Cluster-Client-Ip",
}

// ofPeer notes a TCP peer that is the client, or that has no address.
func (n notes) ofPeer(run *dryrun.Run, r *http.Request, peer netip.Addr, err error) {
	switch {
	case err == errUnixPeer:
		run.Note("the TCP peer is a Unix socket, and TrustUnix is not set")
	case err != nil:
		run.Note(`the TCP peer "%s" is not an IP address`, r.RemoteAddr)
	case len(n.trusted) > 0:
		run.Note("the TCP peer %v is the client: it is in no network of TrustedProxies", peer)
	case n.unix:
		run.Note("the TCP peer %v is the client: only peers on a Unix socket are trusted", peer)
	default:
		run.Note("the TCP peer %v is the client: no proxy is trusted", peer)
	}
	ignored(run, r, "", "the TCP peer is no trusted proxy")
}

// ofChain notes how far a chain was read, and what that makes of each entry.
func (n notes) ofChain(run *dryrun.Run, r *http.Request, chain Chain, client netip.Addr, read int, err error) {
	if n.count > 0 {
		run.Note("ProxyCount is %d: the client is that entry of %s from the right", n.count, n.header)
	}
	entries := chain.Entries()
	switch lines := len(r.Header[n.header]); {
	case lines == 0:
		run.Note("%s is absent", n.header)
	case len(entries) == 0:
		run.Note("%s has no entries", n.header)
	case lines > 1:
		run.Note("%s has %d lines, which are one list and are read from the right", n.header, lines)
	default:
		run.Note("%s is read from the right", n.header)
	}
	if len(entries) == 0 && err == nil {
		run.Note("the TCP peer %v is the client: a trusted proxy has sent this itself", client)
	}
	for i, e := range entries {
		if e.Beyond {
			run.Note("no more than %d elements are read: the next entry counts as one that is not an address", MaxElements)
		}
		run.Note(`entry %d, "%s": %s`, i+1, e.Text, n.verdict(i+1, read, client, err))
	}
	if n.count > 0 && err == ErrAbsent {
		run.Note("entry %d is missing: the request has passed fewer proxies", read+1)
	}
	ignored(run, r, n.header, "Header is "+n.header)
}

// verdict returns what an entry counts for, if read entries were read and the last of them gave client or err.
func (n notes) verdict(entry, read int, client netip.Addr, err error) string {
	switch {
	case entry > read:
		return "not believed, because the sender of an entry to its right could have written it"
	case entry == read && err == ErrInvalid:
		return "not an address, so neither it nor anything to its left is believed"
	case entry == read && err == nil && n.count > 0:
		return "the client"
	case entry == read && err == nil && len(n.trusted) == 0:
		return "the client, because the trusted TCP peer has written it"
	case entry == read && err == nil && !n.networkOf(client).IsValid():
		return "the client, because it is the first that is in no network of TrustedProxies"
	case entry == read && err == nil:
		return "the client, because all entries are in TrustedProxies and it is the last one to be read"
	case n.count > 0:
		return "a proxy, by ProxyCount"
	default:
		return "a proxy of TrustedProxies"
	}
}

// ofEdge notes how the EdgeHeader was read.
func (n notes) ofEdge(run *dryrun.Run, r *http.Request, err error) {
	lines := r.Header[n.header]
	if len(lines) == 0 {
		run.Note("EdgeHeader %s is absent", n.header)
	}
	for i, line := range slices.Backward(lines) {
		verdict := "the client"
		switch {
		case len(lines)-i > MaxElements:
			run.Note("EdgeHeader %s, %d further lines: not believed", n.header, i+1)
			ignored(run, r, n.header, "EdgeHeader is "+n.header)
			return
		case i < len(lines)-1:
			verdict = "not believed, because the last line is the one of the edge"
		case err != nil:
			verdict = "not one address"
		}
		run.Note(`EdgeHeader %s, line %d of %d, "%s": %s`, n.header, i+1, len(lines), line, verdict)
	}
	ignored(run, r, n.header, "EdgeHeader is "+n.header)
}

func noteContext(run *dryrun.Run, r *http.Request, found netip.Addr, ok bool) {
	if ok {
		run.Note("IPConfig.Context has returned %s", found.String())
	} else {
		run.Note("IPConfig.Context has returned no address")
	}
	ignored(run, r, "", "IPConfig.Context is set")
}

// ignored notes the headers of r with addresses that were not read, and why.
func ignored(run *dryrun.Run, r *http.Request, read, why string) {
	for _, name := range addressHeaders {
		if _, has := r.Header[name]; has && name != read {
			run.Note("%s is ignored: %s", name, why)
		}
	}
}

// networkOf returns the first network of TrustedProxies that has addr.
func (n notes) networkOf(addr netip.Addr) (network netip.Prefix) {
	i := slices.IndexFunc(n.trusted, func(p netip.Prefix) bool { return p.Contains(addr) })
	if i >= 0 {
		network = n.trusted[i]
	}
	return network
}
