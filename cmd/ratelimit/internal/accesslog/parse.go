package accesslog

import (
	"cmp"
	"context"
	"net"
	"net/http"
	"net/netip"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"

	"github.com/valyala/fastjson"

	"github.com/go-tokenbucket/ratelimit/internal/requestheader"
)

// A parser reads lines. One goroutine uses it.
type parser struct {
	format string
	extra  []string // in canonical form
	fields fields
	json   fastjson.Parser
	base   *http.Request // with the context of all requests

	timeText string // the last time
	time     int64
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

// A record is what a line says, as text.
type record struct {
	addr, host            string
	method, target, proto string
	status, size          string
	header                http.Header
}

// setHeader sets a header of the request.
func (of *record) setHeader(name string, values ...string) {
	if name != "Host" {
		of.header[name] = values
	}
}

// parse reads a line into e. The first line that can be read says which format the log has.
func (p *parser) parse(line string, e *Entry) Reason {
	line = strings.TrimSpace(line)
	switch {
	case line == "":
		return Empty
	case p.format != "":
		return p.parseAs(p.format, line, e)
	case line[0] == '{':
		p.format = JSON
		return p.parseAs(JSON, line, e)
	}
	reason := p.parseAs(Combined, line, e)
	if reason == good {
		p.format = Combined
	} else if p.parseAs(Common, line, e) == good {
		p.format, reason = Common, good
	}
	return reason
}

func (p *parser) parseAs(format, line string, e *Entry) Reason {
	of := record{header: make(http.Header)}
	parse := p.parseJSON
	switch format {
	case Combined:
		parse = p.parseCombined
	case Common:
		parse = p.parseCommon
	}
	if reason := parse(line, e, &of); reason != good {
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
	target, err := parseURL(of.method, of.target)
	if err != nil {
		return WrongURL
	}
	r := new(http.Request)
	*r = *p.base
	r.URL = target
	r.Method, r.RequestURI = of.method, of.target
	r.Proto, r.ProtoMajor, r.ProtoMinor = of.proto, major, minor
	r.Header, r.Body = of.header, http.NoBody
	r.Host = cmp.Or(target.Host, of.host)
	r.RemoteAddr = remoteAddr(of.addr)
	e.Request = r
	return good
}

// remoteAddr returns the address of a log in the form of http.Request.RemoteAddr.
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
	n, err := strconv.ParseUint(text, 10, 62)
	return int64(n), err == nil
}

// versionOf reads a version of HTTP. Logs have "HTTP/2.0" and "HTTP/2".
func versionOf(text string) (major, minor int, ok bool) {
	switch text {
	case "":
		return 1, 1, true
	case "HTTP/2", "HTTP/3":
		text += ".0"
	}
	return http.ParseHTTPVersion(text)
}

// parseURL parses the target of a request as net/http does.
func parseURL(method, target string) (*url.URL, error) {
	if method == http.MethodConnect && !strings.HasPrefix(target, "/") {
		u, err := url.ParseRequestURI("http://" + target)
		if err == nil {
			u.Scheme = ""
		}
		return u, err
	}
	return url.ParseRequestURI(target)
}
