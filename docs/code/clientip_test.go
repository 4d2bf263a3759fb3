package code_test

import (
	_ "embed"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/ratetest"
	"github.com/go-tokenbucket/ratelimit/skip"
)

var (
	noProxy = ratelimit.RemoteIP()

	behindProxy = ratelimit.ClientIP(ratelimit.IPConfig{
		TrustedProxies: ratelimit.Must(ratelimit.ParseNetworks("10.0.0.7")), // the address of nginx, Traefik, Caddy or HAProxy
	})
	behindALB = ratelimit.ClientIP(ratelimit.IPConfig{
		TrustedProxies: ratelimit.Must(ratelimit.ParseNetworks("10.0.1.0/24 10.0.2.0/24")), // the subnets of the load balancer
	})
	behindGoogle = ratelimit.ClientIP(ratelimit.IPConfig{
		TrustedProxies: ratelimit.Must(ratelimit.ParseNetworks("130.211.0.0/22 35.191.0.0/16", "203.0.113.80")), // Google's, and the load balancer's address
	})
	behindAppGateway = ratelimit.ClientIP(ratelimit.IPConfig{
		TrustedProxies: ratelimit.Must(ratelimit.ParseNetworks("10.0.1.0/24")), // the subnet of the gateway
	})
	behindFrontDoor  = ratelimit.ClientIP(ratelimit.IPConfig{ProxyCount: 1}) // only with the checks below
	behindCloudflare = ratelimit.ClientIP(ratelimit.IPConfig{
		EdgeHeader:     "CF-Connecting-IP",
		TrustedProxies: ratelimit.Must(ratelimit.ParseNetworks(cloudflareIPv4, cloudflareIPv6)),
	})
	behindALBAndCloudflare = ratelimit.ClientIP(ratelimit.IPConfig{
		TrustedProxies: ratelimit.Must(ratelimit.ParseNetworks("10.0.1.0/24 10.0.2.0/24", cloudflareIPv4)), // no IPv6 networks: see below
	})
	behindIngress = ratelimit.ClientIP(ratelimit.IPConfig{
		TrustedProxies: ratelimit.Must(ratelimit.ParseNetworks("10.244.0.0/16")), // the network of the pods
	})
	behindUnixSocket = ratelimit.ClientIP(ratelimit.IPConfig{TrustUnix: true})
	onFly            = ratelimit.ClientIP(ratelimit.IPConfig{EdgeHeader: "Fly-Client-IP"})
)

// onlyFrontDoor answers 403 to requests that did not come through the Front Door with that ID. Mount it around the limiter.
func onlyFrontDoor(id string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Azure-FDID") != id {
			http.Error(w, "not by way of Front Door", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// The files hold a part of the lists that Cloudflare publishes.

//go:embed ips-v4
var cloudflareIPv4 string

//go:embed ips-v6
var cloudflareIPv6 string

const (
	honestClient   = "198.51.100.5" // the client of all requests of these tests
	forgedClient   = "203.0.113.7"  // whom clients forge
	fromCloudflare = "172.64.1.1"   // from where Cloudflare connects
	fromWorker     = "2a06:98c0:3600::103"
)

// The columns of the guide's table: requests as the edge sends them, those of clients that forge headers, and those
// that come around the edge.
func TestTheClientBehindEachEdge(t *testing.T) {
	const (
		xff  = "X-Forwarded-For"
		cf   = "CF-Connecting-IP"
		fly  = "Fly-Client-IP"
		self = "ip:" + honestClient
	)
	behindALBWithIPv6 := ratelimit.ClientIP(ratelimit.IPConfig{EdgeHeader: "CF-Connecting-IP", TrustedProxies: ratelimit.Must(ratelimit.ParseNetworks("10.0.1.0/24"))})
	byTunnel := ratelimit.ClientIP(ratelimit.IPConfig{EdgeHeader: "CF-Connecting-IP", TrustedProxies: ratelimit.Must(ratelimit.ParseNetworks("127.0.0.1"))})
	for _, c := range []struct {
		name   string
		key    ratelimit.KeyFunc
		peer   string
		header []string
		want   string
	}{
		{"no proxy", noProxy, honestClient, nil, self},
		{"no proxy: forged", noProxy, honestClient, []string{xff, forgedClient, cf, forgedClient, "Forwarded", "for=" + forgedClient}, self},

		{"nginx that replaces the header, Traefik, Caddy and HAProxy", behindProxy, "10.0.0.7", []string{xff, honestClient}, self},
		{"nginx that adds to the header, Traefik and Caddy that trust it: forged", behindProxy, "10.0.0.7", []string{xff, forgedClient + ", " + honestClient}, self},
		{"nginx: its own health check", behindProxy, "10.0.0.7", nil, "ip:10.0.0.7"},
		{"nginx, Traefik, Caddy and HAProxy: around", behindProxy, honestClient, []string{xff, forgedClient}, self},
		{"nginx without proxy_set_header: forged", behindProxy, "10.0.0.7", []string{xff, forgedClient}, "ip:" + forgedClient},

		{"HAProxy, which adds a line: forged", behindProxy, "10.0.0.7", []string{xff, forgedClient, xff, honestClient}, self},

		{"Google", behindGoogle, "35.191.10.1", []string{xff, honestClient + ",203.0.113.80"}, self},
		{"Google: forged", behindGoogle, "130.211.1.1", []string{xff, forgedClient + "," + honestClient + ",203.0.113.80"}, self},
		{"Google: forged, with the load balancer's address", behindGoogle, "130.211.1.1", []string{xff, forgedClient + ",203.0.113.80," + honestClient + ",203.0.113.80"}, self},
		{"Google: its health check", behindGoogle, "35.191.10.1", nil, "ip:35.191.10.1"},
		{"Google: around", behindGoogle, honestClient, []string{xff, forgedClient + ",203.0.113.80"}, self},

		{"Application Gateway", behindAppGateway, "10.0.1.9", []string{xff, honestClient + ":46532"}, self},
		{"Application Gateway: forged", behindAppGateway, "10.0.1.9", []string{xff, forgedClient + ", " + honestClient + ":46532"}, self},
		{"Application Gateway: around", behindAppGateway, honestClient, []string{xff, forgedClient}, self},

		{"Front Door", behindFrontDoor, "147.243.1.1", []string{xff, honestClient}, self},
		{"Front Door: forged", behindFrontDoor, "147.243.1.1", []string{xff, forgedClient + ", " + honestClient, "X-Azure-ClientIP", forgedClient}, self},
		{"Front Door: another Front Door before it", behindFrontDoor, "147.243.1.1", []string{xff, forgedClient + ", 147.243.2.2"}, "ip:147.243.2.2"},
		{"Front Door: around, without the checks", behindFrontDoor, honestClient, []string{xff, forgedClient}, "ip:" + forgedClient},
		{"Front Door and Application Gateway: forged", ratelimit.ClientIP(ratelimit.IPConfig{ProxyCount: 2}), "10.0.1.9", []string{xff, forgedClient + ", " + honestClient + ", 147.243.1.1:46532"}, self},
		{"Front Door: without the header", behindFrontDoor, "147.243.1.1", nil, ""},

		{"ALB", behindALB, "10.0.1.9", []string{xff, honestClient}, self},
		{"ALB: with client ports", behindALB, "10.0.2.9", []string{xff, honestClient + ":46532"}, self},
		{"ALB: forged", behindALB, "10.0.1.9", []string{xff, forgedClient + ", " + honestClient}, self},
		{"ALB: its health check", behindALB, "10.0.1.9", nil, "ip:10.0.1.9"},
		{"ALB: around", behindALB, honestClient, []string{xff, forgedClient}, self},
		{"ALB: another host of the network", behindALB, "10.0.3.5", []string{xff, forgedClient}, "ip:10.0.3.5"},
		{"ALB with preserve: forged", behindALB, "10.0.1.9", []string{xff, forgedClient}, "ip:" + forgedClient},

		{"Cloudflare", behindCloudflare, fromCloudflare, []string{cf, honestClient, xff, honestClient}, self},
		{"Cloudflare: by IPv6", behindCloudflare, "[2400:cb00::1]", []string{cf, honestClient, xff, honestClient}, self},
		{"Cloudflare: forged", behindCloudflare, fromCloudflare, []string{cf, honestClient, xff, forgedClient + ", " + honestClient}, self},
		{"Cloudflare: a Worker of another zone", behindCloudflare, fromCloudflare, []string{cf, fromWorker, xff, forgedClient + ", " + fromWorker}, "ip:2a06:98c0:3600::/64"},
		{"Cloudflare: a Worker of another zone whose origin is this server", behindCloudflare, fromCloudflare, []string{cf, forgedClient, xff, forgedClient}, "ip:" + forgedClient},
		{"Cloudflare: without the header", behindCloudflare, fromCloudflare, nil, ""},
		{"Cloudflare: around", behindCloudflare, honestClient, []string{cf, forgedClient, xff, forgedClient}, self},

		{"ALB and Cloudflare", behindALBAndCloudflare, "10.0.1.9", []string{xff, honestClient + ", " + fromCloudflare}, self},
		{"ALB and Cloudflare: forged", behindALBAndCloudflare, "10.0.1.9", []string{xff, forgedClient + ", " + honestClient + ", " + fromCloudflare, cf, honestClient}, self},
		{"ALB and Cloudflare: around Cloudflare", behindALBAndCloudflare, "10.0.1.9", []string{xff, forgedClient + ", " + honestClient, cf, forgedClient}, self},
		{"ALB and Cloudflare: around Cloudflare, with an address of Cloudflare forged", behindALBAndCloudflare, "10.0.1.9", []string{xff, forgedClient + ", " + fromCloudflare + ", " + honestClient}, self},
		{"ALB and Cloudflare: around both", behindALBAndCloudflare, honestClient, []string{xff, forgedClient, cf, forgedClient}, self},
		{"ALB and Cloudflare: a Worker of another zone", behindALBAndCloudflare, "10.0.1.9", []string{xff, forgedClient + ", " + fromWorker + ", " + fromCloudflare}, "ip:2a06:98c0:3600::/64"},

		{"ALB and Cloudflare: a Worker of another zone whose origin is the ALB", behindALBAndCloudflare, "10.0.1.9", []string{cf, forgedClient, xff, forgedClient + ", " + fromCloudflare}, "ip:" + forgedClient},

		{"ALB with IPv6, only for Cloudflare", behindALBWithIPv6, "10.0.1.9", []string{cf, honestClient, xff, forgedClient + ", " + honestClient + ", 2400:cb00::1"}, self},

		{"Cloudflare by a Tunnel", byTunnel, "127.0.0.1", []string{cf, honestClient, xff, forgedClient + ", " + honestClient}, self},
		{"Cloudflare by a Tunnel: around", byTunnel, honestClient, []string{cf, forgedClient}, self},

		{"ingress", behindIngress, "10.244.3.4", []string{xff, honestClient}, self},
		{"ingress that adds to the header: forged", behindIngress, "10.244.3.4", []string{xff, forgedClient + ", " + honestClient}, self},
		{"ingress: around, from outside of the pods", behindIngress, honestClient, []string{xff, forgedClient}, self},
		{"ingress: around, from a pod", behindIngress, "10.244.9.9", []string{xff, forgedClient}, "ip:" + forgedClient},

		{"unix socket", behindUnixSocket, "@", []string{xff, honestClient}, self},
		{"unix socket: forged", behindUnixSocket, "@", []string{xff, forgedClient + ", " + honestClient}, self},
		{"unix socket: around, by TCP", behindUnixSocket, honestClient, []string{xff, forgedClient}, self},
		{"unix socket: a proxy that sends no header", behindUnixSocket, "@", nil, ""},

		{"Fly", onFly, "172.16.5.1", []string{fly, honestClient, xff, honestClient + ", 66.241.1.1"}, self},
		{"Fly: forged", onFly, "172.16.5.1", []string{fly, honestClient, xff, forgedClient + ", " + honestClient + ", 66.241.1.1"}, self},
		{"Fly: around, from the private network", onFly, "[fdaa::3]", []string{fly, forgedClient}, "ip:" + forgedClient},
		{"Fly: its health check", onFly, "172.16.5.1", nil, ""},

		// The mistakes that the guide names.
		{"a count, around the proxy", ratelimit.ClientIP(ratelimit.IPConfig{ProxyCount: 1}), honestClient, []string{xff, forgedClient}, "ip:" + forgedClient},
		{"a count of two, around the first", ratelimit.ClientIP(ratelimit.IPConfig{ProxyCount: 2}), "10.0.1.9", []string{xff, forgedClient + ", " + honestClient}, "ip:" + forgedClient},
		{"CF-Connecting-IP without TrustedProxies, around Cloudflare", ratelimit.ClientIP(ratelimit.IPConfig{EdgeHeader: "CF-Connecting-IP"}), honestClient, []string{"CF-Connecting-IP", forgedClient}, "ip:" + forgedClient},
		{"CF-Connecting-IP from the ALB, around Cloudflare", ratelimit.ClientIP(ratelimit.IPConfig{EdgeHeader: "CF-Connecting-IP", TrustedProxies: ratelimit.Must(ratelimit.ParseNetworks("10.0.1.0/24"))}), "10.0.1.9", []string{"CF-Connecting-IP", forgedClient, xff, honestClient}, "ip:" + forgedClient},
		{"the ALB alone trusted, behind Cloudflare", ratelimit.ClientIP(ratelimit.IPConfig{TrustedProxies: ratelimit.Must(ratelimit.ParseNetworks("10.0.1.0/24"))}), "10.0.1.9", []string{xff, honestClient + ", " + fromCloudflare}, "ip:" + fromCloudflare},
		{"Cloudflare's IPv6 networks, and a Worker", ratelimit.ClientIP(ratelimit.IPConfig{TrustedProxies: ratelimit.Must(ratelimit.ParseNetworks("10.0.1.0/24", cloudflareIPv4, cloudflareIPv6))}), "10.0.1.9", []string{xff, forgedClient + ", " + fromWorker + ", " + fromCloudflare}, "ip:" + forgedClient},
		{"Google's networks alone", ratelimit.ClientIP(ratelimit.IPConfig{TrustedProxies: ratelimit.Must(ratelimit.ParseNetworks("130.211.0.0/22 35.191.0.0/16"))}), "35.191.10.1", []string{xff, honestClient + ",203.0.113.80"}, "ip:203.0.113.80"},
		{"Traefik with notAppendXForwardedFor and insecure", ratelimit.ClientIP(ratelimit.IPConfig{TrustedProxies: ratelimit.Must(ratelimit.ParseNetworks("10.0.0.7"))}), "10.0.0.7", []string{xff, forgedClient}, "ip:" + forgedClient},
		{"HAProxy without forwardfor, or with if-none", ratelimit.ClientIP(ratelimit.IPConfig{TrustedProxies: ratelimit.Must(ratelimit.ParseNetworks("10.0.0.7"))}), "10.0.0.7", []string{xff, forgedClient}, "ip:" + forgedClient},
		{"X-Azure-ClientIP", ratelimit.ClientIP(ratelimit.IPConfig{EdgeHeader: "X-Azure-ClientIP"}), "147.243.1.1", []string{xff, forgedClient + ", " + honestClient, "X-Azure-ClientIP", forgedClient}, "ip:" + forgedClient},
		{"X-Forwarded-For on Fly", ratelimit.ClientIP(ratelimit.IPConfig{ProxyCount: 1}), "172.16.5.1", []string{xff, honestClient + ", 66.241.1.1"}, "ip:66.241.1.1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			peer := c.peer
			if peer != "@" {
				peer += ":4711"
			}
			checkClient(t, c.key, peer, c.want, c.header...)
		})
	}
}

// A request around Front Door, or through that of another, does not reach the limiter.
func TestOnlyFrontDoor(t *testing.T) {
	h := onlyFrontDoor("mine", ratetest.Quiet(t).Limit(ratelimit.Policy{Name: "api", Key: behindFrontDoor, Limit: ratelimit.PerMinute(1)})(ratetest.OK))
	for _, c := range []struct {
		id     string
		status int
	}{{"", 403}, {"another", 403}, {"mine", 200}, {"mine", 429}} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("X-Forwarded-For", honestClient)
		if c.id != "" {
			r.Header.Set("X-Azure-FDID", c.id)
		}
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r); w.Code != c.status {
			t.Errorf("with the ID %q: %d, want %d", c.id, w.Code, c.status)
		}
	}
}

// Health checks without a forwarding header are refused on Fly, and those of a load balancer are limited, unless they
// are skipped.
func TestHealthChecks(t *testing.T) {
	t.Run("Fly", func(t *testing.T) { testHealthChecks(t, onFly, []int{403}) })
	t.Run("ALB", func(t *testing.T) { testHealthChecks(t, behindALB, []int{200, 200, 429}) })
}

func testHealthChecks(t *testing.T, key ratelimit.KeyFunc, limited []int) {
	mux := http.NewServeMux()
	mux.Handle("/", ratetest.OK)
	api := ratelimit.Policy{Name: "api", Key: key, Limit: ratelimit.PerMinute(2)}
	healthz := func(r *http.Request) { r.URL.Path, r.RemoteAddr = "/healthz", "10.0.1.9:4711" }
	ratetest.WantStatuses(t, ratetest.Quiet(t).Limit(api)(mux), limited, healthz)

	limiter, err := ratelimit.New(ratelimit.Config{
		Policies: []ratelimit.Policy{api},
		Skip:     skip.Paths("GET /healthz"),
	})

	if err != nil {
		t.Fatal(err)
	}
	defer limiter.Close()
	ratetest.WantStatuses(t, limiter.Handler(mux), []int{200, 200, 200}, healthz)
}

// checkClient serves a request from a TCP peer with header lines, of a name and a value each. want is its key; "" is
// none.
func checkClient(t *testing.T, key ratelimit.KeyFunc, peer, want string, header ...string) {
	t.Helper()
	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = peer
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	got, err := key(r)
	if got != want || (err != nil) != (want == "") || err != nil && !errors.Is(err, ratelimit.ErrNoKey) {
		t.Errorf("from %s with %q: key %q, error %v; want %q", peer, header, got, err, want)
	}
}
