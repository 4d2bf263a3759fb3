package skip_test

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5/middleware"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/skip"
)

func TestIPs(t *testing.T) {
	exempt := skip.IPs(netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("2001:db8:2::/48"), netip.MustParsePrefix("fe80::/10"), netip.MustParsePrefix("198.18.5.5/15"))
	for _, tt := range []struct {
		name, peer string
		want       bool
	}{
		{"A peer within", "192.0.2.1:1234", true},
		{"A peer without a port", "192.0.2.1", true},
		{"A peer of the next network", "192.0.3.1:1234", false},
		{"A mapped peer", "[::ffff:192.0.2.1]:1234", true},
		{"A mapped peer with a zone", "[::ffff:192.0.2.1%eth0]:1234", true},
		{"An IPv6 peer", "[2001:db8:2::1]:1234", true},
		{"An IPv6 peer of the next network, though perhaps of the same key", "[2001:db8:3::1]:1234", false},
		{"A peer with a zone", "[fe80::1%eth0]:1234", true},
		{"A peer of a prefix that is not masked", "198.19.0.1:1234", true},
		{"A peer on a Unix socket", "@", false},
		{"No peer", "", false},
		{"A host name", "localhost:1234", false},
		{"The unspecified address", "0.0.0.0:1234", false},
	} {
		if got := exempt(requestFrom(tt.peer)); got != tt.want {
			t.Errorf("%s: got %t", tt.name, got)
		}
	}
	if everyIPv6 := skip.IPs(netip.MustParsePrefix("::/0")); everyIPv6(requestFrom("[::ffff:192.0.2.1]:1")) {
		t.Error("all of IPv6 includes mapped IPv4")
	}
	all := skip.IPs(netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0"))
	if all(requestFrom("0.0.0.0:1")) || all(requestFrom("[::]:1")) || all(requestFrom("@")) || !all(requestFrom("[::1]:1")) {
		t.Error("what has no address is in a network")
	}
}

func TestPrivateNetworks(t *testing.T) {
	exempt := skip.IPs(ratelimit.PrivateNetworks...)
	for _, addr := range strings.Fields(`10.0.0.0 10.255.255.255 172.16.0.0 172.31.255.255 192.168.0.0 192.168.255.255
		100.64.0.0 100.127.255.255 169.254.0.0 169.254.255.255 127.0.0.1 127.255.255.255
		fc00:: fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff fe80:: febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff ::1 ::ffff:10.0.0.1`) {
		if !exempt(requestFrom(addr)) {
			t.Errorf("%s is not private", addr)
		}
	}
	for _, addr := range strings.Fields(`9.255.255.255 11.0.0.0 172.15.255.255 172.32.0.0 192.167.255.255 192.169.0.0
		100.63.255.255 100.128.0.0 169.253.255.255 169.255.0.0 126.255.255.255 128.0.0.0 8.8.8.8 192.0.2.1
		fbff:ffff:ffff:ffff:ffff:ffff:ffff:ffff fe00:: fe7f:ffff:ffff:ffff:ffff:ffff:ffff:ffff fec0:: :: ::2 2001:db8::1 ::ffff:8.8.8.8`) {
		if exempt(requestFrom(addr)) {
			t.Errorf("%s is private", addr)
		}
	}
	// They are fit for proxies, too.
	f := ratelimit.ClientIP(ratelimit.IPConfig{TrustedProxies: ratelimit.PrivateNetworks})
	checkKey(t, f, requestFrom("[::1]:80", "X-Forwarded-For", "203.0.113.7, 192.0.2.1, fd00::1, 100.64.0.1"), "ip:192.0.2.1")
}

// A load balancer's address is private, and so is that of all its clients to who does not look further.
func TestIPsDoesNotTakeAProxyForItsClients(t *testing.T) {
	private := skip.IPs(ratelimit.PrivateNetworks...)
	behindOurs := skip.ClientIPs(ratelimit.IPConfig{TrustedProxies: ours}, ratelimit.PrivateNetworks...)
	if r := requestFrom(proxy); !private(r) || !behindOurs(r) {
		t.Error("the load balancer's own health check is limited")
	}
	for _, name := range []string{
		"X-Forwarded-For", "Forwarded", "X-Real-IP", "Via", "X-Forwarded-Proto", "X-Forwarded-Host",
		"CF-Connecting-IP", "True-Client-IP", "X-Client-IP", "X-Cluster-Client-IP",
	} {
		for _, value := range []string{"192.0.2.1", "10.0.0.1", "", "garbage"} {
			r := requestFrom(proxy, name, value)
			if private(r) {
				t.Errorf("%s %q: the world is skipped", name, value)
			}
			// A proxy of ours that writes another header than it should, or nothing into it.
			if got := behindOurs(r); got && !(name == "X-Forwarded-For" && value == "10.0.0.1") {
				t.Errorf("%s %q: the world is skipped behind a trusted proxy", name, value)
			}
		}
	}
}

func TestIPsBehindProxies(t *testing.T) {
	office := netip.MustParsePrefix("192.0.2.0/24")
	const xff = "X-Forwarded-For"
	trusted := ratelimit.IPConfig{TrustedProxies: ours}
	for _, tt := range []struct {
		name  string
		cfg   ratelimit.IPConfig
		peer  string
		lines []string
		want  bool
	}{
		{"The office behind a proxy", trusted, proxy, []string{xff, "192.0.2.1"}, true},
		{"The office behind two", trusted, proxy, []string{xff, "192.0.2.1, 10.0.0.2"}, true},
		{"The office, mapped", trusted, proxy, []string{xff, "::ffff:192.0.2.1"}, true},
		{"A stranger behind a proxy", trusted, proxy, []string{xff, "203.0.113.7"}, false},
		{"A stranger that forges the office", trusted, proxy, []string{xff, "192.0.2.1, 203.0.113.7"}, false},
		{"A stranger that forges the office on a line", trusted, proxy, []string{xff, "192.0.2.1", xff, "203.0.113.7"}, false},
		{"A stranger that forges the office, directly", trusted, stranger, []string{xff, "192.0.2.1"}, false},
		{"A hidden client", trusted, proxy, []string{xff, "192.0.2.1, unknown"}, false},
		{"The office, directly", trusted, "192.0.2.1:1234", nil, true},
		{"The office behind a proxy of its own, which may be anybody's", trusted, "192.0.2.1:1234", []string{xff, "203.0.113.7"}, false},
		{"The proxy itself", trusted, proxy, nil, false},
		{"Forwarded", ratelimit.IPConfig{TrustedProxies: ours, Header: "Forwarded"}, proxy, []string{"Forwarded", "for=192.0.2.1"}, true},
		{"Forwarded, where the other header is forged", ratelimit.IPConfig{TrustedProxies: ours, Header: "Forwarded"}, proxy, []string{"Forwarded", "for=203.0.113.7", xff, "192.0.2.1"}, false},
		{"A count", ratelimit.IPConfig{ProxyCount: 1}, proxy, []string{xff, "203.0.113.7, 192.0.2.1"}, true},
		{"A count, forged", ratelimit.IPConfig{ProxyCount: 1}, proxy, []string{xff, "192.0.2.1, 203.0.113.7"}, false},
		{"A count, with nothing to count", ratelimit.IPConfig{ProxyCount: 1}, "192.0.2.1:1234", nil, false},
		{"An edge", ratelimit.IPConfig{EdgeHeader: "X-Real-IP", TrustedProxies: ours}, proxy, []string{"X-Real-IP", "192.0.2.1"}, true},
		{"An edge, around which a stranger comes", ratelimit.IPConfig{EdgeHeader: "X-Real-IP", TrustedProxies: ours}, stranger, []string{"X-Real-IP", "192.0.2.1"}, false},
		{"An edge that sends nothing", ratelimit.IPConfig{EdgeHeader: "X-Real-IP", TrustedProxies: ours}, proxy, nil, false},
		{"IPv6Bits do not matter", ratelimit.IPConfig{IPv6Bits: 32}, "192.0.2.1:1234", nil, true},
	} {
		if got := skip.ClientIPs(tt.cfg, office)(requestFrom(tt.peer, tt.lines...)); got != tt.want {
			t.Errorf("%s: got %t", tt.name, got)
		}
	}
}

func TestIPsByTheContext(t *testing.T) {
	exempt := skip.ClientIPs(ratelimit.IPConfig{Context: middleware.GetClientIPAddr}, ratelimit.PrivateNetworks...)
	serve := func(chis func(http.Handler) http.Handler, r *http.Request) (skipped bool) {
		chis(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { skipped = exempt(r) })).ServeHTTP(httptest.NewRecorder(), r)
		return skipped
	}
	xff := middleware.ClientIPFromXFF("10.0.0.0/24")
	if !serve(xff, requestFrom(proxy, "X-Forwarded-For", "10.1.0.1")) || serve(xff, requestFrom(proxy, "X-Forwarded-For", "10.1.0.1, 203.0.113.7")) {
		t.Error("behind a proxy")
	}
	// Who takes the peer for the client behind a proxy does not exempt the world.
	peer := middleware.ClientIPFromRemoteAddr
	if !serve(peer, requestFrom(proxy)) || serve(peer, requestFrom(proxy, "X-Forwarded-For", "203.0.113.7")) {
		t.Error("by the peer")
	}
	if exempt(requestFrom(proxy)) {
		t.Error("without a context")
	}
}

func TestContradictoryIPsPanics(t *testing.T) {
	mapped := netip.MustParsePrefix("::ffff:10.0.0.0/104")
	for _, tt := range []struct {
		name  string
		wire  func()
		wants []string
	}{
		{"No prefixes", func() { skip.IPs() }, []string{"IPs: prefixes: must have at least one"}},
		{"An invalid prefix", func() { skip.IPs(ratelimit.PrivateNetworks[0], netip.Prefix{}) }, []string{"IPs: prefixes: holds an invalid prefix"}},
		{"A mapped prefix", func() { skip.IPs(mapped) }, []string{"IPs: prefixes: ::ffff:10.0.0.0/104: must be written as IPv4"}},
		{"No prefixes behind proxies", func() { skip.ClientIPs(ratelimit.IPConfig{ProxyCount: 1}) }, []string{"ClientIPs: prefixes: must have at least one"}},
		{"Everything at once", func() { skip.ClientIPs(ratelimit.IPConfig{ProxyCount: -1, IPv6Bits: 1}, mapped) }, []string{"ClientIPs: ", "ProxyCount -1", "IPv6Bits 1", "prefixes: "}},
	} {
		t.Run(tt.name, func(t *testing.T) { checkPanic(t, tt.wire, append(tt.wants, "skip: ")...) })
	}
}
