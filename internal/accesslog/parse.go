package accesslog

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"

	"github.com/go-tokenbucket/ratelimit/internal/requestheader"
)

// A parser reads lines. One goroutine uses it.
type parser struct {
	format string
	extra  []string // in canonical form
	fields *fields
	base   *http.Request // with the context of all requests

	// The last time and the last address, because the next line often has the same.
	timeText, addrText string
	time               int64
	remote             string
}

func newParser(cfg Config) (*parser, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	wanted, err := newFields(cfg.Fields)
	if err != nil {
		return nil, err
	}
	p := &parser{format: cfg.Format, fields: wanted}
	switch {
	case len(cfg.Extra) > 0:
		p.format = Combined
	case len(cfg.Fields) > 0:
		p.format = JSON
	}
	for _, name := range cfg.Extra {
		p.extra = append(p.extra, textproto.CanonicalMIMEHeaderKey(name))
	}
	ctx := cfg.Context
	if ctx == nil {
		ctx = context.Background()
	}
	p.base = new(http.Request).WithContext(ctx)
	return p, nil
}

// own is what the request of an Entry is made of. It is used again for a later line.
type own struct {
	url    url.URL
	header http.Header
	values []string
}

// A record is what a line says, as text.
type record struct {
	addr, host            string
	method, target, proto string
	status, size          string
}

// formatOf finds out the format of a log from its first lines.
func (p *parser) formatOf(text string) string {
	votes := map[string]int{}
	trial := *p
	var e Entry
	for range 100 {
		var line string
		line, text, _ = strings.Cut(text, "\n")
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		if line[0] == '{' {
			votes[JSON]++
			continue
		}
		for _, format := range []string{Combined, Common} {
			trial.format = format
			if trial.parse(line, &e) == good {
				votes[format]++
				break
			}
		}
	}
	best := Combined
	for _, format := range []string{JSON, Common} {
		if votes[format] > votes[best] {
			best = format
		}
	}
	return best
}

// parse reads a line into e.
func (p *parser) parse(line string, e *Entry) Reason {
	if strings.TrimSpace(line) == "" {
		return Empty
	}
	if e.Request == nil {
		e.Request = new(http.Request)
		e.own.header = make(http.Header)
	}
	clear(e.own.header)
	e.own.values = e.own.values[:0]
	var of record
	var reason Reason
	if p.format == JSON {
		reason = p.parseJSON(line, e, &of)
	} else {
		reason = p.parseCLF(line, e, &of)
	}
	if reason != good {
		return reason
	}
	return p.finish(e, &of)
}

// finish makes the request of e.
func (p *parser) finish(e *Entry, of *record) Reason {
	if of.addr == "" {
		return NoAddress
	}
	var ok bool
	if e.Status, ok = statusOf(of.status); !ok {
		return WrongStatus
	}
	if e.Bytes, ok = sizeOf(of.size); !ok {
		return WrongSize
	}
	if !requestheader.IsToken(of.method) {
		return WrongRequest
	}
	major, minor, ok := versionOf(of.proto)
	if !ok {
		return WrongRequest
	}
	r := e.Request
	*r = *p.base
	if !parseURL(&e.own.url, of.method, of.target) {
		return WrongURL
	}
	r.URL = &e.own.url
	r.Method, r.RequestURI = of.method, of.target
	r.Proto, r.ProtoMajor, r.ProtoMinor = of.proto, major, minor
	r.Header, r.Body = e.own.header, http.NoBody
	r.Host = of.host
	if r.URL.Host != "" {
		r.Host = r.URL.Host
	}
	r.RemoteAddr = p.remoteAddr(of.addr)
	return good
}

// remoteAddr returns the address of a log in the form of http.Request.RemoteAddr.
func (p *parser) remoteAddr(addr string) string {
	if addr == p.addrText && p.remote != "" {
		return p.remote
	}
	p.addrText, p.remote = addr, remoteAddr(addr)
	return p.remote
}

func remoteAddr(addr string) string {
	if addr == "unix:" { // nginx's name for a peer on a Unix socket
		return "@"
	}
	bare := strings.TrimSuffix(strings.TrimPrefix(addr, "["), "]")
	if _, err := netip.ParseAddr(bare); err == nil {
		return net.JoinHostPort(bare, "0")
	}
	if _, err := netip.ParseAddrPort(addr); err == nil {
		return addr
	}
	return addr + ":0" // a host name, of which keys know nothing
}

func statusOf(text string) (int, bool) {
	if text == "" || text == "-" || text == "0" || text == "000" {
		return 0, true
	}
	n, err := strconv.Atoi(text)
	return n, err == nil && len(text) == 3 && n >= 100
}

func sizeOf(text string) (int64, bool) {
	if text == "" || text == "-" {
		return 0, true
	}
	var n int64
	for i := range len(text) {
		c := text[i]
		if c < '0' || c > '9' || n > (1<<62)/10 {
			return 0, false
		}
		n = 10*n + int64(c-'0')
	}
	return n, true
}

// versionOf reads a version of HTTP. Logs have "HTTP/2.0" and "HTTP/2".
func versionOf(text string) (major, minor int, ok bool) {
	switch text {
	case "HTTP/1.1", "":
		return 1, 1, true
	case "HTTP/1.0":
		return 1, 0, true
	case "HTTP/2.0", "HTTP/2":
		return 2, 0, true
	case "HTTP/3.0", "HTTP/3":
		return 3, 0, true
	}
	return http.ParseHTTPVersion(text)
}

// parseURL sets u to the target of a request, as net/http does.
func parseURL(u *url.URL, method, target string) bool {
	if method == http.MethodConnect && !strings.HasPrefix(target, "/") {
		parsed, err := url.ParseRequestURI("http://" + target)
		if err != nil {
			return false
		}
		*u = *parsed
		u.Scheme = ""
		return true
	}
	if end, plain := plainTarget(target); plain {
		*u = url.URL{Path: target[:end]}
		if end < len(target) {
			u.RawQuery = target[end+1:]
			u.ForceQuery = u.RawQuery == ""
		}
		return true
	}
	parsed, err := url.ParseRequestURI(target)
	if err != nil {
		return false
	}
	*u = *parsed
	return true
}

// plainTarget reports whether target is a path with at most a query, of which net/url changes nothing. The path ends at
// end.
func plainTarget(target string) (end int, plain bool) {
	if len(target) == 0 || target[0] != '/' || strings.HasPrefix(target, "//") {
		return 0, false
	}
	for i := range len(target) {
		c := target[i]
		switch {
		case 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '/' || c == '-' || c == '_' || c == '.' || c == '~':
		case c == '?':
			for j := i + 1; j < len(target); j++ {
				if c := target[j]; c <= ' ' || c >= 0x7f {
					return 0, false
				}
			}
			return i, true
		default:
			return 0, false
		}
	}
	return len(target), true
}

// setHeader sets a header of e's request.
func (e *Entry) setHeader(name string, values ...string) {
	if name == "Host" {
		return
	}
	from := len(e.own.values)
	e.own.values = append(e.own.values, values...)
	e.own.header[name] = e.own.values[from:len(e.own.values):len(e.own.values)]
}
