// Package redistest runs real Redis servers for tests: a single server, a
// cluster or a Sentinel setup, the latter two with replicas that take over if
// wanted, and a TCP proxy that puts network faults before any of them.
//
// They run the program redis-server. The environment variable
// RATELIMIT_REDIS_SERVER names another, on PATH or by its path: valkey-server,
// keydb-server or a redis-server of another version. Without the program, tests
// are skipped. They fail instead if RATELIMIT_REQUIRE_REDIS is not empty or CI is
// "true".
//
// Everything listens on 127.0.0.1 only and ends with the test that started it.
// Constructors and methods report failure through the test and must therefore
// be called from the goroutine that runs it. Addresses, new clients and all
// methods of a Proxy are the exceptions: any goroutine may use them.
package redistest
