package ratelimit

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/go-tokenbucket/ratelimit/internal/clientip"
)

// PrivateNetworks are the networks whose addresses nobody has on the Internet: the private ones (RFC 1918,
// and RFC 4193 for IPv6), those shared behind a provider's NAT (RFC 6598), link-local ones and the loopback
// interface's. They are for SkipIPs, and for IPConfig.TrustedProxies where nobody but proxies comes from
// them: whoever else does could then choose its address.
var PrivateNetworks = []netip.Prefix{
	netip.MustParsePrefix("10.0.0.0/8"),
	netip.MustParsePrefix("172.16.0.0/12"),
	netip.MustParsePrefix("192.168.0.0/16"),
	netip.MustParsePrefix("100.64.0.0/10"),
	netip.MustParsePrefix("169.254.0.0/16"),
	netip.MustParsePrefix("127.0.0.0/8"),
	netip.MustParsePrefix("fc00::/7"),
	netip.MustParsePrefix("fe80::/10"),
	netip.MustParsePrefix("::1/128"),
}

// SkipIPs exempts, as Config.Skip, requests whose TCP peer is in one of prefixes, such as those of your
// monitoring:
//
//	Skip: ratelimit.SkipAll(ratelimit.SkipPaths("GET /healthz"), ratelimit.SkipIPs(ratelimit.PrivateNetworks...))
//
// Behind a proxy the peer is the proxy, whose address tends to be private, and all the world comes from it.
// So a request with a header that proxies add (X-Forwarded-For, Forwarded, X-Real-IP, Via and the like) is
// never skipped; one who forges such a header is limited, and no more. But not every proxy adds one: nginx
// does only if told, and a load balancer that passes TCP on cannot. Behind such a proxy leave its network
// out of prefixes, or have it add the header; IPConfig.SkipIPs goes by the client's address then.
//
// A peer without an address is not skipped. It panics without prefixes, and on one that is invalid or that
// of IPv4-mapped addresses.
func SkipIPs(prefixes ...netip.Prefix) func(*http.Request) bool {
	return skipIPs("SkipIPs", IPConfig{}, prefixes)
}

// SkipIPs exempts, as Config.Skip, requests of clients in prefixes. It finds a client as ClientIP(cfg) does,
// from no header that a client can forge. What is said at the function SkipIPs holds here, too, for a
// client that is the TCP peer: with a header that proxies add, it is not skipped, since that proxy is none
// that cfg knows. A request without an address is not skipped. It panics on a contradictory cfg, too.
func (cfg IPConfig) SkipIPs(prefixes ...netip.Prefix) func(*http.Request) bool {
	return skipIPs("IPConfig.SkipIPs", cfg, prefixes)
}

func skipIPs(name string, cfg IPConfig, prefixes []netip.Prefix) func(*http.Request) bool {
	faults := append(cfg.faults(), prefixFaults("prefixes", prefixes)...)
	if len(prefixes) == 0 {
		faults = append(faults, "prefixes: must have at least one, such as PrivateNetworks")
	}
	mustBeFaultless(name, faults)
	prefixes, find := slices.Clone(prefixes), cfg.finder()
	return func(r *http.Request) bool {
		addr, ok := find(r)
		if !ok || !slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(addr) }) {
			return false
		}
		peer, _ := clientip.Peer(r.RemoteAddr)
		return addr != peer || !cameThroughProxy(r)
	}
}

// proxyHeaders are what tells that a request came through a proxy.
var proxyHeaders = []string{
	"X-Forwarded-For", "Forwarded", "X-Real-Ip", "Via", "X-Forwarded-Proto", "X-Forwarded-Host",
	"Cf-Connecting-Ip", "True-Client-Ip", "X-Client-Ip", "X-Cluster-Client-Ip",
}

func cameThroughProxy(r *http.Request) bool {
	return slices.ContainsFunc(proxyHeaders, func(name string) bool { _, has := r.Header[name]; return has })
}

// SkipPaths exempts, as Config.Skip, requests that match one of patterns, by the rules of http.ServeMux:
// "/healthz", "GET /healthz" (and HEAD), "/static/" and all below, "/metrics/{$}", "/{id}/ping". A pattern
// without a method exempts all methods, so name one where you can.
//
// It knows patterns alone, not your routes: "/static/" exempts "/static/upload", too, if there is such a
// route. It looks at Request.Method and Request.URL as the limiter sees them: what changes these
// (http.StripPrefix, a method override, chi's PathRewrite) must come before the limiter.
//
// It never exempts a path on which routers differ: one that is not clean, such as "//healthz" and
// "/export/../healthz", which http.ServeMux redirects and chi serves as it is; one with an escaped slash or
// other unusual escapes; nor "*", nor CONNECT.
//
// It panics without patterns, and on those that http.ServeMux refuses; that could never match; that match
// everything; and that name a host, which clients can choose. Patterns may overlap.
func SkipPaths(patterns ...string) func(*http.Request) bool {
	exemptions := make([]exemption, len(patterns))
	var faults []string
	for i, pattern := range patterns {
		var err error
		if exemptions[i], err = newExemption(pattern); err != nil {
			faults = append(faults, fmt.Sprintf("patterns: %q: %v", pattern, err))
		}
	}
	if len(patterns) == 0 {
		faults = append(faults, `patterns: must have at least one, such as "GET /healthz"`)
	}
	mustBeFaultless("SkipPaths", faults)
	return func(r *http.Request) bool {
		for i := range exemptions {
			if exemptions[i].matches(r) {
				return true
			}
		}
		return false
	}
}

// An exemption is one pattern of SkipPaths. Each has a ServeMux of its own, because one for all would refuse
// patterns of which neither is more specific, and it does not matter here which of them matches.
type exemption struct {
	mux    *http.ServeMux
	prefix string // of what may match: a ServeMux allocates for what does not
}

func newExemption(pattern string) (exemption, error) {
	method, path := splitPattern(pattern)
	everything := strings.HasPrefix(path, "/{") && strings.HasSuffix(path, "...}") && strings.Count(path, "/") == 1
	switch {
	case path == "/":
		return exemption{}, errors.New(`matches every path: for the root alone write "/{$}"`)
	case method == "" && everything:
		return exemption{}, errors.New("matches every request: nothing would be limited")
	case strings.Index(path, "/") > 0:
		return exemption{}, errors.New("must not name a host: clients can choose it")
	}
	prefix, example := literalPath(path)
	e := exemption{http.NewServeMux(), prefix}
	if err := handle(e.mux, pattern); err != nil {
		return exemption{}, err
	}
	if !e.matches(&http.Request{Method: cmp.Or(method, http.MethodGet), URL: &url.URL{Path: example}}) {
		return exemption{}, errors.New("would never match: the path must be clean, without escaped slashes, and the method not CONNECT")
	}
	return e, nil
}

func (e *exemption) matches(r *http.Request) bool {
	path := r.URL.Path
	if !strings.HasPrefix(path, e.prefix) || r.Method == http.MethodConnect || r.URL.RawPath != "" && r.URL.RawPath != path {
		return false
	}
	h, _ := e.mux.Handler(r) // what is redirected has another handler, though the same pattern
	_, matches := h.(exempt)
	return matches
}

// exempt is the handler of an exemption. It is never called.
type exempt struct{}

func (exempt) ServeHTTP(http.ResponseWriter, *http.Request) {}

// handle adds pattern to mux, with an error for what http.ServeMux panics on.
func handle(mux *http.ServeMux, pattern string) (err error) {
	defer func() {
		if fault := recover(); fault != nil {
			err = fmt.Errorf("%v", fault)
		}
	}()
	mux.Handle(pattern, exempt{})
	return nil
}

// splitPattern returns the method of a pattern, "" for any, and the rest, as http.ServeMux has it.
func splitPattern(pattern string) (method, path string) {
	if i := strings.IndexAny(pattern, " \t"); i >= 0 {
		return pattern[:i], strings.TrimLeft(pattern[i+1:], " \t")
	}
	return "", pattern
}

// literalPath returns what all paths that match the path of a pattern start with, and one of them.
func literalPath(pattern string) (prefix, example string) {
	literal, _, _ := strings.Cut(pattern, "{")
	example = wildcard.ReplaceAllLiteralString(strings.TrimSuffix(pattern, "{$}"), "x")
	return unescapePath(literal), unescapePath(example)
}

var wildcard = regexp.MustCompile(`\{[^/]*\}`)

// unescapePath unescapes what stands between slashes, if it can, as http.ServeMux does with patterns.
func unescapePath(path string) string {
	segments := strings.Split(path, "/")
	for i, s := range segments {
		if unescaped, err := url.PathUnescape(s); err == nil {
			segments[i] = unescaped
		}
	}
	return strings.Join(segments, "/")
}

// SkipAny exempts, as Config.Skip, what one of skips exempts. It panics without skips, and if one is nil.
func SkipAny(skips ...func(*http.Request) bool) func(*http.Request) bool {
	skips = mustHaveSkips("SkipAny", skips)
	return func(r *http.Request) bool {
		for _, skip := range skips {
			if skip(r) {
				return true
			}
		}
		return false
	}
}

// SkipAll exempts, as Config.Skip, what all of skips exempt. It panics without skips, and if one is nil.
func SkipAll(skips ...func(*http.Request) bool) func(*http.Request) bool {
	skips = mustHaveSkips("SkipAll", skips)
	return func(r *http.Request) bool {
		for _, skip := range skips {
			if !skip(r) {
				return false
			}
		}
		return true
	}
}

// SkipNot exempts, as Config.Skip, what skip does not exempt. It is for taking something out of a larger
// exemption, within SkipAll. By itself it does not limit just a few paths or addresses: a client may write
// the same path in an unusual form, or have no address. Mount Limiter.Limit on their routes instead. It
// panics if skip is nil.
func SkipNot(skip func(*http.Request) bool) func(*http.Request) bool {
	mustHaveSkips("SkipNot", []func(*http.Request) bool{skip})
	return func(r *http.Request) bool { return !skip(r) }
}

// mustHaveSkips returns a copy of skips, and panics if there are none or one is nil.
func mustHaveSkips(name string, skips []func(*http.Request) bool) []func(*http.Request) bool {
	if len(skips) == 0 {
		panic("ratelimit: " + name + ": skips: must have at least one")
	}
	for i, skip := range skips {
		if skip == nil {
			panic(fmt.Sprintf("ratelimit: %s: skips: number %d must not be nil", name, i+1))
		}
	}
	return slices.Clone(skips)
}

// mustBeFaultless panics if there are faults in the arguments of a function.
func mustBeFaultless(name string, faults []string) {
	if len(faults) > 0 {
		panic("ratelimit: " + name + ": " + strings.Join(faults, "; "))
	}
}
