package ratelimit_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/go-tokenbucket/ratelimit"
)

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
