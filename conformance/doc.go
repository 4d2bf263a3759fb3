// Package conformance holds tests only: that the middleware gets along with the clients, browsers, gateways
// and middlewares that others wrote. It is a module of its own, so that nobody else downloads those.
package conformance
