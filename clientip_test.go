package ratelimit_test

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5/middleware"

	"github.com/go-tokenbucket/ratelimit"
)

func TestRemoteIP(t *testing.T) {
	for _, tt := range []struct {
		name, peer, want string
	}{
		{"An IPv4 peer", "192.0.2.1:1234", "ip:192.0.2.1"},
		{"The port does not matter", "192.0.2.1:4321", "ip:192.0.2.1"},
		{"An IPv6 peer by its /64", "[2001:db8::1]:1234", "ip:2001:db8::/64"},
		{"Another peer of the same /64", "[2001:db8::ffff:ffff:ffff:ffff]:1", "ip:2001:db8::/64"},
		{"A peer of the next /64", "[2001:db8:0:1::1]:1", "ip:2001:db8:0:1::/64"},
		{"An IPv4 peer of a dual-stack listener", "[::ffff:192.0.2.1]:1234", "ip:192.0.2.1"},
		{"The zone does not matter", "[fe80::1%eth0]:1234", "ip:fe80::/64"},
		{"A peer on a Unix socket", "@", ""},
		{"A peer without a name", "", ""},
		{"The unspecified address", "0.0.0.0:1234", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			// Nobody is believed, whatever a client sends.
			checkKey(t, ratelimit.RemoteIP(), requestFrom(tt.peer, "X-Forwarded-For", "203.0.113.7",
				"Forwarded", "for=203.0.113.7", "X-Real-IP", "203.0.113.7", "True-Client-IP", "203.0.113.7"), tt.want)
		})
	}
}

// The rules of each trust model. For all that clients can send, see TestWhomEachTrustModelBelieves in test/clientip.
func TestClientIP(t *testing.T) {
	const xff, forwarded, edge = "X-Forwarded-For", "Forwarded", "Cf-Connecting-Ip"
	trusted := ratelimit.IPConfig{TrustedProxies: ours}
	trustedForwarded := ratelimit.IPConfig{TrustedProxies: ours, Header: "forwarded"} // in any case
	one := ratelimit.IPConfig{ProxyCount: 1}
	two := ratelimit.IPConfig{ProxyCount: 2}
	twoForwarded := ratelimit.IPConfig{ProxyCount: 2, Header: "Forwarded"}
	anyEdge := ratelimit.IPConfig{EdgeHeader: "CF-Connecting-IP"}
	ourEdge := ratelimit.IPConfig{EdgeHeader: "CF-Connecting-IP", TrustedProxies: ours}
	unix := ratelimit.IPConfig{TrustUnix: true}
	unixEdge := ratelimit.IPConfig{TrustUnix: true, EdgeHeader: "CF-Connecting-IP"}
	const proxy, stranger = "10.0.0.1:80", "198.51.100.1:80"
	for _, tt := range []struct {
		name  string
		cfg   ratelimit.IPConfig
		peer  string
		lines []string
		want  string
	}{
		{"Trusted: the client is the last entry that is not ours", trusted, proxy, []string{xff, "203.0.113.7, 192.0.2.1, 10.0.0.2"}, "ip:192.0.2.1"},
		{"Trusted: a stranger is the client, whatever it sends", trusted, stranger, []string{xff, "192.0.2.1"}, "ip:198.51.100.1"},
		{"Trusted: a proxy without a header is the client", trusted, proxy, nil, "ip:10.0.0.1"},
		{"Trusted: where all are ours the furthest is the client", trusted, proxy, []string{xff, "10.0.0.3, 10.0.0.2"}, "ip:10.0.0.3"},
		{"Trusted: what is left of garbage is not believed", trusted, proxy, []string{xff, "192.0.2.1, unknown, 10.0.0.2"}, badRequest},
		{"Trusted: the other header is ignored", trusted, proxy, []string{forwarded, "for=192.0.2.1"}, "ip:10.0.0.1"},
		{"Forwarded: the client is the last entry that is not ours", trustedForwarded, proxy, []string{forwarded, `for=203.0.113.7, for="192.0.2.1:80";proto=http, for=10.0.0.2`}, "ip:192.0.2.1"},
		{"Forwarded: the other header is ignored", trustedForwarded, proxy, []string{xff, "192.0.2.1"}, "ip:10.0.0.1"},
		{"Count 1: the peer does not matter", one, "@", []string{xff, "192.0.2.1"}, "ip:192.0.2.1"},
		{"Count 2: the last but one is the client", two, proxy, []string{xff, "203.0.113.7", xff, "192.0.2.1, 10.0.0.2"}, "ip:192.0.2.1"},
		{"Count 2: garbage in between is refused", two, proxy, []string{xff, "192.0.2.1, unknown"}, badRequest},
		{"Count 2: Forwarded", twoForwarded, proxy, []string{forwarded, "for=203.0.113.7, for=192.0.2.1, for=10.0.0.2", xff, "203.0.113.7, 203.0.113.7"}, "ip:192.0.2.1"},
		{"Edge: the header is the client", anyEdge, stranger, []string{edge, "192.0.2.1"}, "ip:192.0.2.1"},
		{"Edge: the last line counts", anyEdge, stranger, []string{edge, "203.0.113.7", edge, "192.0.2.1"}, "ip:192.0.2.1"},
		{"Edge: no header is no key", anyEdge, stranger, []string{xff, "192.0.2.1"}, ""},
		{"Edge: a list is refused", anyEdge, stranger, []string{edge, "203.0.113.7, 192.0.2.1"}, badRequest},
		{"Our edge: the header is the client", ourEdge, proxy, []string{edge, "192.0.2.1"}, "ip:192.0.2.1"},
		{"Our edge: a stranger is the client, whatever it sends", ourEdge, stranger, []string{edge, "192.0.2.1"}, "ip:198.51.100.1"},
		{"Unix: the last entry is the client", unix, "@", []string{xff, "203.0.113.7, 192.0.2.1"}, "ip:192.0.2.1"},
		{"Unix: no header is no key", unix, "@", nil, ""},
		{"Unix: a peer with an address is the client, whatever it sends", unix, proxy, []string{xff, "192.0.2.1"}, "ip:10.0.0.1"},
		{"Unix edge: the header is the client", unixEdge, "", []string{edge, "192.0.2.1"}, "ip:192.0.2.1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			checkKey(t, ratelimit.ClientIP(tt.cfg), requestFrom(tt.peer, tt.lines...), tt.want)
		})
	}
}

func TestIPv6Bits(t *testing.T) {
	for _, tt := range []struct {
		name string
		bits int
		peer string
		want string
	}{
		{"The default is 64", 0, "[2001:db8:aaaa:bbbb:cccc::1]:80", "ip:2001:db8:aaaa:bbbb::/64"},
		{"32 is the shortest", 32, "[2001:db8:aaaa:bbbb:cccc::1]:80", "ip:2001:db8::/32"},
		{"56 is what many homes get", 56, "[2001:db8:aaaa:bbbb:cccc::1]:80", "ip:2001:db8:aaaa:bb00::/56"},
		{"128 is the address", 128, "[2001:db8:aaaa:bbbb:cccc::1]:80", "ip:2001:db8:aaaa:bbbb:cccc::1"},
		{"IPv4 is never cut", 32, "192.0.2.1:80", "ip:192.0.2.1"},
		{"Mapped IPv4 is never cut", 32, "[::ffff:192.0.2.1]:80", "ip:192.0.2.1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			checkKey(t, ratelimit.ClientIP(ratelimit.IPConfig{IPv6Bits: tt.bits}), requestFrom(tt.peer), tt.want)
		})
	}
}

func TestChangingIPConfigAfterwardsHasNoEffect(t *testing.T) {
	cfg := ratelimit.IPConfig{TrustedProxies: []netip.Prefix{ours[0]}}
	f := ratelimit.ClientIP(cfg)
	cfg.TrustedProxies[0] = netip.MustParsePrefix("0.0.0.0/0")
	checkKey(t, f, requestFrom("198.51.100.1:80", "X-Forwarded-For", "192.0.2.1"), "ip:198.51.100.1")
}

// A forgery is how a client's own lines of a header arrive, after the proxy has added the client's address.
type forgery struct {
	name    string
	cfg     ratelimit.IPConfig
	header  string
	address string // as the proxy writes it
	replace bool   // the proxy replaces the client's lines
}

// The client of these is 192.0.2.1 behind 10.0.0.1.
var forgeries = []forgery{
	{"trusted", ratelimit.IPConfig{TrustedProxies: ours}, "X-Forwarded-For", "192.0.2.1", false},
	{"trusted, Forwarded", ratelimit.IPConfig{TrustedProxies: ours, Header: "Forwarded"}, "Forwarded", "for=192.0.2.1", false},
	{"count", ratelimit.IPConfig{ProxyCount: 1}, "X-Forwarded-For", "192.0.2.1", false},
	{"count, Forwarded", ratelimit.IPConfig{ProxyCount: 1, Header: "Forwarded"}, "Forwarded", "for=192.0.2.1", false},
	{"edge", ratelimit.IPConfig{EdgeHeader: "X-Real-IP"}, "X-Real-Ip", "192.0.2.1", true},
	{"edge, which adds", ratelimit.IPConfig{EdgeHeader: "X-Real-IP", TrustedProxies: ours}, "X-Real-Ip", "192.0.2.1", false},
}

// check checks that a client that sends lines is nobody but itself. Lines that are malformed beyond repair
// may leave it without a key.
func (f forgery) check(t *testing.T, lines ...string) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Logf("%s, with the lines %.100q", f.name, lines)
		}
	}()
	find := ratelimit.ClientIP(f.cfg)
	r := requestFrom("10.0.0.1:80")
	r.Header[f.header] = append(append([]string(nil), lines...), f.address)
	if f.replace {
		r.Header[f.header] = []string{f.address}
	}
	checkKey(t, find, r, "ip:192.0.2.1") // a line of the proxy's own is not to be spoiled

	if !f.replace && len(lines) > 0 { // other proxies add to the last line
		last := len(lines) - 1
		r.Header[f.header] = append(append([]string(nil), lines[:last]...), lines[last]+", "+f.address)
		if key, err := find(r); key != "ip:192.0.2.1" && (key != "" || !errors.Is(err, ratelimit.ErrBadRequest)) {
			t.Errorf("added to the last line: got key %.100q, error %v; want the client's own or ErrBadRequest", key, err)
		}
	}

	r.Header[f.header] = lines
	if f.cfg.TrustedProxies != nil { // nor does it help to come around the proxy
		r.RemoteAddr = "192.0.2.1:1234"
		checkKey(t, find, r, "ip:192.0.2.1")
	}
	if key, err := find(r); (key == "") != (errors.Is(err, ratelimit.ErrNoKey) || errors.Is(err, ratelimit.ErrBadRequest)) {
		t.Errorf("around the proxy: got key %.100q, error %v; want one of them", key, err)
	}
}

func TestNobodyCanForgeAnother(t *testing.T) {
	const victim = "203.0.113.7"
	for _, tt := range []struct {
		name  string
		lines []string
	}{
		{"Nothing", nil},
		{"An empty line", []string{""}},
		{"Many empty lines", make([]string, 100)},
		{"Commas", []string{strings.Repeat(",", 60)}},
		{"An address", []string{victim}},
		{"An address of Forwarded", []string{"for=" + victim}},
		{"Several lines", []string{victim, victim, "for=" + victim}},
		{"An address followed by one of ours", []string{victim + ", 10.0.0.2"}},
		{"An open quote", []string{`for="` + victim}},
		{"An open quote after an escape", []string{`for="\"` + victim + `\`}},
		{"A quoted comma", []string{`for="` + victim + `,"`}},
		{"A zone with a comma", []string{"fe80::1%" + victim + ","}},
		{"A bracket", []string{"[" + victim}},
		{"A NUL", []string{victim + "\x00"}},
		{"A line feed", []string{victim + "\r\n"}},
		{"The unspecified address", []string{"0.0.0.0", "::"}},
		{"64 KiB of an address", []string{strings.Repeat(victim+",", 64<<10/12)}},
		{"1 MiB of an address", []string{strings.Repeat(victim+",", 1<<20/12)}},
		{"1 MiB of a letter", []string{strings.Repeat("a", 1<<20)}},
		{"1 MiB of quotes", []string{strings.Repeat(`"`, 1<<20)}},
		{"1 MiB of spaces", []string{victim + strings.Repeat(" ", 1<<20)}},
		{"10,000 lines", strings.Split(strings.Repeat(victim+" ", 10_000), " ")},
	} {
		for _, forged := range forgeries {
			t.Run(tt.name+"/"+forged.name, func(t *testing.T) { forged.check(t, tt.lines...) })
		}
	}
}

func FuzzNobodyCanForgeAnother(f *testing.F) {
	f.Fuzz(func(t *testing.T, first, last string) {
		for _, forged := range forgeries {
			forged.check(t, first, last)
		}
	})
}

func TestContradictoryIPConfigPanics(t *testing.T) {
	for _, tt := range []struct {
		name  string
		cfg   ratelimit.IPConfig
		wants []string
	}{
		{"An invalid prefix", ratelimit.IPConfig{TrustedProxies: make([]netip.Prefix, 1)}, []string{"TrustedProxies"}},
		{"A mapped prefix", ratelimit.IPConfig{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("::ffff:10.0.0.0/104")}}, []string{"TrustedProxies", "::ffff:10.0.0.0/104"}},
		{"A negative count", ratelimit.IPConfig{ProxyCount: -1}, []string{"ProxyCount -1"}},
		{"Proxies by address and by count", ratelimit.IPConfig{TrustedProxies: ours, ProxyCount: 1}, []string{"ProxyCount", "TrustedProxies"}},
		{"Unix sockets and a count", ratelimit.IPConfig{TrustUnix: true, ProxyCount: 1}, []string{"ProxyCount", "TrustUnix"}},
		{"A header that is no list", ratelimit.IPConfig{TrustedProxies: ours, Header: "X-Real-IP"}, []string{`Header "X-Real-IP"`, "EdgeHeader"}},
		{"A header that nobody is believed about", ratelimit.IPConfig{Header: "X-Forwarded-For"}, []string{"Header", "TrustedProxies", "TrustUnix", "ProxyCount"}},
		{"An edge and a count", ratelimit.IPConfig{EdgeHeader: "X-Real-IP", ProxyCount: 1}, []string{"EdgeHeader", "ProxyCount"}},
		{"An edge and a header", ratelimit.IPConfig{EdgeHeader: "X-Real-IP", TrustedProxies: ours, Header: "Forwarded"}, []string{"EdgeHeader", "Header"}},
		{"A prefix that is too short", ratelimit.IPConfig{IPv6Bits: 31}, []string{"IPv6Bits 31", "32 to 128"}},
		{"A prefix that is too long", ratelimit.IPConfig{IPv6Bits: 129}, []string{"IPv6Bits 129"}},
		{"A negative prefix", ratelimit.IPConfig{IPv6Bits: -64}, []string{"IPv6Bits -64"}},
		{
			"Everything at once",
			ratelimit.IPConfig{TrustedProxies: make([]netip.Prefix, 1), ProxyCount: -2, Header: "Via", EdgeHeader: "X-Real-IP", IPv6Bits: 1},
			[]string{"TrustedProxies: holds", "ProxyCount -2", "ProxyCount: must not", `Header "Via"`, "EdgeHeader: must not", "IPv6Bits 1"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			checkPanic(t, func() { ratelimit.ClientIP(tt.cfg) }, append(tt.wants, "ClientIP: ")...)
		})
	}
	for _, cfg := range []ratelimit.IPConfig{{TrustedProxies: ours}, {TrustUnix: true}, {ProxyCount: 1}, {Header: "Forwarded"}, {EdgeHeader: "X-Real-IP"}} {
		cfg.Context = middleware.GetClientIPAddr
		checkPanic(t, func() { ratelimit.ClientIP(cfg) }, "Context: must not be set together with TrustedProxies, TrustUnix, ProxyCount, Header or EdgeHeader")
	}
}

func TestAnAddressFromTheContext(t *testing.T) {
	type key struct{}
	address := func(ctx context.Context) netip.Addr {
		addr, _ := ctx.Value(key{}).(netip.Addr)
		return addr
	}
	for _, tt := range []struct {
		name, addr string
		bits       int
		want       string
	}{
		{"IPv4", "192.0.2.1", 0, "ip:192.0.2.1"},
		{"IPv6 by its /64", "2001:db8:2::1", 0, "ip:2001:db8:2::/64"},
		{"IPv6 by a /56", "2001:db8:2:ff::1", 56, "ip:2001:db8:2::/56"},
		{"IPv6 whole", "2001:db8:2::1", 128, "ip:2001:db8:2::1"},
		{"Mapped IPv4 is IPv4", "::ffff:192.0.2.1", 0, "ip:192.0.2.1"},
		{"Mapped IPv4 is not cut", "::ffff:192.0.2.1", 32, "ip:192.0.2.1"},
		{"A zone does not matter", "fe80::1%eth0", 128, "ip:fe80::1"},
		{"Mapped IPv4 with a zone is IPv4", "::ffff:192.0.2.1%eth0", 0, "ip:192.0.2.1"},
		{"No address is no key", "", 0, ""},
		{"The unspecified IPv4 address is no key", "0.0.0.0", 0, ""},
		{"The unspecified IPv6 address is no key", "::", 0, ""},
		{"The unspecified IPv6 address with a zone is no key", "::%eth0", 0, ""},
		{"The mapped unspecified address is no key", "::ffff:0.0.0.0", 0, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			// Nothing else of the request is believed.
			r := requestFrom("10.0.0.1:80", "X-Forwarded-For", "203.0.113.7", "Forwarded", "for=203.0.113.7", "X-Real-IP", "203.0.113.7")
			addr, _ := netip.ParseAddr(tt.addr)
			f := ratelimit.ClientIP(ratelimit.IPConfig{Context: address, IPv6Bits: tt.bits})
			checkKey(t, f, r.WithContext(context.WithValue(r.Context(), key{}, addr)), tt.want)
			checkKey(t, f, r, "")
		})
	}
}

func TestAProxyWhoseClientsShareABucketIsLoggedOnce(t *testing.T) {
	const forwarded, edge = "Forwarded", "X-Forwarded-For"
	for _, tt := range []struct {
		name   string
		key    ratelimit.KeyFunc
		peer   string
		header string
		warns  bool
	}{
		{"RemoteIP behind a private proxy", ratelimit.RemoteIP(), "10.0.0.1:80", edge, true},
		{"With Forwarded", ratelimit.RemoteIP(), "10.0.0.1:80", forwarded, true},
		{"Behind a proxy on this machine", ratelimit.RemoteIP(), "127.0.0.1:80", edge, true},
		{"Behind a proxy with IPv6", ratelimit.RemoteIP(), "[fd00::1]:80", edge, true},
		{"Behind a proxy with IPv6, by address", ratelimit.ClientIP(ratelimit.IPConfig{IPv6Bits: 128}), "[fd00::1]:80", edge, true},
		{"A proxy that is not among the trusted", ratelimit.ClientIP(ratelimit.IPConfig{TrustedProxies: ours}), "192.168.0.1:80", edge, true},
		{"First of two", ratelimit.FirstOf(ratelimit.Header("X-Api-Key"), ratelimit.RemoteIP()), "10.0.0.1:80", edge, true},
		{"A client of this machine", ratelimit.RemoteIP(), "127.0.0.1:80", "", false},
		{"A client of this network", ratelimit.RemoteIP(), "10.0.0.1:80", "", false},
		{"A stranger that forges the header", ratelimit.RemoteIP(), "198.51.100.1:80", edge, false},
		{"A trusted proxy", ratelimit.ClientIP(ratelimit.IPConfig{TrustedProxies: ours}), "10.0.0.1:80", edge, false},
		{"A number of proxies", ratelimit.ClientIP(ratelimit.IPConfig{ProxyCount: 1}), "10.0.0.1:80", edge, false},
		{"Another key", ratelimit.Static("all"), "10.0.0.1:80", edge, false},
		{"A unix socket", ratelimit.ClientIP(ratelimit.IPConfig{TrustUnix: true}), "@", edge, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l, text := logged(t)
			h := l.Limit(ratelimit.Policy{Name: "api", Key: tt.key, Limit: ratelimit.PerHour(1000)})(okHandler)
			for range 3 {
				wantStatuses(t, h, []int{200}, func(r *http.Request) {
					r.RemoteAddr = tt.peer
					if tt.header != "" {
						r.Header.Set(tt.header, map[string]string{edge: "203.0.113.7", forwarded: "for=203.0.113.7"}[tt.header])
					}
				})
			}
			want := 0
			if tt.warns {
				want = 1
				checkText(t, text.String(), "level=WARN", "share one bucket", "use ClientIP", "policy=api", "peer=")
			}
			if n := strings.Count(text.String(), "\n"); n != want {
				t.Errorf("%d lines:\n%s", n, text)
			}
		})
	}
}

// A client on the machine of the proxy, or inside of it as a health check, has the proxy's address: ClientIP finds it in
// the header, and it is the bucket of that client alone.
func TestAClientWithTheAddressOfTheProxyIsNoFault(t *testing.T) {
	local := ratelimit.ClientIP(ratelimit.IPConfig{TrustedProxies: ratelimit.PrivateNetworks})
	rfc := ratelimit.ClientIP(ratelimit.IPConfig{TrustedProxies: ratelimit.PrivateNetworks, Header: "Forwarded"})
	for _, tt := range []struct {
		name, peer, header, value string
		key                       ratelimit.KeyFunc
		warns                     bool
	}{
		{"on this machine", "127.0.0.1", "X-Forwarded-For", "127.0.0.1", local, false},
		{"with IPv6", "[::1]", "X-Forwarded-For", "::1", local, false},
		{"another address of its /64", "[fd00::1]", "X-Forwarded-For", "fd00::2", local, false},
		{"behind two proxies", "127.0.0.1", "X-Forwarded-For", "127.0.0.1, 10.0.0.1", local, false},
		{"with Forwarded", "127.0.0.1", "Forwarded", "for=127.0.0.1", rfc, false},
		{"by the number of proxies", "127.0.0.1", "X-Forwarded-For", "127.0.0.1", ratelimit.ClientIP(ratelimit.IPConfig{ProxyCount: 1}), false},
		{"behind another header", "127.0.0.1", "Forwarded", "for=203.0.113.7", local, true},
		{"RemoteIP behind two proxies here", "127.0.0.1", "X-Forwarded-For", "203.0.113.7, 127.0.0.1", ratelimit.RemoteIP(), true},
		{"RemoteIP and a malformed header", "127.0.0.1", "X-Forwarded-For", "unknown", ratelimit.RemoteIP(), true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l, text := logged(t)
			h := l.Limit(ratelimit.Policy{Name: "api", Key: tt.key, Limit: ratelimit.PerHour(1000)})(okHandler)
			wantStatuses(t, h, []int{200}, from(tt.peer), with(tt.header, tt.value))
			if warned := strings.Contains(text.String(), "share one bucket"); warned != tt.warns {
				t.Errorf("warned: %t, want %t: %s", warned, tt.warns, text)
			}
		})
	}
}

// An empty header tells of no proxy, and after a thousand requests with a header nobody looks any more.
func TestTheSearchForProxiesEnds(t *testing.T) {
	l, text := logged(t)
	h := l.Limit(perIP("api", ratelimit.PerHour(10_000)))(okHandler)
	get(h, from("10.0.0.1"), with("X-Forwarded-For", ""))
	for range 1000 {
		get(h, from("198.51.100.1"), with("X-Forwarded-For", "203.0.113.7"))
	}
	get(h, from("10.0.0.1"), with("X-Forwarded-For", "203.0.113.7"))
	if text.Len() > 0 {
		t.Errorf("logged:\n%s", text)
	}
}

func TestTheSearchForProxiesLooksAtTheLastRequest(t *testing.T) {
	l, text := logged(t)
	h := l.Limit(perIP("api", ratelimit.PerHour(10_000)))(okHandler)
	for range 999 {
		get(h, from("198.51.100.1"), with("X-Forwarded-For", "203.0.113.7"))
	}
	for range 3 {
		get(h, from("10.0.0.1"), with("X-Forwarded-For", "203.0.113.7"))
	}
	if n := strings.Count(text.String(), "share one bucket"); n != 1 {
		t.Errorf("%d lines:\n%s", n, text)
	}
}

// Members behind a proxy, who are not counted by address, do not hide from the search the guests that are.
func TestTheSearchForProxiesPassesOverOtherKeys(t *testing.T) {
	l, text := logged(t)
	key := ratelimit.FirstOf(ratelimit.Header("X-Api-Key"), ratelimit.RemoteIP())
	h := l.Limit(ratelimit.Policy{Name: "api", Key: key, Limit: ratelimit.PerHour(10_000)})(okHandler)
	for range 1000 {
		get(h, from("10.0.0.1"), with("X-Forwarded-For", "203.0.113.7"), with("X-Api-Key", "member"))
	}
	get(h, from("10.0.0.1"), with("X-Forwarded-For", "203.0.113.7"))
	checkText(t, text.String(), "share one bucket")
}
