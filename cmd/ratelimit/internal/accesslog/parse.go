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

// A Reader reads logs, one after another. One goroutine uses it. Make it with [NewReader].
type Reader struct {
	Format string // of the logs, "" until it is found out
	Bytes  int64  // that were read, after decompression

	quoted []string // the headers in the quoted fields of a combined log
	fields fields
	json   fastjson.Parser
	base   *http.Request // with the context of all requests

	timeText string // the last time
	time     int64
}

// NewReader returns a Reader. The error names what is wrong with cfg.
func NewReader(cfg Config) (*Reader, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	wanted, err := newFields(cfg.Fields)
	if err != nil {
		return nil, err
	}
	if cfg.Context == nil {
		cfg.Context = context.Background()
	}
	r := &Reader{Format: cfg.Format, fields: wanted, quoted: []string{"Referer", "User-Agent"}, base: new(http.Request).WithContext(cfg.Context)}
	switch {
	case len(cfg.Extra) > 0:
		r.Format = Combined
	case len(cfg.Fields) > 0:
		r.Format = JSON
	}
	for _, name := range cfg.Extra {
		r.quoted = append(r.quoted, textproto.CanonicalMIMEHeaderKey(name))
	}
	return r, nil
}

// A record is what a line says, as text.
type record struct {
	addr, host            string
	method, target, proto string
	status, size          string
	header                http.Header
}

// parse reads a line into e. The first line that can be read says which format the log has.
func (r *Reader) parse(line string, e *Entry) *Reason {
	line = strings.TrimSpace(line)
	switch {
	case line == "":
		return Empty
	case r.Format != "":
		return r.parseAs(r.Format, line, e)
	case line[0] == '{':
		r.Format = JSON
		return r.parseAs(JSON, line, e)
	}
	reason := r.parseAs(Combined, line, e)
	if reason == nil {
		r.Format = Combined
	} else if r.parseAs(Common, line, e) == nil {
		r.Format, reason = Common, nil
	}
	return reason
}

func (r *Reader) parseAs(format, line string, e *Entry) *Reason {
	of := record{header: make(http.Header)}
	var reason *Reason
	var rest string
	if format == JSON {
		reason = r.parseJSON(line, e, &of)
	} else if rest, reason = r.parseCLF(line, e, &of); reason == nil && format == Combined {
		reason = r.further(rest, &of)
	}
	if reason != nil {
		return reason
	}
	return r.finish(e, &of)
}

// finish makes the request of e.
func (r *Reader) finish(e *Entry, of *record) *Reason {
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
	q := new(http.Request)
	*q = *r.base
	q.URL = target
	q.Method, q.RequestURI = of.method, of.target
	q.Proto, q.ProtoMajor, q.ProtoMinor = of.proto, major, minor
	q.Header, q.Body = of.header, http.NoBody
	q.Host = cmp.Or(target.Host, of.host)
	q.RemoteAddr = remoteAddr(of.addr)
	e.Request = q
	return nil
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
