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
	name string
	cfg  ratelimit.IPConfig
	slow func(*http.Request) slowEntry
}

const edgeHeader = "Cf-Connecting-Ip"

// trustModels are in the order of the columns of clientIPCases.
var trustModels = []trustModel{
	{"peer", ratelimit.IPConfig{}, slowPeer},

	{"trusted", ratelimit.IPConfig{TrustedProxies: ours}, slowTrusted(slowXForwardedFor)},
	{"count 1", ratelimit.IPConfig{ProxyCount: 1}, slowCount(1, slowXForwardedFor)},
	{"count 2", ratelimit.IPConfig{ProxyCount: 2}, slowCount(2, slowXForwardedFor)},

	{"Forwarded, trusted", ratelimit.IPConfig{TrustedProxies: ours, Header: "Forwarded"}, slowTrusted(slowForwarded)},
	{"Forwarded, count 1", ratelimit.IPConfig{ProxyCount: 1, Header: "Forwarded"}, slowCount(1, slowForwarded)},
	{"Forwarded, count 2", ratelimit.IPConfig{ProxyCount: 2, Header: "Forwarded"}, slowCount(2, slowForwarded)},

	{"edge", ratelimit.IPConfig{EdgeHeader: edgeHeader}, slowEdge},
	{"edge, trusted", ratelimit.IPConfig{EdgeHeader: edgeHeader, TrustedProxies: ours}, slowEdgeOfOurs},

	{"unix", ratelimit.IPConfig{TrustUnix: true}, slowTrustedUnix(false, slowXForwardedFor)},
	{"unix and trusted", ratelimit.IPConfig{TrustUnix: true, TrustedProxies: ours}, slowTrustedUnix(true, slowXForwardedFor)},
	{"Forwarded, unix", ratelimit.IPConfig{TrustUnix: true, Header: "Forwarded"}, slowTrustedUnix(false, slowForwarded)},
	{"edge, unix", ratelimit.IPConfig{TrustUnix: true, EdgeHeader: edgeHeader}, slowEdgeOfUnix},
}

// A slowEntry is an address, or a reason for having none if it is not valid.
type slowEntry struct {
	netip.Addr
	blank  bool // an element of nothing, which lists may have
	absent bool // nobody said anything
}

// key is the key that e makes, "" for none, and badRequest for something that is no address.
func (e slowEntry) key() string {
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

func slowOurs(e slowEntry) bool { return ours[0].Contains(e.Addr) || ours[1].Contains(e.Addr) }

func slowPeer(r *http.Request) slowEntry {
	e := slowAddr(r.RemoteAddr, true)
	e.absent = !e.IsValid()
	return e
}

func slowUnix(r *http.Request) bool {
	return slowSocket.MatchString(r.RemoteAddr)
}

// slowTrusted goes from the client's end of the list: whatever is not ours is the client, until something
// nearer to us is not ours either.
func slowTrusted(list func(*http.Request) []slowEntry) func(*http.Request) slowEntry {
	return func(r *http.Request) slowEntry {
		peer := slowPeer(r)
		if !slowOurs(peer) {
			return peer
		}
		client, found := peer, false
		for _, e := range list(r) {
			if !found || !slowOurs(e) {
				client, found = e, true
			}
		}
		return client
	}
}

// slowTrustedUnix is slowTrusted where peers on a Unix socket are proxies, too, and proxies is whether those of ours are.
func slowTrustedUnix(proxies bool, list func(*http.Request) []slowEntry) func(*http.Request) slowEntry {
	return func(r *http.Request) slowEntry {
		entries := list(r)
		switch {
		case !slowUnix(r) && proxies:
			return slowTrusted(list)(r)
		case !slowUnix(r):
			return slowPeer(r)
		case len(entries) == 0:
			return slowEntry{absent: true}
		case !proxies:
			return entries[len(entries)-1]
		}
		client := entries[0]
		for _, e := range entries {
			if !slowOurs(e) {
				client = e
			}
		}
		return client
	}
}

func slowEdgeOfUnix(r *http.Request) slowEntry {
	if !slowUnix(r) {
		return slowPeer(r)
	}
	return slowEdge(r)
}

func slowCount(n int, list func(*http.Request) []slowEntry) func(*http.Request) slowEntry {
	return func(r *http.Request) slowEntry {
		entries := list(r)
		read := entries[max(0, len(entries)-n):]
		for _, e := range read {
			if !e.IsValid() {
				return slowEntry{}
			}
		}
		if len(entries) < n {
			return slowEntry{absent: true}
		}
		return read[0]
	}
}

func slowEdge(r *http.Request) slowEntry {
	lines := r.Header[edgeHeader]
	if len(lines) == 0 {
		return slowEntry{absent: true}
	}
	last := slowListElement(lines[len(lines)-1])
	if strings.Contains(lines[len(lines)-1], ",") {
		return slowEntry{}
	}
	return last
}

func slowEdgeOfOurs(r *http.Request) slowEntry {
	if peer := slowPeer(r); !slowOurs(peer) {
		return peer
	}
	return slowEdge(r)
}

// slowList is the entries among elements. Of more than 64 elements, those before the last 64 are one that
// is invalid.
func slowList(elements []slowEntry) (entries []slowEntry) {
	if beyond := len(elements) - 64; beyond > 0 {
		elements = append([]slowEntry{{}}, elements[beyond:]...)
	}
	for _, e := range elements {
		if !e.blank {
			entries = append(entries, e)
		}
	}
	return entries
}

func slowXForwardedFor(r *http.Request) []slowEntry {
	var elements []slowEntry
	for _, line := range r.Header["X-Forwarded-For"] {
		for s := range strings.SplitSeq(line, ",") {
			elements = append(elements, slowListElement(s))
		}
	}
	return slowList(elements)
}

func slowListElement(s string) slowEntry {
	if len(s) > 256 {
		return slowEntry{}
	}
	s = strings.Trim(s, " \t")
	e := slowAddr(s, true)
	e.blank = s == ""
	return e
}

func slowForwarded(r *http.Request) []slowEntry {
	var elements []slowEntry
	for _, line := range r.Header["Forwarded"] {
		found := []slowEntry{{}} // one that is invalid
		if len(line) <= 8192 {
			if read, ok := slowForwardedLine(line); ok {
				found = read
			}
		}
		elements = append(elements, found...)
	}
	return slowList(elements)
}

// slowForwardedLine reads a line byte by byte. It reports false if the line breaks the grammar of RFC 7239,
// section 4.
func slowForwardedLine(line string) (elements []slowEntry, ok bool) {
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
		e := slowEntry{blank: blank}
		if len(nodes) == 1 {
			e = slowAddr(nodes[0], false)
		}
		elements, nodes, blank = append(elements, e), nil, true
	}
	for _, c := range []byte(line + ",") { // the end of the line ends an element as a comma does
		space := c == ' ' || c == '\t'
		token := strings.IndexByte(slowTokenBytes, c) >= 0
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

const slowTokenBytes = "!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

var (
	slowIPv4     = regexp.MustCompile(`^([0-9.]+)(?::([0-9]{1,5}))?$`)
	slowBrackets = regexp.MustCompile(`^\[([0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*)(?:%[^\]]+)?\](?::([0-9]{1,5}))?$`)
	slowSocket   = regexp.MustCompile(`^(?s:@.*|/.*)?$`)
	slowIPv6     = regexp.MustCompile(`(?s)^([0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*)(?:%.+)?()$`)
)

// slowAddr is the address in s: a bare IPv6 one only if bare.
func slowAddr(s string, bare bool) slowEntry {
	m := slowIPv4.FindStringSubmatch(s)
	if m == nil {
		m = slowBrackets.FindStringSubmatch(s)
	}
	if m == nil && bare {
		m = slowIPv6.FindStringSubmatch(s)
	}
	if m == nil {
		return slowEntry{}
	}
	port, _ := strconv.Atoi(m[2]) // "" is none
	addr, err := netip.ParseAddr(m[1])
	if err != nil || port > 65535 || addr.Unmap().IsUnspecified() {
		return slowEntry{}
	}
	return slowEntry{Addr: addr.Unmap()}
}
