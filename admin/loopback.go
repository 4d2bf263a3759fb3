package admin

import (
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/go-tokenbucket/ratelimit/internal/clientip"
)

// Loopback is an authorize function for programs on a developer's machine. It allows [Change] to a request that comes
// from a loopback address, has localhost or a loopback address as Host, and no header that proxies add. Everything
// else gets [None], and so does HTTP/1.0, which proxies send and browsers and curl do not.
//
// Do not use it behind a proxy. Behind a proxy or tunnel on this machine that sends HTTP/1.1, a local Host and no such
// header, every client counts as local.
func Loopback(r *http.Request) (user string, allowed Access) {
	if !isLoopback(r.RemoteAddr) || !isLocalName(r.Host) || !r.ProtoAtLeast(1, 1) || clientip.CameThroughProxy(r) {
		return "", None
	}
	return "loopback", Change
}

func isLoopback(addr string) bool {
	peer, err := netip.ParseAddrPort(addr)
	return err == nil && peer.Addr().Unmap().IsLoopback()
}

// isLocalName reports whether host is a name that no DNS server can point here. A page of another site could otherwise
// give its own name this machine's address, and then read as the same origin.
func isLocalName(host string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	} else if strings.HasPrefix(name, "[") && strings.HasSuffix(name, "]") {
		name = name[1 : len(name)-1]
	}
	if strings.EqualFold(name, "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(name)
	return err == nil && addr.Unmap().IsLoopback()
}
