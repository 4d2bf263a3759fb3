package clientip_test

import (
	"net/http"
	"net/netip"
	"regexp"
	"strconv"
	"strings"

	"github.com/go-tokenbucket/ratelimit"
)

// A trustModel is an IPConfig, and what ClientIP has to find by it: written anew from the documentation,
// with regular expressions and a state machine, from left to right, and without regard for time.
type trustModel struct {
	name      string
	cfg       ratelimit.IPConfig
	reference func(*http.Request) refEntry
}

const edgeHeader = "Cf-Connecting-Ip"

// trustModels are in the order of the columns of clientIPCases.
var trustModels = []trustModel{
	{"peer", ratelimit.IPConfig{}, refPeer},

	{"trusted", ratelimit.IPConfig{TrustedProxies: ours}, refTrusted(refXForwardedFor)},
	{"count 1", ratelimit.IPConfig{ProxyCount: 1}, refCount(1, refXForwardedFor)},
	{"count 2", ratelimit.IPConfig{ProxyCount: 2}, refCount(2, refXForwardedFor)},

	{"Forwarded, trusted", ratelimit.IPConfig{TrustedProxies: ours, Header: "Forwarded"}, refTrusted(refForwarded)},
	{"Forwarded, count 1", ratelimit.IPConfig{ProxyCount: 1, Header: "Forwarded"}, refCount(1, refForwarded)},
	{"Forwarded, count 2", ratelimit.IPConfig{ProxyCount: 2, Header: "Forwarded"}, refCount(2, refForwarded)},

	{"edge", ratelimit.IPConfig{EdgeHeader: edgeHeader}, refEdge},
	{"edge, trusted", ratelimit.IPConfig{EdgeHeader: edgeHeader, TrustedProxies: ours}, refEdgeOfOurs},

	{"unix", ratelimit.IPConfig{TrustUnix: true}, refTrustedUnix(false, refXForwardedFor)},
	{"unix and trusted", ratelimit.IPConfig{TrustUnix: true, TrustedProxies: ours}, refTrustedUnix(true, refXForwardedFor)},
	{"Forwarded, unix", ratelimit.IPConfig{TrustUnix: true, Header: "Forwarded"}, refTrustedUnix(false, refForwarded)},
	{"edge, unix", ratelimit.IPConfig{TrustUnix: true, EdgeHeader: edgeHeader}, refEdgeOfUnix},
}

// A refEntry is an address, or a reason for having none if it is not valid.
type refEntry struct {
	netip.Addr
	blank  bool // an element of nothing, which lists may have
	absent bool // nobody said anything
}

// key is the key that e makes, "" for none, and badRequest for something that is no address.
func (e refEntry) key() string {
	if e.absent {
		return ""
	}
	if !e.IsValid() {
		return badRequest
	}
	if e.Is4() {
		return "ip:" + e.String()
	}
	return "ip:" + netip.PrefixFrom(e.Addr, 64).Masked().String()
}

func refOurs(e refEntry) bool {
	return ours[0].Contains(e.Addr) || ours[1].Contains(e.Addr)
}

func refPeer(r *http.Request) refEntry {
	e := refAddr(r.RemoteAddr, true)
	e.absent = !e.IsValid()
	return e
}

func refUnix(r *http.Request) bool {
	return refSocket.MatchString(r.RemoteAddr)
}

// refTrusted goes from the client's end of the list: whatever is not ours is the client, until something
// nearer to us is not ours either.
func refTrusted(list func(*http.Request) []refEntry) func(*http.Request) refEntry {
	return func(r *http.Request) refEntry {
		peer := refPeer(r)
		if !refOurs(peer) {
			return peer
		}
		client, found := peer, false
		for _, e := range list(r) {
			if !found || !refOurs(e) {
				client, found = e, true
			}
		}
		return client
	}
}

// refTrustedUnix is refTrusted where peers on a Unix socket are proxies, too, and proxies is whether those of ours are.
func refTrustedUnix(proxies bool, list func(*http.Request) []refEntry) func(*http.Request) refEntry {
	return func(r *http.Request) refEntry {
		entries := list(r)
		switch {
		case !refUnix(r) && proxies:
			return refTrusted(list)(r)
		case !refUnix(r):
			return refPeer(r)
		case len(entries) == 0:
			return refEntry{absent: true}
		case !proxies:
			return entries[len(entries)-1]
		}
		client := entries[0]
		for _, e := range entries {
			if !refOurs(e) {
				client = e
			}
		}
		return client
	}
}

func refEdgeOfUnix(r *http.Request) refEntry {
	if !refUnix(r) {
		return refPeer(r)
	}
	return refEdge(r)
}

func refCount(n int, list func(*http.Request) []refEntry) func(*http.Request) refEntry {
	return func(r *http.Request) refEntry {
		entries := list(r)
		read := entries[max(0, len(entries)-n):]
		for _, e := range read {
			if !e.IsValid() {
				return refEntry{}
			}
		}
		if len(entries) < n {
			return refEntry{absent: true}
		}
		return read[0]
	}
}

func refEdge(r *http.Request) refEntry {
	lines := r.Header[edgeHeader]
	if len(lines) == 0 {
		return refEntry{absent: true}
	}
	last := refListElement(lines[len(lines)-1])
	if strings.Contains(lines[len(lines)-1], ",") {
		return refEntry{}
	}
	return last
}

func refEdgeOfOurs(r *http.Request) refEntry {
	if peer := refPeer(r); !refOurs(peer) {
		return peer
	}
	return refEdge(r)
}

// refList is the entries among elements. Of more than 64 elements, those before the last 64 are one that
// is invalid.
func refList(elements []refEntry) (entries []refEntry) {
	if beyond := len(elements) - 64; beyond > 0 {
		elements = append([]refEntry{{}}, elements[beyond:]...)
	}
	for _, e := range elements {
		if !e.blank {
			entries = append(entries, e)
		}
	}
	return entries
}

func refXForwardedFor(r *http.Request) []refEntry {
	var elements []refEntry
	for _, line := range r.Header["X-Forwarded-For"] {
		for s := range strings.SplitSeq(line, ",") {
			elements = append(elements, refListElement(s))
		}
	}
	return refList(elements)
}

func refListElement(s string) refEntry {
	if len(s) > 256 {
		return refEntry{}
	}
	s = strings.Trim(s, " \t")
	e := refAddr(s, true)
	e.blank = s == ""
	return e
}

func refForwarded(r *http.Request) []refEntry {
	var elements []refEntry
	for _, line := range r.Header["Forwarded"] {
		found := []refEntry{{}} // one that is invalid
		if len(line) <= 8192 {
			if read, ok := refForwardedLine(line); ok {
				found = read
			}
		}
		elements = append(elements, found...)
	}
	return refList(elements)
}

// refForwardedLine reads a line byte by byte. It reports false if the line breaks the grammar of RFC 7239,
// section 4.
func refForwardedLine(line string) (elements []refEntry, ok bool) {
	const (
		start = iota // of a pair, which may be missing
		inName
		atValue
		inToken
		inQuotes
		escaped
		after // a value
	)
	var (
		state       = start
		blank       = true // no pair and no semicolon in this element
		nodes       []string
		name, value string
	)
	endPair := func() {
		if strings.ToLower(name) == "for" {
			nodes = append(nodes, value)
		}
		name, value = "", ""
	}
	endElement := func() {
		e := refEntry{blank: blank}
		if len(nodes) == 1 {
			e = refAddr(nodes[0], false)
		}
		elements, nodes, blank = append(elements, e), nil, true
	}
	for _, c := range []byte(line + ",") { // the end of the line ends an element as a comma does
		space := c == ' ' || c == '\t'
		token := strings.IndexByte(refTokenBytes, c) >= 0
		text := c == '\t' || c >= ' ' && c != 0x7f
		switch {
		case state == start && space, state == after && space:
		case state == start && c == ';', state == after && c == ';', state == inToken && c == ';':
			if state == inToken {
				endPair()
			}
			state, blank = start, false
		case state == start && c == ',', state == after && c == ',', state == inToken && c == ',':
			if state == inToken {
				endPair()
			}
			endElement()
			state = start
		case state == start && token:
			state, blank, name = inName, false, string(c)
		case state == inName && token:
			name += string(c)
		case state == inName && c == '=':
			state = atValue
		case state == atValue && c == '"':
			state = inQuotes
		case state == atValue && token, state == inToken && token:
			state = inToken
			value += string(c)
		case state == inToken && space:
			endPair()
			state = after
		case state == inQuotes && c == '"':
			endPair()
			state = after
		case state == inQuotes && c == '\\':
			state = escaped
		case state == inQuotes && text, state == escaped && text:
			state = inQuotes
			value += string([]byte{c})
		default:
			return nil, false
		}
	}
	return elements, state == start
}

const refTokenBytes = "!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

var (
	refIPv4     = regexp.MustCompile(`^([0-9.]+)(?::([0-9]{1,5}))?$`)
	refBrackets = regexp.MustCompile(`^\[([0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*)(?:%[^\]]+)?\](?::([0-9]{1,5}))?$`)
	refSocket   = regexp.MustCompile(`^(?s:@.*|/.*)?$`)
	refIPv6     = regexp.MustCompile(`(?s)^([0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*)(?:%.+)?()$`)
)

// refAddr is the address in s: a bare IPv6 one only if bare.
func refAddr(s string, bare bool) refEntry {
	m := refIPv4.FindStringSubmatch(s)
	if m == nil {
		m = refBrackets.FindStringSubmatch(s)
	}
	if m == nil && bare {
		m = refIPv6.FindStringSubmatch(s)
	}
	if m == nil {
		return refEntry{}
	}
	port, _ := strconv.Atoi(m[2]) // "" is none
	addr, err := netip.ParseAddr(m[1])
	if err != nil || port > 65535 || addr.Unmap().IsUnspecified() {
		return refEntry{}
	}
	return refEntry{Addr: addr.Unmap()}
}
