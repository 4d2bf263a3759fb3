// Package skip provides exemptions for [ratelimit.Config.Skip]: requests that are not limited and cost no tokens.
//
//	limiter, err := ratelimit.New(ratelimit.Config{
//		Policies: policies,
//		Skip: skip.All(
//			skip.Paths("GET /healthz"),
//			skip.IPs(ratelimit.PrivateNetworks...),
//		),
//	})
//
// Combine exemptions with [All], [Any] and [Not]. No header that a client can send makes a request exempt. The only
// exception is [ClientIPs] with an IPConfig that trusts such a header.
//
// # Health checks and monitoring
//
// Behind a proxy, the TCP peer of every request is the proxy, often with a private address. So [IPs] never exempts
// a request with a header that proxies add, such as X-Forwarded-For, Forwarded, X-Real-IP or Via. A client that
// forges such a header is limited as usual.
//
// Not every proxy adds a header. nginx does so only if configured to, and a load balancer for TCP cannot. Behind
// such a proxy, do not pass its network to [IPs]: everybody would be exempt. Configure the proxy to add the header,
// and use [ClientIPs] for the addresses of clients behind it.
//
// # Paths that are never exempt
//
// A router, or a server behind a proxy, may read an unusual path as another one. [Paths] does not exempt:
//   - A path that is not clean, such as "//healthz" and "/export/../healthz", or that has unusual escapes.
//   - A path with a semicolon, backslash, control character, percent sign, "?", "#" or a character outside ASCII,
//     even if it is escaped, as in "/static/..;/login" and "/static/..%5Clogin".
//   - A path with a segment that begins with "..", ends with a dot, or has a blank or a plus sign at either end.
//   - "*", a path of more than 8 KiB, and any path of CONNECT.
//   - A request with a header that names another path or method, such as X-Original-URL or X-HTTP-Method-Override.
//
// Patterns match the method and URL that the limiter sees. If something changes these, such as http.StripPrefix, a
// method override or PathRewrite of chi, mount it before the limiter.
//
// # CORS
//
// Mount CORS outside the limiter. It then answers preflights before they reach the limiter, and nothing has to be
// exempt. [Preflights] is for routers that answer preflights inside the limiter.
package skip

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/go-tokenbucket/ratelimit/internal/clientip"
)

// Any exempts a request that at least one of skips exempts. It panics if skips is empty or has a nil.
func Any(skips ...func(*http.Request) bool) func(*http.Request) bool {
	skips = mustHaveSkips("Any", skips)
	return func(r *http.Request) bool {
		for _, skip := range skips {
			if skip(r) {
				return true
			}
		}
		return false
	}
}

// All exempts a request that all of skips exempt. It panics if skips is empty or has a nil.
func All(skips ...func(*http.Request) bool) func(*http.Request) bool {
	skips = mustHaveSkips("All", skips)
	return func(r *http.Request) bool {
		for _, skip := range skips {
			if !skip(r) {
				return false
			}
		}
		return true
	}
}

// Not exempts requests that skip does not exempt. Use it inside [All], to take something out of a larger exemption.
// Do not use it alone, to limit only a few paths or addresses: a client may write the same path in an unusual form,
// or have no address. Mount [ratelimit.Limiter.Limit] on those routes instead. Not panics if skip is nil.
func Not(skip func(*http.Request) bool) func(*http.Request) bool {
	mustHaveSkips("Not", []func(*http.Request) bool{skip})
	return func(r *http.Request) bool { return !skip(r) }
}

// Headers returns the request headers with which [IPs], [ClientIPs] or [Paths] do not exempt a request, such as
// X-Forwarded-For. An adapter that passes only some headers to the limiter must pass these, too. Otherwise a proxy in an
// exempt network counts as the client, and everybody behind it is exempt.
func Headers() []string { return slices.Concat(clientip.ProxyHeaders, overriding[:]) }

// mustHaveSkips returns a copy of skips, and panics if there are none or one is nil.
func mustHaveSkips(name string, skips []func(*http.Request) bool) []func(*http.Request) bool {
	if len(skips) == 0 {
		panic("skip: " + name + ": skips: must have at least one")
	}
	for i, skip := range skips {
		if skip == nil {
			panic(fmt.Sprintf("skip: %s: skips: number %d must not be nil", name, i+1))
		}
	}
	return slices.Clone(skips)
}

// mustBeFaultless panics if the arguments of a function have faults.
func mustBeFaultless(name string, faults []string) {
	if len(faults) > 0 {
		panic("skip: " + name + ": " + strings.Join(faults, "; "))
	}
}
