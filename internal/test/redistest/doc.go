// Package redistest runs real Redis servers for tests: a single server, a cluster or a Sentinel setup. A cluster and
// a Sentinel setup can have replicas that take over. A TCP proxy can cause network faults in front of each.
//
// The servers run the program redis-server. The environment variable RATELIMIT_REDIS_SERVER can name another one, on
// PATH or by its path: valkey-server, keydb-server or a redis-server of another version. Without the program, tests
// are skipped. They fail instead if RATELIMIT_REQUIRE_REDIS is not empty or CI is "true".
//
// Everything listens on 127.0.0.1 only and ends with the test that started it. Constructors and methods report
// failures through the test, so call them only from the goroutine of the test. Any goroutine may use addresses, new
// clients and all methods of a Proxy.
package redistest
