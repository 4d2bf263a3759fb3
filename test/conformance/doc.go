// Package conformance contains only tests: of the middleware with clients, browsers, gateways and middleware from
// other projects. It is a separate module, so that users of the library do not download those.
package conformance
