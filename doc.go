// Package ratelimit limits requests to an HTTP API by token buckets that hold exactly across replicas.
//
// A Limiter wraps an http.Handler, or is mounted as chi middleware. For each request it finds the keys
// of its policies (a member's id, a client's address, a route), takes a token from the bucket of each in
// one atomic step, and either calls the next handler or answers 429 with Retry-After. The buckets are
// kept by a store.Store: in Redis (package redisstore) for several replicas, in memory (package
// memstore) for one.
//
// If the store fails, requests are let through, or answered 503 where a policy says FailClosed.
package ratelimit
