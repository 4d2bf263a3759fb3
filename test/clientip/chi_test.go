package clientip_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5/middleware"

	"github.com/go-tokenbucket/ratelimit"
)

// chiModels are chi's middleware, each by the trust model of ours that it comes closest to.
var chiModels = map[string]func(http.Handler) http.Handler{
	"peer":          middleware.ClientIPFromRemoteAddr,
	"trusted":       middleware.ClientIPFromXFF(ours[0].String(), ours[1].String()),
	"count 1":       middleware.ClientIPFromXFFTrustedProxies(1),
	"count 2":       middleware.ClientIPFromXFFTrustedProxies(2),
	"edge":          middleware.ClientIPFromHeader(edgeHeader),
	"edge, trusted": middleware.ClientIPFromHeader(edgeHeader, ours[0].String(), ours[1].String()),
}

// chiDiffers are the requests of clientIPCases about which chi's middleware and ours disagree, by the
// reason, with whom chi takes for the client, as in clientIPCase.want. A dot is the same as ours, or a model
// that chi does not have.
//
// Besides, chi finds nobody where all of X-Forwarded-For is ours or there is nothing in it, as in a proxy's
// own health checks. To ours that is the furthest of them, or the peer.
var chiDiffers = map[string]map[string]string{
	"chi reads no ports, and no brackets, in headers": {
		"A port":                         ". --. ... --",
		"A port behind two proxies":      ". --- ... --",
		"Port 0":                         ". --. ... --",
		"Port 65535":                     ". --. ... --",
		"A port without quotes":          ". --. ... --",
		"IPv6 in brackets":               ". --. ... --",
		"IPv6 in brackets with a port":   ". --. ... --",
		"IPv6 without quotes":            ". --. ... --",
		"A zone in brackets with a port": ". --. ... --",
	},
	"chi does not look at the entries of nearer proxies when it counts": {
		"Garbage behind the client":                   ". ..c ... ..",
		"Garbage on a line behind the client":         ". ..c ... ..",
		"A proxy on a Unix socket that sends garbage": ". ..c ... ..",
		"The unspecified address behind the client":   ". ..c ... ..",
	},
	"chi takes whatever follows a percent sign in an edge's header for the zone, and counts as above": {
		"A zone with a comma":      ". ..L ... LL",
		"A zone that opens a list": ". ... ... LL",
	},
	"chi reads any number of elements, of any length": {
		"64 elements of nothing behind":      ". cc. ... ..",
		"64 proxies behind the client":       ". c.. ... ..",
		"64 KiB of blanks before the client": ". cc. ... ..",
		"An entry of 257 bytes":              ". cc. ... ..",
	},
	"chi takes away whatever Unicode calls a space, but nothing from an edge's header, from which net/http has taken blanks": {
		"An entry of 256 bytes": ". ... ... --",
		"Blanks around":         ". ... ... --",
		"A carriage return":     ". cc. ... ..",
		"A vertical tab":        ". cc. ... ..",
		"A no-break space":      ". cc. ... ..",
	},
	"chi reads a peer's address whatever its port is, and IPv4 in brackets, too": {
		"A named port of the peer":     "p c.. ... .c",
		"IPv4 in brackets as the peer": "p c.. ... .c",
	},
}

func TestChisAddressesAreOurs(t *testing.T) {
	differs := map[string]string{}
	for _, cases := range chiDiffers {
		for name, letters := range cases {
			differs[name] = strings.ReplaceAll(letters, " ", "")
		}
	}
	for _, tt := range clientIPCases {
		wants, chisOwn := tt.wants(t), differs[tt.name]
		delete(differs, tt.name)
		for i, m := range trustModels {
			chis, has := chiModels[m.name]
			if !has {
				continue
			}
			want := wants[i]
			if m.name == "trusted" && strings.Contains("pqto", tt.want[2:3]) {
				want = ""
			}
			if chisOwn != "" && chisOwn[i] != '.' {
				want = parties[rune(chisOwn[i])]
			}
			if want == badRequest {
				want = "" // chi's middleware does not tell what is malformed from what is absent
			}
			t.Run(tt.name+"/"+m.name, func(t *testing.T) {
				f := ratelimit.ClientIP(ratelimit.IPConfig{Context: middleware.GetClientIPAddr})
				chis(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					checkKey(t, f, r, want)
				})).ServeHTTP(httptest.NewRecorder(), tt.request())
			})
		}
	}
	for name := range differs {
		t.Errorf("there is no case %q", name)
	}
}
