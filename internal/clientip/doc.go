// Package clientip finds the address of the client of an HTTP request. It is for a rate limiter, whose clients may
// pretend to have another address.
//
// Clients control everything to the left of the entries of your own proxies. So forwarding headers are read from the
// right, past the entries of known proxies, and never past an entry that is not an address. Choose the function for your
// deployment:
//
//   - no proxy: [Peer]
//   - proxies at known addresses: [FromTrusted]
//   - a proxy on a Unix socket: [FromChain]
//   - a known number of proxies: [FromCount]
//   - an edge that sets a header of one address: [FromEdge]
//   - an address that other code has found: [Normalize]
//
// An address has one form only, so that it makes one key. IPv4-mapped IPv6 addresses are unmapped, and zones are
// dropped. The unspecified addresses 0.0.0.0 and :: do not count as addresses.
//
// An error means that the client is unknown. [ErrAbsent] means that the request has no address, and [ErrInvalid] that
// the address is malformed. A client behind a proxy can cause ErrInvalid whenever it wants, for example with an
// unterminated quote in a Forwarded line that the proxy appends to. Neither error may exempt the request from limits.
package clientip
