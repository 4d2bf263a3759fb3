package ratelimit

import (
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/go-tokenbucket/ratelimit/internal/clientip"
)

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
