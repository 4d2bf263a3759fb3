// Package redistest runs real Redis servers for tests: a single server, a
// cluster or a Sentinel setup, the latter two with replicas that take over if
// wanted, and a TCP proxy that puts network faults before any of them.
//
// Everything listens on 127.0.0.1 only and ends with the test that started it.
// Constructors and methods report failure through the test and must therefore
// be called from the goroutine that runs it. Addresses, new clients and all
// methods of a Proxy are the exceptions: any goroutine may use them.
package redistest
