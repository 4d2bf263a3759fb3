// Package clientip finds the address of the client of an HTTP request, for a
// rate limiter whose clients would like to be somebody else.
//
// Everything left of the entries that one's own proxies wrote is under the
// client's control. Forwarding headers are therefore read from the right, no
// further than proxies are known to stand in front, and never past an entry
// that is not an address. How far that is, is a matter of deployment:
//
//   - no proxy: [Peer]
//   - proxies at known addresses: [FromTrusted]
//   - a proxy on a Unix socket: [FromChain]
//   - a known number of proxies: [FromCount]
//   - an edge that sets a header of one address: [FromEdge]
//   - somebody who has found it already: [Normalize]
//
// An address has one form only, so that it makes one key: IPv4-mapped IPv6
// addresses are unmapped, zones are dropped, and the unspecified addresses
// 0.0.0.0 and :: are no addresses.
//
// An error means that the client is unknown. [ErrAbsent] says that the request
// tells nothing about it, and [ErrInvalid] that what it tells is malformed. A
// client behind a proxy can bring the latter about at will, for example by an
// unterminated quote in a Forwarded line that the proxy appends to. Neither may
// exempt the request from limits.
package clientip
